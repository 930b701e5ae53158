"""When a class misses its objective: the decider's mask and the reward go by the same answer."""

import pytest

from schemas.messages import ClassState, Latency
from schemas.objective import has_latency, is_violated
from schemas.settings import ClassSettings

SPEC = ClassSettings(objective_p99_seconds=0.1)


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
        (Latency(p99_seconds=0.05, saturated=("p99",)), True),
        (Latency(p99_seconds=0.05, saturated=("p95",)), False),
        (Latency(saturated=("p99",)), False),
        (Latency(reason="idle"), False),
    ],
)
def test_an_objective_is_missed_by_too_many_requests_or_else_by_the_p99(latency, violated):
    assert is_violated(ClassState(pods=1, latency=latency), SPEC) is violated
    assert not is_violated(ClassState(pods=0, latency=latency), SPEC)


def test_a_throughput_class_has_no_objective_to_miss():
    slow = ClassState(pods=1, latency=Latency(over_ratio=0.3, p99_seconds=9.0))
    assert not is_violated(slow, ClassSettings(kind="throughput"))


def test_what_a_class_may_have_over_is_its_own_setting():
    seen = ClassState(pods=1, latency=Latency(over_ratio=0.04))
    assert not is_violated(seen, ClassSettings(objective_p99_seconds=0.1, violation_target_ratio=0.05))


@pytest.mark.parametrize(
    ("latency", "known"),
    [
        (Latency(p99_seconds=0.1), True),
        (Latency(over_ratio=0.0), True),
        (Latency(requests=3, requests_per_second=1.0, reason="few_requests"), False),
    ],
)
def test_latency_is_known_by_a_p99_or_a_fraction(latency, known):
    assert has_latency(ClassState(pods=1, latency=latency)) is known
