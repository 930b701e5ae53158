import asyncio
import contextlib
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from lab.workloads.http_messages import Response
from lab.workloads.http_server import MAX_HEAD_BYTES, HttpServer, listen, port_of
from lab.workloads.metrics import metrics_routes
from lab.workloads.process import WorkloadError


@contextlib.asynccontextmanager
async def serving(routes):
    listener = listen("127.0.0.1", 0)
    server = HttpServer(routes)
    await server.start(listener)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    try:
        yield server, reader, writer
    finally:
        writer.close()
        await server.close(0)


def get(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


async def read_response(reader):
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(head.split(" ")[1]), head, await reader.readexactly(length)


async def test_one_connection_serves_request_after_request():
    async with serving(metrics_routes(CollectorRegistry())) as (_, reader, writer):
        for _ in range(3):
            writer.write(get("/healthz"))
            assert (await read_response(reader))[::2] == (200, b"ok\n")


async def test_pipelined_requests_are_answered_in_order_although_the_first_takes_longer():
    held = []
    routes = {
        "/slow": lambda request, reply: held.append(reply),
        "/fast": lambda request, reply: reply(Response(HTTPStatus.OK, b"fast")),
        "/release": lambda request, reply: (
            held.pop()(Response(HTTPStatus.OK, b"slow")),
            reply(Response(HTTPStatus.OK, b"")),
        ),
    }
    async with serving(routes) as (_server, reader, writer):
        writer.write(get("/slow") + get("/fast"))
        port = writer.get_extra_info("peername")[1]
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        await _until_received(other_reader, other_writer, held)
        other_writer.close()
        assert (await read_response(reader))[2] == b"slow"
        assert (await read_response(reader))[2] == b"fast"


async def _until_received(reader, writer, held):
    while not held:
        writer.write(get("/nothing"))
        assert (await read_response(reader))[0] == 404
    writer.write(get("/release"))
    await read_response(reader)


async def test_a_request_may_come_in_any_pieces():
    async with serving(metrics_routes(CollectorRegistry())) as (_, reader, writer):
        for piece in (b"\r\nGET /hea", b"lthz HTTP/1.1\r", b"\nHost: a\r\n\r", b"\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert (await read_response(reader))[0] == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3 * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"x" * MAX_HEAD_BYTES, 431),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ],
)
async def test_a_bad_request_is_answered_and_its_connection_closed_but_not_the_server(raw, status):
    async with serving(metrics_routes(CollectorRegistry())) as (_, reader, writer):
        writer.write(raw)
        assert (await read_response(reader))[0] == status
        with contextlib.suppress(ConnectionResetError):  # what was sent beyond the limit was never read
            assert await reader.read() == b""
        port = writer.get_extra_info("peername")[1]
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        other_writer.write(get("/healthz", "Connection: close"))
        assert (await read_response(other_reader))[0] == 200
        assert await other_reader.read() == b""
        other_writer.close()


async def test_metrics_come_in_the_format_that_the_scraper_accepts():
    registry = CollectorRegistry()
    Counter("blocks", "Blocks.", registry=registry).inc(3)
    async with serving(metrics_routes(registry)) as (_, reader, writer):
        writer.write(get("/metrics"))
        _, head, body = await read_response(reader)
        assert "Content-Type: text/plain" in head
        assert b"blocks_total 3.0" in body
        writer.write(get("/metrics", "Accept: application/openmetrics-text; version=1.0.0"))
        _, head, body = await read_response(reader)
        assert "Content-Type: application/openmetrics-text" in head
        assert body.endswith(b"# EOF\n")


async def test_closing_lets_a_request_in_hand_finish():
    replies = asyncio.Queue()
    async with serving({"/slow": lambda request, reply: replies.put_nowait(reply)}) as (server, reader, writer):
        writer.write(get("/slow"))
        reply = await replies.get()
        closing = asyncio.create_task(server.close(10))
        await asyncio.sleep(0)
        assert not closing.done()
        reply(Response(HTTPStatus.OK, b"late"))
        assert (await read_response(reader))[2] == b"late"
        await closing
        assert await reader.read() == b""


async def test_a_reply_to_a_client_that_is_gone_is_dropped():
    replies = asyncio.Queue()
    async with serving({"/slow": lambda request, reply: replies.put_nowait(reply)}) as (server, _reader, writer):
        writer.write(get("/slow"))
        reply = await replies.get()
        writer.transport.abort()
        await server.close(10)  # returns, since nobody waits for the answer any more
        reply(Response(HTTPStatus.OK, b"nobody reads this"))


def test_a_port_in_use_is_one_line_that_names_it():
    with listen("127.0.0.1", 0) as taken:
        port = port_of(taken)
        with pytest.raises(WorkloadError) as refused:
            listen("127.0.0.1", port)
    assert str(refused.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use"
