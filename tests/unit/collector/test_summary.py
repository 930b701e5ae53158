"""Summaries: what was observed between two pages, and the worst of what they say."""

from services.collector.core.page import SummarySeries
from services.collector.core.summary import Observed, observed, worst

NOTHING = Observed()


def series(count, p99=None, p95=None):
    """One series: quantiles that are NaN on the page are not in it."""
    said = {0.95: p95, 0.99: p99}
    return SummarySeries(count, {q: seconds for q, seconds in said.items() if seconds is not None})


def test_a_first_page_is_a_baseline():
    assert observed(None, {(): series(407, 0.2)}) is None


def test_pm_01_a_first_page_without_any_quantile_says_that_nothing_was_observed():
    assert observed(None, {(): series(407)}) == NOTHING
    assert observed(None, {("a",): series(407), ("b",): series(5, 0.1)}) is None


def test_pm_01_an_idle_summary_brings_nothing_however_much_it_counted_before():
    assert observed({(): series(407)}, {(): series(407)}) == NOTHING


def test_pm_01_what_comes_after_is_counted_from_the_idle_page():
    assert observed({(): series(407)}, {(): series(417, 0.2, 0.1)}) == Observed(10, {0.95: 0.1, 0.99: 0.2})


def test_pm_01_observations_that_left_the_pods_own_window_have_no_quantiles():
    assert observed({(): series(400)}, {(): series(407)}) == Observed(7)


def test_pm_01_a_series_without_new_observations_does_not_count_however_large_it_is():
    before = {("code=200",): series(10, 0.1), ("code=500",): series(3, 30.0)}
    now = {("code=200",): series(15, 0.2), ("code=500",): series(3, 30.0)}
    assert observed(before, now) == Observed(5, {0.99: 0.2})


def test_pm_01_of_series_the_worst_counts_for_each_quantile_and_never_the_mean():
    before = {("a",): series(0), ("b",): series(0)}
    now = {("a",): series(1000, 0.1, 0.05), ("b",): series(1, 0.3, 0.01)}
    assert observed(before, now) == Observed(1001, {0.95: 0.05, 0.99: 0.3})


def test_a_series_that_went_back_was_reset_and_counts_from_zero():
    before = {("a",): series(500, 0.1), ("b",): series(20, 0.1)}
    assert observed(before, {("a",): series(3, 0.2), ("b",): series(21, 0.1)}) == Observed(4, {0.99: 0.2})


def test_a_reset_to_zero_is_idle():
    assert observed({(): series(500, 0.1)}, {(): series(0)}) == NOTHING


def test_a_new_series_of_a_known_pod_counts_whole():
    now = {("a",): series(10, 0.1), ("b",): series(3, 0.4)}
    assert observed({("a",): series(10, 0.1)}, now) == Observed(3, {0.99: 0.4})


def test_a_series_that_vanished_takes_nothing_away():
    before = {("a",): series(10, 0.1), ("b",): series(300, 0.4)}
    assert observed(before, {("a",): series(12, 0.1)}) == Observed(2, {0.99: 0.1})


def test_a_series_that_comes_back_after_a_gap_is_a_baseline():
    now = {("a",): series(12, 0.1), ("b",): series(900, 0.4)}
    assert observed({("a",): series(10, 0.1)}, now, gone={("b",): None}) == Observed(2, {0.99: 0.1})


def test_a_page_that_shares_no_series_is_a_baseline():
    assert observed({("a",): series(10, 0.1)}, {("b",): series(900, 0.4)}) is None


def test_the_worst_of_none_is_nothing():
    assert worst([]) == NOTHING
    assert worst([Observed(5, {0.5: 0.1}), NOTHING, Observed(2, {0.99: 1.0})]) == Observed(7, {0.5: 0.1, 0.99: 1.0})
