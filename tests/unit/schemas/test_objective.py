"""When a class misses its objective: the decider's mask and the reward go by the same answer."""

import pytest

from schemas.messages import ClassState, Latency
from schemas.objective import has_evidence, is_violated, judged_by
from schemas.settings import ClassSettings

SPEC = ClassSettings(objective_p99_seconds=0.1, objective_pressure_ratio=0.1)
ONLY_P99 = ClassSettings(objective_p99_seconds=0.1)
ONLY_CEILING = ClassSettings(objective_pressure_ratio=0.1)
KNOWN = Latency(p99_seconds=0.05, over_ratio=0.0, requests=500)


def seen(latency=KNOWN, **fields):
    """A class of objective 0.1 s with one pod, judged by its latency."""
    return ClassState(**{"pods": 1, "objective_seconds": 0.1, "judged_by": "latency", "latency": latency} | fields)


def waited(ratio, **fields):
    """The same class without any latency, judged by its ceiling of 0.1."""
    return seen(Latency(reason="no_source"), judged_by="pressure", waited_ratio=ratio, **fields)


# ---- which signal judges ----


@pytest.mark.parametrize(
    "word",
    [
        "no_source",
        "no_target",
        "shared_target",
        "no_metric",
        "no_buckets",
        "no_count",
        "no_quantiles",
        "unit_unknown",
        "unit_suspect",
    ],
)
def test_a_class_that_brings_no_latency_is_judged_by_its_ceiling_if_it_has_one(word):
    assert judged_by(Latency(reason=word), SPEC) == "pressure"
    assert judged_by(Latency(reason=word), ONLY_P99) == "latency"  # that it never has: no evidence


@pytest.mark.parametrize(
    "latency",
    [
        KNOWN,
        Latency(reason="idle"),
        Latency(reason="few_requests", requests=3),
        Latency(reason="first_scrape"),
        Latency(reason="scrape_failed"),
        Latency(reason="beyond_buckets", p99_seconds=0.05, saturated=("p99",)),
        Latency(),
        Latency(reason="a word of tomorrow"),
    ],
)
def test_a_latency_that_is_known_or_only_unknown_for_now_judges_though_there_is_a_ceiling(latency):
    assert judged_by(latency, SPEC) == "latency"


@pytest.mark.parametrize("latency", [KNOWN, Latency(reason="idle"), Latency(reason="no_source")])
def test_a_class_that_has_a_ceiling_only_is_judged_by_it_whatever_it_serves(latency):
    assert judged_by(latency, ONLY_CEILING) == "pressure"


@pytest.mark.parametrize("latency", [KNOWN, Latency(reason="no_source")])
def test_a_throughput_class_is_judged_by_neither(latency):
    assert judged_by(latency, ClassSettings(kind="throughput", objective_pressure_ratio=0.1)) is None


def test_a_ceiling_of_nothing_is_a_ceiling():
    assert judged_by(Latency(reason="no_source"), ClassSettings(objective_pressure_ratio=0.0)) == "pressure"


# ---- what is evidence ----


@pytest.mark.parametrize(
    ("latency", "known"),
    [
        (Latency(p99_seconds=0.1), True),
        (Latency(over_ratio=0.0), True),
        (Latency(requests=3, requests_per_second=1.0, reason="few_requests"), False),
        (Latency(p99_seconds=0.05, saturated=("p95",)), True),
        (Latency(p99_seconds=0.05, saturated=("p99",)), False),  # at least 50 ms: more or less than 100 ms?
        (Latency(p99_seconds=0.1, saturated=("p99",)), True),
        (Latency(p99_seconds=0.2, saturated=("p99",)), True),
        (Latency(p99_seconds=0.05, saturated=("p99",), over_ratio=0.0), True),
    ],
)
def test_latency_is_known_by_a_p99_or_a_fraction_and_by_a_lower_bound_that_reaches_the_objective(latency, known):
    assert has_evidence(seen(latency)) is known
    assert has_evidence(seen(latency, judged_by=None)) is known  # a state from before there were ceilings


def test_a_lower_bound_without_an_objective_tells_nothing():
    assert not has_evidence(seen(Latency(p99_seconds=9.0, saturated=("p99",)), objective_seconds=None))


@pytest.mark.parametrize(("ratio", "known"), [(0.0, True), (0.4, True), (None, False)])
def test_where_pressure_judges_the_wait_is_the_evidence(ratio, known):
    assert has_evidence(waited(ratio)) is known


