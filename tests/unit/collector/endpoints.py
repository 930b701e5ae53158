"""Metrics endpoints on loopback: good ones, and each kind of bad one."""

import asyncio
import os
import ssl
from contextlib import asynccontextmanager, suppress

TLS_FILES = f"{os.path.dirname(__file__)}/../../fixtures/tls"

PAGE = b'# TYPE req_seconds histogram\nreq_seconds_bucket{le="0.1"} 90\nreq_seconds_bucket{le="+Inf"} 100\n'


def response(body: bytes, *, status: str = "200 OK", headers: str = "", content_type: str = "text/plain") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def server_tls(name: str = "pod.pem", key: str | None = "pod.key", *, asks: bool = False) -> ssl.SSLContext:
    """What a server shows; `asks` for a certificate of the test authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{TLS_FILES}/{name}", key and f"{TLS_FILES}/{key}")
    if asks:
        context.load_verify_locations(f"{TLS_FILES}/ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Endpoint:
    """One server. It answers every request with `answer`, or does with the connection what `handle` does.

    With `tls`, a context for servers, it speaks https; `host` is where it listens.
    """

    def __init__(self, answer: bytes = b"", handle=None, *, tls=None, host="127.0.0.1") -> None:
        self.answer, self.handle, self.tls, self.host = answer or response(PAGE), handle, tls, host
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed_by_client = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/metrics"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                if self.handle is not None:
                    await self.handle(reader, writer)
                    break
                writer.write(self.answer)
                await writer.drain()
        self.closed_by_client.set()
        writer.close()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """PM-07: the head at once, then a byte now and then, without end, until the client has had enough."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n")
    gone = asyncio.ensure_future(reader.read())
    while not gone.done():
        writer.write(b"#")
        await asyncio.wait({gone}, timeout=0.05)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts, reads, and never answers."""
    await reader.read()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body without end, as fast as it is taken."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"#" * 65536 + b"\r\n"
    while True:
        writer.write(chunk)
        await writer.drain()


@asynccontextmanager
async def running(*endpoints: Endpoint):
    servers = []
    for endpoint in endpoints:
        server = await asyncio.start_server(endpoint.serve, endpoint.host, 0, ssl=endpoint.tls)
        endpoint.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    try:
        yield endpoints[0] if len(endpoints) == 1 else endpoints
    finally:
        for server in servers:
            server.close()
