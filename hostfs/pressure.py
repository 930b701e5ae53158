"""CPU pressure: how long tasks waited for a CPU (kernel: Documentation/accounting/psi.rst)."""

import errno
import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hostfs.counters import parse_unsigned
from hostfs.files import read_text

AbsentReason: TypeAlias = Literal["psi_off", "psi_missing", "vanished", "unreadable", "malformed"]


@dataclass(frozen=True, slots=True)
class PressureLine:
    """Stalls since the group was made (`total_usec`) and averages over the last 10, 60 and 300 s in percent (0-100)."""

    avg10: float
    avg60: float
    avg300: float
    total_usec: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """`some`: at least one task waited. `full`: all of them did, at once.

    Kernels before 5.13 print no `full` line for CPU; of the whole system it is always 0 there, since somebody runs.
    """

    some: PressureLine
    full: PressureLine | None = None


@dataclass(frozen=True, slots=True)
class PressureAbsent:
    """No pressure is known, which is not a pressure of 0.

    `psi_off`: the kernel has the accounting and it was not switched on at boot. `psi_missing`: no such file, so the
    kernel was built without it, or `cgroup.pressure` of the group is 0. `vanished`: the group went away meanwhile.
    """

    reason: AbsentReason

    @property
    def lacks_capability(self) -> bool:
        """Whether this node cannot give pressure at all, so that saying so once is enough."""
        return self.reason in ("psi_off", "psi_missing")

    @property
    def remedy(self) -> str | None:
        """What an operator can do about it, in one sentence, or None."""
        return _REMEDIES.get(self.reason)


_REMEDIES: Final[dict[str, str]] = {
    "psi_off": "Boot the node with psi=1 to switch pressure accounting on.",
    "psi_missing": "Use a kernel built with CONFIG_PSI to see pressure.",
}

_REASON_BY_ERRNO: Final[dict[int | None, AbsentReason]] = {
    errno.EOPNOTSUPP: "psi_off",
    errno.ENOENT: "psi_missing",
    errno.ENODEV: "vanished",
}


def parse_pressure(text: str) -> Pressure | None:
    """The pressure in a `cpu.pressure` or `/proc/pressure/cpu` text; None without a complete `some` line."""
    some = full = None
    for line in text.split("\n"):
        if line.startswith("some "):
            some = _parse_line(line)
        elif line.startswith("full "):
            full = _parse_line(line)
    return None if some is None else Pressure(some, full)


def pressure_in(text: str) -> Pressure | PressureAbsent:
    """As `parse_pressure`, with the reason for an absence: an empty text is a group that is just being removed."""
    if not text:
        return PressureAbsent("vanished")
    return parse_pressure(text) or PressureAbsent("malformed")


def absent_because(error: OSError) -> PressureAbsent:
    """What a failed open or read of a pressure file means."""
    return PressureAbsent(_REASON_BY_ERRNO.get(error.errno, "unreadable"))


def read_pressure(path: str) -> Pressure | PressureAbsent:
    """The pressure in the file at `path`. Never raises OSError: that the kernel has none is a value."""
    try:
        return pressure_in(read_text(path))
    except OSError as error:
        return absent_because(error)


def _parse_line(line: str) -> PressureLine | None:
    fields = dict(field.split("=", 1) for field in line.split(" ") if "=" in field)
    avg10, avg60, avg300 = (_parse_percent(fields.get(name, "")) for name in ("avg10", "avg60", "avg300"))
    total_usec = parse_unsigned(fields.get("total", ""))
    if avg10 is None or avg60 is None or avg300 is None or total_usec is None:
        return None
    return PressureLine(avg10, avg60, avg300, total_usec)


def _parse_percent(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
