"""The block bootstrap: against analytic errors, as a paired one, and where an independent one fails."""

import math

import numpy as np
import pytest

from lab.ope.bootstrap import STRETCH, _autocovariance, _circular_sums, _spread, block_interval, wanted_block_rows
from lab.ope.estimators import Estimate

ONE_RUN = np.zeros(2000, int)


def mean_of(series):
    return Estimate(series, np.ones(len(series)))


def autoregressive(rows, memory, seed):
    """Deviation 1, autocorrelation `memory` from row to row; the mean's error is sqrt((1 + memory) / (1 - memory) / n)."""
    rng = np.random.default_rng(seed)
    series, value = np.empty(rows), rng.normal()
    for row, fresh in enumerate(rng.normal(0.0, math.sqrt(1.0 - memory**2), rows)):
        value = memory * value + fresh
        series[row] = value
    return series


def test_blocks_go_round():
    assert _circular_sums(np.array([1.0, 2.0, 3.0, 4.0]), 3) == pytest.approx([6.0, 9.0, 8.0, 7.0])
    assert _circular_sums(np.array([1.0, 2.0]), 1) == pytest.approx([1.0, 2.0])


def test_a_resample_is_its_blocks():
    """Two blocks of two rows: ratios 3 / 2 and 7 / 4 of A, 1 and 2 of B; A - B of both is 10 / 6 - 12 / 8.

    What they pull: A (3 - 10/6 * 2) / 3 and (7 - 10/6 * 4) / 3, B (4 - 1.5 * 4) / 4 and (8 - 1.5 * 4) / 4.
    """
    first = (np.array([3.0, 7.0]), np.array([2.0, 4.0]))
    second = (np.array([4.0, 8.0]), np.array([4.0, 4.0]))
    values, spreads = _spread([(1.0, *first), (-1.0, *second)], np.array([[0, 1]]))
    assert values == pytest.approx([10 / 6 - 12 / 8])
    pulls = [-1 / 9 + 0.5, 1 / 9 - 0.5]
    assert spreads == pytest.approx([math.sqrt(2 * pulls[0] ** 2)])


def test_every_row_is_as_likely_as_any_other():
    """One row that differs, the last or one in the middle, gives the same interval: the log is a circle."""
    found = []
    for place in (99, 50):
        series = np.zeros(100)
        series[place] = 1.0
        found.append(block_interval([(1.0, mean_of(series))], 10, seed=1, resamples=4000))
    assert found[0].low == pytest.approx(found[1].low, abs=0.003)
    assert found[0].high == pytest.approx(found[1].high, rel=0.1)


def test_the_same_seed_gives_the_same_interval():
    estimate = mean_of(autoregressive(500, 0.5, 1))
    assert block_interval([(1.0, estimate)], 10, seed=3) == block_interval([(1.0, estimate)], 10, seed=3)
    assert block_interval([(1.0, estimate)], 10, seed=3) != block_interval([(1.0, estimate)], 10, seed=4)


