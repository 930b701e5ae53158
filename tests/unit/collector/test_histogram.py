"""Deltas of histograms and what is asked of them, with numbers worked out by hand."""

import math

import pytest

from services.collector.core.histogram import Quantile, added, merge, over, quantile, total

INF = math.inf


def series(**buckets):
    """One series without labels: bounds written as `_0_1=5` for le="0.1" and `inf=…`."""
    return {(): {INF if name == "inf" else float(name[1:].replace("_", ".", 1)): n for name, n in buckets.items()}}


def test_a_first_scrape_is_a_baseline():
    assert added(None, series(_0_1=5, inf=6)) is None


def test_all_that_came_since_a_page_without_series_is_new():
    assert added({}, series(_0_1=5, inf=6)) == {0.1: 5, INF: 6}
    assert added({}, {("a",): {0.1: 5, INF: 6}, ("b",): {0.1: 1, INF: 2}}, gone=[("a",)]) == {0.1: 1, INF: 2}
    assert added({}, series(_0_1=5, inf=6), gone=[()]) is None


def test_a_page_without_series_after_one_without_is_idle_and_after_another_a_baseline():
    assert added({}, {}) == {}
    assert added(series(_0_1=5, inf=6), {}) is None
    assert added(None, {}) is None


def test_counts_are_differences():
    assert added(series(_0_1=5, _1=6, inf=6), series(_0_1=7, _1=9, inf=10)) == {0.1: 2, 1.0: 3, INF: 4}


def test_no_new_requests_are_a_difference_of_zero():
    assert added(series(_0_1=5, inf=6), series(_0_1=5, inf=6)) == {0.1: 0, INF: 0}


def test_a_series_that_went_back_counts_from_zero():
    assert added(series(_0_1=500, inf=600), series(_0_1=3, inf=4)) == {0.1: 3, INF: 4}


def test_one_bucket_that_went_back_is_enough_to_tell_a_reset():
    assert added(series(_0_1=500, inf=600), series(_0_1=3, inf=700)) == {0.1: 3, INF: 700}


def test_a_reset_of_one_series_leaves_the_others_alone():
    before = {("code=200",): {0.1: 500, INF: 600}, ("code=500",): {0.1: 50, INF: 60}}
    now = {("code=200",): {0.1: 510, INF: 612}, ("code=500",): {0.1: 1, INF: 3}}
    assert added(before, now) == {0.1: 11, INF: 15}


def test_a_bound_that_was_not_there_before_waits_for_the_next_scrape():
    before, now = series(_1=5, inf=10), series(_0_5=4, _1=6, inf=12)
    assert added(before, now) == {1.0: 1, INF: 2}
    assert added(now, series(_0_5=5, _1=8, inf=15)) == {0.5: 1, 1.0: 2, INF: 3}


def test_a_bound_that_vanished_takes_nothing_away():
    assert added(series(_0_5=4, _1=6, inf=12), series(_1=7, inf=14)) == {1.0: 1, INF: 2}


def test_a_series_with_all_other_bounds_than_before_is_a_baseline():
    assert added(series(_1=5, inf=10), series(_0_5=4, _2=6, inf=12)) is None
    before = {("code=200",): {0.1: 5, INF: 6}, ("code=500",): {1.0: 5, INF: 10}}
    now = {("code=200",): {0.1: 6, INF: 8}, ("code=500",): {0.5: 9, INF: 12}}
    assert added(before, now) == {0.1: 1, INF: 2}


def test_a_series_with_other_bounds_that_went_back_was_reset_and_counts_whole():
    assert added(series(_1=5, inf=10), series(_0_5=4, _2=6, inf=7)) == {0.5: 4, 2.0: 6, INF: 7}


def test_a_series_that_never_had_a_finite_bound_is_counted_and_says_no_more():
    assert added({(): {INF: 10}}, {(): {INF: 12}}) == {INF: 2}


def test_a_series_that_comes_back_after_a_gap_is_a_baseline():
    before = {("code=200",): {0.1: 5, INF: 6}}
    now = {("code=200",): {0.1: 6, INF: 8}, ("code=500",): {0.1: 900, INF: 1000}}
    assert added(before, now, gone={("code=500",): None}) == {0.1: 1, INF: 2}


def test_a_new_series_of_a_known_pod_counts_whole():
    before = {("code=200",): {0.1: 5, INF: 6}}
    now = {("code=200",): {0.1: 5, INF: 6}, ("code=500",): {0.1: 2, INF: 3}}
    assert added(before, now) == {0.1: 2, INF: 3}


