"""Latency windows: baselines, growth, holes; histograms that add up and summaries of which the worst counts."""

import math

import pytest

from schemas.messages import Latency
from services.collector.core.latency import Interval, LatencyWindows, latency_of
from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries

INF = math.inf
METRIC = "m_seconds"


def page(fast, slow=0, *, metric=METRIC, key=()):
    """`fast` requests below 0.1 s and `slow` ones below 1 s, so far."""
    return HistogramPage(metric, {key: {0.1: fast, 1.0: fast + slow, INF: fast + slow}})


def coarse(within, beyond=0):
    """Another layout: one bound of 0.3 s, which no other page here has."""
    return HistogramPage(METRIC, {(): {0.3: within, INF: within + beyond}})


def summary(count, p99=None, *, metric=METRIC, key=()):
    """`count` requests so far; a quantile that is NaN on the page is None here."""
    quantiles = {} if p99 is None else {0.5: p99 / 4, 0.95: p99 / 2, 0.99: p99}
    return SummaryPage(metric, {key: SummarySeries(count, quantiles)})


def windows(min_requests=20, longest=30.0):
    return LatencyWindows(min_requests, longest)


def fed(made, *steps):
    """Adds pages of one pod of class `api`: (seconds since the last, page)."""
    for elapsed, found in steps:
        made.add(elapsed, {"uid-a": ("api", found)})
    return made


def test_the_first_scrape_is_a_baseline_and_not_an_idle_class():
    made = fed(windows(), (None, page(1000)))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")


def test_a_window_counts_what_came_since_the_last_page():
    made = fed(windows(), (None, page(1000)), (5.0, page(1090, 10)))
    latency = made.latency("api", 0.1, may_grow=False)
    assert latency.requests == 100
    assert latency.requests_per_second == pytest.approx(20.0)
    assert latency.window_seconds == pytest.approx(5.0)
    assert latency.over_ratio == pytest.approx(0.1)
    assert latency.p99_seconds == pytest.approx(0.91)
    assert latency.reason is None


def test_no_requests_are_idle_and_few_are_few():
    made = fed(windows(), (None, page(10)), (5.0, page(10)))
    assert made.latency("api", 0.1, may_grow=False).reason == "idle"
    fed(made, (5.0, page(12)))
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.reason, latency.requests, latency.p99_seconds, latency.over_ratio) == (
        "few_requests",
        2,
        None,
        None,
    )


def test_before_a_decision_the_window_grows_until_there_are_enough():
    made = fed(windows(), (None, page(0)), (3.0, page(8)), (2.0, page(16)), (3.0, page(24)), (2.0, page(32)))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.window_seconds) == (24, pytest.approx(7.0))


def test_after_a_decision_the_window_never_grows():
    made = fed(windows(), (None, page(0)), (3.0, page(100)), (2.0, page(105)))
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.window_seconds, latency.reason) == (5, pytest.approx(2.0), "few_requests")


def test_a_window_grows_no_longer_than_the_longest():
    made = fed(windows(longest=10.0), (None, page(0)), *((4.0, page(n)) for n in range(1, 9)))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.window_seconds) == (2, pytest.approx(8.0))


def test_enough_requests_need_no_older_ones():
    made = fed(windows(), (None, page(0)), (5.0, page(1000)), (5.0, page(1020)))
    assert made.latency("api", 0.1, may_grow=True).requests == 20


def test_a_failed_scrape_makes_a_hole_that_no_window_spans():
    made = fed(windows(), (None, page(0)), (5.0, page(10)))
    made.add(5.0, {})
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")
    fed(made, (5.0, page(500)))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")  # a baseline once more
    fed(made, (5.0, page(505)))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.window_seconds) == (5, pytest.approx(5.0))


def test_a_new_pod_does_not_bring_its_history_into_the_class():
    made = fed(windows(), (None, page(0)))
    made.add(5.0, {"uid-a": ("api", page(30)), "uid-b": ("api", page(100_000))})
    assert made.latency("api", 0.1, may_grow=False).requests == 30
    made.add(5.0, {"uid-a": ("api", page(60)), "uid-b": ("api", page(100_040))})
    assert made.latency("api", 0.1, may_grow=False).requests == 70


