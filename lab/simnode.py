"""The simulated node as a process: `python -m lab.simnode --dir DIR`, for machines without a usable cpu controller.

The first line on stdout names the directories, the pods and their metrics pages. Then every line on stdin is a command
(`lab.simulated_node.Command`) and is answered by one line, `{"ok": true}` or `{"error": "..."}`. The process ends on
`{"quit": true}`, on SIGTERM and when stdin closes, so that it never outlives its parent.
"""

import argparse
import asyncio
import os
import stat
import sys
import time
import uuid
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import disable_created_metrics

from lab.simnode_scenario import PODS_ROOT, Scenario, default_scenario, load_scenario
from lab.simulated_node import Command, CommandError, SimulatedNode
from lab.workloads.http_server import HttpServer, listen, port_of
from lab.workloads.metrics import metrics_routes
from lab.workloads.process import WorkloadError, report, run
from runtime.clock import Clock, SystemClock
from runtime.errors import HostError, TrimtabError

STEP_SECONDS: Final = 0.05
"""Time between two updates of the files. 0.05: a fortieth of the shortest window that is measured over them."""

MAX_CATCH_UP_SECONDS: Final = 1.0
"""Most time made up for at once. After a longer stall the rest never happened, as on a machine that was suspended."""

STDIN_FD: Final = 0

GRACE_SECONDS: Final = 0.2
"""For a scrape in hand at the end."""


async def keep_pace(node: SimulatedNode, clock: Clock) -> None:
    """Moves the node with the clock until cancelled."""
    last = clock.monotonic()
    while True:
        await clock.sleep(STEP_SECONDS)
        now = clock.monotonic()
        node.advance(min(now - last, MAX_CATCH_UP_SECONDS), clock.now_ns() / 1e9)
        last = now


def answer(node: SimulatedNode, line: bytes) -> tuple[dict[str, object], bool]:
    """Carries out one command line; what to say to it, and whether it was the last."""
    try:
        command = msgspec.json.decode(line, type=Command)
        node.obey(command)
    except (msgspec.DecodeError, UnicodeDecodeError, CommandError) as error:
        return {"error": str(error)}, False
    if command.status:
        refused = node.tree.refused_weights
        return {"ok": True, "now_seconds": node.now_seconds, "refused_weights": refused}, command.quit
    return {"ok": True}, command.quit


async def obey_lines(node: SimulatedNode, commands: asyncio.StreamReader, stop: asyncio.Event) -> None:
    """Answers commands until the last one or until there are no more, then sets `stop`."""
    try:
        is_last = False
        while not is_last:
            try:
                line = await commands.readline()
            except ValueError:
                report({"error": "the line is too long"})
                continue
            if not line:
                return
            said, is_last = answer(node, line)
            report(said)
    finally:
        stop.set()


def check_stdin(fd: int) -> None:
    """Raises WorkloadError where stdin is closed, a file or a null device: nobody could be waited for there."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        mode = 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (mode and os.isatty(fd))):
        raise WorkloadError("stdin must be a pipe or a terminal: the node ends when it closes")


async def open_stdin() -> asyncio.StreamReader:
    """Stdin as a stream of at most 64 KiB a line."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def serve(node: SimulatedNode, stop: asyncio.Event) -> None:
    """Serves the pods' metrics, keeps pace with the clock and obeys stdin until `stop` is set."""
    loop = asyncio.get_running_loop()
    servers: list[HttpServer] = []
    urls: dict[str, str] = {}
    try:
        commands = await open_stdin()
        for name, pod in node.observed.items():
            listener = listen("127.0.0.1", 0)
            server = HttpServer(metrics_routes(pod.registry))
            await server.start(listener)
            servers.append(server)
            urls[name] = f"http://127.0.0.1:{port_of(listener)}/metrics"
            pod.writer.start(loop)
        report(describe(node, urls))
        async with asyncio.TaskGroup() as tasks:
            running = (
                tasks.create_task(keep_pace(node, SystemClock())),
                tasks.create_task(obey_lines(node, commands, stop)),
            )
            await stop.wait()
            for task in running:
                task.cancel()
    except ExceptionGroup as failed:
        # One failure ends the node; the other task was only cancelled for it.
        raise failed.exceptions[0] from failed
    finally:
        node.close()
        for server in servers:
            await server.close(GRACE_SECONDS)


def describe(node: SimulatedNode, urls: dict[str, str]) -> dict[str, object]:
    """The first line. A workload's `group` is its path below the pods root; an idle one has no `metrics_url`."""
    return {
        "ready": True,
        "pid": os.getpid(),
        "cgroup_root": str(node.tree.cgroup_root),
        "proc_root": str(node.tree.proc_root),
        "pods_root": PODS_ROOT,
        "workloads": [
            {
                "uid": pod.uid,
                "name": pod.name,
                "labels": pod.labels,
                "group": pod.group,
                "metrics_url": urls.get(pod.name),
            }
            for pod in node.scenario.pods
        ],
    }


def main() -> int:
    """Parse flags and run. The exit code: 0; 1 if the node cannot go on; those of `runtime.errors` for a bad start."""
    parser = argparse.ArgumentParser(prog="python -m lab.simnode", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--dir", type=Path, required=True, help="directory that gets cgroup/ and proc/; best on a tmpfs"
    )
    parser.add_argument("--scenario", type=Path, help="YAML or JSON file; default: an API starved by a batch pod")
    parser.add_argument("--record-dir", type=Path, help="directory that gets <name>.jsonl of every pod")
    flags = parser.parse_args()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    try:
        check_stdin(STDIN_FD)
        scenario = load_scenario(flags.scenario) if flags.scenario is not None else default_scenario()
        node = make_node(scenario, flags.dir, flags.record_dir)
    except (TrimtabError, WorkloadError) as error:
        sys.stderr.write(f"simnode: {error}\n")
        return error.exit_code if isinstance(error, TrimtabError) else 1
    return run("simnode", lambda stop: serve(node, stop))


def make_node(scenario: Scenario, directory: Path, record_dir: Path | None) -> SimulatedNode:
    """A node that boots now. Raises HostError if one of its directories cannot be made."""
    if record_dir is not None:
        try:
            record_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(f"cannot create the record directory {record_dir}: {error.strerror}") from error
    return SimulatedNode(scenario, directory, record_dir, boot_id=str(uuid.uuid4()), boot_unix_seconds=int(time.time()))


if __name__ == "__main__":
    sys.exit(main())