def test_the_signal_that_does_not_judge_is_no_evidence():
    assert not has_evidence(seen(Latency(reason="idle"), waited_ratio=0.9))
    assert not has_evidence(seen(KNOWN, judged_by="pressure"))


# ---- what is a violation ----


@pytest.mark.parametrize(
    ("latency", "violated"),
    [
        (Latency(over_ratio=0.011), True),
        (Latency(over_ratio=0.01), False),  # one in a hundred may
        (Latency(over_ratio=0.011, p99_seconds=0.05), True),
        (Latency(over_ratio=0.0, p99_seconds=0.3), False),  # the fraction counts every request: it decides alone
        (Latency(over_ratio=0.0, p99_seconds=0.05, saturated=("p99",)), False),
        (Latency(p99_seconds=0.1001), True),
        (Latency(p99_seconds=0.1), False),
        (Latency(p99_seconds=0.05, saturated=("p99",)), False),
        (Latency(p99_seconds=0.1, saturated=("p99",)), True),  # in the bucket beyond the objective
        (Latency(p99_seconds=0.2, saturated=("p99",)), True),
        (Latency(p99_seconds=0.1, saturated=("p95",)), False),
        (Latency(saturated=("p99",)), False),
        (Latency(reason="idle"), False),
    ],
)
def test_an_objective_is_missed_by_too_many_requests_or_else_by_the_p99(latency, violated):
    assert is_violated(seen(latency), SPEC) is violated
    assert is_violated(seen(latency, judged_by=None), SPEC) is violated
    assert not is_violated(seen(latency, pods=0), SPEC)


@pytest.mark.parametrize(("own", "violated"), [(0.1, True), (0.2, True), (0.3, False)])
def test_a_class_is_held_against_the_objective_that_its_state_shows_and_not_the_one_that_is_configured_here(
    own, violated
):
    bound = seen(Latency(p99_seconds=0.2, saturated=("p99",)), objective_seconds=own)
    assert is_violated(bound, ClassSettings(objective_p99_seconds=0.5)) is violated
    assert is_violated(bound, ClassSettings(objective_p99_seconds=0.05)) is violated
    assert is_violated(bound, ONLY_CEILING) is violated
    exact = seen(Latency(p99_seconds=0.25), objective_seconds=own)
    assert is_violated(exact, ClassSettings(objective_p99_seconds=0.05)) is violated


def test_where_the_state_shows_no_objective_the_configured_one_counts():
    known = seen(Latency(p99_seconds=0.25), objective_seconds=None)
    assert is_violated(known, ClassSettings(objective_p99_seconds=0.2))
    assert not is_violated(known, ClassSettings(objective_p99_seconds=0.3))
    assert not is_violated(known, ONLY_CEILING)


@pytest.mark.parametrize(
    ("ratio", "violated"), [(0.1, False), (0.1001, True), (1.0, True), (0.0, False), (None, False)]
)
def test_where_pressure_judges_a_wait_above_the_ceiling_misses_the_objective(ratio, violated):
    assert is_violated(waited(ratio), SPEC) is violated
    assert is_violated(waited(ratio), ONLY_CEILING) is violated
    assert not is_violated(waited(ratio, pods=0), SPEC)


def test_where_pressure_judges_the_latency_does_not():
    slow = seen(Latency(p99_seconds=9.0, over_ratio=1.0), judged_by="pressure", waited_ratio=0.05)
    assert not is_violated(slow, SPEC)


def test_where_latency_judges_the_wait_does_not():
    assert not is_violated(seen(KNOWN, waited_ratio=1.0), SPEC)
    assert not is_violated(seen(Latency(reason="idle"), waited_ratio=1.0), SPEC)


def test_a_wait_without_a_ceiling_here_misses_nothing():
    assert not is_violated(waited(1.0), ONLY_P99)


def test_a_throughput_class_has_no_objective_to_miss():
    slow = seen(Latency(over_ratio=0.3, p99_seconds=9.0))
    assert not is_violated(slow, ClassSettings(kind="throughput"))
    assert not is_violated(waited(1.0), ClassSettings(kind="throughput", objective_pressure_ratio=0.1))


def test_what_a_class_may_have_over_is_its_own_setting():
    assert not is_violated(
        seen(Latency(over_ratio=0.04)), ClassSettings(objective_p99_seconds=0.1, violation_target_ratio=0.05)
    )