def test_a_vanished_pod_takes_nothing_away():
    made = windows()
    made.add(None, {"uid-a": ("api", page(0)), "uid-b": ("api", page(500))})
    made.add(5.0, {"uid-a": ("api", page(30))})
    assert made.latency("api", 0.1, may_grow=False).requests == 30


def test_classes_are_kept_apart_and_forgotten():
    made = windows()
    made.add(None, {"uid-a": ("api", page(0)), "uid-b": ("batch", page(0))})
    made.add(5.0, {"uid-a": ("api", page(30)), "uid-b": ("batch", page(40))})
    assert made.latency("batch", None, may_grow=False).requests == 40
    assert made.latency("batch", None, may_grow=False).over_ratio is None
    made.forget_absent({"batch"})
    assert made.latency("api", 0.1, may_grow=False).reason == "first_scrape"


def test_no_time_makes_no_window():
    made = fed(windows(), (None, page(0)), (0.0, page(50)))
    assert made.latency("api", 0.1, may_grow=True).reason == "first_scrape"


def pods(made, elapsed, **found):
    """One collection of pods that are all of class `api`."""
    made.add(elapsed, {uid: ("api", one) for uid, one in found.items()})
    return made


def test_of_several_pods_the_counts_add_up_and_their_quantiles_are_never_averaged():
    made = pods(windows(), None, a=page(0), b=page(0))
    latency = pods(made, 5.0, a=page(990), b=page(0, 10)).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.pods, latency.source) == (1000, 2, "histogram")
    assert latency.p99_seconds == pytest.approx(0.1)
    assert latency.over_ratio == pytest.approx(0.01)


def test_pods_with_different_buckets_are_judged_by_the_bounds_that_they_share():
    fine = HistogramPage(METRIC, {(): {0.05: 20, 0.1: 30, 1.0: 40, INF: 40}})
    made = pods(windows(), None, a=page(0), b=HistogramPage(METRIC, {(): {0.05: 0, 0.1: 0, 1.0: 0, INF: 0}}))
    latency = pods(made, 5.0, a=page(50, 10), b=fine).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.over_ratio, latency.reason) == (100, pytest.approx(0.2), None)


def test_pods_without_a_common_bound_have_no_quantiles():
    made = pods(windows(), None, a=page(0), b=coarse(0))
    latency = pods(made, 5.0, a=page(50), b=coarse(40, 10)).latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.reason, latency.source) == (100, "no_common_buckets", None)
    assert (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds, latency.over_ratio) == (None,) * 4


def test_an_idle_pod_with_other_buckets_takes_nothing_away():
    made = pods(windows(), None, a=page(0), b=coarse(700))
    latency = pods(made, 5.0, a=page(50), b=coarse(700)).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.pods, latency.over_ratio) == (50, 2, 0.0)


def test_a_window_does_not_grow_into_what_pods_with_other_buckets_left():
    made = pods(windows(), None, old=page(0))
    pods(made, 5.0, old=page(100), new=coarse(0))
    pods(made, 5.0, old=page(100), new=coarse(6))  # the old one is on its way out
    latency = pods(made, 5.0, new=coarse(12)).latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.window_seconds, latency.reason) == (12, pytest.approx(10.0), "few_requests")
    latency = pods(made, 5.0, new=coarse(32)).latency("api", 0.3, may_grow=True)
    assert (latency.requests, latency.over_ratio) == (20, 0.0)


@pytest.mark.parametrize("newest", [6, 0])
def test_a_class_without_common_bounds_says_so_also_in_a_window_that_grew(newest):
    made = pods(windows(), None, a=page(0), b=coarse(0))
    pods(made, 5.0, a=page(20), b=coarse(20))
    latency = pods(made, 5.0, a=page(20 + newest), b=coarse(20 + newest)).latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.reason) == (40 + 2 * newest, "no_common_buckets")


