"""What the text of a cgroup v2 file means (kernel: Documentation/admin-guide/cgroup-v2.rst)."""

from dataclasses import dataclass
from typing import Final

from hostfs.counters import parse_keyed, parse_unsigned
from hostfs.weights import MAX_WEIGHT

DEFAULT_PERIOD_USEC: Final = 100_000
"""The period that `cpu.max` has when only a quota was ever given."""


@dataclass(frozen=True, slots=True)
class CpuStat:
    """`cpu.stat`: CPU time since the group was made; throttling is None where the cpu controller is not enabled."""

    usage_usec: int
    user_usec: int | None = None
    system_usec: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    throttled_usec: int | None = None


@dataclass(frozen=True, slots=True)
class CpuMax:
    """`cpu.max`: at most `quota_usec` of CPU time per `period_usec`. No quota means no limit."""

    quota_usec: int | None
    period_usec: int = DEFAULT_PERIOD_USEC

    @property
    def cpus(self) -> float | None:
        """The limit in CPUs, None if there is none."""
        return None if self.quota_usec is None else self.quota_usec / self.period_usec


@dataclass(frozen=True, slots=True)
class CpuMaxUnknown:
    """A `cpu.max` that says nothing usable: neither a limit nor the absence of one. `reason` says what was wrong."""

    reason: str


def parse_weight(text: str) -> int | None:
    """A `cpu.weight`: 1-10000, or 0, which a group with `cpu.idle` shows and which cannot be written back."""
    weight = parse_unsigned(text)
    return weight if weight is not None and weight <= MAX_WEIGHT else None


def parse_flag(text: str) -> bool | None:
    """A file of one 0 or 1, such as `cpu.idle`."""
    return {"0": False, "1": True}.get(text.strip())


def parse_memory(text: str) -> int | None:
    """`memory.current` in bytes."""
    return parse_unsigned(text)


def parse_controllers(text: str) -> frozenset[str]:
    """The names in `cgroup.controllers` or `cgroup.subtree_control`."""
    return frozenset(text.split())


def parse_cpu_stat(text: str) -> CpuStat | None:
    """A `cpu.stat`; None without `usage_usec`. Keys that are not known are ignored, missing ones are None, not 0."""
    numbers = parse_keyed(text)
    usage_usec = numbers.get("usage_usec")
    if usage_usec is None:
        return None
    return CpuStat(
        usage_usec,
        numbers.get("user_usec"),
        numbers.get("system_usec"),
        numbers.get("nr_periods"),
        numbers.get("nr_throttled"),
        numbers.get("throttled_usec"),
    )


def parse_cpu_max(text: str) -> CpuMax | CpuMaxUnknown:
    """A `cpu.max`: `max` or a quota, then a period that may be missing (then 100000), both in microseconds."""
    words = text.split()
    if len(words) not in (1, 2):
        return CpuMaxUnknown("empty" if not words else f"{len(words)} words, 1 or 2 are expected")
    quota_usec = None if words[0] == "max" else parse_unsigned(words[0])
    if words[0] != "max" and not quota_usec:
        return CpuMaxUnknown(f"quota {words[0][:32]!r} is neither 'max' nor a positive number")
    period_usec = parse_unsigned(words[1]) if len(words) == 2 else DEFAULT_PERIOD_USEC  # noqa: PLR2004 - quota, period
    if not period_usec:
        return CpuMaxUnknown(f"period {words[1][:32]!r} is not a positive number")
    return CpuMax(quota_usec, period_usec)
