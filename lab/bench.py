"""`make bench`: what the loop costs, against the budgets it is built to. Speed is measured, never asserted.

Runs the five services on the simulated node at the default tick and settle times and reads their memory (PSS), their
CPU time and the time from a state to its written weights; then times the pure cores alone, and scraping full nodes.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lab.bench_decide import measure_decide
from lab.bench_node import collect_once, solve_once
from lab.bench_scrape import Figure, measure_scrape, show
from lab.latency_records import nearest_rank
from lab.rig import Rig, RigOptions
from lab.sim_stage import SimStage
from runtime.errors import TrimtabError
from schemas.messages import Actuation, AnyMessage, State
from schemas.subjects import SERVICES

_TICKS_PER_SECOND = 100.0


class _Clockwork:
    """Remembers when each state was made and when its weights were written."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], int] = {}
        self.seconds: list[float] = []
        self.cycles = 0

    def __call__(self, message: AnyMessage) -> None:
        if isinstance(message, State) and message.phase == "before":
            self.made[(message.boot, message.cycle)] = message.at
            self.cycles += 1
        elif isinstance(message, Actuation) and message.outcome in ("applied", "held", "skipped"):
            started = self.made.get((message.boot, message.cycle))
            if started is not None:
                self.seconds.append((message.at - started) / 1e9)


def pss_mib(pid: int) -> float:
    """Proportional set size of a process in MiB (kernel: Documentation/filesystems/proc.rst, smaps_rollup)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far (proc(5), stat: utime + stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


async def measure_loop(seconds: float, tick_seconds: float) -> list[Figure]:
    """Memory, CPU and latency of the running loop."""
    watch = _Clockwork()
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        rig = Rig(SimStage(seed=1), RigOptions(Path(folder), tick_seconds=tick_seconds), on_message=watch)
        try:
            await rig.start()
            await rig.stage.start_batch()
            await rig.order("active", "a benchmark", by="trimtab bench")
            await asyncio.sleep(2 * tick_seconds)
            pids = rig.fleet.pids()
            before = {name: cpu_seconds(pids[name]) for name in SERVICES}
            started, watch.seconds = time.monotonic(), []
            await asyncio.sleep(seconds)
            elapsed = time.monotonic() - started
            used = {name: cpu_seconds(pids[name]) - before[name] for name in SERVICES}
            memory = {name: pss_mib(pids[name]) for name in SERVICES}
        finally:
            is_closed = await rig.close()
        if not is_closed:
            raise TrimtabError("; ".join(rig.troubles))
    rising = sorted(watch.seconds)
    figures = [Figure(f"memory of the {name}", memory[name], "MiB PSS") for name in SERVICES]
    figures.append(Figure("memory of all five", sum(memory.values()), "MiB PSS", 230.0))
    figures += [Figure(f"CPU of the {name}", used[name] / elapsed * 100, "% of a core") for name in SERVICES]
    figures.append(Figure("CPU of all five", sum(used.values()) / elapsed * 100, "% of a core", 1.0))
    for percent, budget in ((50, None), (99, 15.0)):
        value = nearest_rank(rising, percent)
        figures.append(Figure(f"state to written, P{percent} of {len(rising)}", (value or 0.0) * 1000, "ms", budget))
    return figures


def measure_cores(pods: int = 300) -> list[Figure]:
    """CPU time of the pure cores: one collection of a large node, one solution of its weights."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-", dir=_memory()) as folder:
        collect = collect_once(Path(folder), pods)
        collect()
        return [
            Figure(f"one collection of {pods} pods", _cpu_ms(collect), "ms CPU", 150.0),
            Figure(f"pod weights of {pods} pods", _cpu_ms(solve_once(pods)), "ms CPU"),
        ]


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a name of its own is made in it


def _cpu_ms(work: Callable[[], object], rounds: int = 10) -> float:
    started = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - started) / rounds * 1000


def main() -> int:
    """Measures and prints; 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the measurement (default: 60)")
    parser.add_argument("--tick", type=float, default=5.0, help="seconds a cycle (default: 5)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    print(f"measuring for {args.seconds:g} s at a tick of {args.tick:g} s ...", file=sys.stderr, flush=True)
    figures = (
        measure_cores()
        + measure_decide()
        + asyncio.run(measure_loop(args.seconds, args.tick))
        + asyncio.run(measure_scrape())
    )
    return show(figures, args.json)


if __name__ == "__main__":
    sys.exit(main())
