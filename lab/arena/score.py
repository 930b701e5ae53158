"""Owns the score that judges every policy, apart from what any of them learns from. Pure.

Of one cycle: -(violation ratio of latency-critical + half of default's) + 0.3 x batch's part of the CPUs, the last only
while both ratios are at most 1 %. A violation ratio is the part of the requests that ended in the cycle and were not
answered within their class's objective: late, given up, or turned away.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

DEFAULT_WEIGHT: Final = 0.5
BATCH_WEIGHT: Final = 0.3
GOOD_RATIO: Final = 0.01
LEAST_MAGNITUDE: Final = 1.0
"""Of a cumulative score, in scores of one cycle: what a sum near zero is compared with. 1: one cycle in which every
latency-critical request was late."""

PLATEAU_CYCLES: Final = 10
PLATEAU_MARGIN: Final = 0.05


def cycle_score(violation_lc: float | None, violation_default: float | None, batch_share: float) -> float:
    """The score of one cycle, within [-1.5, 0.3]. Ratios are 0-1; None: no request ended, so none was late."""
    lc, default = violation_lc or 0.0, violation_default or 0.0
    both_hold = lc <= GOOD_RATIO and default <= GOOD_RATIO
    return -(lc + DEFAULT_WEIGHT * default) + (BATCH_WEIGHT * batch_share if both_hold else 0.0)


def worst_shortfall(scores: Sequence[float], baseline: Sequence[float]) -> float:
    """The largest part, over all cycles, by which the cumulative score lies below the baseline's: their difference, by
    the magnitude of the baseline's cumulative score (at least LEAST_MAGNITUDE). 0 where it never does. ValueError for
    two lengths.
    """
    pairs = zip(accumulate(scores), accumulate(baseline), strict=True)
    return max((max(0.0, base - own) / max(abs(base), LEAST_MAGNITUDE) for own, base in pairs), default=0.0)


def plateau_cycle(scores: Sequence[float]) -> int:
    """From which cycle (0 is the first) on the mean of the next PLATEAU_CYCLES is at most PLATEAU_MARGIN below the mean
    of the second half: how long it took until it was as good as it gets. Means something where the load is steady.
    """
    half = scores[len(scores) // 2 :]
    goal = sum(half) / max(1, len(half)) - PLATEAU_MARGIN
    for start in range(len(scores)):
        ahead = scores[start : start + PLATEAU_CYCLES]
        if sum(ahead) / len(ahead) >= goal:
            return start
    return len(scores)
