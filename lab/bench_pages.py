"""Metrics pages for the scrape benchmark, and the process that serves them: 110 pods, each a loopback port of its own.

Counters grow from scrape to scrape. A page is the same for every pod but for its place-holder, so that serving costs
little of a machine on which the client is measured.
"""

import argparse
import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from typing import Final

SAMPLES: Final = 2_000
METRIC: Final = "http_request_duration_seconds"
KINDS: Final = ("usual", "usual-gzip", "buckets", "buckets-own-label", "one-hostile")

_FINITE: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_BOUNDS: Final = (*map(str, _FINITE), "+Inf")
_FINE_BOUNDS: Final = (*map(str, sorted({*_FINITE, 0.001, 0.002})), "+Inf")
_FEW_BOUNDS: Final = ("0.01", "0.1", "0.5", "1.0", "+Inf")
_ROUTES: Final = ("/api/v1/orders", "/api/v1/orders/{id}", "/api/v1/users", "/api/v1/users/{id}", "/search", "/login")
_POD: Final = b"@pod@"
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def usual(scrape: int) -> str:
    """A page as people have them: 12 routes of the latency histogram with 14 buckets; the rest is other metrics."""
    labels = [f'method="{method}",route="{route}",code="200"' for route in _ROUTES for method in ("GET", "POST")]
    latency = [line for number, text in enumerate(labels) for line in _histogram(METRIC, text, _BOUNDS, scrape, number)]
    return _page({METRIC: latency, **_others(SAMPLES - len(latency), scrape)})


def buckets(scrape: int, *, own_label: bool = False) -> str:
    """Every sample is a bucket of the latency histogram: 125 series of 16. `own_label`: one differs from pod to pod."""
    pod = f',pod="web-{_POD.decode()}"' if own_label else ""
    series = SAMPLES // len(_FINE_BOUNDS)
    lines = [
        line
        for number in range(series)
        for line in _buckets(
            METRIC, f'method="GET",route="/api/v1/item/{number}",code="200"{pod}', _FINE_BOUNDS, scrape
        )
    ]
    return _page({METRIC: lines})


def hostile(scrape: int) -> str:
    """As much as is read of one page at all: 2,000 series of 5 buckets, all but the first new in every scrape."""
    sessions = ["first", *(f"{scrape:04d}-{number:06d}" for number in range(1, 2_000))]
    lines = [
        line for session in sessions for line in _buckets(METRIC, f'session="{session}",route="/"', _FEW_BOUNDS, scrape)
    ]
    return _page({METRIC: lines})


def _page(families: Mapping[str, list[str]]) -> str:
    parts: list[str] = []
    for name, lines in families.items():
        kind = "histogram" if name.endswith("_seconds") else "counter" if name.endswith("_total") else "gauge"
        parts += [f"# HELP {name} What it says of {name}.", f"# TYPE {name} {kind}", *lines]
    return "\n".join(parts) + "\n"


def _buckets(name: str, labels: str, bounds: tuple[str, ...], scrape: int) -> Iterator[str]:
    """A series that 16 more requests for each bound reach with every scrape."""
    for place, bound in enumerate(bounds, 1):
        yield f'{name}_bucket{{{labels},le="{bound}"}} {(1_000 + 16 * scrape) * place}'


def _histogram(name: str, labels: str, bounds: tuple[str, ...], scrape: int, number: int) -> Iterator[str]:
    yield from _buckets(name, labels, bounds, scrape)
    requests = (1_000 + 16 * scrape) * len(bounds)
    yield f"{name}_sum{{{labels}}} {requests * (0.021 + number / 1e3)!r}"
    yield f"{name}_count{{{labels}}} {requests}"


def _others(samples: int, scrape: int) -> dict[str, list[str]]:
    """Other histograms, counters and gauges, some with names that begin like the latency metric's."""
    families: dict[str, list[str]] = {}
    for number in range(40):
        name = f"db_query_{number % 8}_duration_seconds"
        lines = families.setdefault(name, [])
        lines += _histogram(name, f'query="q{number}",pool="main"', _BOUNDS, scrape, number)
    families[f"{METRIC}_previous_window"] = [f'{METRIC}_previous_window{{route="{route}"}} 0.1' for route in _ROUTES]
    left = samples - sum(len(lines) for lines in families.values())
    for number in range(left):
        name = f"app_events_{number // 50}_total"
        families.setdefault(name, []).append(f'{name}{{kind="k{number}",code="200"}} {number * 7 + 3 * scrape}')
    return families


def page_of(kind: str) -> Callable[[int, int], bytes]:
    """A function of pod and scrape, both counted from zero: the body of that page, compressed where the kind is."""

    @cache
    def body(scrape: int) -> bytes:
        if kind.startswith("buckets"):
            return buckets(scrape, own_label=kind == "buckets-own-label").encode()
        plain = usual(scrape).encode()
        return gzip.compress(plain, mtime=0) if kind == "usual-gzip" else plain

    def page(pod: int, scrape: int) -> bytes:
        if kind == "one-hostile" and pod == 0:
            return hostile(scrape).encode()
        return body(scrape).replace(_POD, b"%04d" % pod) if kind == "buckets-own-label" else body(scrape)

    return page


class _Endpoint(asyncio.Protocol):
    """One connection to one pod: every GET brings the pod's next page, and the connection is kept."""

    def __init__(self, next_page: Callable[[], bytes], encoding: str) -> None:
        self._next_page = next_page
        self._encoding = encoding
        self._head = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # narrows the type that create_server promises
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._transport is not None and self._head.endswith(b"\r\n\r\n"):
            self._head = b""
            page = self._next_page()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {_CONTENT_TYPE}\r\n{self._encoding}Content-Length: {len(page)}"
            self._transport.writelines([head.encode(), b"\r\n\r\n", page])


@asynccontextmanager
async def serving(kind: str, pods: int) -> AsyncIterator[list[int]]:
    """Serves so many pods on loopback; their ports in order."""
    page, encoding = page_of(kind), "Content-Encoding: gzip\r\n" if kind == "usual-gzip" else ""

    def endpoint(pod: int) -> Callable[[], _Endpoint]:
        scrapes = count()
        return lambda: _Endpoint(lambda: page(pod, next(scrapes)), encoding)

    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(endpoint(pod), "127.0.0.1", 0) for pod in range(pods)]
    try:
        yield [server.sockets[0].getsockname()[1] for server in servers]
    finally:
        for server in servers:
            server.close()


async def _serve(kind: str, pods: int) -> None:
    async with serving(kind, pods) as ports:
        sys.stdout.write(json.dumps(ports) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()  # until the benchmark ends this process


def main() -> None:
    """Serves until it is ended; the ports are one line of JSON on stdout."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench_pages")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("pods", type=int)
    args = parser.parse_args()
    asyncio.run(_serve(args.kind, args.pods))


if __name__ == "__main__":
    main()
