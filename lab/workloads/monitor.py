"""The default-class workload: a periodic job that parses and hashes a document, as a small monitor would.

Runs are due every interval, whatever became of the last one. A late run is not skipped; its latency counts from when
it was due. So a monitor that is kept from its CPU falls behind, and shows it.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from lab.workloads.cpu_work import Pace, units_per_cpu_second
from lab.workloads.http_server import HttpServer, listen, port_of
from lab.workloads.metrics import latency_histogram, metrics_routes
from lab.workloads.process import FlagParser, announce, number, run
from lab.workloads.record_writer import RecordWriter

GRACE_SECONDS: Final = 0.2
"""For a scrape in hand after SIGTERM."""

DOCUMENT: Final = json.dumps(
    [{"name": f"sensor-{index}", "values": [index * 0.5, index * 1.25], "ok": index % 7 != 0} for index in range(40)]
).encode()


def inspect_documents(count: int) -> str:
    """Parse the document and chain its hash, `count` times."""
    chain = hashlib.sha256()
    for _ in range(count):
        chain.update(str(sum(sensor["ok"] for sensor in json.loads(DOCUMENT))).encode())
        chain.update(DOCUMENT)
    return chain.hexdigest()


async def monitor(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run on schedule until `stop` is set."""
    loop = asyncio.get_running_loop()
    listener = listen(flags.host, flags.port)
    writer = RecordWriter(flags.record)
    registry = CollectorRegistry()
    latency_seconds = latency_histogram(
        "monitor_run_duration_seconds", "Seconds from when a run was due to its end.", registry
    )
    server = HttpServer(metrics_routes(registry))
    pace = Pace(units_per_cpu_second(inspect_documents))
    await server.start(listener)
    writer.start(loop)
    announce(port_of(listener))
    unix_offset_seconds = time.time() - loop.time()
    interval_seconds = flags.interval_ms / 1000.0
    started = loop.time()
    runs = 0
    while True:
        runs += 1
        due = started + runs * interval_seconds
        try:
            async with asyncio.timeout_at(due):
                await stop.wait()
                break
        except TimeoutError:
            pass
        pace.spend(inspect_documents, max(1, round(pace.units_per_second * flags.work_ms / 1000.0)))
        latency = loop.time() - due
        latency_seconds.observe(latency)
        writer.add_request(due + unix_offset_seconds, latency, "ok")
    writer.close()
    await server.close(GRACE_SECONDS)


def main() -> int:
    """Parse flags and run. The exit code."""
    parser = FlagParser("monitor", "A periodic job of parsing and hashing, due every interval.")
    parser.add_listen_flags()
    parser.add_argument(
        "--interval-ms", type=number(1.0, 60_000), default=50.0, help="ms from one due time to the next"
    )
    parser.add_argument("--work-ms", type=number(0.01, 200), default=2.0, help="CPU ms per run")
    parser.add_argument(
        "--record", type=Path, help="file that gets a JSON line [due, latency, status] per run; appended to"
    )
    flags = parser.parse_args()
    return run("monitor", lambda stop: monitor(flags, stop), fine_timers=True)


if __name__ == "__main__":
    sys.exit(main())
