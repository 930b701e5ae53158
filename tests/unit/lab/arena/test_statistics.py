"""Intervals of means and of paired differences, against textbook values and by simulation."""

import random

import pytest

from lab.arena.statistics import Interval, mean_interval, median, paired_difference, t_quantile

# A sample whose interval is easily worked out by hand: mean 5, standard deviation 2, n = 4, t(3) = 3.182.
SAMPLE = [2.5505102572168217, 5.0, 5.0, 7.449489742783178]


def test_the_interval_of_a_small_sample_is_students():
    found = mean_interval(SAMPLE)
    assert found.mean == pytest.approx(5.0)
    assert found.low == pytest.approx(5.0 - 3.182 * 2.0 / 2.0)
    assert found.high == pytest.approx(5.0 + 3.182 * 2.0 / 2.0)
    assert found.count == 4


def test_one_value_tells_no_spread():
    found = mean_interval([0.25])
    assert found == Interval(0.25, None, None, 1)
    assert found.ends == (0.25, 0.25)
    assert str(found) == "0.250"
    assert paired_difference([1.0], [0.5]) == Interval(0.5, None, None, 1)


def test_an_interval_is_written_with_its_ends():
    assert str(Interval(-0.0834, -0.095, -0.0718, 10)) == "-0.083 [-0.095, -0.072]"


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (9, 2.262), (30, 2.042), (31, 2.0395), (60, 2.0003), (120, 1.9799)],
)
def test_quantiles_are_those_of_the_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-4 if degrees > 30 else 1e-9)


def test_nothing_has_no_mean():
    for call in (
        lambda: mean_interval([]),
        lambda: paired_difference([], []),
        lambda: median([]),
        lambda: t_quantile(0),
    ):
        with pytest.raises(ValueError):
            call()


def test_a_pair_takes_both_sides():
    with pytest.raises(ValueError):
        paired_difference([1.0, 2.0], [1.0])


def test_pairing_takes_the_luck_of_a_seed_out():
    luck = [random.Random(seed).gauss(0.0, 10.0) for seed in range(10)]
    ours = [base + 0.5 + random.Random(-seed - 1).gauss(0.0, 0.1) for seed, base in enumerate(luck)]
    found = paired_difference(ours, luck)
    assert found.mean == pytest.approx(0.5, abs=0.1)
    assert found.low is not None
    assert found.high is not None
    assert 0.3 < found.low < found.mean < found.high < 0.7
    alone = mean_interval(ours)
    assert alone.ends[1] - alone.ends[0] > 5.0


def test_the_same_seed_draws_the_same_and_another_nearly_the_same():
    ours, theirs = [0.1, 0.4, 0.2, 0.9, 0.3, 0.5], [0.0] * 6
    first = paired_difference(ours, theirs, seed=7)
    assert paired_difference(ours, theirs, seed=7) == first
    other = paired_difference(ours, theirs, seed=8)
    assert other.mean == first.mean
    assert other.ends == pytest.approx(first.ends, abs=0.03)


def test_a_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(3)
    hits = 0
    for attempt in range(100):
        ours = [rng.gauss(1.0, 1.0) for _ in range(30)]
        low, high = paired_difference(ours, [0.0] * 30, seed=attempt).ends
        hits += low <= 1.0 <= high
    assert 88 <= hits <= 99


def test_the_median_is_the_middle_or_between_the_two_middles():
    assert median([9.0, 1.0, 5.0]) == 5.0
    assert median([9.0, 1.0, 5.0, 6.0]) == 5.5
