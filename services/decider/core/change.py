"""Owns the detection of change: whether rewards have parted from what was believed of them. On River's detector."""
# ruff: noqa: SLF001 - River has no public way to a detector's state; a snapshot is tied to River's exact version

from collections.abc import Sequence
from typing import Final

from river import drift, stats

MIN_LESSONS: Final = 20
"""Lessons after a detection before the next: fewer are noise."""

SLACK: Final = 0.1
"""Part of a surprise that is taken for noise, in rewards."""

THRESHOLD: Final = 4.0
"""Sum of surprises beyond the slack that makes a change: eight lessons that are all off by 0.6."""


class ChangeDetector:
    """Page and Hinkley's test (Page, Biometrika 41, 1954) on surprises, in both directions."""

    size: Final = 6
    """Numbers that `save` gives."""

    def __init__(self) -> None:
        self._test = _fresh()

    def see(self, surprise: float) -> bool:
        """Takes in reward minus what was expected; whether that makes a change."""
        self._test.update(surprise)  # type: ignore[no-untyped-call] # River
        if not self._test.drift_detected:
            return False
        self._test = _fresh()
        return True

    def save(self) -> list[float]:
        """Lessons, mean, both sums and both ends; zeros before the first lesson."""
        test = self._test
        if not test._x_mean.n:
            return [0.0] * self.size
        sums = (test._sum_increase, test._sum_decrease, test._min_increase, test._max_decrease)
        return [float(test._x_mean.n), float(test._x_mean.get()), *(float(value) for value in sums)]

    def load(self, numbers: Sequence[float]) -> None:
        """The inverse of `save`."""
        test = _fresh()
        lessons, mean, *sums = numbers
        if lessons > 0.0:
            test._x_mean = stats.Mean()
            test._x_mean.update(mean, lessons)
            test._sum_increase, test._sum_decrease, test._min_increase, highest = sums
            test._max_decrease = highest  # type: ignore[assignment] # River starts it at an int
        self._test = test


def _fresh() -> drift.PageHinkley:
    return drift.PageHinkley(min_instances=MIN_LESSONS, delta=SLACK, threshold=THRESHOLD)
