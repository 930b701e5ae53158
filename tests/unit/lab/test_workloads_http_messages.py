from http import HTTPStatus

import pytest

from lab.workloads.http_messages import BadRequestError, Request, Response, format_response, parse_head


def test_a_request_is_its_path_what_it_accepts_and_whether_the_connection_stays():
    head = b"GET /work?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain "
    assert parse_head(head) == Request("/work", "text/plain", keep_alive=True)


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close", False),
        (b"GET / HTTP/1.0", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive", True),
    ],
)
def test_the_connection_stays_as_the_version_and_the_header_say(head, keep_alive):
    assert parse_head(head).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET /", 400),
        (b"GET  / HTTP/1.1\r\nHost: a", 400),
        (b"GET http://a/ HTTP/1.1\r\nHost: a", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost a", 400),
        (b"GET / HTTP/1.1\r\nHost : a", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nX: b", 400),
        (b"\xff\xfe / HTTP/1.1\r\nHost: a", 405),
        (b"POST / HTTP/1.1\r\nHost: a", 405),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", 413),
        (b"GET / HTTP/2.0\r\nHost: a", 505),
    ],
)
def test_what_is_no_plain_get_is_refused_with_its_status(head, status):
    with pytest.raises(BadRequestError) as refused:
        parse_head(head)
    assert refused.value.status == status


def test_a_response_says_its_length_and_whether_the_connection_stays():
    raw = format_response(Response(HTTPStatus.OK, b"done\n"), keep_alive=True)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 5" in head
    assert b"\r\nConnection: keep-alive" in head
    assert body == b"done\n"
    assert b"Connection: close" in format_response(Response(HTTPStatus.OK, b""), keep_alive=False)


def test_method_not_allowed_names_the_method_that_is():
    assert b"\r\nAllow: GET\r\n" in format_response(Response(HTTPStatus.METHOD_NOT_ALLOWED, b""), keep_alive=False)
