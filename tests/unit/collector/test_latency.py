"""Latency windows: baselines, growth, holes."""

import math

import pytest

from schemas.messages import Latency
from services.collector.core.latency import LatencyWindows, latency_of

INF = math.inf


def page(fast, slow=0):
    """`fast` requests below 0.1 s and `slow` ones below 1 s, so far."""
    return {(): {0.1: fast, 1.0: fast + slow, INF: fast + slow}}


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


def test_pods_without_a_common_bound_have_no_quantiles():
    made = windows()
    made.add(None, {"a": ("api", {(): {0.1: 0, INF: 0}}), "b": ("api", {(): {0.3: 0, INF: 0}})})
    made.add(5.0, {"a": ("api", {(): {0.1: 40, INF: 50}}), "b": ("api", {(): {0.3: 40, INF: 50}})})
    latency = made.latency("api", 0.1, may_grow=False)
    assert (latency.requests, latency.reason, latency.p99_seconds) == (100, "no_buckets", None)


def test_pm_05_saturated_quantiles_are_named():
    latency = latency_of({0.1: 900, 0.5: 950, 1.0: 960, INF: 1000}, 5.0, 0.1, 20)
    assert (latency.p95_seconds, latency.p99_seconds, latency.saturated) == (0.5, 1.0, ("p99",))
    assert latency.over_ratio == pytest.approx(0.1)
    latency = latency_of({0.1: 100, 0.5: 110, 1.0: 115, INF: 1000}, 5.0, 0.1, 20)
    assert (latency.p95_seconds, latency.p99_seconds) == (1.0, 1.0)
    assert latency.saturated == ("p50", "p95", "p99")
