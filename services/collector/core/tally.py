"""Counters of the kernel to rates: what each group used and waited between two readings, counted once.

A counter that went back, a group that was made anew and a first reading give no rate, never a negative one (ST-01).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostfs.cgroup import GroupReading
from hostfs.pressure import Pressure, PressureAbsent
from hostfs.tasks import run_delay_between

_USEC = 1e6
_MOST_CPUS = 8192
"""The kernel's own limit (NR_CPUS): nothing is used or waited for faster."""


@dataclass(frozen=True)
class GroupRates:
    """One group in one window; None is unknown. `run_delay` is the mean number of its tasks that waited, where the
    kernel shows no pressure. `unheld_ratio` is the part of the window in which it waited, its own limit apart: by
    pressure, else by run delay (of several tasks that wait at once the sum, so at most 1 is taken).
    """

    cpu_cores: float | None = None
    pressure_ratio: float | None = None
    throttled_ratio: float | None = None
    run_delay: float | None = None
    unheld_ratio: float | None = None
    unknown: str | None = None
    """Why it is not known how long it waited; None if it is."""

    def waited_ratio(self, cpus: int) -> float | None:
        """The part of the window in which it waited for others, at least. No weight cures a wait for its own limit, nor
        one for its own other tasks: that needs all CPUs to be busy with them, so it is not longer than usage / CPUs.
        """
        if self.unheld_ratio is None or self.cpu_cores is None:
            return None
        return max(0.0, self.unheld_ratio - self.cpu_cores / max(1, cpus))


@dataclass
class Tally:
    """Holds the last reading of every group."""

    _last: dict[str, GroupReading] = field(default_factory=dict)
    _last_delays: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def advance(
        self,
        elapsed_seconds: float | None,
        readings: Mapping[str, GroupReading],
        run_delays: Mapping[str, Mapping[int, int]] | None = None,
    ) -> dict[str, GroupRates]:
        """Rates since the last call. Groups that are not in `readings` are forgotten."""
        delays = run_delays or {}
        rates: dict[str, GroupRates] = {}
        for group, reading in readings.items():
            before = self._last.get(group)
            if before is None or before.inode != reading.inode or elapsed_seconds is None or elapsed_seconds <= 0:
                rates[group] = GroupRates(unknown="first_look")
            else:
                between = (self._last_delays.get(group), delays.get(group))
                rates[group] = _rates(before, reading, between, elapsed_seconds)
        self._last, self._last_delays = dict(readings), delays
        return rates


def _rates(
    before: GroupReading,
    now: GroupReading,
    delays: tuple[Mapping[int, int] | None, Mapping[int, int] | None],
    elapsed: float,
) -> GroupRates:
    cpu = throttled = held = delay = unheld = None
    if before.stat is not None and now.stat is not None:
        cpu = _rise(before.stat.usage_usec, now.stat.usage_usec, elapsed)
        throttled = _held_ratio(_rise(before.stat.throttled_usec, now.stat.throttled_usec, elapsed), cpu)
        # Without the cpu controller there is no limit to be held by; a counter that went back tells nothing.
        held = 0.0 if now.stat.throttled_usec is None else throttled
    pressure = _ratio(_rise(_some_usec(before), _some_usec(now), elapsed))
    if pressure is None:
        delay = run_delay_between(*delays, elapsed)
    if held is not None:
        unheld = run_delay_between(*delays, elapsed, held) if pressure is None else max(0.0, pressure - held)
    unknown = _why_unknown(before, now, went_back=None in (cpu, held)) if None in (cpu, unheld) else None
    return GroupRates(cpu, pressure, throttled, delay, _ratio(unheld), unknown)


def _why_unknown(before: GroupReading, now: GroupReading, *, went_back: bool) -> str:
    if now.stat is None:
        return "malformed"
    if before.stat is None:
        return "first_look"
    if went_back:
        return "counter_reset"
    if isinstance(now.pressure, PressureAbsent):
        return now.pressure.reason
    return "first_look" if isinstance(before.pressure, PressureAbsent) else "counter_reset"


def _held_ratio(held_cores: float | None, used_cores: float | None) -> float | None:
    """The part of the window in which a limit held the group. The kernel adds up the time for each CPU that it was held
    on; what it was held for, of all that it would have run, is the part of the time if it was held on all at once.
    """
    if held_cores is None or used_cores is None:
        return None
    return min(1.0, held_cores, held_cores / (held_cores + used_cores)) if held_cores > 0 else 0.0


def _ratio(value: float | None) -> float | None:
    return None if value is None else min(1.0, value)


def _some_usec(reading: GroupReading) -> int | None:
    return reading.pressure.some.total_usec if isinstance(reading.pressure, Pressure) else None


def _rise(before: int | None, now: int | None, elapsed: float) -> float | None:
    if before is None or now is None or now < before:
        return None
    rise = (now - before) / _USEC / elapsed
    return rise if rise <= _MOST_CPUS else None  # a counter that jumps is not one that counts
