"""The Kubernetes API's pods of one node, as bytes: one list, one watch, and each failure with its way out.

The stream of a watch is read here and not by the client's `Watch`, which makes a validated model of every event (one
field that does not fit ends the watch), holds a line of any length, and hides cut lines and the end of a stream.
Requests go through `ApiClient` and not `CoreV1Api`, whose import costs another 22 MiB.
"""

import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, cast

from runtime.errors import ConfigError
from runtime.yaml_text import one_line
from services.collector.sources.in_time import in_time

RBAC: Final = "deploy/kubernetes/rbac.yaml"

MAX_LIST_BYTES: Final = 64 << 20
"""Largest answer to a list that is read; it is held while its pods are taken from it. etcd holds 1.5 MiB an object at
most; 300 usual pods make 6 MiB."""

MAX_LINE_BYTES: Final = 4 << 20
"""Longest line of a watch: twice the largest object."""

CONNECT_SECONDS: Final = 5.0
"""For a connection; a server that needs longer is as good as away."""

LIST_SECONDS: Final = 30.0
"""For a whole list, which a busy server may queue."""

LOGIN_SECONDS: Final = 10.0
"""For a program that a kubeconfig file names for credentials; a cloud's takes a second or two."""

_CHUNK_BYTES: Final = 1 << 16
_MAX_STATUS_BYTES: Final = 4096
_UNAUTHORIZED, _FORBIDDEN, _GONE = 401, 403, 410
_STALE: Final = frozenset({400, 410, 504})
"""Answers to a version that the server does not have, any more or yet."""


