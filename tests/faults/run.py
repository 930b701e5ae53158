"""`make faults`: opens rigs, a few at a time, plays the rows of each one after the other, and prints the table."""

import argparse
import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hostfs.mounts import CgroupHost
from lab.cgroup_sandbox import SandboxUnavailable, open_sandbox
from runtime.errors import TrimtabError
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand
from tests.faults.suite import BENCHES
from tests.faults.table import Result, as_records, exit_code, render, summary

NOT_RESTORED = "not every weight is what it was"
INTERRUPTED = 130
ROW_SECONDS = 150.0
"""Longest row, its preparation and its end included."""


@dataclass
class Suite:
    """One run."""

    jobs: int
    cgroup: bool
    patience: float
    keep: bool
    folder: Path
    done: int = 0
    total: int = 0
    results: dict[tuple[str, str], Result] = field(default_factory=dict)

    async def run(self, chosen: Sequence[tuple[Bench, Sequence[Fault]]]) -> None:
        """Plays all of it; `results` fill in the order of the suite."""
        for bench, faults in chosen:
            for fault in faults:
                self.results[bench.name, fault.name] = Result(bench.family, fault.name, fault.expected)
        self.total = len(self.results)
        queue = sorted(chosen, key=lambda pair: -sum(fault.cost for fault in pair[1]))
        turn = asyncio.Semaphore(self.jobs)
        async with asyncio.TaskGroup() as group:
            for bench, faults in queue:
                group.create_task(self._bench(bench, faults, turn))

    def interrupted(self) -> None:
        """Says of every row that has no end that it has none."""
        for result in self.results.values():
            if result.originals is None and not result.trouble:
                result.not_run = result.not_run or "interrupted"

    async def _bench(self, bench: Bench, faults: Sequence[Fault], turn: asyncio.Semaphore) -> None:
        async with turn:
            left, number = list(faults), 0
            while left:  # a red row may leave anything behind: those after it get a new rig
                number += 1
                left = await self._rig(bench, left, self.folder / f"{bench.name}-{number}")

    async def _rig(self, bench: Bench, faults: list[Fault], run_dir: Path) -> list[Fault]:
        """Plays rows on one rig until one is red; those that are left."""
        runnable = self._runnable(bench, faults)
        if not runnable:
            return []
        played: list[Fault] = []
        stand: Stand | None = None
        try:
            stand = Stand(run_dir, bench.flags(run_dir), self.cgroup, self.patience, bench.credentials)
            async with asyncio.timeout(ROW_SECONDS * self.patience):
                await bench.prepare(stand)
                await stand.open()
            for fault in runnable:
                played.append(fault)
                if not await self._row(stand, bench, fault):
                    break
        except (TrimtabError, OSError, Red, TimeoutError, subprocess.SubprocessError) as error:
            played = runnable  # what stopped this rig from starting stops the next one, too
            for fault in played:
                self._result(bench, fault).trouble = f"the rig did not start: {type(error).__name__}: {error}"
                self._say(self._result(bench, fault))
        finally:
            if stand is not None:
                await self._close(stand, bench, played)
        return runnable[len(played) :]

    def _runnable(self, bench: Bench, faults: list[Fault]) -> list[Fault]:
        """Those that this machine can play; the others say why not."""
        found = []
        for fault in faults:
            reason = bench.why_not(self.cgroup) or fault.why_not()
            if reason:
                self._result(bench, fault).not_run = reason
                self._say(self._result(bench, fault))
            else:
                found.append(fault)
        return found

    async def _close(self, stand: Stand, bench: Bench, played: list[Fault]) -> None:
        """The rig's end, whatever happens meanwhile; what it leaves behind is on all of its rows."""
        results = [self._result(bench, fault) for fault in played]
        keep = self.keep and any(result.trouble for result in results)
        left = await asyncio.shield(asyncio.ensure_future(stand.close(keep=keep)))
        for result in results:
            result.left = left
            if NOT_RESTORED in left:
                result.originals = False
        if left:
            sys.stderr.write(f"{bench.name}: left behind: {left}\n")

    async def _row(self, stand: Stand, bench: Bench, fault: Fault) -> bool:
        result = self._result(bench, fault)
        started = time.monotonic()
        case: Case = stand.begin(result)
        case.ends = fault.ends
        try:
            async with asyncio.timeout(ROW_SECONDS * self.patience):
                await stand.play(case, fault.run)
        except Exception as error:  # noqa: BLE001 - whatever it is costs this row, not the others
            result.trouble = str(error) if isinstance(error, Red) else f"{type(error).__name__}: {error}"
        result.seconds = time.monotonic() - started
        self._say(result)
        return not result.trouble

    def _result(self, bench: Bench, fault: Fault) -> Result:
        return self.results[bench.name, fault.name]

    def _say(self, result: Result) -> None:
        self.done += 1
        why = result.trouble or result.not_run
        word = "RED" if result.trouble else "not run" if result.not_run else "ok"
        sys.stderr.write(
            f"{self.done}/{self.total} {word:<7} {result.seconds:5.1f} s  {result.fault}{f': {why}' if why else ''}\n"
        )
        sys.stderr.flush()


