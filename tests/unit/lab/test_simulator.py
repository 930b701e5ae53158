"""The simulator against what queueing theory and fair sharing say, and the fault that the demo shows."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.fair_share import water_fill
from lab.simnode_scenario import default_scenario, tree_of
from lab.simulator import Batch, Completion, Group, Idle, NodeSimulator, Service

SIBLINGS = st.lists(
    st.tuples(st.integers(1, 10_000), st.one_of(st.just(0.0), st.floats(0.01, 64.0))), min_size=1, max_size=8
)


def node(*pods: Group, cores: int = 2, seed: int = 1) -> NodeSimulator:
    return NodeSimulator(cores=cores, root=Group(name="pods", children=pods), rng=random.Random(seed))


def batch(name: str, weight: int = 100, processes: int = 4) -> Group:
    return Group(name=name, weight=weight, workload=Batch(name=name, processes=processes))


def service(name: str, weight: int = 100, *, rate: float = 50.0, work: float = 0.01, **fields: object) -> Group:
    spec = {"timeout_seconds": 1e6, "max_queue": 10**9, **fields}
    return Group(name=name, weight=weight, workload=Service(name=name, rate_per_second=rate, work_seconds=work, **spec))


def run(simulator: NodeSimulator, seconds: float, dt: float = 0.01) -> list[Completion]:
    return [ended for _ in range(round(seconds / dt)) for ended in simulator.step(dt)]


def drain(simulator: NodeSimulator, *services: str) -> list[Completion]:
    """Stops all arrivals and runs until everything has been answered."""
    for name in services:
        simulator.set_rate(name, 0.0)
    return simulator.step(1e6)


def usage(simulator: NodeSimulator, path: str) -> float:
    return simulator.reading().groups[path].usage_seconds


def p99(ended: list[Completion], name: str) -> float:
    latencies = sorted(request.latency_seconds for request in ended if request.name == name)
    return latencies[math.ceil(0.99 * len(latencies)) - 1]


# Sharing


@given(SIBLINGS, st.floats(0.01, 128.0))
def test_all_capacity_is_used_or_all_demand_is_met(siblings, capacity):
    weights, demands = zip(*siblings, strict=True)
    given_cores = water_fill(capacity, weights, demands)
    assert sum(given_cores) == pytest.approx(min(capacity, sum(demands)))
    assert all(0.0 <= cores <= demand for cores, demand in zip(given_cores, demands, strict=True))


@given(SIBLINGS, st.floats(0.01, 128.0))
def test_nobody_whose_demand_is_unmet_gets_less_per_weight_than_anybody_else(siblings, capacity):
    weights, demands = zip(*siblings, strict=True)
    given_cores = water_fill(capacity, weights, demands)
    per_weight = [cores / weight for cores, weight in zip(given_cores, weights, strict=True)]
    for level, cores, demand in zip(per_weight, given_cores, demands, strict=True):
        if cores < demand * (1 - 1e-9):
            assert level >= max(per_weight) * (1 - 1e-9)


def test_shares_follow_weights_when_all_are_backlogged():
    simulator = node(batch("a", 1000), batch("b", 316), batch("c", 100))
    run(simulator, 1.0)
    for name, weight in (("a", 1000), ("b", 316), ("c", 100)):
        assert usage(simulator, f"pods/{name}") == pytest.approx(2.0 * weight / 1416, rel=0.01)


def test_a_weight_acts_among_siblings_only():
    simulator = node(
        Group(name="burstable", weight=300, children=(batch("small", 1), batch("large", 3))),
        Group(name="besteffort", weight=100, children=(batch("heavy", 10_000),)),
    )
    run(simulator, 1.0)
    assert usage(simulator, "pods/besteffort/heavy") == pytest.approx(0.5)
    assert usage(simulator, "pods/burstable/small") == pytest.approx(1.5 / 4)
    assert usage(simulator, "pods/burstable") == pytest.approx(1.5)


def test_a_thread_never_uses_more_than_a_core_and_the_rest_goes_to_others():
    simulator = node(batch("one", 10_000, processes=1), batch("many", 1))
    run(simulator, 1.0)
    assert usage(simulator, "pods/one") == pytest.approx(1.0)
    assert usage(simulator, "pods/many") == pytest.approx(1.0)


def test_idle_pods_take_no_part():
    simulator = node(Group(name="idle", weight=10_000, workload=Idle(name="idle")), batch("busy", 1))
    run(simulator, 1.0)
    assert usage(simulator, "pods/busy") == pytest.approx(2.0)
    assert usage(simulator, "pods/idle") == 0.0


def test_no_cpu_time_is_lost_or_made_while_services_come_and_go():
    simulator = node(service("api", 500, rate=100.0), service("web", 20, rate=60.0), batch("batch", 100))
    run(simulator, 20.0)
    parts = sum(usage(simulator, f"pods/{name}") for name in ("api", "web", "batch"))
    assert parts == pytest.approx(40.0)
    assert usage(simulator, "pods") == pytest.approx(40.0)


def test_a_service_uses_exactly_the_work_of_its_requests():
    simulator = node(service("api", rate=100.0, work=0.01), batch("batch"))
    ended = run(simulator, 20.0) + drain(simulator, "api")
    alone = node(service("api", rate=100.0, work=0.01), cores=64)
    alone_ended = run(alone, 20.0) + drain(alone, "api")
    assert len(ended) == len(alone_ended) > 1000
    assert usage(simulator, "pods/api") == pytest.approx(usage(alone, "pods/api"))


def test_a_new_weight_counts_from_now_on():
    simulator = node(batch("a"), batch("b"))
    run(simulator, 1.0)
    simulator.set_weight("pods/a", 300)
    run(simulator, 1.0)
    assert usage(simulator, "pods/a") == pytest.approx(1.0 + 1.5)


@pytest.mark.parametrize("weight", [0, -1, 10_001])
def test_a_weight_that_a_kernel_refuses_is_an_error(weight):
    with pytest.raises(ValueError, match="1-10000"):
        node(batch("a")).set_weight("pods/a", weight)


def test_two_workloads_of_one_name_are_an_error():
    twin = Group(name="other", workload=Batch(name="a"))
    with pytest.raises(ValueError, match="name a"):
        node(batch("a"), twin)


# Queueing


def test_mean_latency_of_one_worker_is_that_of_mm1():
    ended = run(node(service("api", rate=50.0, work=0.01, workers=1), cores=1), 1000.0, dt=1.0)
    mean = sum(request.latency_seconds for request in ended) / len(ended)
    assert mean == pytest.approx(1 / (100.0 - 50.0), rel=0.05)
    assert p99(ended, "api") == pytest.approx(math.log(100.0) / (100.0 - 50.0), rel=0.08)


def test_mean_latency_of_many_workers_on_two_cores_is_that_of_mm2():
    ended = run(node(service("api", rate=150.0, work=0.01, workers=2), cores=2), 500.0, dt=1.0)
    mean = sum(request.latency_seconds for request in ended) / len(ended)
    load = 0.75
    assert mean == pytest.approx(0.01 / (1 - load**2), rel=0.06)


def test_requests_in_service_obey_littles_law():
    seconds = 200.0
    simulator = node(service("api", rate=80.0, workers=1000), batch("batch", processes=1), cores=2)
    ended = run(simulator, seconds)
    totals = simulator.reading().groups["pods/api"]
    in_system = (totals.usage_seconds + totals.waiting_seconds) / seconds
    mean_latency = sum(request.latency_seconds for request in ended) / len(ended)
    assert in_system == pytest.approx(len(ended) / seconds * mean_latency, rel=0.005)


@pytest.mark.parametrize("distribution", ["exponential", "lognormal"])
def test_mean_work_is_the_configured_one(distribution):
    simulator = node(service("api", rate=100.0, work=0.02, distribution=distribution, spread=0.8), cores=64)
    ended = run(simulator, 300.0, dt=1.0)
    assert usage(simulator, "pods/api") / len(ended) == pytest.approx(0.02, rel=0.03)


def test_arrivals_come_at_the_configured_rate():
    ended = run(node(service("api", rate=200.0, work=0.001), cores=4), 100.0, dt=1.0)
    assert len(ended) == pytest.approx(20_000, abs=4 * math.sqrt(20_000))


def test_a_starved_service_gives_requests_up_at_their_timeout():
    simulator = node(service("api", 1, rate=100.0, timeout_seconds=0.25), batch("batch", 10_000))
    ended = run(simulator, 10.0)
    given_up = [request.latency_seconds for request in ended if request.status == "timeout"]
    assert len(given_up) > 0.9 * len(ended)
    assert set(given_up) == {0.25}
    assert all(request.latency_seconds <= 0.25 for request in ended)


def test_a_full_line_sheds_and_every_arrival_ends_exactly_once():
    fields = {"rate": 300.0, "work": 0.01, "workers": 1, "max_queue": 5, "timeout_seconds": 0.05}
    simulator = node(service("api", **fields), cores=1)
    ended = run(simulator, 20.0) + drain(simulator, "api")
    roomy = node(service("api", **{**fields, "workers": 1000}), cores=64)
    arrivals = run(roomy, 20.0) + drain(roomy, "api")
    assert {request.status for request in ended} == {"ok", "timeout", "shed"}
    assert sorted(request.arrived_seconds for request in ended) == pytest.approx(
        sorted(request.arrived_seconds for request in arrivals)
    )
    assert all(request.latency_seconds == 0.0 for request in ended if request.status == "shed")


def test_rates_and_phases_change_at_run_time():
    simulator = node(service("api", rate=0.0), batch("batch"))
    assert run(simulator, 5.0) == []
    simulator.set_rate("api", 100.0)
    simulator.set_batch_running("batch", False)
    ended = run(simulator, 5.0)
    assert 350 < len(ended) < 650
    assert min(request.arrived_seconds for request in ended) >= 5.0
    assert usage(simulator, "pods/batch") == pytest.approx(10.0)
    assert len(drain(simulator, "api")) < 10
    assert run(simulator, 5.0) == []


def test_a_new_rate_stretches_the_time_to_the_next_arrivals_and_draws_nothing_anew():
    def arrivals(*rates: float) -> list[float]:
        simulator = node(service("api", rate=10.0, work=0.001, workers=1000), cores=64)
        ended = simulator.step(1.0)
        for rate in rates:
            simulator.set_rate("api", rate)
        ended += simulator.step(100.0)
        return sorted(request.arrived_seconds for request in ended)[:200]

    unchanged = arrivals()
    doubled = [at if at < 1.0 else 1.0 + (at - 1.0) / 2 for at in unchanged]
    assert arrivals(10.0) == pytest.approx(unchanged)
    assert arrivals(20.0) == pytest.approx(doubled)
    assert arrivals(3.0, 0.0, 20.0) == pytest.approx(doubled)


# Pressure


def test_there_is_no_pressure_while_every_thread_has_a_core():
    simulator = node(batch("a", processes=2))
    run(simulator, 1.0)
    totals = simulator.reading().groups["pods/a"]
    assert (totals.some_seconds, totals.full_seconds, totals.waiting_seconds) == (0.0, 0.0, 0.0)


def test_more_threads_than_cores_wait_all_the_time_but_never_all_of_them():
    simulator = node(batch("a", processes=5))
    run(simulator, 1.0)
    reading = simulator.reading()
    totals = reading.groups["pods"]
    assert (totals.some_seconds, totals.full_seconds) == pytest.approx((1.0, 0.0))
    assert totals.waiting_seconds == pytest.approx(3.0)
    assert reading.runnable == 5


def test_a_thread_with_a_quarter_of_a_core_waits_three_quarters_of_the_time():
    simulator = node(batch("thin", 100, processes=1), batch("thick", 300, processes=1), cores=1)
    run(simulator, 2.0)
    totals = simulator.reading().groups["pods/thin"]
    assert (totals.some_seconds, totals.full_seconds) == pytest.approx((1.5, 1.5))


# Repeatability


def test_a_seed_decides_the_run_and_the_step_does_not():
    def ended(seed: int, dt: float) -> list[Completion]:
        return run(node(service("api", 50, rate=100.0), batch("batch"), seed=seed), 10.0, dt)

    first = ended(1, 0.01)
    assert first == ended(1, 0.01)
    assert first != ended(2, 0.01)
    coarse = ended(1, 0.5)
    assert [request.latency_seconds for request in coarse] == pytest.approx(
        [request.latency_seconds for request in first]
    )


@given(st.integers(0, 2**32), st.sampled_from(["exponential", "lognormal"]))
def test_a_higher_weight_never_makes_a_service_slower(seed, distribution):
    means = []
    for weight in (10, 30, 100, 300, 1000, 10_000):
        simulator = node(
            service("api", weight, rate=60.0, distribution=distribution),
            service("web", 100, rate=40.0),
            batch("batch"),
            seed=seed,
        )
        ended = run(simulator, 3.0, dt=0.1) + drain(simulator, "api", "web")
        latencies = [request.latency_seconds for request in ended if request.name == "api"]
        means.append(sum(latencies) / len(latencies))
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(means))


# The fault that the demo shows, and its cure


def demo_p99(weights: tuple[int, int, int] | None, *, with_batch: bool = True) -> float:
    scenario = default_scenario()
    simulator = NodeSimulator(cores=scenario.cores, root=tree_of(scenario), rng=random.Random(scenario.seed))
    if weights is not None:
        for name, weight in zip(("api", "monitor", "batch"), weights, strict=True):
            pod = next(pod for pod in scenario.pods if pod.name == name)
            simulator.set_weight(f"kubepods/{pod.group}", weight)
    simulator.set_batch_running("batch", with_batch)
    return p99(run(simulator, 10.0), "api")


def test_weights_from_requests_starve_the_api_and_weights_from_its_objective_do_not():
    solo = demo_p99(None, with_batch=False)
    assert demo_p99(None) > 10 * solo
    assert demo_p99((1000, 316, 100)) < 1.5 * solo
