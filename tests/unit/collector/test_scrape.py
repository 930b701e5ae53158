"""Scraping over real sockets: one endpoint can only ever cost itself."""

import asyncio
import gc
import gzip
import math
import os
import socket
import threading
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries
from services.collector.core.targets import Target
from services.collector.sources.scrape import Scraper, _CrowdedError, _Round
from services.collector.sources.tls import TlsContext
from tests.unit.collector.endpoints import (
    PAGE,
    TLS_FILES,
    Endpoint,
    dripping,
    endless,
    response,
    running,
    server_tls,
    silent,
)

INF = math.inf
GOOD = HistogramPage("req_seconds", {(): {0.1: 90.0, INF: 100.0}})
LIMIT = 4 << 20


@asynccontextmanager
async def scraper(**fields):
    options = {"timeout_seconds": 5.0, "max_bytes": LIMIT, "concurrency": 16, "metrics": ("req_seconds",)}
    made = Scraper(**{**options, **fields})
    try:
        yield made
    finally:
        await made.close()


def pod(name, url, metric=None, unit=None):
    return Target(name, url, metric, unit)


async def scraped(endpoint, **fields):
    async with running(endpoint), scraper(**fields) as made:
        return await made.scrape([pod("a", endpoint.url)])


def too_large(limit):
    return f"body too large: more than {limit} bytes; collector.scrape_max_bytes allows more"


def sockets():
    def target(fd):
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return ""

    return sum(target(fd).startswith("socket:") for fd in os.listdir("/proc/self/fd"))


async def test_a_page_becomes_the_pods_latency():
    assert await scraped(Endpoint()) == ({"a": GOOD}, {})


async def test_no_targets_are_no_requests():
    async with scraper() as made:
        assert await made.scrape([]) == ({}, {})


async def test_a_pods_own_metric_goes_before_the_usual_names_and_its_unit_before_the_names():
    page = PAGE.replace(b"req_", b"own_") + PAGE
    async with running(Endpoint(response(page))) as endpoint, scraper() as made:
        pages, _ = await made.scrape(
            [pod("a", endpoint.url, "own_seconds"), pod("b", endpoint.url), pod("c", endpoint.url, unit="milliseconds")]
        )
    assert pages == {
        "a": HistogramPage("own_seconds", GOOD.series),
        "b": GOOD,
        "c": HistogramPage("req_seconds", {(): {0.0001: 90.0, INF: 100.0}}),
    }


async def test_pm_01_a_summary_that_saw_nothing_is_a_page_with_its_count():
    page = b'req_seconds{quantile="0.95"} NaN\nreq_seconds{quantile="0.99"} NaN\nreq_seconds_sum 81.5\nreq_seconds_count 407\n'
    pages, errors = await scraped(Endpoint(response(page)))
    assert (pages, errors) == ({"a": SummaryPage("req_seconds", {(): SummarySeries(407.0, {})})}, {})


@pytest.mark.parametrize(
    "content_type", ["application/openmetrics-text; version=1.0.0; charset=utf-8", "APPLICATION/OPENMETRICS-TEXT"]
)
async def test_pm_06_the_format_is_what_the_content_type_says_in_any_case(content_type):
    pages, errors = await scraped(Endpoint(response(PAGE, content_type=content_type)))
    assert (pages, errors) == ({}, {"a": "unreadable: an OpenMetrics page without # EOF at its end: it was cut off"})
    assert await scraped(Endpoint(response(PAGE + b"# EOF\n", content_type=content_type))) == ({"a": GOOD}, {})


async def test_pm_12_one_pod_is_asked_once_a_round():
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        await made.scrape([pod("a", endpoint.url)])
        assert len(endpoint.requests) == 1


async def test_the_request_says_what_it_accepts_and_carries_no_cookies():
    endpoint = Endpoint(response(PAGE, headers="Set-Cookie: a=b\r\n"))
    async with running(endpoint), scraper() as made:
        url = endpoint.url.replace("127.0.0.1", "localhost")  # addresses never have cookies in aiohttp
        for _ in range(2):
            assert await made.scrape([pod("a", url)]) == ({"a": GOOD}, {})
    assert len(endpoint.requests) == 2
    assert b"openmetrics-text" in endpoint.requests[0]
    assert not any(b"Cookie" in request for request in endpoint.requests)


