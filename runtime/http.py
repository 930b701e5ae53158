"""The small HTTP server of a process: /healthz, /readyz and /metrics, GET only.

Own code, since an HTTP framework costs more memory than a service has to spare; it serves three fixed texts.
"""

import asyncio
import errno

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from runtime.clock import Clock
from runtime.errors import ConfigError, PortInUse
from runtime.health import Health

_MAX_LINE = 4096
_MAX_HEADERS = 64
_TIMEOUT_SECONDS = 5.0
_TEXT = "text/plain; charset=utf-8"


class HttpServer:
    """Serves one process's health and metrics until closed."""

    def __init__(self, registry: CollectorRegistry, health: Health, clock: Clock) -> None:
        self._registry = registry
        self._health = health
        self._clock = clock
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises PortInUse or ConfigError, naming the setting that changes it."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_LINE)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"http: cannot listen on {host}:{port}: another process does; "
                    f"stop it, or set --http-port (0 picks a free one)"
                ) from error
            raise ConfigError(
                f"http.host: cannot listen on {host}:{port}: {error}; set http.host to an address of this machine and "
                f"--http-port to a port that this user may take (0 picks a free one)"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for one request."""
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"GET only\n"
        match path.split("?", 1)[0]:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/healthz":
                good, text = self._health.alive(self._clock.monotonic())
            case "/readyz":
                good, text = self._health.ready()
            case _:
                return 404, _TEXT, b"/healthz, /readyz and /metrics are here\n"
        return (200 if good else 503), _TEXT, f"{text}\n".encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                request = (await reader.readline()).decode("latin-1").split()
                for _ in range(_MAX_HEADERS):
                    if not (await reader.readline()).strip():
                        break
                method, path = (request[0], request[1]) if len(request) >= 2 else ("", "")  # noqa: PLR2004 - "GET /"
                status, kind, body = self.answer(method, path)
                head = (
                    f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\n"  # noqa: PLR2004 - HTTP's own number
                    f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # a client that drips, leaves or talks nonsense costs itself only
        finally:
            writer.close()
