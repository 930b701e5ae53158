"""The latency-critical workload: an HTTP API that spends a set CPU time on each request.

`GET /work` works and answers; `GET /metrics` and `GET /healthz` do not work and are not measured. Latency is measured
from the moment a request was read to the moment its response was written, the wait for a worker included, also when
its client has given up meanwhile: leaving those out would hide the slowest.
"""

import argparse
import asyncio
import math
import os
import random
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from lab.workloads.cpu_work import FACTORS, KeyStretching
from lab.workloads.http_messages import Request, Response
from lab.workloads.http_server import HttpServer, Reply, listen, port_of
from lab.workloads.metrics import latency_histogram, metrics_routes
from lab.workloads.process import FlagParser, announce, number, run, whole

GRACE_SECONDS: Final = 0.4
"""For requests in hand after SIGTERM, and again for the worker threads: together below a second."""

DONE: Final = Response(HTTPStatus.OK, b"done\n")
BUSY: Final = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"queue is full\n")
GIVEN_UP: Final = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"waited too long\n")


class WorkService:
    """Answers `/work` from a pool of worker threads behind a bounded queue. Used on the loop's thread only."""

    def __init__(self, flags: argparse.Namespace, registry: CollectorRegistry, stretching: KeyStretching) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(flags.workers, thread_name_prefix="work")
        self._stretching = stretching
        self._rng = random.Random(flags.seed)  # noqa: S311  # load, not secrets
        self._mean_cpu_seconds: float = flags.work_ms / 1000.0
        self._jitter_sigma: float = flags.work_jitter
        self._factor = FACTORS[flags.work_distribution]
        self._longest_wait_seconds: float = flags.queue_timeout_seconds or math.inf
        self._room: int = flags.workers + flags.max_queue
        self._in_hand = 0
        self._emptied = asyncio.Event()
        self._latency = latency_histogram(
            "http_request_duration_seconds",
            "Seconds from a request read completely to its response written.",
            registry,
            ("route",),
        ).labels(route="/work")
        self._rejected = Counter(
            "http_requests_rejected",
            "Requests answered 503 because the queue was full; not in the duration histogram.",
            registry=registry,
        )

    def handle(self, request: Request, reply: Reply) -> None:
        """Queue the request's work, or answer 503 when the queue is full."""
        if self._in_hand >= self._room:
            self._rejected.inc()
            reply(BUSY)
            return
        self._in_hand += 1
        cpu_seconds = self._mean_cpu_seconds * self._factor(self._rng, self._jitter_sigma)
        future = self._pool.submit(self._work, cpu_seconds, request.received_at + self._longest_wait_seconds)
        future.add_done_callback(
            lambda finished: self._loop.call_soon_threadsafe(self._finish, finished, request, reply)
        )

    async def close(self) -> bool:
        """Drop what is queued, stop what is worked on; whether that ended within GRACE_SECONDS."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._stretching.stop()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while self._in_hand:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def _work(self, cpu_seconds: float, deadline: float) -> Response:
        """On a worker: the work, unless nobody waits for it any more."""
        if self._loop.time() > deadline:
            return GIVEN_UP
        self._stretching.spend(cpu_seconds)
        return DONE

    def _finish(self, finished: Future[Response], request: Request, reply: Reply) -> None:
        self._in_hand -= 1
        if self._in_hand == 0:
            self._emptied.set()
        if finished.cancelled():
            return
        reply(finished.result())
        self._latency.observe(self._loop.time() - request.received_at)


async def serve(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    listener = listen(flags.host, flags.port)
    registry = CollectorRegistry()
    service = WorkService(flags, registry, KeyStretching())
    server = HttpServer({"/work": service.handle, **metrics_routes(registry)})
    await server.start(listener)
    announce(port_of(listener))
    await stop.wait()
    await server.close(GRACE_SECONDS)
    if not await service.close():
        # A starved worker would hold the interpreter's exit up for as long as it is kept from its CPU.
        sys.stdout.flush()
        os._exit(0)


def main() -> int:
    """Parse flags and run. The exit code."""
    parser = FlagParser("api", "An HTTP API that spends a set CPU time on every GET /work.")
    parser.add_listen_flags()
    parser.add_argument("--work-ms", type=number(0.01, 10_000), default=5.0, help="mean CPU ms per request")
    parser.add_argument(
        "--work-jitter",
        type=number(0.0, 2.0),
        default=0.3,
        help="sigma of the lognormal factor (mean 1) on each request's work; 0 makes all alike",
    )
    parser.add_argument(
        "--work-distribution",
        choices=sorted(FACTORS),
        default="lognormal",
        help="how each request's work spreads about the mean; exponential has no --work-jitter",
    )
    parser.add_argument("--workers", type=whole(1, 256), default=2, help="worker threads")
    parser.add_argument(
        "--max-queue",
        type=whole(0, 100_000),
        default=256,
        help="requests that may wait for a worker; beyond it they are answered 503 at once",
    )
    parser.add_argument(
        "--queue-timeout-seconds",
        type=number(0.0, 3600.0),
        default=0.0,
        help="seconds after which a request that still waits for a worker is answered 503 without work, as if its"
        " client had gone; 0 keeps all",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the jitter")
    flags = parser.parse_args()
    return run("api", lambda stop: serve(flags, stop))


if __name__ == "__main__":
    sys.exit(main())