async def test_a_good_endpoints_connection_is_kept():
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        for _ in range(5):
            await made.scrape([pod("a", endpoint.url)])
    assert (len(endpoint.requests), endpoint.connections) == (5, 1)


async def test_redirects_are_not_followed():
    elsewhere = Endpoint()
    async with running(elsewhere):
        answer = response(b"", status="302 Found", headers=f"Location: {elsewhere.url}\r\n")
        pages, errors = await scraped(Endpoint(answer))
    assert (pages, errors) == ({}, {"a": "unreadable: HTTP status 302"})
    assert elsewhere.requests == []


@pytest.mark.parametrize("status", ["204 No Content", "404 Not Found", "500 Internal Server Error"])
async def test_only_status_200_is_an_answer(status):
    pages, errors = await scraped(Endpoint(response(b"" if status.startswith("204") else PAGE, status=status)))
    assert pages == {}
    assert errors == {"a": f"unreadable: HTTP status {status[:3]}"}


async def test_a_refused_connection_is_unreachable():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        async with scraper() as made:
            port = reserved.getsockname()[1]
            pages, errors = await made.scrape([pod("a", f"http://127.0.0.1:{port}/")])
    assert pages == {}
    assert errors["a"] == f"unreachable: 127.0.0.1:{port}: Connection refused; check address and port"


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"garbage\r\n\r\n", "unreadable: "),
        (b"", "unreachable: the pod closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nreq_sec", "unreadable: "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "un"),
        (response(b"\xff\xfe"), "unreadable: "),
        (response(PAGE + b'x{a="caf\xe9"} 1\n'), "unreadable: "),
        (response(b"<html><body>It works!</body></html>", content_type="text/html"), "unreadable: no metrics page"),
        (response(PAGE, content_type="Text/HTML; charset=utf-8"), "unreadable: no metrics page, but Text/HTML"),
        (response(b'req_seconds_bucket{le="+Inf"} 5\n'), "no_buckets: "),
        (response(b'req_seconds_bucket{le="1"} 5\n'), "no_count: "),
        (response(b'req_seconds{quantile="0.5"} 5\n'), "no_quantiles: "),
        (
            response(b'req_seconds_bucket{le="1"} 0\nreq_seconds_bucket{le="+Inf"} 9\nreq_seconds_sum 9000\n'),
            "unit_suspect: ",
        ),
        (response(b""), "unreadable: an empty page"),
        (response(b"\n \n"), "unreadable: an empty page"),
        (response(b"\xef\xbb\xbf"), "unreadable: an empty page"),
        (response(b"other 1\n"), "no_metric: "),
        (response(PAGE, content_type="application/openmetrics-text"), "unreadable: an OpenMetrics page without # EOF"),
        (
            response(b'req_seconds_bucket{le="0.1"} 5\nreq_seconds_bucket{le="0.1"} 9\n'),
            "unreadable: req_seconds_bucket: two",
        ),
    ],
)
async def test_an_answer_that_is_none_has_a_word(answer, word):
    async def once(reader, writer):
        writer.write(answer)
        await writer.drain()

    pages, errors = await scraped(Endpoint(handle=once))
    assert pages == {}
    assert errors["a"].startswith(word)
    assert errors["a"].isprintable()
    assert len(errors["a"]) <= 200


async def test_a_unit_that_is_none_has_a_word():
    async with running(Endpoint()) as endpoint, scraper() as made:
        pages, errors = await made.scrape([pod("a", endpoint.url, "req_seconds", "\x1b[31m" + "m" * 5000)])
    assert pages == {}
    assert errors["a"].startswith("unit_unknown: ")
    assert errors["a"].isprintable()
    assert len(errors["a"]) <= 200