def test_a_page_that_changes_all_its_buckets_is_a_baseline_and_not_an_idle_pod():
    made = fed(windows(), (None, page(100)), (5.0, coarse(500)))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")
    assert fed(made, (5.0, coarse(540))).latency("api", 0.3, may_grow=True).requests == 40


def test_a_restarted_pod_counts_from_zero():
    made = fed(windows(), (None, page(1000)), (5.0, page(30)))
    assert made.latency("api", 0.1, may_grow=False).requests == 30


def test_a_series_that_vanishes_and_comes_back_adds_nothing_until_the_next_page():
    def both(a, b):
        return HistogramPage(METRIC, {("code=200",): {0.1: a, INF: a}, ("code=500",): {0.1: b, INF: b}})

    def one(a):
        return page(a, key=("code=200",))

    made = fed(windows(1), (None, both(10, 500)), (5.0, one(15)))
    assert made.latency("api", 0.1, may_grow=False).requests == 5
    assert fed(made, (5.0, one(17))).latency("api", 0.1, may_grow=False).requests == 2
    assert fed(made, (5.0, both(18, 900))).latency("api", 0.1, may_grow=False).requests == 1
    assert fed(made, (5.0, both(18, 907))).latency("api", 0.1, may_grow=False).requests == 7


@pytest.mark.parametrize("then", [page(500, metric="n_seconds"), summary(500, 0.2), summary(500, 0.2, metric="n_sec")])
def test_a_pod_that_changes_its_metric_begins_anew(then):
    made = fed(windows(), (None, page(10)), (5.0, then))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")


def test_a_series_that_another_metric_had_is_new_to_this_one():
    made = fed(windows(1), (None, page(5, key=("a",))), (5.0, page(5, key=("b",))))  # `a` is gone
    fed(made, (5.0, page(5, metric="n_seconds", key=("b",))))
    two = HistogramPage("n_seconds", {("a",): {0.1: 30, INF: 30}, ("b",): {0.1: 5, INF: 5}})
    assert fed(made, (5.0, two)).latency("api", 0.1, may_grow=False).requests == 30


def test_an_objective_beyond_the_last_bucket_leaves_the_fraction_unknown():
    latency = latency_of(Interval(5.0, {0.1: 900, 1.0: 960, INF: 1000}, pods=1), 2.0, 20)
    assert (latency.over_ratio, latency.reason, latency.saturated) == (None, "beyond_buckets", ("p99",))
    assert latency.p99_seconds == 1.0
    latency = latency_of(Interval(5.0, {0.1: 900, 1.0: 1000, INF: 1000}, pods=1), 2.0, 20)
    assert (latency.over_ratio, latency.reason) == (0.0, None)


def test_pm_05_saturated_quantiles_are_named():
    latency = latency_of(Interval(5.0, {0.1: 900, 0.5: 950, 1.0: 960, INF: 1000}, pods=1), 0.1, 20)
    assert (latency.p95_seconds, latency.p99_seconds, latency.saturated) == (0.5, 1.0, ("p99",))
    assert latency.over_ratio == pytest.approx(0.1)
    latency = latency_of(Interval(5.0, {0.1: 100, 0.5: 110, 1.0: 115, INF: 1000}, pods=1), 0.1, 20)
    assert (latency.p95_seconds, latency.p99_seconds) == (1.0, 1.0)
    assert latency.saturated == ("p50", "p95", "p99")


def test_pm_05_both_windows_by_their_pages():
    def counted(*counts):
        return HistogramPage(METRIC, {(): dict(zip((0.1, 0.5, 1.0, INF), counts, strict=True))})

    made = fed(windows(), (None, counted(0, 0, 0, 0)), (5.0, counted(900, 950, 960, 1000)))
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.p95_seconds, latency.p99_seconds, latency.saturated) == (0.5, 1.0, ("p99",))
    fed(made, (5.0, counted(1000, 1060, 1075, 2000)))
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.p95_seconds, latency.p99_seconds, latency.saturated) == (1.0, 1.0, ("p50", "p95", "p99"))