def choose(patterns: Sequence[str]) -> list[tuple[Bench, list[Fault]]]:
    """The benches and rows whose family and name match one of the patterns (regular expressions); all without one."""
    found = []
    for bench in BENCHES:
        faults = [
            fault
            for fault in bench.faults
            if not patterns or any(re.search(each, f"{bench.family}: {fault.name}") for each in patterns)
        ]
        if faults:
            found.append((bench, faults))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 0: every row that could be run is green; 1: one is not; 2: no such row; 130:
    interrupted.
    """
    parser = argparse.ArgumentParser(prog="make faults ARGS=…", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="rows that match; repeatable")
    parser.add_argument("--list", action="store_true", help="show the rows and what is expected of them, and exit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    parser.add_argument("--jobs", type=int, default=3, help="rigs at a time (3)")
    parser.add_argument(
        "--simulate", action="store_true", help="on a simulated node's files even where cgroups are real"
    )
    parser.add_argument("--patience", type=float, default=1.0, metavar="N", help="wait N times as long (1)")
    parser.add_argument("--keep", action="store_true", help="keep the files of rigs with a red row")
    options = parser.parse_args(arguments)
    chosen = choose(options.only)
    if not chosen:
        sys.stderr.write("no row matches; see --list\n")
        return 2
    if options.list:
        for bench, faults in chosen:
            for fault in faults:
                sys.stdout.write(f"{bench.family}: {fault.name}\n    {fault.expected}\n")
        return 0
    return _run(options, chosen)


def find_node(*, simulate: bool, host: CgroupHost | None = None) -> tuple[bool, str]:
    """Whether the rows are played on real cgroups, as the demo decides it, and in words where and why."""
    if simulate:
        return False, "a simulated node's files (asked for with --simulate)"
    try:
        sandbox = open_sandbox(host)
    except SandboxUnavailable as error:
        return False, f"a simulated node's files, no real cgroups: {error.reason}. To use those: {error.remedy}"
    where = f"real cgroups, one rig at a time, below {sandbox.path.parent}: its cpu controller can be had"
    left = sandbox.remove()
    return (False, f"a simulated node's files: {left} could not be removed") if left else (True, where)


def _run(options: argparse.Namespace, chosen: list[tuple[Bench, list[Fault]]]) -> int:
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # nats-py over TLS: a warning at every close
    folder = Path(tempfile.mkdtemp(prefix="trimtab-faults-"))
    is_real, node = find_node(simulate=options.simulate)
    sys.stderr.write(f"on {node}\n")
    suite = Suite(1 if is_real else max(1, options.jobs), is_real, options.patience, options.keep, folder)
    started, ended = time.monotonic(), 0
    try:
        asyncio.run(_interruptible(suite, chosen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        ended = INTERRUPTED
        suite.interrupted()
    finally:
        if options.keep and any(folder.iterdir()):
            sys.stderr.write(f"kept: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    results = list(suite.results.values())
    sys.stdout.write(f"{render(results)}\n\n{summary(results)} in {time.monotonic() - started:.0f} s, on {node}\n")
    left = [str(path) for path in (folder, *Path("/dev/shm").glob(f"trimtab-node-{os.getpid()}-*")) if path.exists()]
    if left and not options.keep:
        sys.stdout.write(f"left behind: {', '.join(left)}\n")
        ended = ended or 1
    if options.json is not None:
        options.json.write_text(json.dumps(as_records(results), indent=1) + "\n", encoding="utf-8")
    return ended or exit_code(results)


async def _interruptible(suite: Suite, chosen: list[tuple[Bench, list[Fault]]]) -> None:
    task = asyncio.ensure_future(suite.run(chosen))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task