def test_independent_rows_have_the_classical_interval():
    series = np.random.default_rng(1).normal(3.0, 2.0, 2000)
    found = block_interval([(1.0, mean_of(series))], 1, seed=1, resamples=4000)
    error = series.std() / math.sqrt(2000)
    assert found.value == pytest.approx(series.mean())
    assert found.low == pytest.approx(series.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(series.mean() + 1.96 * error, abs=0.15 * error)


def test_a_skewed_mean_has_a_longer_upper_arm():
    """Few large weights: the mean is more likely too low than too high, by more. Percentiles of resamples err there."""
    series = np.random.default_rng(2).lognormal(0.0, 1.2, 400)
    found = block_interval([(1.0, mean_of(series))], 1, seed=1, resamples=4000)
    assert (found.high - found.value) > 1.2 * (found.value - found.low)


def test_intervals_hold_the_mean_of_rows_with_memory_and_those_of_single_rows_do_not():
    held = {"blocks": 0, "rows": 0}
    for seed in range(100):
        series = autoregressive(2000, 0.8, seed)
        for name, block in (("blocks", STRETCH * wanted_block_rows(series, ONE_RUN)), ("rows", 1)):
            found = block_interval([(1.0, mean_of(series))], block, seed=seed, resamples=100)
            held[name] += found.low <= 0.0 <= found.high
    assert held["blocks"] >= 0.9 * 100
    assert held["rows"] <= 0.6 * 100


def test_the_width_is_that_of_the_autocorrelated_mean():
    widths = []
    for seed in range(20):
        series = autoregressive(2000, 0.8, seed)
        found = block_interval([(1.0, mean_of(series))], wanted_block_rows(series, ONE_RUN), seed=seed)
        widths.append(found.high - found.low)
    assert np.mean(widths) == pytest.approx(2 * 1.96 * math.sqrt(1.8 / 0.2 / 2000), rel=0.12)


def test_a_ratio_is_resampled_as_a_ratio():
    """Numerator and denominator move together: their ratio has no spread at all, though both have."""
    below = np.random.default_rng(1).uniform(1.0, 5.0, 300)
    found = block_interval([(1.0, Estimate(0.25 * below, below))], 5, seed=1)
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


def test_the_width_of_a_ratio_is_that_of_its_influence():
    rng = np.random.default_rng(3)
    below = rng.uniform(0.0, 2.0, 2000)
    estimate = Estimate(below * (0.5 + rng.normal(0.0, 0.3, 2000)), below)
    found = block_interval([(1.0, estimate)], 1, seed=1)
    error = estimate.influence.std() / math.sqrt(2000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_a_difference_is_paired():
    luck = autoregressive(2000, 0.8, 5)
    ours, theirs = mean_of(luck + 0.1), mean_of(luck + np.random.default_rng(6).normal(0.0, 0.1, 2000))
    apart = block_interval([(1.0, ours)], 40, seed=1)
    paired = block_interval([(1.0, ours), (-1.0, theirs)], 40, seed=1)
    assert paired.value == pytest.approx(ours.value - theirs.value)
    assert paired.low < 0.1 < paired.high
    assert paired.high - paired.low < 0.1 * (apart.high - apart.low)


def test_what_does_not_vary_is_a_point():
    same = mean_of(np.full(200, 0.5))
    assert block_interval([(1.0, same)], 5, seed=1).low == 0.5
    twice = block_interval([(1.0, mean_of(ONE_RUN + 0.1)), (-1.0, mean_of(ONE_RUN + 0.1))], 5, seed=1)
    assert (twice.value, twice.low, twice.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("block", [0, 101])
def test_a_block_is_at_most_half_the_log(block):
    with pytest.raises(ValueError, match="block_rows must be 1 to 100"):
        block_interval([(1.0, mean_of(np.arange(200.0)))], block, seed=1)


def test_terms_are_over_the_same_rows():
    for terms in ([], [(1.0, mean_of(np.arange(9.0))), (-1.0, mean_of(np.arange(8.0)))]):
        with pytest.raises(ValueError, match="over the same rows"):
            block_interval(terms, 2, seed=1)


def test_blocks_grow_with_the_memory_of_the_series():
    """Without memory n^(1/3) = 13. For AR(1) the best length is (6 rho^2 / (1 - rho^2)^2 n)^(1/3): 38 for 0.8... by
    Politis, White 2004 with the constant of 2009; the estimate scatters around it.
    """
    blocks = {
        memory: np.median([wanted_block_rows(autoregressive(2000, memory, seed), ONE_RUN) for seed in range(15)])
        for memory in (0.0, 0.5, 0.8)
    }
    assert blocks[0.0] == pytest.approx(13, abs=1)
    for memory in (0.5, 0.8):
        best = (6.0 * memory**2 / (1.0 - memory**2) ** 2 * 2000) ** (1.0 / 3.0)
        assert blocks[memory] == pytest.approx(best, rel=0.35)


def test_a_series_that_never_varies_has_the_shortest_block():
    assert wanted_block_rows(np.full(1000, 0.3), np.zeros(1000, int)) == 10


def test_covariance_is_of_pairs_within_a_run():
    """1, -1 | 1, -1: at lag 1 the pair over the edge does not count, so -2 / 4 and not -3 / 4; at lag 2 there is none."""
    series = np.array([1.0, -1.0, 1.0, -1.0])
    assert _autocovariance(series, np.array([0, 0, 1, 1]), 2) == pytest.approx([1.0, -0.5, 0.0])
    assert _autocovariance(series, np.array([0, 0, 0, 0]), 2) == pytest.approx([1.0, -0.75, 0.5])