def test_a_series_that_vanished_takes_nothing_away():
    before = {("code=200",): {0.1: 5, INF: 6}, ("code=500",): {0.1: 2, INF: 3}}
    assert added(before, {("code=200",): {0.1: 6, INF: 8}}) == {0.1: 1, INF: 2}


def test_a_page_that_shares_no_series_is_a_baseline():
    assert added({("a", "x=1"): {0.1: 5, INF: 6}}, {("b", "x=1"): {0.1: 5_000, INF: 6_000}}) is None


def test_a_page_that_was_written_while_it_was_counted_stays_cumulative():
    assert added(series(_0_1=5, _1=6, inf=6), series(_0_1=9, _1=8, inf=8)) == {0.1: 4, 1.0: 4, INF: 4}


def test_merging_keeps_the_bounds_that_all_have():
    assert merge([{0.1: 5, 0.5: 6, INF: 7}, {0.1: 1, 1.0: 2, INF: 3}]) == {0.1: 6, INF: 10}
    assert merge([]) == {}
    assert merge([{}, {0.1: 1, INF: 1}]) == {0.1: 1, INF: 1}


def test_what_has_no_observations_has_no_say_in_the_bounds():
    assert merge([{0.1: 5, 1.0: 6, INF: 7}, {0.3: 0, INF: 0}]) == {0.1: 5, 1.0: 6, INF: 7}
    assert merge([{0.1: 0, 1.0: 0, INF: 0}, {0.1: 0, INF: 0}]) == {0.1: 0, INF: 0}


def test_pm_09_a_bounds_are_numbers():
    a, b = {1.0: 5, INF: 6}, {float("1"): 7, INF: 7}
    assert merge([a, b]) == {1.0: 12, INF: 13}


EVEN = {0.1: 50, 0.2: 90, 0.5: 100, INF: 100}


@pytest.mark.parametrize(
    ("q", "seconds"),
    [(0.25, 0.05), (0.5, 0.1), (0.7, 0.15), (0.9, 0.2), (0.95, 0.35), (0.99, 0.47), (1.0, 0.5)],
)
def test_quantiles_are_promqls(q, seconds):
    assert quantile(EVEN, q) == Quantile(pytest.approx(seconds))


def test_the_first_bucket_begins_at_zero():
    assert quantile({0.4: 10, INF: 10}, 0.5) == Quantile(pytest.approx(0.2))


def test_a_quantile_skips_empty_buckets():
    assert quantile({0.1: 0, 0.2: 0, 0.4: 10, 0.8: 10, INF: 10}, 0.5) == Quantile(pytest.approx(0.3))


def test_pm_05_window_1_the_last_bucket_is_a_lower_bound():
    window = added(series(_0_1=0, _0_5=0, _1=0, inf=0), series(_0_1=900, _0_5=950, _1=960, inf=1000))
    assert window is not None
    assert quantile(window, 0.95) == Quantile(0.5)
    assert quantile(window, 0.99) == Quantile(1.0, saturated=True)


def test_pm_05_window_2_both_are_lower_bounds():
    window = added(series(_0_1=0, _0_5=0, _1=0, inf=0), series(_0_1=100, _0_5=110, _1=115, inf=1000))
    assert window is not None
    assert quantile(window, 0.95) == Quantile(1.0, saturated=True)
    assert quantile(window, 0.99) == Quantile(1.0, saturated=True)


@pytest.mark.parametrize("buckets", [{}, {INF: 10}, {0.1: 0, INF: 0}])
def test_without_requests_or_bounds_there_is_no_quantile(buckets):
    assert quantile(buckets, 0.99) is None


@pytest.mark.parametrize(
    ("limit", "fraction"),
    [(0.1, 0.5), (0.2, 0.1), (0.15, 0.3), (0.05, 0.75), (0.35, 0.05), (0.5, 0.0), (2.0, 0.0), (0.0, 1.0), (-1.0, 1.0)],
)
def test_the_fraction_over_a_limit(limit, fraction):
    assert over(EVEN, limit) == pytest.approx(fraction)


def test_how_much_of_the_last_bucket_is_over_a_limit_inside_it_is_not_known():
    assert over({0.1: 60, INF: 100}, 5.0) is None
    assert over({0.1: 60, INF: 100}, 0.1) == pytest.approx(0.4)
    assert over({0.1: 100, INF: 100}, 5.0) == 0.0
    assert over({INF: 100}, 5.0) is None


def test_without_requests_no_fraction_is_over():
    assert over({}, 0.1) is None
    assert over({0.1: 0, INF: 0}, 0.1) is None


def test_all_observations_are_in_the_last_bucket():
    assert total(EVEN) == 100
    assert total({}) == 0
