"""What the kernel prints in its cgroup2 and proc files, from numbers. Pure: numbers in, text out, and weights back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hostfs.weights import MAX_WEIGHT, MIN_WEIGHT

USER_HZ: Final = 100
"""Jiffies per second in /proc/stat on every common build."""

SYSTEM_RATIO: Final = 0.1
"""Part of the CPU time shown as system time. Any constant serves: nothing here tells user from system work."""

PRESSURE_HORIZONS_SECONDS: Final = (10.0, 60.0, 300.0)
LOAD_HORIZONS_SECONDS: Final = (60.0, 300.0, 900.0)

MOUNT_OPTIONS: Final = "rw,nosuid,nodev,noexec,relatime"


@dataclass(slots=True)
class Averages:
    """Exponentially decaying averages over several horizons, as in /proc/loadavg and the pressure files.

    The kernel updates them every 2 or 5 seconds; here every call to `add` does, which is the same average, smoother.
    """

    horizons_seconds: tuple[float, ...]
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self.values = self.values or (0.0,) * len(self.horizons_seconds)

    def add(self, value: float, seconds: float) -> None:
        """Takes in that the quantity was `value` for the last `seconds`."""
        keep = [math.exp(-seconds / horizon) for horizon in self.horizons_seconds]
        self.values = tuple(old * k + value * (1.0 - k) for old, k in zip(self.values, keep, strict=True))


def usec(seconds: float) -> int:
    """Whole microseconds."""
    return int(seconds * 1e6)


def cpu_stat(usage_usec: int, *, controller: bool = True) -> str:
    """`cpu.stat`; without the cpu controller (the root group) only the usage lines are there."""
    system_usec = int(usage_usec * SYSTEM_RATIO)
    text = f"usage_usec {usage_usec}\nuser_usec {usage_usec - system_usec}\nsystem_usec {system_usec}\nnice_usec 0\n"
    if controller:
        text += "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n"
    return text


def pressure(some: Averages, some_usec: int, full: Averages, full_usec: int) -> str:
    """`cpu.pressure`. The averages hold ratios (0-1) over `PRESSURE_HORIZONS_SECONDS`; the file shows percent."""
    return _pressure_line("some", some, some_usec) + _pressure_line("full", full, full_usec)


def _pressure_line(kind: str, ratios: Averages, total_usec: int) -> str:
    avg10, avg60, avg300 = (100.0 * ratio for ratio in ratios.values)
    return f"{kind} avg10={avg10:.2f} avg60={avg60:.2f} avg300={avg300:.2f} total={total_usec}\n"


def loadavg(loads: Averages, *, runnable: int, threads: int, last_pid: int) -> str:
    """`/proc/loadavg`: mean runnable threads over 1, 5 and 15 minutes, runnable/existing threads, newest pid."""
    one, five, fifteen = loads.values
    return f"{one:.2f} {five:.2f} {fifteen:.2f} {runnable}/{threads} {last_pid}\n"


def stat(*, busy_seconds: float, now_seconds: float, cores: int, runnable: int, boot_unix_seconds: int) -> str:
    """`/proc/stat` with the busy time spread evenly over the cores."""
    lines = [_cpu_line("cpu ", busy_seconds, now_seconds * cores)]
    lines += [_cpu_line(f"cpu{core}", busy_seconds / cores, now_seconds) for core in range(cores)]
    lines += [
        "intr 0",
        "ctxt 0",
        f"btime {boot_unix_seconds}",
        "processes 0",
        f"procs_running {runnable}",
        "procs_blocked 0",
        "softirq 0 0 0 0 0 0 0 0 0 0 0",
    ]
    return "\n".join(lines) + "\n"


def _cpu_line(label: str, busy_seconds: float, all_seconds: float) -> str:
    busy = int(busy_seconds * USER_HZ)
    system = int(busy * SYSTEM_RATIO)
    idle = max(0, int(all_seconds * USER_HZ) - busy)
    return f"{label} {busy - system} 0 {system} {idle} 0 0 0 0 0 0"


def schedstat(*, busy_seconds: float, waiting_seconds: float, now_seconds: float, cores: int) -> str:
    """`/proc/schedstat` (version 15): per CPU, the nanoseconds that tasks ran and that they waited to run."""
    ran_ns, waited_ns = (int(seconds / cores * 1e9) for seconds in (busy_seconds, waiting_seconds))
    lines = ["version 15", f"timestamp {int(now_seconds * USER_HZ)}"]
    lines += [f"cpu{core} 0 0 0 0 0 0 {ran_ns} {waited_ns} 0" for core in range(cores)]
    return "\n".join(lines) + "\n"


def mountinfo(cgroup_root: str) -> str:
    """`/proc/self/mountinfo` of a host whose only cgroup mount is a cgroup2 at `cgroup_root`."""
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in cgroup_root)
    return f"1 1 8:1 / / rw,relatime - ext4 /dev/root rw\n25 1 0:22 / {escaped} {MOUNT_OPTIONS} - cgroup2 cgroup2 rw\n"


def procs(pids: Sequence[int]) -> str:
    """`cgroup.procs`: one pid a line."""
    return "".join(f"{pid}\n" for pid in pids)


def parse_weight(text: str) -> int | None:
    """The weight in the first line of what was written to `cpu.weight`, or None where a kernel would refuse it.

    Only the first line counts: one who writes in place, without truncating, leaves the tail of the older text behind.
    """
    line = text.split("\n", 1)[0].strip()
    if not (line.isascii() and line.isdigit()):
        return None
    weight = int(line)
    return weight if MIN_WEIGHT <= weight <= MAX_WEIGHT else None