def test_pm_01_an_idle_summary_has_no_quantiles_and_its_count_is_the_baseline_of_the_next_window():
    made = fed(windows(), (None, summary(407)), (5.0, summary(407)))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.p95_seconds, latency.p99_seconds, latency.reason, latency.requests) == (None, None, "idle", 0)
    latency = fed(made, (5.0, summary(447, 0.2))).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.p99_seconds, latency.p95_seconds) == (40, 0.2, 0.1)


def test_pm_01_a_pod_first_seen_idle_is_idle_and_its_count_is_kept():
    made = pods(windows(), None, a=summary(0, 0.1))
    pods(made, 5.0, b=summary(407))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.reason, latency.requests, latency.pods) == ("idle", 0, 1)
    assert pods(made, 5.0, b=summary(437, 0.3)).latency("api", 0.1, may_grow=False).requests == 30


def test_pm_01_requests_that_left_the_pods_own_window_give_no_latency():
    latency = fed(windows(), (None, summary(400)), (5.0, summary(440))).latency("api", 0.1, may_grow=False)
    assert (latency.p99_seconds, latency.reason, latency.requests) == (None, "idle", 40)


def test_pm_01_of_several_pods_the_worst_counts_and_an_idle_one_does_not():
    made = pods(windows(), None, a=summary(0, 0.1), b=summary(0, 0.1), c=summary(9, 30.0))
    latency = pods(made, 5.0, a=summary(900, 0.1), b=summary(100, 0.3), c=summary(9, 30.0)).latency(
        "api", 0.1, may_grow=False
    )
    assert (latency.requests, latency.pods, latency.source) == (1000, 3, "summary")
    assert (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds) == (0.075, 0.15, 0.3)
    assert (latency.over_ratio, latency.reason, latency.saturated) == (None, None, ())


def test_a_window_of_summaries_grows_to_enough_requests_and_keeps_the_worst():
    made = fed(windows(), (None, summary(0)), (5.0, summary(8, 0.4)), (5.0, summary(16, 0.2)), (5.0, summary(24, 0.1)))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.window_seconds, latency.p99_seconds) == (24, pytest.approx(15.0), 0.4)
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.reason, latency.p99_seconds) == (8, "few_requests", None)


@pytest.mark.parametrize(("said", "worse"), [(0.02, 0.91), (5.0, 5.0)])
def test_of_histograms_and_summaries_the_worst_counts_and_the_fraction_is_unknown(said, worse):
    made = pods(windows(), None, a=page(0), b=summary(0, 9.0))
    latency = pods(made, 5.0, a=page(90, 10), b=summary(50, said)).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.pods, latency.source) == (150, 2, "mixed")
    assert latency.p99_seconds == pytest.approx(worse)
    assert (latency.over_ratio, latency.reason) == (None, None)


def test_an_idle_summary_beside_histograms_does_not_make_the_class_mixed():
    made = pods(windows(), None, a=page(0), b=summary(50, 9.0))
    latency = pods(made, 5.0, a=page(90, 10), b=summary(50, 9.0)).latency("api", 0.1, may_grow=False)
    assert (latency.source, latency.over_ratio) == ("histogram", pytest.approx(0.1))
    assert latency.p99_seconds == pytest.approx(0.91)


def test_idle_histograms_beside_a_summary_do_not_hide_it():
    made = pods(windows(), None, a=page(90), b=coarse(7), c=summary(0))
    latency = pods(made, 5.0, a=page(90), b=coarse(7), c=summary(40, 0.5)).latency("api", 0.1, may_grow=False)
    assert (latency.source, latency.p99_seconds, latency.over_ratio, latency.reason) == ("summary", 0.5, None, None)


def test_a_lower_bound_stays_one_beside_a_worse_summary():
    made = pods(windows(), None, a=HistogramPage(METRIC, {(): {0.1: 0, INF: 0}}), b=summary(0))
    beyond = HistogramPage(METRIC, {(): {0.1: 0, INF: 40}})
    latency = pods(made, 5.0, a=beyond, b=summary(40, 0.5)).latency("api", 0.1, may_grow=False)
    assert (latency.p99_seconds, latency.saturated) == (0.5, ("p50", "p95", "p99"))