@pytest.mark.parametrize(
    "page",
    [
        "x" * 5000 + '_bucket{le="1"} 5\n',
        'req_seconds_bucket{a="\x1b[2J\r' + "x" * 300 + '"le="1"} 5\n',
        'req_seconds_bucket{a="\x1b[2J\r' + "\U000e0001" * 300 + '",a="",le="1"} 5\n',
        'req_seconds_bucket{le="\x1b\u202e' + "9" * 300 + '"} 5\n',
        'req_seconds_bucket{le="1"} ' + "Z" * 300 + "\n",
        'req_seconds_bucket{a="' + "x" * 5000 + '",le="1"} 5\n',
    ],
)
async def test_what_a_page_holds_does_not_get_out_of_the_errors_line(page):
    pages, errors = await scraped(Endpoint(response(page.encode())))
    assert pages == {}
    assert errors["a"].partition(":")[0] in ("unreadable", "no_metric")
    assert errors["a"].isprintable()
    assert len(errors["a"]) <= 200


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/\n", "http://[::1", "http://", "http://\ud800/", "nonsense"])
async def test_an_url_that_is_none_costs_itself(url):
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", url)])
    assert pages == {"a": GOOD}
    assert set(errors) == {"b"}


async def test_whatever_a_page_breaks_costs_itself(monkeypatch):
    def broken(page, metric, unit, names, *, believed):
        if metric == "evil":
            raise TypeError("an error that nobody thought of")
        return GOOD

    monkeypatch.setattr("services.collector.sources.scrape.find_latency", broken)
    async with running(Endpoint()) as endpoint, scraper() as made:
        pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", endpoint.url, "evil")])
    assert (pages, errors) == ({"a": GOOD}, {"b": "failed: TypeError"})


async def test_pages_are_read_in_one_thread_beside_the_event_loop(monkeypatch):
    threads = set()

    def read(page, metric, unit, names, *, believed):
        threads.add(threading.current_thread())
        return GOOD

    monkeypatch.setattr("services.collector.sources.scrape.find_latency", read)
    async with running(Endpoint()) as endpoint, scraper() as made:
        await made.scrape([pod(str(number), endpoint.url) for number in range(8)])
    (thread,) = threads
    assert thread is not threading.current_thread()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_no_more_than_so_many_are_asked_at_one_time():
    endpoint = Endpoint(handle=silent)
    async with running(endpoint), scraper(concurrency=3, timeout_seconds=1.0) as made:
        pages, errors = await made.scrape([pod(str(number), endpoint.url) for number in range(9)])
        assert endpoint.connections == 3
    assert pages == {}
    assert sorted(errors.values()) == ["queued"] * 6 + ["timeout"] * 3


async def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_not():
    body = PAGE + b"#" * (10_000 - len(PAGE))
    pages, errors = await scraped(Endpoint(response(body)), max_bytes=10_000)
    assert (pages, errors) == ({"a": GOOD}, {})
    pages, errors = await scraped(Endpoint(response(body + b"#")), max_bytes=10_000)
    assert (pages, errors) == ({}, {"a": f"unreadable: {too_large(10_000)}"})


async def test_pm_11_a_a_bomb_is_not_inflated():
    bomb = gzip.compress(b"\0" * (64 << 20))
    endpoint, good = Endpoint(response(bomb, headers="Content-Encoding: gzip\r\n")), Endpoint()
    async with running(endpoint, good), scraper(timeout_seconds=30.0) as made:
        await made.scrape([pod("b", good.url)])  # what is made once is made
        tracemalloc.start()
        try:
            pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", good.url)])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (pages, errors) == ({"b": GOOD}, {"a": f"unreadable: {too_large(LIMIT)}"})
    assert peak < 3 * LIMIT


async def test_pm_11_b_a_plain_body_under_a_gzip_header_is_an_error_of_that_pod():
    pages, errors = await scraped(Endpoint(response(PAGE, headers="Content-Encoding: gzip\r\n")))
    assert pages == {}
    assert errors["a"].startswith("unreadable: ")
    assert "\n" not in errors["a"]


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_page_is_read(encoding, compress):
    answer = response(compress(PAGE), headers=f"Content-Encoding: {encoding}\r\n")
    assert await scraped(Endpoint(answer)) == ({"a": GOOD}, {})


async def test_pm_11_a_body_without_end_is_cut_off_at_the_limit():
    good = Endpoint()
    async with running(good, Endpoint(handle=endless)) as (_, bad), scraper(timeout_seconds=30.0) as made:
        pages, errors = await made.scrape([pod("a", bad.url), pod("b", good.url)])
    assert (pages, errors) == ({"b": GOOD}, {"a": f"unreadable: {too_large(LIMIT)}"})


