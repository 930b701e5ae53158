"""The load generator: open loop, Poisson arrivals, every request recorded with its latency from when it was due.

A closed loop sends the next request when the last one was answered; while the server stalls it sends none, and the
stall hides in one slow request ("coordinated omission", Gil Tene). Here each request that was due during the stall
counts with its full wait. SIGUSR1 pauses arrivals, SIGUSR2 resumes them; requests in flight go on.
"""

import argparse
import asyncio
import ipaddress
import signal
import socket
import sys
import time
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from lab.workloads.arrivals import Step, parse_schedule, poisson_arrivals
from lab.workloads.http_client import ConnectionPool
from lab.workloads.open_loop import OpenLoop
from lab.workloads.process import FlagParser, WorkloadError, announce, number, report, run, whole
from lab.workloads.record_writer import RecordWriter

MAX_RATE: Final = 5000.0
CUT_GRACE_SECONDS: Final = 0.4
"""For requests in flight after SIGTERM; those that need longer are recorded as cut."""

RETRY_SECONDS: Final = 0.1


class Target(NamedTuple):
    """Where requests go: a resolved address and the bytes of each request."""

    address: tuple[str, int]
    request: bytes


def resolve_target(url: str, *, allow_remote: bool) -> Target:
    """The target of an `http://host:port/path` URL, resolved once. Raises WorkloadError, also for a remote address."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise WorkloadError(f"--target {url!r}: {error}") from error
    path = parts.path or "/"
    if parts.query:
        path += f"?{parts.query}"
    if parts.scheme != "http" or not parts.hostname or not (path + parts.netloc).isascii() or " " in path:
        raise WorkloadError(f"--target {url!r} is not http://HOST:PORT/PATH")
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise WorkloadError(f"--target {url!r}: {error.strerror}") from error
    host = str(found[0][4][0])
    if not allow_remote and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise WorkloadError(f"--target {url!r} is {host}, not this machine; --allow-remote sends load there")
    request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n\r\n".encode("ascii")
    return Target((host, port), request)


async def wait_for_target(target: Target, wait_seconds: float) -> None:
    """Return once the target accepts connections. Raises WorkloadError after `wait_seconds`."""
    last_error = "no answer"
    try:
        async with asyncio.timeout(wait_seconds):
            while True:
                try:
                    _, writer = await asyncio.open_connection(*target.address)
                except OSError as error:
                    last_error = error.strerror or str(error)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return
    except TimeoutError as error:
        host, port = target.address
        raise WorkloadError(f"cannot connect to {host}:{port} within {wait_seconds:g} s: {last_error}") from error


async def until_told(stop: asyncio.Event) -> None:
    """Return when something comes on stdin, or its end; or when `stop` is set."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), told.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            waits = [tasks.create_task(told.wait()), tasks.create_task(stop.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
    finally:
        loop.remove_reader(sys.stdin.fileno())


async def generate(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Send the whole schedule, or until `stop` is set, and report totals on stdout."""
    loop = asyncio.get_running_loop()
    target = resolve_target(flags.target, allow_remote=flags.allow_remote)
    writer = RecordWriter(flags.record)
    unix_offset_seconds = time.time() - loop.time()
    outcomes: Counter[str] = Counter()

    def record(due: float, latency_seconds: float, status: str) -> None:
        outcomes[status] += 1
        writer.add_request(due + unix_offset_seconds, latency_seconds, status)

    pool = ConnectionPool(
        target.address,
        target.request,
        record,
        max_connections=flags.connections,
        max_in_flight=flags.max_in_flight,
        timeout_seconds=flags.timeout_seconds,
    )
    steps = flags.schedule or (Step(0.0, flags.rate),)
    arrivals = OpenLoop(poisson_arrivals(steps, flags.duration, flags.seed), pool.call)
    loop.add_signal_handler(signal.SIGUSR1, arrivals.pause)
    loop.add_signal_handler(signal.SIGUSR2, arrivals.resume)
    await wait_for_target(target, flags.wait_seconds)
    writer.start(loop)
    announce(target.address[1])
    if flags.wait_for_stdin:
        await until_told(stop)
    arrivals.start()
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(arrivals.finished.wait())
        stopped = tasks.create_task(stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        arrivals.stop()
        if not stop.is_set():
            drained = tasks.create_task(pool.drain())
            await asyncio.wait((drained, stopped), return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
        stopped.cancel()
    try:
        async with asyncio.timeout(CUT_GRACE_SECONDS):
            await pool.drain()
    except TimeoutError:
        pass
    await pool.close()
    writer.close()
    report(
        {
            "done": True,
            "requests": arrivals.started_requests,
            "statuses": dict(sorted(outcomes.items())),
            "max_lag_seconds": round(arrivals.max_lag_seconds, 6),
        }
    )


def schedule(text: str) -> tuple[Step, ...]:
    """A flag type: the steps of a schedule."""
    try:
        return parse_schedule(text, max_rate_per_second=MAX_RATE)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main() -> int:
    """Parse flags and run. The exit code."""
    parser = FlagParser("loadgen", "Open-loop HTTP load: Poisson arrivals, latency from when each request was due.")
    parser.add_argument("--target", required=True, help="http://HOST:PORT/PATH; its address is looked up once")
    parser.add_argument("--rate", type=number(0.0, MAX_RATE), default=100.0, help="mean requests per second")
    parser.add_argument(
        "--schedule", type=schedule, help='rate steps "SECOND:RATE,…" such as 0:100,30:250; replaces --rate'
    )
    parser.add_argument("--duration", type=number(0.1, 86_400), default=300.0, help="seconds of arrivals, at most")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrival times")
    parser.add_argument("--connections", type=whole(1, 512), default=64, help="connections at the same time, at most")
    parser.add_argument(
        "--timeout-seconds",
        type=number(0.01, 600),
        default=10.0,
        help="seconds from when a request was due after which it has failed and its connection is dropped",
    )
    parser.add_argument(
        "--max-in-flight",
        type=whole(1, 100_000),
        default=2000,
        help='requests due and unanswered; beyond it a request fails at once, recorded as "shed"',
    )
    parser.add_argument(
        "--wait-seconds", type=number(0.1, 600), default=5.0, help="seconds to wait for the target at the start"
    )
    parser.add_argument(
        "--wait-for-stdin",
        action="store_true",
        help="be ready, and begin when a line comes on stdin: so several generators can begin as one",
    )
    parser.add_argument(
        "--record", type=Path, help="file that gets a JSON line [due, latency, status] per request; appended to"
    )
    parser.add_argument(
        "--allow-remote", action="store_true", help="send load to other machines too, not only to loopback"
    )
    flags = parser.parse_args()
    return run("loadgen", lambda stop: generate(flags, stop), fine_timers=True)


if __name__ == "__main__":
    sys.exit(main())
