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
    return PodReading(state, GroupRates(**{"cpu_cores": 0.0} | rates), share, memory)


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
    found = states(reading("api", cpu_cores=None))["api"]
    assert (found.cpu_cores, found.pressure_ratio, found.share, found.memory_bytes) == (None, None, None, None)


def test_weights_are_those_of_the_pods_that_can_be_written():
    found = states(reading("api", weight=300), reading("batch"), reading("batch", weight=0, skip="idle"))
    assert (found["api"].pods_weight, found["batch"].pods_weight) == (300, 100)
    assert (found["api"].weight, found["batch"].weight, found["web"].weight) == (300, 100, None)


def test_pods_without_a_class_are_in_none():
    assert sum(state.pods for state in states(reading(None), reading("unheard-of")).values()) == 0


def test_who_ran_above_its_share_while_a_class_waited():
    found = states(
        reading("api", cpu_cores=0.2, share=0.5, unheld_ratio=0.3),
        reading("batch", cpu_cores=1.5, share=0.25, unheld_ratio=0.2),
        reading("web", cpu_cores=0.3, share=0.25),
    )
    assert found["api"].waited_for == ("batch",)
    assert found["web"].waited_for == ()


def test_where_nobody_ran_above_its_share_whoever_ran_most_is_named():
    found = states(
        reading("api", cpu_cores=0.2, share=0.1, unheld_ratio=0.3),
        reading("batch", cpu_cores=1.5, share=0.9),
        reading("web", cpu_cores=0.1, share=0.1),
    )
    assert found["api"].waited_for == ("batch",)


def test_who_did_not_wait_waited_for_nobody():
    found = states(reading("api", unheld_ratio=0.05), reading("batch", cpu_cores=2.0, share=0.1))
    assert found["api"].waited_for == ()
    found = states(reading("api", unheld_ratio=0.5, cpu_cores=1.0), reading("batch", cpu_cores=1.0, share=0.1))
    assert found["api"].waited_for == ()  # as long as its own tasks may have been in each other's way


def test_what_a_pod_waited_for_its_own_limit_is_taken_off_that_pod_alone():
    waits = reading("api", pressure_ratio=0.4, throttled_ratio=0.0, unheld_ratio=0.4)
    throttled = reading("api", pressure_ratio=0.45, throttled_ratio=0.45, unheld_ratio=0.0)
    found = states(waits, throttled)["api"]
    assert (found.pressure_ratio, found.throttled_ratio, found.waited_ratio) == (0.45, 0.45, 0.4)
    assert states(reading("api"))["api"].waited_ratio is None


def test_the_state_says_what_the_wait_of_the_worst_pod_was_made_of():
    by_pressure = reading("api", pressure_ratio=0.2, unheld_ratio=0.2)
    by_delay = reading("api", run_delay=3.0, unheld_ratio=0.4)
    found = states(by_pressure, by_delay)["api"]
    assert (found.waited_ratio, found.waited_source, found.run_delay) == (0.4, "run_delay", 3.0)
    found = states(by_pressure, reading("api", run_delay=0.1, unheld_ratio=0.1))["api"]
    assert (found.waited_ratio, found.waited_source, found.run_delay) == (0.2, "pressure", 0.1)
    found = states(reading("api"))["api"]
    assert (found.waited_ratio, found.waited_source, found.run_delay) == (None, None, None)


def test_a_wait_that_is_known_of_one_pod_needs_no_reason():
    found = states(reading("api", unknown="first_look"), reading("api", unheld_ratio=0.2))["api"]
    assert (found.waited_ratio, found.waited_reason) == (0.2, None)
    found = states(reading("api", unknown="psi_off"), reading("api", unknown="first_look"))["api"]
    assert (found.waited_ratio, found.waited_reason) == (None, "psi_off")
    assert states()["api"].waited_reason == "no_pods"


def test_memory_that_no_node_has_is_cut_at_what_a_message_holds():
    assert states(reading("api", memory=2**64 - 1), reading("api", memory=2**64 - 1))["api"].memory_bytes == 2**63 - 1


NO_ENDPOINT, NO_METRIC = Latency(reason="no_source"), Latency(reason="no_metric")
FOR_NOW = [Latency(reason=reason) for reason in ("scrape_failed", "first_scrape", "idle", "few_requests")]
KNOWN = [Latency(p99_seconds=0.2, requests=50), Latency(p99_seconds=1.0, reason="beyond_buckets")]
BOTH = ClassSettings(objective_p99_seconds=0.1, objective_pressure_ratio=0.2)
BY_LATENCY = ClassSettings(objective_p99_seconds=0.1)
BY_PRESSURE = ClassSettings(objective_pressure_ratio=0.2)


def judged(latency, spec, pods=1):
    found = class_states([reading("api")] * pods, {"api": latency}, {"api": spec}, WeightSettings(), 2)["api"]
    assert found.objective_pressure_ratio == spec.objective_pressure_ratio
    return found.judged_by


@pytest.mark.parametrize("latency", [NO_ENDPOINT, NO_METRIC, Latency(reason="unit_suspect")])
def test_without_latency_a_class_is_judged_by_its_pressure_ceiling_if_it_has_one(latency):
    assert judged(latency, BOTH) == "pressure"
    assert judged(latency, BY_PRESSURE) == "pressure"
    assert judged(latency, BY_LATENCY) == "latency"


@pytest.mark.parametrize("latency", [*FOR_NOW, *KNOWN])
def test_a_latency_that_is_known_or_only_missing_for_now_still_judges(latency):
    assert judged(latency, BOTH) == "latency"
    assert judged(latency, BY_LATENCY) == "latency"
    assert judged(latency, BY_PRESSURE) == "pressure"


@pytest.mark.parametrize("latency", [NO_ENDPOINT, *FOR_NOW, *KNOWN])
def test_an_absent_class_and_one_without_an_objective_are_judged_by_nothing(latency):
    assert judged(latency, BOTH, pods=0) is None
    assert judged(latency, ClassSettings(kind="throughput")) is None


def placed(cls, group, weight, **fields):
    state = PodState(uid=group, name=group, group=group, cls=cls, weight=weight)
    return PodReading(state, GroupRates(cpu_cores=0.5), None, None, **fields)


def in_tree(*pods, parents):
    return class_states(pods, {}, SPECS, WeightSettings(), 2, None, parents)


def test_in_several_parents_a_class_weighs_what_it_has_of_the_cpu_and_its_pods_what_they_do():
    found = in_tree(
        placed("api", "pod-a", 20),
        placed("batch", "burstable/pod-b", 1000),
        placed(None, "burstable/pod-c", 1000),
        parents={"burstable": 80},
    )
    assert (found["api"].weight, found["batch"].weight) == (100, 200)
    assert (found["api"].pods_weight, found["batch"].pods_weight) == (20, 1000)


def test_in_one_parent_class_weights_are_what_they_are_whatever_lies_above():
    pods = [placed("api", "burstable/pod-a", 30), placed("batch", "burstable/pod-b", 10)]
    for parents in ({}, {"burstable": 80}):
        assert [in_tree(*pods, parents=parents)[name].weight for name in ("api", "batch")] == [300, 100]


def test_a_pod_that_takes_no_part_makes_nothing_of_its_class():
    found = in_tree(placed("api", "pod-a", 20, takes_part=False), placed("batch", "pod-b", 10), parents={})
    assert found["api"].pods == 0
    assert (found["api"].weight, found["api"].cpu_cores, found["api"].judged_by) == (None, None, None)
    assert found["api"].latency == Latency(reason="no_pods")
