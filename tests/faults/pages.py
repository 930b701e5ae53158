"""A metrics endpoint that lies: the API's real page, with other numbers in it."""

import asyncio
import contextlib
import re
import urllib.request
from collections.abc import Callable

from schemas.messages import State
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

CLS = "latency-critical"
_CYCLES = 4
_SAMPLE = re.compile(r"^(http_request_duration_seconds_\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)
_BUCKET = re.compile(r'^(http_request_duration_seconds_bucket\{[^}]*le=")([^"]+)("[^}]*\}) (\S+)$', re.MULTILINE)


class LyingEndpoint:
    """One page, as the pod has it or as `lie` makes it. `None` from a lie: the page never ends."""

    def __init__(self, stand: Stand, pod: str = "api") -> None:
        self._stand = stand
        self._pod = pod
        self.lie: Callable[[str], str | None] | None = None
        self.told = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/metrics"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                page: str | None = await asyncio.to_thread(self._page)
                if self.lie is not None and page is not None:
                    page = self.lie(page)
                    self.told += 1
                if page is None:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n# ")
                    await writer.drain()
                    await reader.read()
                    break
                body = page.encode()
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    def _page(self) -> str:
        url = self._stand.stage.real_pages[self._pod]
        assert url is not None
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return str(answer.read().decode())


def _p99_of_0(page: str) -> str:
    """Every request in the bucket of 0 s."""
    total = re.search(r"^http_request_duration_seconds_count(?:\{[^}]*\})? (\S+)$", page, re.MULTILINE)
    count = total.group(1) if total else "0"
    page = _BUCKET.sub(lambda m: f"{m[1]}{m[2]}{m[3]} {count}", page)
    first = _BUCKET.search(page)
    return page if first is None else page.replace(first[0], f"{first[1]}0.0{first[3]} {count}\n{first[0]}", 1)


def _p99_of_1e9(page: str) -> str:
    """Every request above 1e8 s and below 1e9."""
    last = next(m for m in _BUCKET.finditer(page) if m[2] == "+Inf")
    page = _BUCKET.sub(lambda m: f"{m[1]}{m[2]}{m[3]} {m[4] if m[2] == '+Inf' else 0}", page)
    line = f"{last[1]}+Inf{last[3]} {last[4]}"
    return page.replace(line, f"{last[1]}1e8{last[3]} 0\n{last[1]}1e9{last[3]} {last[4]}\n{line}", 1)


def _each(value: Callable[[str], str]) -> Callable[[str], str]:
    return lambda page: _SAMPLE.sub(lambda m: f"{m[1]} {value(m[2])}", page)


def _endless(page: str) -> None:
    return None


async def _prepare(stand: Stand) -> None:
    endpoint = stand.gear["api"] = LyingEndpoint(stand)
    stand.stage.pages["api"] = await endpoint.start()
    stand.undo.append(endpoint.close)


def _row(name: str, lie: Callable[[str], str | None], expected: str, claim: Callable[[State], bool]) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        endpoint: LyingEndpoint = stand.gear["api"]
        case.struck()
        endpoint.lie, endpoint.told = lie, 0
        try:
            await stand.until(lambda: endpoint.told > 0, "a lie told")
            since = stand.count()
            state = await stand.next(
                State, lambda s: CLS in s.classes and claim(s), f"a state that shows it ({expected})", since
            )
            latency = state.classes[CLS].latency
            p99 = latency.p99_seconds
            case.safe(f"state: p99 {'null' if p99 is None else f'{p99:.3g} s'}, {latency.reason or 'no reason'}")
            cycles = stand.count()
            await stand.until(lambda: len(stand.whole(cycles)) >= _CYCLES, "whole cycles in spite of the lies")
            if not all(
                value is None or 0.0 <= value < float("inf")
                for s in stand.of(State, since)
                for value in (s.classes[CLS].latency.p99_seconds, s.classes[CLS].latency.p50_seconds)
            ):
                raise Red("a latency that cannot be")
        finally:
            endpoint.lie = None

    return Fault(f"API's metrics: {name}", f"{expected}; the loop goes on within its bounds", run, cost=10.0)


def _p99(state: State) -> float | None:
    return state.classes[CLS].latency.p99_seconds


BENCHES = (
    Bench(
        "pages",
        "lying metrics",
        (
            _row(
                "P99 of 0",
                _p99_of_0,
                "a P99 of 0, taken at its word",
                lambda s: _p99(s) is not None and (_p99(s) or 0.0) < 0.001,
            ),
            _row(
                "P99 of 1e9 s",
                _p99_of_1e9,
                "an enormous P99, or unknown",
                lambda s: _p99(s) is None or (_p99(s) or 0.0) > 1e7,
            ),
            _row(
                "NaN",
                _each(lambda _: "NaN"),
                "latency unknown, with a reason",
                lambda s: _p99(s) is None and bool(s.classes[CLS].latency.reason),
            ),
            _row(
                "negative counts",
                _each(lambda v: f"-{v}"),
                "latency unknown, with a reason",
                lambda s: _p99(s) is None and bool(s.classes[CLS].latency.reason),
            ),
            _row(
                "a page that never ends",
                _endless,
                "latency unknown, with a reason",
                lambda s: _p99(s) is None and bool(s.classes[CLS].latency.reason),
            ),
        ),
        _prepare,
    ),
)
