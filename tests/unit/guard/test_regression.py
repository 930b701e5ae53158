"""Whether a change made latency worse, and what missing evidence says."""

import math

import msgspec
import pytest

from services.guard.core.regression import Regression, compare, find_regression
from tests.support.builders import (
    BATCH,
    CRITICAL,
    DEFAULT,
    after,
    batch_state,
    class_state,
    latency,
    state,
    waiting,
    with_p99,
)


def look(before, then, *, limit_ratio=0.2, floor_ratio=0.0, min_requests=20):
    return find_regression(
        before, then, limit_ratio=limit_ratio, floor_ratio=floor_ratio, wait_ratio=0.3, min_requests=min_requests
    )


def change(p99_before, p99_after, **fields):
    before = with_p99(state(), p99_before)
    return before, with_p99(after(before), p99_after, **fields)


@pytest.mark.parametrize(
    ("before", "then", "evidence"),
    [
        (0.120, 0.145, "regressed"),
        (0.120, 0.143, "keep"),
        (0.120, math.nan, "unknown"),
        (math.nan, 0.200, "unknown"),
        (0.0, 0.050, "unknown"),
        (0.120, math.inf, "regressed"),
        (0.120, None, "unknown"),
    ],
)
def test_pm_02_the_seven_pairs(before, then, evidence):
    assert compare(before, then, 0.2) == evidence


@pytest.mark.parametrize("before", [None, -0.1, math.inf, -math.inf])
def test_pm_02_a_before_that_is_no_latency_says_nothing(before):
    assert compare(before, 0.1, 0.2) == "unknown"


def test_a_rise_of_exactly_the_limit_is_kept():
    assert compare(0.125, 0.150, 0.2) == "keep"


def test_an_improvement_is_kept():
    assert compare(0.120, 0.0, 0.2) == "keep"


def test_a_rise_below_the_floor_is_kept_and_above_it_is_not():
    assert compare(0.010, 0.049, 0.2, floor_seconds=0.05) == "keep"
    assert compare(0.010, 0.051, 0.2, floor_seconds=0.05) == "regressed"


def test_twenty_point_eight_per_cent_is_found_with_its_numbers():
    assert look(*change(0.120, 0.145)) == ("regressed", Regression(CRITICAL, 0.120, 0.145))


def test_nineteen_point_two_per_cent_is_kept():
    assert look(*change(0.120, 0.143)) == ("keep", None)


def test_the_limit_is_the_configured_one():
    assert look(*change(0.120, 0.145), limit_ratio=0.25) == ("keep", None)


def test_the_floor_is_a_part_of_the_class_s_objective():
    assert look(*change(0.010, 0.045), floor_ratio=0.5)[0] == "keep"
    assert look(*change(0.010, 0.055), floor_ratio=0.5)[0] == "regressed"


@pytest.mark.parametrize("requests", [0, 1, 19])
def test_too_few_requests_are_no_evidence_in_either_window(requests):
    before, then = change(0.120, 0.145)
    assert look(with_p99(before, 0.120, requests=requests), then) == ("unknown", None)
    assert look(before, with_p99(then, 0.145, requests=requests)) == ("unknown", None)


def test_just_enough_requests_are_evidence():
    before, then = change(0.120, 0.145)
    assert look(with_p99(before, 0.120, requests=20), with_p99(then, 0.145, requests=20))[0] == "regressed"


def test_pm_05_two_saturated_values_are_unknown_not_equal():
    before = with_p99(state(), 1.0, saturated=("p95", "p99"))
    assert look(before, with_p99(after(before), 1.0, saturated=("p99",))) == ("unknown", None)


def test_pm_05_a_saturated_before_is_unknown_even_when_the_after_is_worse():
    before = with_p99(state(), 1.0, saturated=("p99",))
    assert look(before, with_p99(after(before), 5.0)) == ("unknown", None)


def test_pm_05_a_lower_bound_that_is_bad_enough_is_a_regression():
    assert look(*change(0.120, 1.0, saturated=("p99",)))[0] == "regressed"


def test_pm_05_a_lower_bound_that_looks_good_is_unknown():
    assert look(*change(0.120, 0.100, saturated=("p99",))) == ("unknown", None)


def test_a_saturated_p95_does_not_spoil_the_p99():
    assert look(*change(0.120, 0.100, saturated=("p95",))) == ("keep", None)


