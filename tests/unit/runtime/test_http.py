import asyncio
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

import runtime.http
from runtime.clock import ManualClock
from runtime.errors import ConfigError, PortInUse
from runtime.health import Health
from runtime.http import HttpServer
from runtime.metrics import CommonMetrics


@pytest.fixture
async def server():
    clock = ManualClock()
    made = HttpServer(CommonMetrics("guard").registry, Health(20.0, clock.monotonic()), clock)
    made.clock, made.health = clock, made._health
    await made.start("127.0.0.1", 0)
    yield made
    await made.close()


async def ask(server: HttpServer, request: bytes) -> tuple[str, dict[str, str], str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    async with asyncio.timeout(10.0):
        answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


async def get(server: HttpServer, path: str) -> tuple[str, str]:
    status, headers, body = await ask(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert int(headers["Content-Length"]) == len(body.encode())
    return status, body


async def test_healthz_goes_from_200_to_503_when_the_loop_stalls(server):
    assert await get(server, "/healthz") == ("HTTP/1.1 200 OK", "last tick 0.0 s ago\n")
    await server.clock.advance(21.0)
    assert await get(server, "/healthz") == ("HTTP/1.1 503 Error", "last tick 21.0 s ago, limit 20.0 s\n")


async def test_readyz_says_what_is_missing(server):
    assert await get(server, "/readyz") == ("HTTP/1.1 200 OK", "ready\n")
    server.health.require("bus", "not connected")
    assert await get(server, "/readyz?verbose") == ("HTTP/1.1 503 Error", "bus: not connected\n")


async def test_metrics_are_what_prometheus_reads(server):
    status, body = await get(server, "/metrics")
    assert status == "HTTP/1.1 200 OK"
    names = {family.name for family in text_string_to_metric_families(body)}
    assert {"trimtab_build_info", "trimtab_messages_dropped", "process_resident_memory_bytes"} <= names


async def test_head_has_the_head_only(server):
    status, headers, body = await ask(server, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 200 OK", "")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"POST /metrics HTTP/1.1", "405"), (b"GET /nothing HTTP/1.1", "404"), (b"", "405"), (b"\xff", "405")],
)
async def test_other_requests_are_refused(server, request_line, status):
    assert (await ask(server, request_line + b"\r\n\r\n"))[0].split()[1] == status


async def test_a_line_without_end_costs_its_client_only(server):
    assert (await ask(server, b"GET /" + b"x" * 100_000))[0] == ""
    assert (await get(server, "/healthz"))[0] == "HTTP/1.1 200 OK"


async def test_a_client_that_says_nothing_is_let_go(server, monkeypatch):
    monkeypatch.setattr(runtime.http, "_TIMEOUT_SECONDS", 0.01)
    assert (await ask(server, b"GET /healthz HTTP/1.1\r\n"))[0] == ""


async def test_a_port_in_use_names_port_and_flag():
    clock = ManualClock()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = HttpServer(CommonMetrics("guard").registry, Health(20.0, 0.0), clock)
        with pytest.raises(PortInUse) as caught:
            await server.start("127.0.0.1", port)
    assert str(caught.value) == (
        f"http: cannot listen on 127.0.0.1:{port}: another process does; "
        f"stop it, or set --http-port (0 picks a free one)"
    )
    await server.close()


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("[", 0)])
async def test_an_address_that_is_not_ours_is_a_setting_to_change(host, port):
    server = HttpServer(CommonMetrics("guard").registry, Health(20.0, 0.0), ManualClock())
    with pytest.raises(ConfigError, match=r"^http\.host: cannot listen on .*set http\.host") as caught:
        await server.start(host, port)
    assert len(str(caught.value).splitlines()) == 1
