"""Scenarios from a seed: always the same for a seed, always valid, and of every kind."""

import msgspec
import pytest

from lab.arena.generated import generated
from lab.arena.node import Node
from lab.arena.scenario import Scenario, ServicePod, SpinnerPod

SEEDS = range(200)


def services(scenario: Scenario) -> list[ServicePod]:
    return [pod for pod in scenario.pods if isinstance(pod, ServicePod)]


def demand(scenario: Scenario, cycle: float) -> float:
    """The services' part of the node's CPUs."""
    return sum(pod.rate.at(cycle) * pod.work_seconds for pod in services(scenario)) / scenario.cores


def demands() -> list[list[float]]:
    return [[demand(generated(seed), cycle) for cycle in range(0, 200, 5)] for seed in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_valid_and_the_same_every_time(seed):
    queue = "bounded" if seed % 2 else "unbounded"
    scenario = generated(seed, queue)
    assert scenario == generated(seed, queue)
    assert (scenario.name, scenario.queue, scenario.cores) == (f"gen:{seed}", queue, 2)
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario
    served = {pod.cls for pod in services(scenario)}
    assert served == set(scenario.objectives)
    assert all(0.02 <= objective <= 1.0 for objective in scenario.objectives.values())
    assert sum(pod.cls == "batch" for pod in scenario.pods) <= 2
    for cls in served:
        assert 1 <= sum(pod.cls == cls for pod in services(scenario)) <= 2
    for pod in services(scenario):
        assert 0.002 <= pod.work_seconds <= 0.010
        assert all(0.0 <= pod.rate.at(cycle) * pod.work_seconds <= 8.0 for cycle in range(200))
    assert scenario.phase_at(0) == "first"
    assert "second" in {scenario.phase_at(cycle) for cycle in range(200)}


def test_the_queue_is_all_that_differs_between_the_two():
    one, other = generated(5, "bounded"), generated(5, "unbounded")
    assert msgspec.structs.replace(one, queue="unbounded") == other


def test_a_seed_below_zero_is_refused():
    with pytest.raises(ValueError, match="must be 0 or more"):
        generated(-1)


def test_the_simulated_node_plays_them():
    for seed in range(20):
        scenario = generated(seed)
        node = Node(scenario, 1, cycle_seconds=5.0)
        windows = [node.advance(5.0) for _ in range(3)]
        assert set(windows[-1].pods) == {pod.name for pod in scenario.pods}


def test_seeds_differ():
    assert len({repr(generated(seed).pods) for seed in SEEDS}) == len(SEEDS)


def test_demands_go_from_idle_to_past_the_capacity():
    lowest, highest = sorted(min(each) for each in demands()), sorted(max(each) for each in demands())
    assert lowest[20] < 0.15
    assert 0.4 < highest[60] < 0.9
    assert sum(high > 1.0 for high in highest) > 40
    normal = [high for high in highest if 0.4 <= high <= 0.9]
    assert len(normal) > 50


def test_every_kind_of_trouble_occurs_and_none_is_the_rule():
    found = [generated(seed) for seed in SEEDS]
    claims = {
        "no default service": [not any(pod.cls == "default" for pod in services(s)) for s in found],
        "no latency-critical service": [not any(pod.cls == "latency-critical" for pod in services(s)) for s in found],
        "two latency-critical services": [
            sum(pod.cls == "latency-critical" for pod in services(s)) == 2 for s in found
        ],
        "no batch": [not any(pod.cls == "batch" for pod in s.pods) for s in found],
        "two batch pods": [sum(pod.cls == "batch" for pod in s.pods) == 2 for s in found],
        "batch that comes or goes": [
            any(
                len({pod.processes.at(cycle) for cycle in range(200)}) > 1
                for pod in s.pods
                if isinstance(pod, SpinnerPod) and pod.cls == "batch"
            )
            for s in found
        ],
        "a service that spins": [any(pod.name == "wild" for pod in s.pods) for s in found],
        "a flood": [
            any(pod.rate.at(cycle) * pod.work_seconds > 2.0 for pod in services(s) for cycle in range(200))
            for s in found
        ],
        "a ramp or a wave": [any(pod.rate.shape == "linear" for pod in services(s)) for s in found],
        "exponential work": [any(pod.distribution == "exponential" for pod in services(s)) for s in found],
    }
    counts = {claim: sum(holds) for claim, holds in claims.items()}
    assert all(4 <= count <= 150 for count in counts.values()), counts