def two_classes(critical, default, **fields):
    classes = {
        CRITICAL: class_state(latency=latency(critical)),
        DEFAULT: class_state(objective_seconds=0.5, latency=latency(default, **fields)),
    }
    return state(classes=classes)


def test_the_worst_of_several_regressions_is_named():
    before, then = two_classes(0.1, 0.1), two_classes(0.15, 0.2)
    assert look(before, then)[1] == Regression(DEFAULT, 0.1, 0.2)


def test_one_regression_outweighs_a_class_that_got_better():
    assert look(two_classes(0.1, 0.1), two_classes(0.01, 0.13))[1] == Regression(DEFAULT, 0.1, 0.13)


def test_one_unknown_class_with_requests_keeps_the_rest_from_being_good():
    assert look(two_classes(0.1, 0.1), two_classes(0.1, None))[0] == "unknown"


def test_an_idle_class_does_not_stand_in_the_way():
    before, then = two_classes(0.1, None, requests=0), two_classes(0.1, None, requests=0)
    assert look(before, then) == ("keep", None)


def test_a_class_that_vanished_with_its_requests_is_not_kept_as_good():
    before = two_classes(0.1, 0.1)
    gone = msgspec.structs.replace(before, classes={CRITICAL: before.classes[CRITICAL]})
    assert look(before, gone) == ("unknown", None)


def test_classes_without_an_objective_say_nothing():
    before = state(classes={BATCH: class_state(objective_seconds=None, latency=latency(0.1))})
    assert look(before, with_p99(before, 9.0, BATCH)) == ("unknown", None)


def test_no_classes_say_nothing():
    assert look(state(classes={}), state(classes={})) == ("unknown", None)


def silence(before, then, p99_after=0.1):
    """What is said when so many pods were silent before and after a change, and the others say these P99s."""
    was = state(classes={CRITICAL: class_state(latency=latency(0.1, silent_pods=before)), BATCH: batch_state()})
    now = {CRITICAL: class_state(latency=latency(p99_after, silent_pods=then)), BATCH: batch_state()}
    return look(was, after(was, classes=now))[0]


@pytest.mark.parametrize(
    ("before", "then", "evidence"),
    [(0, 0, "keep"), (0, 1, "unknown"), (1, 1, "keep"), (1, 2, "unknown"), (2, 1, "keep"), (3, 0, "keep")],
)
def test_good_numbers_are_none_once_more_pods_are_silent_than_before(before, then, evidence):
    assert silence(before, then) == evidence
    assert silence(before, then, 0.05) == evidence


@pytest.mark.parametrize("then", [0, 1, 5])
def test_a_regression_stays_one_however_many_pods_are_silent(then):
    assert silence(0, then, 0.2) == "regressed"


# ---- a class that pressure judges, with a ceiling of 0.1 ----


def waits(before, then, **fields):
    """What a wait before and after a change says; `fields` are those of the class after it."""
    was = state(classes={CRITICAL: waiting(before), BATCH: batch_state()})
    return look(was, after(was, classes={CRITICAL: waiting(then, **fields), BATCH: batch_state()}))


def test_a_longer_wait_above_the_ceiling_is_a_regression_told_in_words():
    evidence, regression = waits(0.05, 0.40)
    assert (evidence, regression) == ("regressed", Regression(CRITICAL, 0.05, 0.40, "pressure"))
    assert str(regression) == f"{CRITICAL}: waited 5 % -> 40 % of the time"


def test_a_regression_of_latency_is_told_in_milliseconds():
    assert str(Regression(CRITICAL, 0.120, 0.145)) == f"{CRITICAL}: P99 120.0 ms -> 145.0 ms (+21 %)"


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (0.30, 0.40),
        (0.30, 0.60),
        (0.0, 0.3),
        (0.30, 0.10),
        (0.02, 0.08),
        (0.02, 0.1),
        (0.0, 0.0),
        (0.0, 0.1),
        (0.9, 1.0),
        (1.0, 1.0),
    ],
)
def test_a_wait_below_the_ceiling_or_hardly_longer_is_kept(before, then):
    assert waits(before, then) == ("keep", None)


def test_a_wait_that_passes_the_ceiling_is_a_regression():
    assert waits(0.02, 0.33)[0] == "regressed"
    assert waits(0.0, 0.31) == ("regressed", Regression(CRITICAL, 0.0, 0.31, "pressure"))


