"""The batch workload: child processes that compress or hash the same block for ever and count the blocks.

The parent forks the children, serves `/metrics` and records progress. It ends with an error when a child dies, since
a batch that quietly lost half of its processes would look like one that was held back.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from lab.workloads.batch_child import BLOCK_WORK, Progress, fork_child, make_block
from lab.workloads.http_server import HttpServer, listen, port_of
from lab.workloads.metrics import metrics_routes
from lab.workloads.process import EXIT_FAILED, FlagParser, WorkloadError, announce, run, whole
from lab.workloads.record_writer import RecordWriter

RECORD_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 0.2
"""For a scrape in hand after SIGTERM."""


class BatchMetrics(Collector):
    """Reads the children's progress when it is scraped."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The two counters, summed over the children."""
        yield CounterMetricFamily("batch_work_done", "Blocks finished.", value=self._progress.work())
        yield CounterMetricFamily(
            "batch_cpu_seconds", "CPU seconds used by the children.", value=self._progress.cpu_seconds()
        )


async def supervise(
    listener: socket.socket, progress: Progress, children: set[int], record: Path | None, stop: asyncio.Event
) -> None:
    """Serve and record until `stop` is set; then kill the children. Raises WorkloadError when one dies before."""
    loop = asyncio.get_running_loop()
    registry = CollectorRegistry()
    registry.register(BatchMetrics(progress))
    writer = RecordWriter(record)
    server = HttpServer(metrics_routes(registry))
    child_died = asyncio.Event()

    def reap() -> None:
        for pid in tuple(children):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                children.discard(pid)
                child_died.set()
                stop.set()

    loop.add_signal_handler(signal.SIGCHLD, reap)
    reap()
    await server.start(listener)
    announce(port_of(listener), children=sorted(children))
    due = loop.time()
    while not stop.is_set():
        writer.add_work(time.time(), progress.work())
        writer.flush()
        due += RECORD_SECONDS
        try:
            async with asyncio.timeout_at(due):
                await stop.wait()
        except TimeoutError:
            continue
    loop.remove_signal_handler(signal.SIGCHLD)
    writer.add_work(time.time(), progress.work())
    writer.close()
    await server.close(GRACE_SECONDS)
    if child_died.is_set():
        raise WorkloadError("a child process died; the rest was ended")


def main() -> int:
    """Parse flags, fork the children and run. The exit code."""
    parser = FlagParser("batch", "Child processes that compress or hash one block over and over.")
    parser.add_listen_flags()
    parser.add_argument("--processes", type=whole(1, 1024), default=2, help="child processes, each one busy thread")
    parser.add_argument("--kind", choices=sorted(BLOCK_WORK), default="compress", help="what is done to a block")
    parser.add_argument("--block-kib", type=whole(1, 4096), default=128, help="size of a block in KiB")
    parser.add_argument(
        "--record", type=Path, help="file that gets a JSON line of cumulative blocks every 0.5 s; appended to"
    )
    flags = parser.parse_args()
    block = make_block(flags.block_kib * 1024)
    progress = Progress(flags.processes)
    children: set[int] = set()
    try:
        listener = listen(flags.host, flags.port)
        for index in range(flags.processes):
            children.add(fork_child(BLOCK_WORK[flags.kind], block, progress, index, listener))
        return run("batch", lambda stop: supervise(listener, progress, children, flags.record, stop))
    except (WorkloadError, OSError) as error:
        sys.stderr.write(f"batch: {error}\n")
        return EXIT_FAILED
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
