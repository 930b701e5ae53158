"""A small Kubernetes API server of ours on loopback: HTTP/1.1, pods only, and every way to misbehave.

Lists and watches are answered from two queues of what is to happen; the last answer to a list is given again when its
queue is empty, and a watch without a script stays open and silent until the server closes.
"""

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATIENCE_SECONDS = 30.0
"""How long a test waits for what must come."""


@dataclass(frozen=True)
class Refuse:
    """An answer with this status and a Status object."""

    status: int
    reason: str = "Failure"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """These bytes as the body of a 200."""

    body: bytes


class Gate:
    """A step of a watch that waits here until the test opens it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        """Lets the watch go on."""
        self._event.set()

    def wait(self, closing: threading.Event) -> None:
        """Until it is open or the server closes."""
        while not self._event.wait(0.02) and not closing.is_set():
            pass


CUT = object()
"""A step of a watch: the connection breaks, in the middle of the stream."""

STAY = object()
"""A step of a watch: the connection stays up and silent until the server closes."""


class KubeApiServer:
    """Serves until closed. `requests` are the queries in order, `lists` and `watches` what happens next."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[dict[str, str]] = []
        self.lists: deque[Any] = deque()
        self.watches: deque[Any] = deque()
        self.logins: list[str | None] = []
        self.closing = threading.Event()
        self._last: Any = None
        self._changed = threading.Condition()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with suppress(OSError):
                    owner._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                """A handshake that a client gave up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.scheme = "https" if tls else "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends every stream and stops listening."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of(self, kind: str) -> list[dict[str, str]]:
        """The queries of all lists, or of all watches."""
        return [query for query in self.requests if ("watch" in query) == (kind == "watch")]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until that is so after some request."""
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_SECONDS), self.requests

    def kubeconfig(self, folder: Path, *, ca: str | None = None) -> str:
        """A kubeconfig file that leads here."""
        cluster: dict[str, Any] = {"server": f"{self.scheme}://127.0.0.1:{self.port}"}
        if ca is not None:
            cluster["certificate-authority"] = ca
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                    "clusters": [{"name": "k", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": "t0ken"}}],
                }
            )
        )
        return str(path)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        with self._changed:
            is_watch = "watch" in query
            self.requests.append({"path": url.path, **query})
            self.logins.append(request.headers.get("Authorization"))
            if is_watch:
                step = self.watches.popleft() if self.watches else [STAY]
            else:
                step = self._last = self.lists.popleft() if self.lists else self._last
            self._changed.notify_all()
        if isinstance(step, Gate):
            step.wait(self.closing)
            step = self._last = self.lists.popleft()
        if isinstance(step, Refuse):
            status = {"kind": "Status", "code": step.status, "reason": step.reason, "message": "because"}
            self._whole(request, json.dumps(status).encode(), step.status, step.headers)
        elif is_watch:
            self._stream(request, step)
        elif isinstance(step, Raw):
            self._whole(request, step.body)
        elif step is STAY:
            self.closing.wait()
        else:
            self._whole(request, json.dumps(step).encode())

    def _whole(
        self, request: BaseHTTPRequestHandler, body: bytes, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def _stream(self, request: BaseHTTPRequestHandler, steps: list[Any]) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for step in steps:
            if step is CUT:
                request.close_connection = True
                with suppress(OSError):
                    request.connection.shutdown(socket.SHUT_RDWR)
                return
            if step is STAY:
                self.closing.wait()
                request.close_connection = True
                return
            if isinstance(step, Gate):
                step.wait(self.closing)
                continue
            body = step if isinstance(step, bytes) else json.dumps(step).encode() + b"\n"
            request.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
            request.wfile.flush()
        request.wfile.write(b"0\r\n\r\n")