@pytest.mark.parametrize(
    ("before", "then"),
    [(None, None), (None, 0.9), (None, 0.02), (0.3, None), (0.0, None), (-0.1, 0.02), (0.3, math.nan)],
)
def test_pm_02_a_wait_that_is_unknown_says_nothing(before, then):
    assert waits(before, then) == ("unknown", None)


def test_a_wait_from_another_source_is_not_compared():
    assert waits(0.3, 0.9, waited_source="run_delay") == ("unknown", None)
    assert waits(0.3, 0.05, waited_source="run_delay") == ("unknown", None)


@pytest.mark.parametrize("waited", [0.9, 0.05])
@pytest.mark.parametrize("fields", [{"judged_by": "latency", "latency": latency()}, {"judged_by": None, "pods": 0}])
def test_a_class_that_pressure_no_longer_judges_is_unknown_however_it_waited(fields, waited):
    was, then = state(classes={CRITICAL: waiting(0.3)}), waiting(waited, **fields)
    assert look(was, after(was, classes={CRITICAL: then})) == ("unknown", None)
    assert look(was, after(was, classes={})) == ("unknown", None)


def test_a_class_that_latency_no_longer_judges_is_unknown_whatever_it_shows():
    was = state(classes={CRITICAL: class_state(latency=latency(0.1))})
    for p99_seconds in (0.01, 9.0, None):
        now = waiting(0.0, latency=latency(p99_seconds, reason="no_metric"))
        assert look(was, after(was, classes={CRITICAL: now})) == ("unknown", None)


def test_a_wait_that_was_never_known_does_not_stand_in_the_way_and_one_that_was_lost_does():
    kept = class_state(latency=latency(0.1))
    for before, evidence in ((None, "keep"), (0.0, "unknown"), (0.3, "unknown")):
        was = state(classes={CRITICAL: kept, DEFAULT: waiting(before)})
        assert look(was, after(was, classes={CRITICAL: kept, DEFAULT: waiting(None)})) == (evidence, None)


def test_the_worst_of_both_signals_is_named():
    was = state(classes={CRITICAL: class_state(latency=latency(0.1)), DEFAULT: waiting(0.2)})
    twice, thrice = class_state(latency=latency(0.2)), class_state(latency=latency(0.3))
    then = {CRITICAL: twice, DEFAULT: waiting(0.55)}
    assert look(was, after(was, classes=then))[1] == Regression(DEFAULT, 0.2, 0.55, "pressure")
    then = {CRITICAL: thrice, DEFAULT: waiting(0.55)}
    assert look(was, after(was, classes=then))[1] == Regression(CRITICAL, 0.1, 0.3)


def test_where_pressure_judges_neither_requests_nor_the_floor_of_latencies_count():
    was = state(classes={CRITICAL: waiting(0.3)})
    then = after(was, classes={CRITICAL: waiting(0.7)})
    assert look(was, then, min_requests=100, floor_ratio=1.0)[0] == "regressed"


def test_a_state_from_before_there_were_ceilings_is_judged_by_latency():
    was = state(classes={CRITICAL: class_state(latency=latency(0.120), judged_by=None, waited_ratio=0.1)})
    then = {CRITICAL: class_state(latency=latency(0.145), judged_by=None, waited_ratio=0.1)}
    assert look(was, after(was, classes=then)) == ("regressed", Regression(CRITICAL, 0.120, 0.145))


@pytest.mark.parametrize(("before", "then"), [("summary", "summary"), ("histogram", "mixed"), ("mixed", "histogram")])
def test_quantiles_of_summaries_are_no_evidence_of_a_change(before, then):
    """They are of the pod's own window, and come and go with the series that were asked something."""
    was = state(classes={CRITICAL: class_state(latency=latency(0.1, source=before))})
    now = {CRITICAL: class_state(latency=latency(2.0, source=then))}
    assert look(was, after(was, classes=now)) == ("unknown", None)


def test_histograms_are_evidence():
    was = state(classes={CRITICAL: class_state(latency=latency(0.1, source="histogram"))})
    now = {CRITICAL: class_state(latency=latency(2.0, source="histogram"))}
    assert look(was, after(was, classes=now))[0] == "regressed"