async def test_label_sets_that_change_on_every_scrape_cost_only_themselves():
    evil, good = Endpoint(), Endpoint()
    async with running(evil, good), scraper(timeout_seconds=30.0) as made:
        for scrape in range(3):
            lines = (f'req_seconds_bucket{{id="{scrape}-{n}",le="+Inf"}} 1\n' for n in range(10_000))
            evil.answer = response("".join(lines).encode())
            pages, errors = await made.scrape([pod("a", evil.url), pod("b", good.url)])
            many = "req_seconds_bucket: more than 2000 series; some label has too many values"
            assert (pages, errors) == ({"b": GOOD}, {"a": f"unreadable: {many}"})


@pytest.mark.timeout(60)
async def test_a_page_of_one_endless_line_costs_only_itself():
    line = b"req_seconds_bucket{" + b'le="1",' * 500_000
    async with running(Endpoint(response(line)), Endpoint()) as (evil, good), scraper(timeout_seconds=30.0) as made:
        pages, errors = await made.scrape([pod("a", evil.url), pod("b", good.url)])
    assert pages == {"b": GOOD}
    assert errors["a"].startswith("unreadable: req_seconds_bucket: cannot read")


@pytest.mark.parametrize("handle", [dripping, silent])
async def test_pm_07_a_slow_endpoint_is_cut_off_and_costs_only_itself(handle):
    slow, others = Endpoint(handle=handle), [Endpoint() for _ in range(10)]
    async with running(slow, *others), scraper(timeout_seconds=0.4) as made:
        fast = [pod(f"f{number}", endpoint.url) for number, endpoint in enumerate(others)]
        pages, errors = await made.scrape([pod("s", slow.url), *fast])
        assert errors == {"s": "timeout"}
        assert pages == {one.uid: GOOD for one in fast}
        await asyncio.wait_for(slow.closed_by_client.wait(), 10)


@pytest.mark.timeout(60)
async def test_pm_07_twenty_rounds_leave_no_sockets_and_no_threads():
    slow, others = Endpoint(handle=dripping), [Endpoint() for _ in range(10)]
    before = sockets()
    async with running(slow, *others) as _:
        async with scraper(timeout_seconds=0.4) as made:
            targets = [pod("s", slow.url), *(pod(f"f{n}", endpoint.url) for n, endpoint in enumerate(others))]
            counts = []
            for _ in range(20):
                _pages, errors = await made.scrape(targets)
                assert errors["s"] == "timeout"
                await asyncio.wait_for(slow.closed_by_client.wait(), 10)
                slow.closed_by_client.clear()
                counts.append((sockets(), threading.active_count()))
        assert slow.connections == 20
        assert all(endpoint.connections == 1 for endpoint in others)
        assert counts[-1] <= counts[1]
        for endpoint in others:
            await asyncio.wait_for(endpoint.closed_by_client.wait(), 10)
    async with asyncio.timeout(10):
        while sockets() > before:
            await asyncio.sleep(0)


async def test_many_slow_endpoints_do_not_hold_up_the_others_twice():
    slow, good = Endpoint(handle=silent), Endpoint()
    async with running(slow, good), scraper(timeout_seconds=0.3, concurrency=2) as made:
        targets = [*(pod(f"s{n}", slow.url) for n in range(4)), *(pod(f"f{n}", good.url) for n in range(4))]
        _, errors = await made.scrape(targets)
        assert sorted(errors.values()) == ["queued"] * 6 + ["timeout"] * 2
        for _ in range(3):
            pages, errors = await made.scrape(targets)
    assert set(pages) == {"f0", "f1", "f2", "f3"}
    assert set(errors) == {"s0", "s1", "s2", "s3"}


async def test_closing_twice_or_before_any_scrape_is_fine():
    async with scraper() as made:
        await made.close()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as made:
            made.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


def client_tls(cert=None, key=None, *, ca="ca.pem", verify=True):
    files = [name and f"{TLS_FILES}/{name}" for name in (ca, cert, key)]
    return TlsContext(ca_file=files[0], cert_file=files[1], key_file=files[2], verify=verify)


