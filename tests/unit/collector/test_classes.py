"""Pods to classes: sums, worst cases, and who ran while a class waited."""

import pytest

from schemas.messages import Latency, PodState
from schemas.settings import ClassSettings, WeightSettings
from services.collector.core.classes import PodReading, class_states
from services.collector.core.tally import GroupRates

SPECS = {
    "api": ClassSettings(objective_p99_seconds=0.1),
    "web": ClassSettings(objective_p99_seconds=0.5),
    "batch": ClassSettings(kind="throughput"),
}


def reading(cls, *, weight=100, skip=None, share=None, memory=None, **rates):
    state = PodState(uid="u", name="n", group="g", cls=cls, weight=weight, skip=skip)
    return PodReading(state, GroupRates(**rates), share, memory)


def states(*pods, latencies=None, cpus=2):
    return class_states(pods, latencies or {}, SPECS, WeightSettings(), cpus)


def test_every_configured_class_has_a_state():
    found = states()
    assert list(found) == ["api", "web", "batch"]
    assert found["api"].pods == 0
    assert found["api"].objective_seconds == 0.1
    assert found["api"].latency == Latency(reason="no_pods")


def test_usage_memory_and_shares_add_up_and_pressure_is_the_worst():
    found = states(
        reading("api", cpu_cores=0.5, pressure_ratio=0.1, throttled_ratio=0.0, share=0.2, memory=100),
        reading("api", cpu_cores=0.25, pressure_ratio=0.4, throttled_ratio=0.3, share=0.1, memory=50),
        reading("api"),
    )["api"]
    assert (found.pods, found.cpu_cores, found.memory_bytes) == (3, 0.75, 150)
    assert found.share == pytest.approx(0.3)
    assert (found.pressure_ratio, found.throttled_ratio) == (0.4, 0.3)


def test_what_no_pod_knows_is_unknown():
    found = states(reading("api"))["api"]
    assert (found.cpu_cores, found.pressure_ratio, found.share, found.memory_bytes) == (None, None, None, None)


def test_weights_are_those_of_the_pods_that_can_be_written():
    found = states(reading("api", weight=300), reading("batch"), reading("batch", weight=0, skip="idle"))
    assert (found["api"].pods_weight, found["batch"].pods_weight) == (300, 100)
    assert (found["api"].weight, found["batch"].weight, found["web"].weight) == (300, 100, None)


def test_pods_without_a_class_are_in_none():
    assert sum(state.pods for state in states(reading(None), reading("unheard-of")).values()) == 0


def test_who_ran_above_its_share_while_a_class_waited():
    found = states(
        reading("api", cpu_cores=0.2, share=0.5, pressure_ratio=0.3),
        reading("batch", cpu_cores=1.5, share=0.25, pressure_ratio=0.2),
        reading("web", cpu_cores=0.3, share=0.25),
    )
    assert found["api"].waited_for == ("batch",)
    assert found["web"].waited_for == ()


def test_where_nobody_ran_above_its_share_whoever_ran_most_is_named():
    found = states(
        reading("api", cpu_cores=0.2, share=0.1, pressure_ratio=0.3),
        reading("batch", cpu_cores=1.5, share=0.9),
        reading("web", cpu_cores=0.1, share=0.1),
    )
    assert found["api"].waited_for == ("batch",)


def test_who_did_not_wait_waited_for_nobody():
    found = states(reading("api", pressure_ratio=0.05, cpu_cores=1.0), reading("batch", cpu_cores=2.0, share=0.1))
    assert found["api"].waited_for == ()


def test_what_a_pod_waited_for_its_own_limit_is_taken_off_that_pod_alone():
    waits = reading("api", pressure_ratio=0.4, throttled_ratio=0.0)
    throttled = reading("api", pressure_ratio=0.45, throttled_ratio=0.45)
    found = states(waits, throttled)["api"]
    assert (found.pressure_ratio, found.throttled_ratio, found.waited_ratio) == (0.45, 0.45, 0.4)
    assert states(reading("api"))["api"].waited_ratio is None
