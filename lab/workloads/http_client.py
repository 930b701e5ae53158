"""Keep-alive HTTP connections to one address, for requests that are due at given times: one send, one receive each.

Nothing waits for anything: a request that finds every connection busy is queued, times out when it must, and its
latency runs from when it was due.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_HEAD_BYTES: Final = 16_384
MAX_BODY_BYTES: Final = 1 << 20
RECEIVE_BYTES: Final = 4096

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,10})[ \t]*\r\n", re.IGNORECASE)
_CLOSE: Final = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([2-5]\d\d)[ \r]")


class Call:
    """One request from when it was due to its outcome; `due` is on the loop's clock, in seconds."""

    __slots__ = ("connection", "due", "is_settled")

    def __init__(self, due: float) -> None:
        self.due = due
        self.connection: Connection | None = None
        self.is_settled = False


OnSettled = Callable[[float, float, str], None]
"""Told once per request: when it was due, its latency in seconds from then, and its status (lab/latency_records.py)."""


class ConnectionPool:
    """Sends `request` to `address` once per `call`, over at most `max_connections` connections."""

    def __init__(
        self,
        address: tuple[str, int],
        request: bytes,
        on_settled: OnSettled,
        *,
        max_connections: int,
        max_in_flight: int,
        timeout_seconds: float,
    ) -> None:
        self.request = request
        self.in_flight = 0
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._on_settled = on_settled
        self._max_connections = max_connections
        self._max_in_flight = max_in_flight
        self._timeout_seconds = timeout_seconds
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._queued: deque[Call] = deque()
        self._by_deadline: deque[Call] = deque()  # its head is never settled
        self._expiry: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()

    def call(self, due: float) -> None:
        """Send a request that was due at `due`. Times must not fall from call to call.

        Beyond `max_in_flight` it is settled at once as "shed", with the timeout as its latency.
        """
        if self.in_flight >= self._max_in_flight:
            self._on_settled(due, self._timeout_seconds, "shed")
            return
        self.in_flight += 1
        call = Call(due)
        self._by_deadline.append(call)
        if self._expiry is None:
            self._expiry = self._loop.call_at(due + self._timeout_seconds, self._expire)
        self._queued.append(call)
        self._dispatch()

    async def drain(self) -> None:
        """Wait until nothing is in flight: at most the timeout."""
        while self.in_flight:
            self._drained.clear()
            await self._drained.wait()

    async def close(self) -> None:
        """Settle what is in flight as "cut" and drop all connections."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._queued.clear()
        for call in tuple(self._by_deadline):
            self._settle(call, "cut")
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for connection in tuple(self._open):
            connection.drop()
        while self._open:  # noqa: ASYNC110  # the loop tells a dropped connection within one turn
            await asyncio.sleep(0)

    def opened(self, connection: "Connection") -> None:
        """The connection can take a request."""
        self._open.add(connection)
        self._idle.append(connection)

    def answered(self, connection: "Connection", call: Call, code: int, *, reusable: bool) -> None:
        """The connection has read the whole response to `call`."""
        self._settle(call, "ok" if 200 <= code < 300 else str(code))  # noqa: PLR2004  # the success class
        if reusable:
            self._idle.append(connection)
        else:
            connection.drop()
        self._dispatch()

    def lost(self, connection: "Connection", call: Call | None) -> None:
        """The connection is gone, perhaps with a request in flight."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if call is not None:
            self._settle(call, "error")
        self._dispatch()

    def _dispatch(self) -> None:
        while self._queued and self._idle:
            call = self._queued.popleft()
            if not call.is_settled:
                # The connection used last: its buffers are warm, and spare ones stay spare.
                call.connection = self._idle.pop()
                call.connection.send(call)
        wanted = min(len(self._queued), self._max_connections - len(self._open))
        while len(self._connecting) < wanted:
            task = self._loop.create_task(self._connect())
            self._connecting.add(task)
            task.add_done_callback(self._connected)

    async def _connect(self) -> None:
        async with asyncio.timeout(self._timeout_seconds):
            await self._loop.create_connection(lambda: Connection(self), *self._address)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        if error is not None:
            # Each failed attempt costs the request that has waited longest, so that a dead target ends them all.
            while self._queued:
                call = self._queued.popleft()
                if not call.is_settled:
                    self._settle(call, "error")
                    break
        self._dispatch()

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        while self._by_deadline:
            call = self._by_deadline[0]
            if call.due + self._timeout_seconds > now:
                self._expiry = self._loop.call_at(call.due + self._timeout_seconds, self._expire)
                return
            connection = call.connection
            self._settle(call, "timeout")
            if connection is not None:
                connection.drop()

    def _settle(self, call: Call, status: str) -> None:
        if call.is_settled:
            return
        call.is_settled = True
        call.connection = None
        self.in_flight -= 1
        if self.in_flight == 0:
            self._drained.set()
        while self._by_deadline and self._by_deadline[0].is_settled:
            self._by_deadline.popleft()
        latency = self._timeout_seconds if status == "timeout" else self._loop.time() - call.due
        self._on_settled(call.due, latency, status)


class Connection(asyncio.BufferedProtocol):
    """One connection: one request at a time, its response read to the end and its body thrown away.

    It reads into a buffer of its own: a plain protocol gets every chunk in a fresh allocation of 256 KiB, which costs
    three more system calls per response.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._call: Call | None = None
        self._receive = memoryview(bytearray(RECEIVE_BYTES))
        self._head = b""
        self._code = 0
        self._body_left = 0
        self._reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool."""
        assert isinstance(transport, asyncio.Transport)  # narrows the type that create_connection promises
        self._transport = transport
        self._pool.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        """Leave the pool."""
        self._transport = None
        call, self._call = self._call, None
        self._pool.lost(self, call)

    def send(self, call: Call) -> None:
        """Send the request; the connection must be idle."""
        self._call = call
        self._head = b""
        self._code = 0
        if self._transport is not None:
            self._transport.write(self._pool.request)

    def drop(self) -> None:
        """Close at once, whatever is in flight."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the signature is asyncio's
        """Where to put what is received."""
        return self._receive

    def buffer_updated(self, nbytes: int) -> None:
        """Read on; tell the pool when the response is complete."""
        if self._call is None:
            self.drop()
            return
        if self._code == 0:
            self._head += self._receive[:nbytes]
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > MAX_HEAD_BYTES:
                    self.drop()
                return
            received = len(self._head) - end - 4
            if not self._read_head(self._head[: end + 2]):
                self.drop()
                return
        else:
            received = nbytes
        self._body_left -= received
        if self._body_left < 0:
            self.drop()
        elif self._body_left == 0:
            call, self._call = self._call, None
            self._pool.answered(self, call, self._code, reusable=self._reusable)

    def _read_head(self, head: bytes) -> bool:
        status = _STATUS.match(head)
        length = _LENGTH.search(head)
        if status is None or length is None or int(length[1]) > MAX_BODY_BYTES:
            return False
        self._code = int(status[2])
        self._body_left = int(length[1])
        self._reusable = status[1] == b"1" and _CLOSE.search(head) is None
        return True
