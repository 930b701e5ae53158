"""Owns how sure an estimate is: the circular block bootstrap, studentised, of sums of ratios over dependent rows.

Blocks of consecutive cycles, since an action changes the next contexts and rewards have memory (Kuensch, Annals of
Statistics 1989; circular: Politis, Romano 1992). Studentised, since weights are skewed (Goetze, Kuensch, Annals of
Statistics 1996). Pure; the same seed gives the same interval. Memory: O(n) for block sums, and a bounded chunk of
draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lab.ope.estimators import Estimate
from lab.ope.logged import Bools, Floats, Ints

RESAMPLES: Final = 1000
"""Bootstrap draws. 1000: the ends of an interval move by some 2 % of its width from seed to seed."""

MIN_BLOCKS: Final = 20
"""Blocks that a log must have, else how much they vary is a guess. 20: known to a sixth, which studentising bears."""

STRETCH: Final = 2
"""By how much blocks are longer than is best for the variance, where the log has enough of them. Too short a block
always narrows the interval, too long a one only makes its width less certain, which studentising bears. 2: the
interval of AR(1) with memory 0.8 over 5,000 rows then holds the mean in 93 % of 300 tries, and else in 92 %."""

LEVEL: Final = 0.95

_NOTHING: Final = 1e-12
"""Spread, relative to the values, that is rounding and no spread."""

_CHUNK_CELLS: Final = 1 << 20
"""Block draws that are in memory at once: 8 MiB an array."""


@dataclass(frozen=True)
class Interval:
    """A value, its 95 % interval, and the rows in a block."""

    value: float
    low: float
    high: float
    block_rows: int


def block_interval(
    terms: Sequence[tuple[float, Estimate]], block_rows: int, *, seed: int, resamples: int = RESAMPLES
) -> Interval:
    """The 95 % interval of sum(sign x estimate) over `terms`, all resampled by the same blocks, so that a difference of
    two policies on one log is paired.

    A block goes on from the end of one run into the next, as it does from the end of the log to its start: what stands
    on both sides has nothing to do with each other, and that is what the bootstrap is to see there. Each row is as
    likely as any other. Raises ValueError for no terms, two lengths, and fewer than two blocks.
    """
    if not terms or len({len(estimate.numerator) for _, estimate in terms}) != 1:
        raise ValueError("terms: one or more estimates over the same rows")
    rows = len(terms[0][1].numerator)
    if not 1 <= block_rows <= rows // 2:
        raise ValueError(f"block_rows must be 1 to {rows // 2}, half the log; it is {block_rows}")
    sums = [
        (sign, _circular_sums(term.numerator, block_rows), _circular_sums(term.denominator, block_rows))
        for sign, term in terms
    ]
    value = sum(sign * term.value for sign, term in terms)
    count = math.ceil(rows / block_rows)
    error = float(_spread(sums, np.arange(rows)[None, :])[1][0]) / math.sqrt(rows / block_rows)
    if not error > _NOTHING * max(abs(value), 1.0):
        return Interval(value, value, value, block_rows)
    rng = np.random.default_rng(seed)
    pivots: list[Floats] = []
    for size in _chunks(resamples, max(1, _CHUNK_CELLS // count)):
        values, spreads = _spread(sums, rng.integers(0, rows, size=(size, count)))
        with np.errstate(divide="ignore", invalid="ignore"):
            pivots.append((values - value) / (spreads / math.sqrt(count)))
    pivot = np.concatenate(pivots)
    low, high = np.quantile(pivot[np.isfinite(pivot)], [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return Interval(value, value - float(high) * error, value - float(low) * error, block_rows)


def wanted_block_rows(influence: Floats, run: Ints) -> int:
    """How long a block should be for this series: the larger of n^(1/3), the order that minimises the error of the
    variance (Kuensch 1989), and the automatic choice of Politis, White (Econometric Reviews 2004) with the constant of
    Patton, Politis, White (2009) for circular blocks, which follows the series' own autocorrelation.
    """
    rows = len(influence)
    least = math.ceil(math.cbrt(rows))
    patience = max(5, math.ceil(math.sqrt(math.log10(max(rows, 2)))))
    furthest = min(rows - 1, math.ceil(math.sqrt(rows)) + patience)
    covariance = _autocovariance(influence, run, 2 * furthest)
    if not math.sqrt(covariance[0]) > _NOTHING * float(np.abs(influence).max()):
        return least
    correlated: Bools = np.abs(covariance[1:] / covariance[0]) >= 2.0 * math.sqrt(math.log10(rows) / rows)
    reach = _reach(correlated[: furthest + patience], patience, furthest)
    lag = np.arange(len(covariance))
    window = np.clip(2.0 * (1.0 - lag / (2.0 * max(reach, 1))), 0.0, 1.0)
    flat = window * covariance
    spectrum = float(flat[0] + 2.0 * flat[1:].sum())
    slope = float(2.0 * (lag * flat)[1:].sum())
    if not spectrum > 0.0:
        return least
    automatic = math.cbrt(2.0 * slope**2 / (4.0 / 3.0 * spectrum**2) * rows)
    return max(least, math.ceil(automatic))


def _reach(correlated: Bools, patience: int, furthest: int) -> int:
    """The last lag before so many in a row at which nothing correlates."""
    quiet = 0
    for lag, correlates in enumerate(correlated, start=1):
        quiet = 0 if correlates else quiet + 1
        if quiet == patience:
            return lag - patience
    return furthest


def _autocovariance(series: Floats, run: Ints, furthest: int) -> Floats:
    """Autocovariance at lags 0 to `furthest`, of pairs within one run only, all divided by the number of rows."""
    rows = len(series)
    centred = series - series.mean()
    total = np.zeros(furthest + 1)
    edges = np.flatnonzero(np.diff(run)) + 1
    for piece in np.split(centred, edges):
        lags = min(furthest, len(piece) - 1)
        size = 1 << (len(piece) + lags).bit_length()
        power = np.abs(np.fft.rfft(piece, size)) ** 2
        total[: lags + 1] += np.fft.irfft(power, size)[: lags + 1]
    return total / rows


def _circular_sums(series: Floats, block_rows: int) -> Floats:
    """The sum of the block that starts at each row (n), the log being a circle."""
    running = np.concatenate([[0.0], np.cumsum(np.concatenate([series, series[: block_rows - 1]]))])
    sums: Floats = running[block_rows:] - running[:-block_rows]
    return sums


def _spread(sums: Sequence[tuple[float, Floats, Floats]], starts: Ints) -> tuple[Floats, Floats]:
    """Of each resample (a row of `starts`): its value, and the deviation of what its blocks contribute to it."""
    value = np.zeros(len(starts))
    pulls = np.zeros(starts.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for sign, numerator, denominator in sums:
            above, below = numerator[starts], denominator[starts]
            ratio = above.sum(axis=1) / below.sum(axis=1)
            value += sign * ratio
            pulls += sign * (above - ratio[:, None] * below) / below.mean(axis=1)[:, None]
        return value, pulls.std(axis=1, ddof=1)


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
