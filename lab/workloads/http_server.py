"""A small HTTP/1.1 server for the workloads: GET only, keep-alive, everything bounded, one send per response."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeAlias

from lab.workloads.http_messages import BadRequestError, Request, Response, format_response, parse_head
from lab.workloads.process import WorkloadError

MAX_HEAD_BYTES: Final = 8192
RECEIVE_BYTES: Final = 4096
MAX_CONNECTIONS: Final = 1024
IDLE_SECONDS: Final = 75.0
"""A connection without a request for so long is closed; looked at every quarter of it."""

Reply: TypeAlias = Callable[[Response], None]
"""Called exactly once per request, on the loop's thread, at once or later. The client may be gone by then."""

Handler: TypeAlias = Callable[[Request, Reply], None]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises WorkloadError, for example when the port is in use."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        # Python adds its own words to some system errors and has codes of its own, below zero, for unknown hosts.
        reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
        raise WorkloadError(f"cannot listen on {host}:{port}: {reason}") from error


def port_of(listener: socket.socket) -> int:
    """The TCP port that a socket listens on."""
    port: int = listener.getsockname()[1]
    return port


class HttpServer:
    """Serves `routes` by exact path on a listening socket."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        self._routes = routes
        self._connections: set[_Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._answered = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), sock=listener)
        self._sweep(loop)

    async def close(self, grace_seconds: float) -> None:
        """Accept nothing more, let requests in hand finish for up to `grace_seconds`, then drop all connections."""
        if self._server is not None:
            self._server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        try:
            async with asyncio.timeout(grace_seconds):
                while any(connection.is_answering for connection in self._connections):
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            pass
        for connection in tuple(self._connections):
            connection.close()
        await asyncio.sleep(0)

    def admit(self, connection: "_Connection") -> bool:
        """Whether there is room for one more connection."""
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: "_Connection") -> None:
        """The connection is gone."""
        self._connections.discard(connection)
        self._answered.set()

    def dispatch(self, request: Request, reply: Reply) -> None:
        """Hand a request to its handler, or answer 404."""
        handler = self._routes.get(request.path)
        if handler is None:
            reply(Response(HTTPStatus.NOT_FOUND, b"not found\n"))
        else:
            handler(request, reply)

    def note_answer(self) -> None:
        """A request was answered."""
        self._answered.set()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - IDLE_SECONDS
        for connection in tuple(self._connections):
            if not connection.is_answering and connection.active_at < oldest:
                connection.close()
        self._sweep_timer = loop.call_later(IDLE_SECONDS / 4, self._sweep, loop)


class _Connection(asyncio.BufferedProtocol):
    """One client: requests are answered one after the other, in order.

    It reads into a buffer of its own: a plain protocol gets every chunk in a fresh allocation of 256 KiB, which costs
    three more system calls per request.
    """

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._receive = memoryview(bytearray(RECEIVE_BYTES))
        self._buffer = bytearray()
        self._keep_alive = True
        self._peer_is_slow = False
        self.is_answering = False
        self.active_at = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # narrows the type that create_server promises
        if self._server.admit(self):
            self._transport = transport
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        self._transport = None
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the signature is asyncio's
        return self._receive

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer += self._receive[:nbytes]
        self._next_request()
        if self._transport is not None and len(self._buffer) > MAX_HEAD_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._peer_is_slow = True

    def resume_writing(self) -> None:
        self._peer_is_slow = False
        self._next_request()

    def close(self) -> None:
        """Close once what was written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def _next_request(self) -> None:
        if self._transport is None or self._transport.is_closing() or self.is_answering or self._peer_is_slow:
            return
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        try:
            request = parse_head(head)
        except BadRequestError as error:
            self._refuse(error.status)
            return
        self.is_answering = True
        self._keep_alive = request.keep_alive
        self._server.dispatch(request._replace(received_at=self._loop.time()), self._reply)

    def _reply(self, response: Response) -> None:
        self.is_answering = False
        self.active_at = self._loop.time()
        self._server.note_answer()
        if self._transport is None:
            return
        self._transport.write(format_response(response, keep_alive=self._keep_alive))
        if not self._keep_alive:
            self._transport.close()
        elif self._buffer:
            self._transport.resume_reading()
            self._loop.call_soon(self._next_request)

    def _refuse(self, status: HTTPStatus) -> None:
        self._keep_alive = False
        self._reply(Response(status, f"{status.phrase}\n".encode()))
