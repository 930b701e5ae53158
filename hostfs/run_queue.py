"""How many tasks wait for a CPU, from the best file that this kernel has, and how busy its CPUs are.

Sources, best first: `/proc/schedstat` counts the nanoseconds that tasks waited, so it gives a mean over any window;
`/proc/pressure/cpu` counts the time in which some task waited; `/proc/loadavg` and `/proc/stat` give runnable tasks
at one moment. Their answers are on different scales, so the source is part of the answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hostfs.counters import parse_all_unsigned, parse_keyed, parse_unsigned
from hostfs.files import read_text
from hostfs.pressure import parse_pressure

Source: TypeAlias = Literal["schedstat", "pressure", "loadavg", "stat"]

SCHEDSTAT_VERSIONS: Final = frozenset({15, 16, 17})
"""Versions with the per-CPU line read here; 16 and 17 changed the domain lines only."""

_RUN_DELAY_FIELD: Final = 8
_NSEC_PER_SECOND: Final = 1e9
_USEC_PER_SECOND: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQueueSample:
    """What one file said. Which field is set follows from `source`.

    `run_delay_nsec` by CPU number (schedstat) and `some_usec` (pressure) are counters: two samples make a value.
    `runnable` (loadavg, stat) counts the tasks running or waiting at that moment, the reader among them.
    """

    source: Source
    run_delay_nsec: Mapping[int, int] = field(default_factory=dict)
    some_usec: int = 0
    runnable: int = 0


@dataclass(frozen=True, slots=True)
class ProcStat:
    """`/proc/stat`: CPU time of the node since boot in clock ticks, runnable tasks, CPUs that are online.

    Busy is user, nice, system, irq, softirq and steal. Steal counts since a task wanted that time and did not get it:
    the node had none to spare. Idle is idle and iowait: a CPU in iowait would run any task that is ready. Guest time is
    part of user already.
    """

    busy_ticks: int
    total_ticks: int
    procs_running: int | None
    cpus: int


def parse_schedstat(text: str) -> dict[int, int] | None:
    """Nanoseconds that tasks waited to run, since boot, by CPU number; None for another version or no CPUs.

    A task's wait is added when it gets to run (or leaves the queue). Source: kernel, scheduler/sched-stats.rst, eighth
    field; nanoseconds on every kernel with these versions, although texts before 5.19 say jiffies.
    """
    lines = text.split("\n")
    head = lines[0].split()
    if len(head) != 2 or head[0] != "version" or parse_unsigned(head[1]) not in SCHEDSTAT_VERSIONS:  # noqa: PLR2004 - "version N"
        return None
    run_delay_nsec: dict[int, int] = {}
    for line in lines:
        if not line.startswith("cpu"):
            continue
        words = line.split()
        cpu = parse_unsigned(words[0][3:])
        delay = parse_unsigned(words[_RUN_DELAY_FIELD]) if len(words) > _RUN_DELAY_FIELD else None
        if cpu is None or delay is None:
            return None
        run_delay_nsec[cpu] = delay
    return run_delay_nsec or None


def parse_loadavg(text: str) -> int | None:
    """Tasks running or waiting for a CPU right now: the first number of the fourth word, such as `2/77`."""
    words = text.split()
    if len(words) < 4:  # noqa: PLR2004 - the fourth word, proc(5)
        return None
    runnable, slash, _ = words[3].partition("/")
    return parse_unsigned(runnable) if slash else None


def parse_proc_stat(text: str) -> ProcStat | None:
    """The node's CPU times; None without a complete `cpu` line. Source: proc_stat(5)."""
    ticks: tuple[int, ...] | None = None
    cpus = 0
    for line in text.split("\n"):
        if line.startswith("cpu "):
            ticks = parse_all_unsigned(line.split()[1:9])
        elif line.startswith("cpu"):
            cpus += 1
        else:
            break
    if ticks is None or len(ticks) < 8:  # noqa: PLR2004 - user … steal
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = ticks
    busy_ticks = user + nice + system + irq + softirq + steal
    return ProcStat(busy_ticks, busy_ticks + idle + iowait, parse_keyed(text).get("procs_running"), cpus)


def busy_ratio_between(previous: ProcStat, current: ProcStat) -> float | None:
    """The busy part of the CPU time in between (0-1); None if no time passed or the counters went back."""
    busy_ticks = current.busy_ticks - previous.busy_ticks
    total_ticks = current.total_ticks - previous.total_ticks
    if busy_ticks < 0 or total_ticks <= 0:
        return None
    # iowait may go back (proc_stat(5)), which makes the total too small by a little.
    return min(1.0, busy_ticks / total_ticks)


def run_queue_between(
    previous: RunQueueSample | None, current: RunQueueSample, elapsed_seconds: float, cpus: int
) -> float | None:
    """The run queue between two samples taken `elapsed_seconds` apart on a node of `cpus` CPUs.

    From schedstat the mean number of tasks waiting per CPU; from pressure the part of the time in which some task
    waited (0-1); from loadavg and stat the runnable tasks per CPU at the second sample, the reader not counted. None
    if it cannot be told: no first sample, another source, a counter that went back, no time or no CPU.
    """
    if cpus <= 0:
        return None
    if current.source in ("loadavg", "stat"):
        return max(0, current.runnable - 1) / cpus
    if previous is None or previous.source != current.source or not 0 < elapsed_seconds < math.inf:
        return None
    if current.source == "pressure":
        waited_usec = current.some_usec - previous.some_usec
        return None if waited_usec < 0 else min(1.0, waited_usec / (elapsed_seconds * _USEC_PER_SECOND))
    # Only CPUs in both samples: one that comes online brings all it counted since boot.
    both = previous.run_delay_nsec.keys() & current.run_delay_nsec.keys()
    waited_nsec = [current.run_delay_nsec[cpu] - previous.run_delay_nsec[cpu] for cpu in both]
    if not waited_nsec or min(waited_nsec) < 0:
        return None
    waiting_per_cpu = sum(waited_nsec) / (elapsed_seconds * _NSEC_PER_SECOND) / cpus
    return waiting_per_cpu if math.isfinite(waiting_per_cpu) else None


class RunQueueReader:
    """Reads the run queue and the CPU times below `proc_root`."""

    def __init__(self, proc_root: str = "/proc") -> None:
        self._proc_root = proc_root

    def sample(self) -> RunQueueSample | None:
        """A sample from the best file that can be read now, or None if there is none."""
        run_delay_nsec = parse_schedstat(self._text("schedstat"))
        if run_delay_nsec is not None:
            return RunQueueSample(source="schedstat", run_delay_nsec=run_delay_nsec)
        pressure = parse_pressure(self._text("pressure/cpu"))
        if pressure is not None:
            return RunQueueSample(source="pressure", some_usec=pressure.some.total_usec)
        runnable = parse_loadavg(self._text("loadavg"))
        if runnable is not None:
            return RunQueueSample(source="loadavg", runnable=runnable)
        stat = self.proc_stat()
        if stat is not None and stat.procs_running is not None:
            return RunQueueSample(source="stat", runnable=stat.procs_running)
        return None

    def proc_stat(self) -> ProcStat | None:
        """`/proc/stat`, or None if it cannot be read."""
        return parse_proc_stat(self._text("stat"))

    def _text(self, name: str) -> str:
        try:
            return read_text(f"{self._proc_root}/{name}")
        except OSError:
            return ""