def test_pods_are_those_that_the_newest_pages_came_from():
    made = pods(windows(), None, a=page(0), b=page(0))
    pods(made, 5.0, a=page(8), b=page(8))
    latency = pods(made, 5.0, a=page(16)).latency("api", 0.1, may_grow=True)
    assert (latency.requests, latency.pods) == (24, 1)


def test_counts_that_no_counter_reaches_are_cut_and_stay_numbers():
    made = pods(windows(), None, a=page(0), b=page(0))
    latency = pods(made, 5.0, a=page(1e308), b=page(1e308)).latency("api", 0.1, may_grow=False)
    assert latency.requests == 2**53
    known = (latency.p99_seconds, latency.over_ratio, latency.requests_per_second)
    assert all(value is None or math.isfinite(value) for value in known)


def test_a_pod_remembers_only_so_many_series_that_are_gone(monkeypatch):
    monkeypatch.setattr("services.collector.core.latency._GONE", 2)
    counts = dict.fromkeys("abcd", 10)
    made = fed(windows(1), (None, HistogramPage(METRIC, {(key,): {0.1: 10, INF: 10} for key in counts})))
    for left in ("bcd", "cd", "d"):
        fed(made, (5.0, HistogramPage(METRIC, {(key,): {0.1: 10, INF: 10} for key in left})))
    back = fed(made, (5.0, HistogramPage(METRIC, {(key,): {0.1: 10, INF: 10} for key in counts})))
    assert back.latency("api", 0.1, may_grow=False).requests == 10  # `a` is forgotten, so it counts as new


NO_SERIES = HistogramPage(METRIC, {})


def test_a_declared_histogram_without_samples_is_idle_and_what_comes_first_counts_whole():
    made = fed(windows(), (None, NO_SERIES), (5.0, NO_SERIES))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.reason, latency.requests, latency.pods) == ("idle", 0, 1)
    latency = fed(made, (5.0, page(90, 10))).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.over_ratio, latency.reason) == (100, pytest.approx(0.1), None)


def test_the_first_requests_after_the_very_first_page_count_whole_too():
    made = fed(windows(), (None, NO_SERIES), (5.0, page(30)))
    assert made.latency("api", 0.1, may_grow=False).requests == 30


def test_a_declared_summary_without_samples_is_idle_and_what_comes_first_counts_whole():
    empty = SummaryPage(METRIC, {})
    made = fed(windows(), (None, empty), (5.0, empty))
    latency = made.latency("api", 0.1, may_grow=True)
    assert (latency.reason, latency.requests, latency.pods) == ("idle", 0, 1)
    latency = fed(made, (5.0, summary(40, 0.2))).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.p99_seconds) == (40, 0.2)


def test_series_that_were_there_before_an_empty_page_are_a_baseline_when_they_come_back():
    made = fed(windows(1), (None, page(1000)), (5.0, NO_SERIES))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")
    assert fed(made, (5.0, page(1005))).latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")
    assert fed(made, (5.0, page(1007))).latency("api", 0.1, may_grow=True).requests == 2


def test_an_idle_pod_without_series_takes_nothing_from_the_others():
    made = pods(windows(), None, a=page(0), b=NO_SERIES)
    latency = pods(made, 5.0, a=page(90, 10), b=NO_SERIES).latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.pods, latency.over_ratio) == (100, 2, pytest.approx(0.1))


def test_another_metric_that_is_only_declared_is_a_baseline():
    made = fed(windows(1), (None, page(5)), (5.0, HistogramPage("n_seconds", {})))
    assert made.latency("api", 0.1, may_grow=True) == Latency(reason="first_scrape")
    assert fed(made, (5.0, page(7, metric="n_seconds"))).latency("api", 0.1, may_grow=True).requests == 7
