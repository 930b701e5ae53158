"""HTTP/1.1 requests and responses of the workloads as values and as bytes. Pure."""

from http import HTTPStatus
from typing import NamedTuple


class Request(NamedTuple):
    """A request that was read completely. `received_at` is on the loop's clock, in seconds."""

    path: str
    accept: str
    keep_alive: bool
    received_at: float = 0.0


class Response(NamedTuple):
    """What a handler answers."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class BadRequestError(ValueError):
    """A request that is answered with `status` and the end of its connection."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def parse_head(head: bytes) -> Request:
    """The request in `head`, which ends before the empty line. Raises BadRequestError (RFC 9112)."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/"):  # noqa: PLR2004  # method, target, version
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line:
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    if version == "HTTP/1.1" and "host" not in headers:
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if method != "GET":
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED)
    options = {option.strip() for option in headers.get("connection", "").lower().split(",")}
    keep_alive = "keep-alive" in options if version == "HTTP/1.0" else "close" not in options
    return Request(target.partition("?")[0], headers.get("accept", ""), keep_alive)


def format_response(response: Response, *, keep_alive: bool) -> bytes:
    """The bytes on the wire."""
    allow = "Allow: GET\r\n" if response.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n{allow}"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n\r\n"
    ).encode("latin-1") + response.body