@ipv6
async def test_an_ipv6_address_is_reached():
    assert await scraped(Endpoint(host="::1")) == ({"a": GOOD}, {})


@ipv6
async def test_an_ipv6_address_is_reached_over_tls():
    assert await scraped(Endpoint(host="::1", tls=server_tls()), tls=client_tls()) == ({"a": GOOD}, {})


async def test_a_certificate_of_the_configured_authority_is_taken():
    assert await scraped(Endpoint(tls=server_tls()), tls=client_tls()) == ({"a": GOOD}, {})


@pytest.mark.parametrize(
    ("shown", "tls", "words"),
    [
        (("pod.pem", "pod.key"), None, "unable to get local issuer certificate"),
        (("stranger.pem", None), "ca.pem", "self-signed certificate"),
        (("named.pem", None), "ca.pem", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_a_certificate_that_nobody_vouches_for_is_refused_and_the_error_says_which_settings_matter(
    shown, tls, words
):
    pages, errors = await scraped(Endpoint(tls=server_tls(*shown)), tls=tls and client_tls(ca=tls))
    assert pages == {}
    assert errors["a"].startswith(f"tls: {words}")
    assert errors["a"].endswith("; collector.tls_ca_file, tls_server_name and tls_cert_file say who is trusted")


async def test_a_pod_may_have_to_go_by_a_name_of_its_own():
    options = {"tls": client_tls(), "tls_server_name": "pod.test"}
    assert await scraped(Endpoint(tls=server_tls("named.pem", None)), **options) == ({"a": GOOD}, {})
    assert await scraped(Endpoint(), **options) == ({"a": GOOD}, {})
    pages, errors = await scraped(Endpoint(tls=server_tls()), tls=client_tls(), tls_server_name="other.test")
    assert pages == {}
    assert errors["a"].startswith("tls: Hostname mismatch")


async def test_without_verification_any_certificate_is_taken():
    tls = client_tls(ca=None, verify=False)
    assert await scraped(Endpoint(tls=server_tls("stranger.pem", None)), tls=tls) == ({"a": GOOD}, {})


async def test_a_server_that_asks_for_a_certificate_is_shown_one():
    asking = server_tls(asks=True)
    assert await scraped(Endpoint(tls=asking), tls=client_tls("pod.pem", "pod.key")) == ({"a": GOOD}, {})
    assert await scraped(Endpoint(tls=asking), tls=client_tls("named.pem")) == ({"a": GOOD}, {})
    for shown in (None, "stranger.pem"):
        pages, errors = await scraped(Endpoint(tls=asking), tls=client_tls(shown))
        assert pages == {}
        assert errors["a"].partition(":")[0] in ("tls", "unreachable")


async def test_https_where_none_is_spoken_costs_itself():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(response(PAGE))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running(Endpoint()) as good, scraper() as made:
        pages, errors = await made.scrape([pod("a", f"https://127.0.0.1:{port}/"), pod("b", good.url)])
    server.close()
    assert pages == {"b": GOOD}
    assert errors["a"].startswith("tls: ")


async def test_a_new_authority_counts_from_the_next_scrape(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_bytes(await asyncio.to_thread(Path(TLS_FILES, "stranger.pem").read_bytes))
    tls = TlsContext(ca_file=str(file), cert_file=None, key_file=None, verify=True)
    async with running(Endpoint(tls=server_tls())) as endpoint, scraper(tls=tls) as made:
        _, errors = await made.scrape([pod("a", endpoint.url)])
        assert errors["a"].startswith("tls: ")
        file.write_bytes(await asyncio.to_thread(Path(TLS_FILES, "ca.pem").read_bytes))
        assert await made.scrape([pod("a", endpoint.url)]) == ({"a": GOOD}, {})


@pytest.mark.parametrize("path", ["/a b", "/a%20b", "/%zz", "/a\r\nX-Evil: 1", "/é", "/a#b", "/a?b=c d"])
async def test_an_odd_path_makes_one_clean_request(path):
    async with running(Endpoint()) as endpoint, scraper() as made:
        pages, _ = await made.scrape([pod("a", endpoint.url.replace("/metrics", path))])
    assert pages == {"a": GOOD}
    (request,) = endpoint.requests
    line = request.split(b"\r\n")[0]
    assert line.count(b" ") == 2
    assert line.startswith(b"GET /")
    assert b"\nX-Evil" not in request


async def test_a_page_that_is_larger_than_what_may_be_held_is_given_up_and_the_small_ones_are_read(monkeypatch):
    monkeypatch.setattr("services.collector.sources.scrape._HELD_BYTES", 3 * len(PAGE))
    large = Endpoint(response(PAGE + b"# " + b"x" * (10 * len(PAGE)) + b"\n"))
    async with running(large, Endpoint()) as (big, small), scraper() as made:
        pods = [pod("big", big.url), *(pod(str(number), small.url) for number in range(3))]
        pages, errors = await made.scrape(pods)
        assert set(pages) == {"0", "1", "2"}
        assert errors == {"big": "queued"}
        assert made._slow == {"big"}


async def test_a_round_that_is_closed_under_way_has_a_word_for_every_pod():
    async with running(Endpoint()) as endpoint, scraper() as made:
        made._reader.shutdown()
        pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", endpoint.url)])
        assert pages == {}
        assert {word.split(":", 1)[0] for word in errors.values()} == {"failed"}
        assert set(errors) == {"a", "b"}


async def test_a_page_of_another_metric_is_not_kept_in_memory(tmp_path):
    """An error that names itself in its own frame would keep its page until the collector of garbage comes by."""
    endpoint = Endpoint(response(b'req_seconds_bucket{le="+Inf"} 5\n# ' + b"x" * (1 << 20) + b"\n"))
    async with running(endpoint), scraper() as made:
        await made.scrape([pod("a", endpoint.url)])
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(8):
                _, errors = await made.scrape([pod("a", endpoint.url)])
                assert errors["a"].startswith("no_buckets: ")
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 4 << 20


def unframed(body, content_type="text/plain"):
    """An answer whose end is the end of the connection."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n".encode() + body


def once(answer):
    async def handle(reader, writer):
        writer.write(answer)
        await writer.drain()

    return Endpoint(handle=handle)


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"


async def test_a_page_without_a_length_that_stops_within_a_line_is_cut_off():
    words = "unreadable: a page without a length that does not end in a line feed: it may be cut off"
    for cut in (PAGE[:-1], PAGE[:-4], PAGE + b"x", b""):
        assert await scraped(once(unframed(cut))) == ({}, {"a": words})
    for whole in (PAGE, PAGE + b"\n", PAGE.replace(b"\n", b"\r\n")):
        assert await scraped(once(unframed(whole))) == ({"a": GOOD}, {})


async def test_a_page_with_a_length_may_end_without_a_line_feed():
    assert await scraped(Endpoint(response(PAGE[:-1]))) == ({"a": GOOD}, {})
    assert await scraped(once(CHUNKED % (len(PAGE) - 1, PAGE[:-1]))) == ({"a": GOOD}, {})


async def test_an_openmetrics_page_says_itself_where_it_ends():
    kind = "application/openmetrics-text; version=1.0.0"
    assert await scraped(once(unframed(PAGE + b"# EOF", kind))) == ({"a": GOOD}, {})
    pages, errors = await scraped(once(unframed(PAGE, kind)))
    assert (pages, errors) == ({}, {"a": "unreadable: an OpenMetrics page without # EOF at its end: it was cut off"})


async def test_a_byte_order_mark_is_no_part_of_the_first_line():
    page = PAGE.partition(b"\n")[2]
    assert await scraped(Endpoint(response(b"\xef\xbb\xbf" + page))) == ({"a": GOOD}, {})


DECLARED = b"# TYPE req_seconds histogram\n"


async def test_a_page_that_declares_its_metric_and_has_no_samples_yet_is_a_page():
    assert await scraped(Endpoint(response(DECLARED))) == ({"a": HistogramPage("req_seconds", {})}, {})


def counted(within, beyond, seconds, name="req_seconds"):
    """A histogram up to 1 s: so many requests within it and beyond it, which took so many seconds in all."""
    count = within + beyond
    buckets = f'{name}_bucket{{le="1"}} {within}\n{name}_bucket{{le="+Inf"}} {count}\n'
    return f"{buckets}{name}_sum {seconds}\n{name}_count {count}\n".encode()


OVERLOADED = counted(10, 90, 900)


async def words_of(*pages, uids="a", metrics=("req_seconds",), unit=None):
    """The word for each page that one endpoint shows in turn, to the pod of that uid; "page" for one that is taken."""
    endpoint = Endpoint()
    found = []
    async with running(endpoint), scraper(metrics=metrics) as made:
        for number, page in enumerate(pages):
            uid = uids[number % len(uids)]
            endpoint.answer = page if page.startswith(b"HTTP") else response(page)
            taken, errors = await made.scrape([pod(uid, endpoint.url, unit=unit)])
            found.append("page" if uid in taken else errors[uid].partition(":")[0])
    return found


async def test_pm_10_a_service_that_was_right_and_starts_anew_under_overload_is_heard():
    fine = counted(100, 0, 10)
    assert await words_of(OVERLOADED) == ["unit_suspect"]
    assert await words_of(fine, OVERLOADED, OVERLOADED) == ["page"] * 3
    assert await words_of(fine, DECLARED, counted(0, 1, 30), OVERLOADED) == ["page"] * 4
    assert await words_of(fine, response(b"", status="503 Away"), OVERLOADED) == ["page", "unreadable", "page"]
    assert await words_of(fine, b"up 1\n", OVERLOADED) == ["page", "unreadable", "page"]


async def test_pm_10_saturated_is_what_a_believed_page_says():
    endpoint = Endpoint(response(counted(100, 0, 10)))
    async with running(endpoint), scraper() as made:
        await made.scrape([pod("a", endpoint.url)])
        endpoint.answer = response(OVERLOADED)
        pages, errors = await made.scrape([pod("a", endpoint.url)])
    assert (pages, errors) == ({"a": HistogramPage("req_seconds", {(): {1.0: 10.0, INF: 100.0}})}, {})


async def test_pm_10_fewer_than_a_hundred_requests_prove_no_unit():
    assert await words_of(counted(99, 0, 10), OVERLOADED) == ["page", "unit_suspect"]
    assert await words_of(counted(50, 0, 5), counted(100, 0, 10), OVERLOADED) == ["page", "page", "page"]
    assert await words_of(counted(50, 0, 5), counted(99, 0, 10), OVERLOADED) == ["page", "page", "unit_suspect"]
    assert await words_of(DECLARED, OVERLOADED) == ["page", "unit_suspect"]


async def test_pm_10_a_unit_that_was_suspect_is_not_believed_later():
    assert await words_of(OVERLOADED, OVERLOADED) == ["unit_suspect"] * 2
    assert await words_of(counted(99, 0, 10), OVERLOADED, counted(99, 901, 9000)) == ["page", *["unit_suspect"] * 2]


async def test_pm_10_another_pod_and_another_metric_are_not_believed():
    fine = counted(100, 0, 10)
    assert await words_of(fine, OVERLOADED, uids="ab") == ["page", "unit_suspect"]
    names = ("req_seconds", "rpc_seconds")
    other = counted(10, 90, 900, "rpc_seconds")
    assert await words_of(fine, other, metrics=names) == ["page", "unit_suspect"]
    fine_other = counted(100, 0, 10, "rpc_seconds")
    assert await words_of(fine, fine_other, other, metrics=names) == ["page", "page", "page"]


async def test_pm_10_a_pod_that_was_gone_for_a_round_is_believed_anew():
    assert await words_of(counted(100, 0, 10), counted(100, 0, 10), OVERLOADED, uids="aba") == [
        "page",
        "page",
        "unit_suspect",
    ]


@pytest.mark.parametrize(
    ("page", "word"),
    [
        (b"up 1\n", "no_metric"),
        (b'req_seconds_bucket{le="+Inf"} 5\n', "no_buckets"),
        (b'req_seconds_bucket{le="1"} 5\n', "no_count"),
        (b'req_seconds{quantile="0.5"} 5\n', "no_quantiles"),
    ],
)
async def test_a_pod_that_had_its_metric_and_now_has_none_is_unreadable(page, word):
    assert await words_of(page, PAGE, page, page, PAGE) == [word, "page", "unreadable", "unreadable", "page"]
    assert await words_of(DECLARED, page) == ["page", "unreadable"]
    assert await words_of(PAGE, page, uids="ab") == ["page", word]


async def test_what_a_pod_had_before_is_said():
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        await made.scrape([pod("a", endpoint.url)])
        endpoint.answer = response(b"up 1\n")
        _, errors = await made.scrape([pod("a", endpoint.url)])
    words = "none of collector.latency_metrics on the page; it has no histogram; it had req_seconds before"
    assert errors == {"a": f"unreadable: {words}"}


async def hung_up(endpoint):
    await asyncio.wait_for(endpoint.closed_by_client.wait(), 10)
    endpoint.closed_by_client.clear()


async def test_who_was_queued_in_vain_is_asked_first_the_next_time():
    slow, good = Endpoint(handle=silent), Endpoint()
    async with running(slow, good), scraper(timeout_seconds=0.3, concurrency=1) as made:
        targets = [pod("s", slow.url), pod("a", good.url), pod("b", good.url)]
        pages, errors = await made.scrape(targets)
        assert (pages, errors) == ({}, {"s": "timeout", "a": "queued", "b": "queued"})
        await hung_up(slow)
        pages, errors = await made.scrape([pod("new", slow.url), *targets])
        await hung_up(slow)
    assert set(pages) == {"a", "b"}
    assert errors == {"new": "timeout", "s": "queued"}


async def test_of_the_slow_ones_who_was_queued_for_longest_is_asked_first_the_next_time():
    asked = []

    def hanging(name):
        async def handle(reader, writer):
            asked.append(name)
            await reader.read()

        return Endpoint(handle=handle)

    ends = {name: hanging(name) for name in "stu"}
    async with running(*ends.values()), scraper(timeout_seconds=0.3, concurrency=1) as made:
        for _ in range(6):
            _, errors = await made.scrape([pod(name, end.url) for name, end in ends.items()])
            assert sorted(errors.values()) == ["queued", "queued", "timeout"]
            await hung_up(ends[asked[-1]])
    assert sorted(asked[:3]) == sorted(asked[3:]) == ["s", "t", "u"]


@pytest.mark.parametrize(("timeout", "left", "word"), [(60.0, 0.2, "queued"), (0.4, 1.0, "timeout")])
async def test_who_got_its_turn_after_half_of_the_time_is_queued_and_not_slow(timeout, left, word):
    async with running(Endpoint(handle=silent)) as hangs, scraper(timeout_seconds=timeout) as made:
        now = _Round()
        await made._one(pod("a", hangs.url), asyncio.get_running_loop().time() + left, now)
        assert hangs.connections == 1
        assert now.errors == {"a": word}
        await hung_up(hangs)


async def test_bodies_in_flight_beyond_what_may_be_held_are_given_up_and_queue_last(monkeypatch):
    monkeypatch.setattr("services.collector.sources.scrape._HELD_BYTES", 64 << 10)
    async with running(Endpoint(handle=endless), Endpoint()) as (large, small), scraper(timeout_seconds=30.0) as made:
        pages, errors = await made.scrape([pod("a", large.url), pod("b", small.url)])
        assert (pages, errors) == ({"b": GOOD}, {"a": "queued"})
        assert (made._slow, made._waited) == ({"a"}, {})
        await hung_up(large)


@pytest.mark.parametrize(
    ("others", "size", "fits"), [(0, 0, True), (0, 1, True), (32 << 20, 0, True), (32 << 20, 1, False)]
)
async def test_where_there_is_no_room_bodies_of_up_to_a_mebibyte_still_come_in(others, size, fits):
    body = PAGE + b"#" * ((1 << 20) - len(PAGE) + size)
    async with running(Endpoint(response(body))) as endpoint, scraper() as made:
        now = _Round(coming_bytes=others)
        if fits:
            assert (await made._fetch(pod("a", endpoint.url), now)).body == body
        else:
            with pytest.raises(_CrowdedError):
                await made._fetch(pod("a", endpoint.url), now)
        assert now.coming_bytes == others
