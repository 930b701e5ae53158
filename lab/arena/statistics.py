"""Owns how sure a mean is: the t interval over seeds, and the bootstrap of differences between runs of one seed.

Pure and without numpy: `trimtab report` needs nothing installed.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t, 97.5 % point, for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2)."""

_Z_975: Final = 1.959964

RESAMPLES: Final = 2000
"""Bootstrap draws: the ends of a 95 % interval then move by about a hundredth of its width from seed to seed."""


@dataclass(frozen=True)
class Interval:
    """A mean of `count` values and its 95 % interval; `low` and `high` are None where one value tells no spread."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high; the mean twice where they are not known."""
        return (self.mean if self.low is None else self.low, self.mean if self.high is None else self.high)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def t_quantile(degrees: int) -> float:
    """The 97.5 % point of Student's t; from 31 degrees on by the first two terms of its expansion at the normal one."""
    if degrees < 1:
        raise ValueError("degrees: at least 1")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean and its 95 % t interval: it takes the values as drawn independently, one per seed, roughly normal."""
    count = len(values)
    if count == 0:
        raise ValueError("values: at least one")
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def paired_difference(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 1) -> Interval:
    """The mean of `ours - theirs`, pair by pair, and its 95 % percentile bootstrap interval. Pairs share a seed, so the
    load's own luck cancels out. With few pairs (under eight or so) it is too narrow. The same seed draws the same.
    """
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    count = len(differences)
    if count == 0:
        raise ValueError("pairs: at least one")
    mean = math.fsum(differences) / count
    if count == 1:
        return Interval(mean, None, None, 1)
    rng = random.Random(seed)  # noqa: S311 - statistics, no secrets
    means = sorted(math.fsum(rng.choices(differences, k=count)) / count for _ in range(RESAMPLES))
    tail = round(RESAMPLES * 0.025)
    return Interval(mean, means[tail], means[-tail - 1], count)


def median(values: Sequence[float]) -> float:
    """The middle value. Raises ValueError without any."""
    if not values:
        raise ValueError("values: at least one")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
