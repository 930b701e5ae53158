"""Owns which colour a policy has: the same in every figure, told apart by people who see few colours, light and dark.

The first eight follow Okabe and Ito (Color Universal Design); dashes tell the rest apart once more.
"""

from collections.abc import Sequence
from typing import Final

from lab.arena.report.summary import BASELINE, BEST_STATIC

_FIXED: Final = ("trimtab", "trimtab-cold", BASELINE, BEST_STATIC)
"""Policies with a colour of their own, in every report."""

_COLOURS: Final = (
    ("#0072b2", "#58b1ff", ""),
    ("#3fa3dd", "#9ad7ff", "7 3"),
    ("#d55e00", "#ff8a4a", ""),
    ("#009e73", "#2fcf9f", ""),
    ("#c98500", "#f3b63a", ""),
    ("#c0599a", "#eba3cf", ""),
    ("#7d6b00", "#e5d84e", "9 3"),
    ("#5f6670", "#aab2bd", ""),
    ("#7b3fa0", "#c39bec", "2 3"),
    ("#20262e", "#e4e8ee", "4 3"),
    ("#8c4a2f", "#d69a80", "7 3 2 3"),
    ("#2f6f6f", "#7fd0d0", "2 2"),
)
"""(on light, on dark, dashes)."""


def slots(policies: Sequence[str]) -> dict[str, int]:
    """Each policy's number in the palette; what has no colour of its own takes the next, and in the end they repeat."""
    found = {name: index for index, name in enumerate(_FIXED)}
    others = [name for name in policies if name not in found]
    free = len(_COLOURS) - len(_FIXED)
    return found | {name: len(_FIXED) + index % free for index, name in enumerate(others)}


def colour_rules(policies: Sequence[str]) -> str:
    """The page's rules for `.s0`, `.s1`, ...: `--c` is the colour, and lines have their dashes."""
    used = sorted(set(slots(policies).values()))
    light = "".join(f".s{slot}{{--c:{_COLOURS[slot][0]}}}" for slot in used)
    dark = "".join(f".s{slot}{{--c:{_COLOURS[slot][1]}}}" for slot in used)
    dashes = "".join(f".line.s{slot}{{stroke-dasharray:{_COLOURS[slot][2]}}}" for slot in used if _COLOURS[slot][2])
    return f"{light}{dashes}@media(prefers-color-scheme:dark){{{dark}}}"