class ApiTrouble(Exception):
    """A request that failed. `reason` is one word; `relist`: what was known may be wrong; `retry_after` in seconds."""

    def __init__(self, reason: str, text: str, *, relist: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(one_line(text))
        self.reason = reason
        self.relist = relist
        self.retry_after = retry_after


class PodApi(Protocol):
    """The two requests, and their end."""

    @property
    def node(self) -> str:
        """Whose pods are asked for."""
        ...

    def list_pods(self, version: str | None, rest: str | None = None) -> bytes | bytearray:
        """A list that is not older than `version` (None: the newest there is); with `rest`, what an earlier answer left
        out. Raises ApiTrouble.
        """
        ...

    def watch_pods(self, version: str, timeout_seconds: float) -> Generator[bytes, None, None]:
        """An empty line as soon as the server has agreed, then complete lines, as they come. Raises ApiTrouble."""
        ...

    def interrupt(self) -> None:
        """Ends the request in progress and all later ones; from another thread."""
        ...

    def close(self) -> None:
        """Closes kept connections."""
        ...


class _Response(Protocol):
    """What is used of urllib3's."""

    status: int
    reason: str | None

    @property
    def headers(self) -> Mapping[str, str]: ...
    def read1(self, amt: int) -> bytes: ...
    def shutdown(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """Times in seconds: `silence` is the longest that a watch may say nothing."""

    connect: float = CONNECT_SECONDS
    whole_list: float = LIST_SECONDS
    silence: float = 70.0
    login: float = LOGIN_SECONDS


class KubeApi:
    """Pods of `node`, through the service account of the pod that this runs in, or a kubeconfig file."""

    def __init__(self, node: str, kubeconfig: str | None, limits: Limits, monotonic: Callable[[], float]) -> None:
        """Raises ConfigError for credentials that cannot be read. Talks to nobody yet."""
        from kubernetes import client  # noqa: PLC0415 - half a second and 16 MiB, for those who use it

        self.node = node
        self._limits = limits
        self._monotonic = monotonic
        configuration = client.Configuration()
        configuration.retries = False  # whoever asks waits and asks again, and wants to know of each failure
        _load(configuration, kubeconfig, limits.login)
        renew = cast("Callable[[object], object] | None", configuration.refresh_api_key_hook)
        if renew is not None:
            configuration.refresh_api_key_hook = lambda known: self._renew(  # type: ignore[assignment] # declared None
                lambda: renew(known)
            )
        self.server = str(configuration.host)
        self._way_out = (
            "renew the credentials in collector.kubeconfig" if kubeconfig else f"mount the service account of {RBAC}"
        )
        self._client = client.ApiClient(configuration)
        self._client.user_agent = "trimtab-collector"
        self._response: _Response | None = None
        self._is_interrupted = False

    def list_pods(self, version: str | None, rest: str | None = None) -> bytearray:
        """One answer. From the server's cache if that is new enough ("0": however old).

        No `limit` is asked for: servers answer a limited list from etcd and not from their cache, by going through the
        whole cluster's pods, and take a version as "exactly this one" then.
        """
        query = [("continue", rest)] if rest else [] if version is None else [("resourceVersion", version)]
        deadline = self._monotonic() + self._limits.whole_list
        body = bytearray()
        for part in self._parts(query, self._limits.whole_list):
            body += part
            if len(body) > MAX_LIST_BYTES:
                raise ApiTrouble(
                    "failed",
                    f"the list of pods is larger than {MAX_LIST_BYTES >> 20} MiB; see what makes them so large: "
                    f"kubectl get pods -A --field-selector spec.nodeName={self.node} -o json --show-managed-fields",
                )
            if self._monotonic() > deadline:
                raise ApiTrouble("timeout", f"the list of pods took longer than {self._limits.whole_list:g} s")
        return body

    def watch_pods(self, version: str, timeout_seconds: float) -> Generator[bytes, None, None]:
        """Complete lines only: one that was cut off is told again after the resume. The first, empty one is the
        server's consent. Ends when the server ends it, or with ApiTrouble when no line came for too long.
        """
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(max(1, round(timeout_seconds)))),
        ]
        silence = self._limits.silence
        heard = self._monotonic()
        buffer = bytearray()
        for part in self._parts(query, silence, tells_consent=True):
            if not part:
                heard = self._monotonic()
                yield b""
                continue
            buffer += part
            *lines, rest = buffer.split(b"\n") if b"\n" in part else (buffer,)
            if lines:
                heard = self._monotonic()
                yield from map(bytes, lines)
                buffer = rest
            if len(buffer) > MAX_LINE_BYTES:
                text = f"a watch event is longer than {MAX_LINE_BYTES >> 20} MiB"
                raise ApiTrouble("garbled", text, relist=True)
            if self._monotonic() - heard > silence:  # bytes drip, lines do not come
                raise ApiTrouble("silent", f"no event for {silence:g} s", relist=True)

    def interrupt(self) -> None:
        """A thread that reads gets an end of the stream, or its next request is refused."""
        self._is_interrupted = True
        response = self._response
        if response is not None:
            with suppress(OSError, ValueError, RuntimeError):  # it may be over by itself
                response.shutdown()

    def close(self) -> None:
        """Closes kept connections."""
        self._client.close()  # type: ignore[no-untyped-call]

    def _parts(
        self, query: list[tuple[str, str]], read_seconds: float, *, tells_consent: bool = False
    ) -> Iterator[bytes]:
        """The body as it comes; before it, if wanted, an empty part once the server has agreed."""
        try:
            response = self._open([("fieldSelector", f"spec.nodeName={self.node}"), *query], read_seconds)
            self._response = response
            try:
                if not self._is_interrupted:
                    if response.status != 200:  # noqa: PLR2004 - HTTP's own number
                        raise self._refusal(response)
                    if tells_consent:
                        yield b""
                    while part := response.read1(_CHUNK_BYTES):
                        yield part
            finally:
                self._response = None
                response.close()
        except ApiTrouble:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _renew(self, renew: Callable[[], object]) -> None:
        """Credentials that are over are got anew, while a request waits."""
        try:
            in_time(renew, self._limits.login)
        except TimeoutError as error:
            text = f"the program that collector.kubeconfig names for credentials gave none in {self._limits.login:g} s"
            raise ApiTrouble("refused", f"{text}; run it by hand to see why") from error

    def _open(self, query: list[tuple[str, str]], read_seconds: float) -> _Response:
        _, url, headers, _, _ = self._client.param_serialize(
            "GET",
            "/api/v1/pods",
            query_params=query,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api("GET", url, headers, _request_timeout=(self._limits.connect, read_seconds))
        response: _Response = answer.response
        return response

    def _refusal(self, response: _Response) -> ApiTrouble:
        status = response.status
        if status == _UNAUTHORIZED:
            return ApiTrouble("refused", f"{self.server} does not know us (401 Unauthorized); {self._way_out}")
        if status == _FORBIDDEN:
            text = f"{self.server} does not let us list and watch pods (403 Forbidden); apply {RBAC}"
            return ApiTrouble("refused", text)
        said = bytes(response.read1(_MAX_STATUS_BYTES)).decode("utf-8", "replace")[:200]
        after = response.headers.get("Retry-After") or ""
        return ApiTrouble(
            "expired" if status in _STALE else "failed",
            f"{self.server} answered {status} {response.reason or ''}: {said}",
            relist=True,
            retry_after=float(after) if after.isascii() and after.isdigit() else 0.0,
        )

    def _failure(self, error: Exception) -> ApiTrouble:
        """What went wrong below HTTP. Raised by urllib3, by the client, or by reading credentials."""
        from urllib3 import exceptions as http  # noqa: PLC0415 - comes with the client

        cause = _root(error)
        said = f"{type(cause).__name__}: {cause}"[:300]
        if isinstance(error, http.ReadTimeoutError):
            return ApiTrouble("silent", f"{self.server} said nothing in time", relist=True)
        if isinstance(error, http.NameResolutionError) or isinstance(cause, socket.gaierror):
            return ApiTrouble(
                "unreachable", f"{self.server}: its name cannot be resolved ({cause}); check the DNS of this pod"
            )
        if isinstance(cause, TimeoutError):
            text = f"{self.server}: no connection within {self._limits.connect:g} s; check routes and network policies"
            return ApiTrouble("unreachable", text)
        if isinstance(cause, ConnectionRefusedError):
            return ApiTrouble("unreachable", f"{self.server}: connection refused; is the API server up?")
        if isinstance(error, http.SSLError) or "SSL" in said or "certificate" in said:
            return ApiTrouble(
                "tls",
                f"{self.server}: no trust or no TLS; check the certificate authority in use ({said})",
                relist=True,
            )
        return ApiTrouble("unreachable", f"{self.server}: {said}")


def _load(configuration: object, kubeconfig: str | None, seconds: float) -> None:
    from kubernetes import config  # noqa: PLC0415 - as above

    try:
        if kubeconfig is None:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            in_time(
                lambda: config.load_kube_config(kubeconfig, None, configuration, persist_config=False),  # type: ignore[no-untyped-call]
                seconds,
            )
    except TimeoutError as error:
        raise ConfigError(
            f"collector.kubeconfig: the program that {kubeconfig!r} names for credentials gave none in {seconds:g} s; "
            f"run it by hand, or `kubectl --kubeconfig {kubeconfig} get pods`, to see what it waits for"
        ) from error
    except Exception as error:  # whatever a file full of other people's plugins raises
        said = one_line(str(error))[:300]
        if kubeconfig is None:
            raise ConfigError(
                f"collector.kubernetes: no service account here ({said}); run in a pod with the service account of "
                f"{RBAC}, or set collector.kubeconfig (the variable KUBECONFIG is not read)"
            ) from error
        raise ConfigError(
            f"collector.kubeconfig: {kubeconfig!r} cannot be used ({said}); check it with "
            f"`kubectl --kubeconfig {kubeconfig} get pods`"
        ) from error


def _root(error: BaseException) -> BaseException:
    """The innermost error of a chain."""
    for _ in range(10):
        below = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(below, BaseException):
            break
        error = below
    return error
