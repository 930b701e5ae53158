import asyncio
import contextlib
import socket

import pytest

from lab.workloads.arrivals import Step, poisson_arrivals
from lab.workloads.http_client import ConnectionPool
from lab.workloads.open_loop import OpenLoop

REQUEST = b"GET /work HTTP/1.1\r\nHost: test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FakeServer:
    """Hands every request to `answer(number, writer)` and counts connections."""

    def __init__(self, answer):
        self._answer = answer
        self.requests = 0
        self.connections = 0
        self.disconnected = asyncio.Event()
        self._tasks = set()

    async def __call__(self, reader, writer):
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    self.requests += 1
                    await self._answer(self.requests, writer)
            self.disconnected.set()
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def answering(*responses):
    """Answers the n-th request with the n-th response, and the last one from then on."""

    async def answer(number, writer):
        response = responses[min(number, len(responses)) - 1]
        if response is None:
            writer.close()
        else:
            writer.write(response)

    return answer


async def silence(number, writer):
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def pool_to(answer, *, connections=4, in_flight=100, timeout=10.0):
    settled = []
    server = FakeServer(answer)
    async with server.listening() as address:
        pool = ConnectionPool(
            address,
            REQUEST,
            lambda due, latency, status: settled.append((due, latency, status)),
            max_connections=connections,
            max_in_flight=in_flight,
            timeout_seconds=timeout,
        )
        try:
            yield pool, server, settled
        finally:
            await pool.close()


async def call_and_drain(pool, times=1):
    for _ in range(times):
        pool.call(asyncio.get_running_loop().time())
        async with asyncio.timeout(10):
            await pool.drain()


async def test_requests_one_after_the_other_share_one_connection():
    async with pool_to(answering(OK)) as (pool, server, settled):
        await call_and_drain(pool, times=5)
        assert [status for _, _, status in settled] == ["ok"] * 5
        assert server.connections == 1


async def test_another_status_is_recorded_as_its_code_and_the_connection_stays():
    busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    async with pool_to(answering(busy, OK)) as (pool, server, settled):
        await call_and_drain(pool, times=2)
        assert [status for _, _, status in settled] == ["503", "ok"]
        assert server.connections == 1


async def test_a_connection_that_the_server_closes_is_replaced():
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with pool_to(answering(last)) as (pool, server, settled):
        await call_and_drain(pool, times=2)
        assert [status for _, _, status in settled] == ["ok", "ok"]
        assert server.connections == 2


async def test_a_response_may_come_in_pieces_and_be_longer_than_the_receive_buffer():
    async def answer(number, writer):
        for piece in (b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 20000\r\n\r\n" + b"x" * 10_000, b"x" * 10_000):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async with pool_to(answer) as (pool, server, settled):
        await call_and_drain(pool, times=2)
        assert [status for _, _, status in settled] == ["ok", "ok"]
        assert server.connections == 1


@pytest.mark.parametrize(
    "response",
    [
        None,
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok",
        b"x" * 20_000,
    ],
)
async def test_what_is_no_whole_response_is_an_error_and_the_next_request_gets_a_new_connection(response):
    async with pool_to(answering(response, OK)) as (pool, server, settled):
        await call_and_drain(pool, times=2)
        assert [status for _, _, status in settled] == ["error", "ok"]
        assert server.connections == 2


async def test_a_refused_connection_fails_every_request():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    settled = []
    pool = ConnectionPool(
        address,
        REQUEST,
        lambda due, latency, status: settled.append(status),
        max_connections=2,
        max_in_flight=100,
        timeout_seconds=10,
    )
    for _ in range(5):
        pool.call(asyncio.get_running_loop().time())
    async with asyncio.timeout(10):
        await pool.drain()
    assert settled == ["error"] * 5


async def test_a_timed_out_request_counts_with_the_timeout_and_loses_its_connection():
    async with pool_to(silence, connections=1, timeout=0.05) as (pool, _server, settled):
        due = asyncio.get_running_loop().time()
        pool.call(due)
        pool.call(due)  # waits for the only connection and times out without having been sent
        async with asyncio.timeout(10):
            await pool.drain()
        assert settled == [(due, 0.05, "timeout")] * 2


async def test_the_connection_of_a_timed_out_request_is_closed():
    arrived = asyncio.Event()
    gone = asyncio.Event()

    async def watch(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(watch, "127.0.0.1", 0)
    pool = ConnectionPool(
        server.sockets[0].getsockname(),
        REQUEST,
        lambda due, latency, status: None,
        max_connections=1,
        max_in_flight=1,
        timeout_seconds=0.2,
    )
    async with server:
        pool.call(asyncio.get_running_loop().time())
        async with asyncio.timeout(10):
            await arrived.wait()
            await gone.wait()
        await pool.close()


async def test_beyond_the_bound_a_request_is_shed_at_once_with_the_timeout_as_its_latency():
    async with pool_to(silence, in_flight=2, timeout=7.0) as (pool, _server, settled):
        for _ in range(3):
            pool.call(100.0)
        assert settled == [(100.0, 7.0, "shed")]
        assert pool.in_flight == 2


async def test_closing_records_what_is_in_flight_as_cut():
    async with pool_to(silence, connections=1) as (pool, _server, settled):
        for _ in range(2):
            pool.call(asyncio.get_running_loop().time())
        await pool.close()
        assert [status for _, _, status in settled] == ["cut", "cut"]
        assert pool.in_flight == 0


async def test_a_stall_of_one_second_shows_in_every_request_that_was_due_in_it():
    """No coordinated omission: with 4 connections a closed loop would show 4 slow requests, not one per arrival."""
    loop = asyncio.get_running_loop()
    stall = []
    over = asyncio.Event()

    async def stall_once(number, writer):
        if number == 40:
            stall.append(loop.time())
            loop.call_later(1.0, lambda: (stall.append(loop.time()), over.set()))
        if number >= 40:
            await over.wait()
        writer.write(OK)

    schedule = list(poisson_arrivals([Step(0, 200)], 1.6, seed=11))
    async with pool_to(stall_once, connections=4, in_flight=1000) as (pool, _server, settled):
        arrivals = OpenLoop(iter(schedule), pool.call)
        arrivals.start()
        async with asyncio.timeout(30):
            await arrivals.finished.wait()
            await pool.drain()
    dues = sorted(due for due, _, _ in settled)
    assert [due - dues[0] for due in dues] == pytest.approx([at - schedule[0] for at in schedule])
    begin, end = stall
    stalled = [(due, latency) for due, latency, _ in settled if begin <= due < end]
    assert all(due + latency >= end for due, latency in stalled)
    assert sum(latency > 0.1 for _, latency in stalled) > 130  # 200/s for 0.9 s, less the spread of a Poisson count
    assert all(status == "ok" for _, _, status in settled)
