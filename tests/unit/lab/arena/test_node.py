"""The arena's node against the reference simulator, and what it promises by itself."""

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab.arena import node as arena_node
from lab.arena.node import Node, Nodes, straight_lines, whole_steps
from lab.arena.scenario import Curve, Scenario, ServicePod, SpinnerPod, constant
from lab.simulator import Batch, Group, NodeSimulator, Service

TURNS = 24
"""Windows of a second, in which the weights change three times."""

PROFILES = ({"api": 10, "web": 10, "job": 100}, {"api": 1000, "web": 316, "job": 100}, {"api": 100, "web": 3160})


def api(rate=200.0, **fields):
    curve = rate if isinstance(rate, Curve) else constant(rate)
    fields = {"name": "api", "cls": "latency-critical", "request_millicpu": 250, "work_seconds": 0.005} | fields
    return ServicePod(rate=curve, **fields)


def web(rate=100.0, **fields):
    return api(rate, **{"name": "web", "cls": "default", "work_seconds": 0.004, "distribution": "exponential"} | fields)


def job(processes=4.0, **fields):
    curve = processes if isinstance(processes, Curve) else constant(processes)
    fields = {"name": "job", "cls": "batch", "request_millicpu": 4000} | fields
    return SpinnerPod(processes=curve, **fields)


def node_of(*pods, **fields):
    return Scenario(**{"name": "test", "text": "", "pods": pods} | fields)


def requests_of(pod, seed, seconds):
    """The very draws that the reference makes of one seed: gap, work, gap, work, and so on."""
    rng, rate, moments, works = random.Random(seed), pod.rate.at(0.0), [], []
    log_mean = math.log(pod.work_seconds) - pod.spread**2 / 2
    at = rng.expovariate(1.0) / rate
    while at <= seconds:
        exponential = pod.distribution == "exponential"
        works.append(
            rng.expovariate(1.0 / pod.work_seconds) if exponential else rng.lognormvariate(log_mean, pod.spread)
        )
        moments.append(at)
        at += rng.expovariate(1.0) / rate
    return moments, works


def reference_of(scenario, rng):
    bounded = scenario.queue == "bounded"
    groups = []
    for pod in scenario.pods:
        if isinstance(pod, SpinnerPod):
            workload = Batch(name=pod.name, processes=round(pod.processes.at(0.0)))
        else:
            workload = Service(
                name=pod.name,
                rate_per_second=pod.rate.at(0.0),
                work_seconds=pod.work_seconds,
                distribution=pod.distribution,
                spread=pod.spread,
                workers=pod.workers,
                max_queue=60 if bounded else 10**9,
                timeout_seconds=1.0 if bounded else 1e9,
            )
        groups.append(Group(name=pod.name, workload=workload))
    return NodeSimulator(cores=scenario.cores, root=Group(name="node", children=tuple(groups)), rng=rng)


CASES = {
    "light": node_of(api(100.0), web(50.0), job()),
    "contended": node_of(api(), web(), job()),
    "past capacity": node_of(api(900.0), web(150.0), job()),
    "past capacity, unbounded": node_of(api(500.0), web(150.0), job(), queue="unbounded"),
    "one worker of long requests": node_of(api(8.0, work_seconds=0.2, workers=1, spread=1.0), web(), job()),
    "many workers": node_of(api(600.0, workers=64), web(300.0, workers=3, spread=0.0), job(1.0), cores=3),
    "equal works": node_of(api(300.0, spread=0.0), web(), job()),
}


@pytest.mark.parametrize("name", CASES)
def test_every_request_takes_as_long_as_in_the_reference_simulator(name):
    scenario = CASES[name]
    seeds = random.Random(7)
    requests = {
        pod.name: requests_of(pod, seeds.getrandbits(64), TURNS) for pod in scenario.pods if isinstance(pod, ServicePod)
    }
    reference = reference_of(scenario, random.Random(7))
    node = Node.replay(scenario, requests)
    for turn in range(TURNS):
        if turn % (TURNS // 4) == 0:
            weights = node.weights() | PROFILES[turn // (TURNS // 4) % len(PROFILES)]
            node.set_weights(weights)
            for pod, weight in weights.items():
                reference.set_weight(f"node/{pod}", weight)
        before = reference.reading()
        ended = reference.step(1.0)
        window = node.advance(1.0)
        after = reference.reading()
        for pod in requests:
            service = window.pods[pod].service
            own = [request for request in ended if request.name == pod]
            latencies = [request.latency_seconds for request in own if request.status != "shed"]
            assert service.latencies_seconds.tolist() == pytest.approx(latencies, abs=1e-9, rel=0.0)
            assert service.shed == sum(request.status == "shed" for request in own)
            assert service.timeouts == sum(request.status == "timeout" for request in own)
            assert service.arrivals == sum(turn <= moment < turn + 1 for moment in requests[pod][0])
        for pod, seen in window.pods.items():
            was, now = before.groups[f"node/{pod}"], after.groups[f"node/{pod}"]
            assert seen.cpu_seconds == pytest.approx(now.usage_seconds - was.usage_seconds, abs=1e-9)
            assert seen.waiting_seconds == pytest.approx(now.waiting_seconds - was.waiting_seconds, abs=1e-9)
            assert seen.some_seconds == pytest.approx(now.some_seconds - was.some_seconds, abs=1e-9)
        some = after.groups["node"].some_seconds - before.groups["node"].some_seconds
        assert window.some_seconds == pytest.approx(some, abs=1e-9)


def test_the_cases_above_shed_and_give_up():
    assert Node(CASES["past capacity"], 1).advance(20.0).pods["api"].service.shed > 100
    assert Node(CASES["one worker of long requests"], 1).advance(20.0).pods["api"].service.timeouts > 10


# Weights


def test_first_weights_follow_from_the_requests_by_the_linear_formula():
    scenario = node_of(api(request_millicpu=250), web(request_millicpu=0), job(request_millicpu=4000))
    assert Node(scenario, 1).weights() == {"api": 10, "web": 1, "job": 157}


def test_weights_outside_the_kernels_range_are_refused_and_change_nothing():
    node = Node(node_of(api(), job()), 1)
    node.set_weights({"api": 1, "job": 10_000})
    for wrong in (0, 10_001):
        with pytest.raises(ValueError, match="outside 1-10000"):
            node.set_weights({"job": 500, "api": wrong})
    with pytest.raises(KeyError):
        node.set_weights({"job": 500, "nobody": 100})
    assert node.weights() == {"api": 1, "job": 10_000}


def test_backlogged_pods_share_by_weight_and_a_satisfied_one_leaves_the_rest():
    pods = (job(4.0, name="a"), job(4.0, name="b"), job(1.0, name="c"))
    node = Node(node_of(*pods, cores=4), 1)
    node.set_weights({"a": 300, "b": 100, "c": 10_000})
    seen = node.advance(10.0).pods
    assert {name: pod.cpu_seconds for name, pod in seen.items()} == pytest.approx({"a": 22.5, "b": 7.5, "c": 10.0})
    assert {name: pod.waiting_seconds for name, pod in seen.items()} == pytest.approx({"a": 17.5, "b": 32.5, "c": 0.0})
    assert {name: pod.some_seconds for name, pod in seen.items()} == pytest.approx({"a": 10.0, "b": 10.0, "c": 0.0})


def test_the_nodes_pressure_is_there_when_threads_outnumber_cores():
    assert Node(node_of(job(2.0)), 1).advance(5.0).some_seconds == 0.0
    assert Node(node_of(job(3.0)), 1).advance(5.0).some_seconds == pytest.approx(5.0)


# Loads over time


def moments_of(curve, seed=1, cycle_seconds=1.0, windows=1000):
    """Arrivals by window of a service that is never in anybody's way."""
    scenario = node_of(api(curve, work_seconds=1e-6, workers=64), cores=64)
    node = Node(scenario, seed, cycle_seconds=cycle_seconds)
    return [node.advance(cycle_seconds).pods["api"].service.arrivals for _ in range(windows)]


def test_arrivals_follow_steps_that_begin_anew():
    counts = moments_of(Curve(((0.0, 100.0), (1.0, 0.0), (3.0, 400.0)), period=4.0), windows=400)
    by_phase = [sum(counts[phase::4]) / 100 for phase in range(4)]
    assert by_phase[1:3] == [0.0, 0.0]
    assert by_phase[0] == pytest.approx(100.0, rel=0.05)
    assert by_phase[3] == pytest.approx(400.0, rel=0.03)


def test_arrivals_follow_straight_lines_within_a_cycle():
    """From 0 to 1000 over two cycles, then back: the first half of the ramp has a quarter of its arrivals."""
    curve = Curve(((0.0, 0.0), (2.0, 1000.0)), "linear", period=4.0)
    counts = moments_of(curve, cycle_seconds=2.0, windows=400)
    by_phase = [sum(counts[phase::4]) / 200 for phase in range(4)]
    assert by_phase == pytest.approx([250.0, 750.0, 750.0, 250.0], rel=0.03)


def test_a_curve_without_a_period_keeps_its_last_value():
    assert moments_of(Curve(((0.0, 0.0), (2.0, 500.0), (4.0, 0.0)), "linear"), windows=100)[4:] == [0] * 96
    steps = moments_of(Curve(((0.0, 0.0), (5.0, 300.0))), windows=105)
    assert steps[:5] == [0] * 5
    assert sum(steps[5:]) / 100 == pytest.approx(300.0, rel=0.03)


def test_cycles_are_as_long_as_the_caller_says():
    counts = moments_of(Curve(((0.0, 0.0), (5.0, 300.0))), cycle_seconds=10.0, windows=6)
    assert counts[:5] == [0] * 5
    assert counts[5] == pytest.approx(3000, rel=0.1)


def test_arrivals_are_poisson():
    counts = np.array(moments_of(constant(50.0), windows=4000))
    assert counts.mean() == pytest.approx(50.0, rel=0.01)
    assert counts.var() == pytest.approx(50.0, rel=0.08)


@pytest.mark.parametrize(
    ("distribution", "spread", "variation"),
    [("exponential", 0.5, 1.0), ("lognormal", 0.5, math.sqrt(math.exp(0.25) - 1.0)), ("lognormal", 0.0, 0.0)],
)
def test_work_has_its_mean_and_its_spread(distribution, spread, variation):
    pod = api(50.0, work_seconds=0.02, distribution=distribution, spread=spread, workers=64)
    window = Node(node_of(pod, cores=64, queue="unbounded"), 3).advance(2000.0)
    works = window.pods["api"].service.latencies_seconds  # alone on many cores a request takes what it needs
    assert len(works) > 99_000
    assert works.mean() == pytest.approx(0.02, rel=0.01)
    assert works.std() == pytest.approx(0.02 * variation, rel=0.03, abs=1e-9)
    assert window.pods["api"].cpu_seconds == pytest.approx(works.sum(), rel=1e-3)


def test_spinners_run_as_many_threads_as_the_curve_says_rounded():
    node = Node(node_of(job(Curve(((0.0, 1.0), (1.0, 2.4), (2.0, 0.0), (3.0, 2.6)), period=4.0)), cores=8), 1)
    assert [node.advance(5.0).pods["job"].cpu_seconds for _ in range(8)] == pytest.approx([5, 10, 0, 15] * 2)
    assert node.advance(17.5).pods["job"].cpu_seconds == pytest.approx(5 + 10 + 0 + 7.5)


def test_a_spinners_straight_line_is_rounded_at_every_moment():
    """From 0 to 4 over eight cycles: none for one cycle, then one thread more every two cycles."""
    curve = Curve(((0.0, 0.0), (8.0, 4.0)), "linear")
    assert whole_steps(curve).points == ((0.0, 0.0), (1.0, 1.0), (3.0, 2.0), (5.0, 3.0), (7.0, 4.0))
    node = Node(node_of(job(curve), cores=8), 1, cycle_seconds=1.0)
    seen = [node.advance(1.0).pods["job"].cpu_seconds for _ in range(9)]
    assert seen == pytest.approx([0, 1, 1, 2, 2, 3, 3, 4, 4])


@pytest.mark.parametrize(
    "curve",
    [
        Curve(((0.0, 3.0),)),
        Curve(((0.0, 3.0),), "linear", period=2.0),
        Curve(((0.0, 3.0), (4.0, 9.0))),
        Curve(((0.0, 3.0), (4.0, 9.0), (6.0, 1.0)), "linear"),
        Curve(((0.0, 3.0), (4.0, 9.0), (6.0, 1.0)), "linear", period=6.0),
        Curve(((0.0, 3.0), (4.0, 9.0), (6.0, 1.0)), "linear", period=8.5),
        Curve(((0.0, 3.0), (4.0, 9.0), (6.0, 1.0)), period=8.5),
    ],
)
def test_straight_lines_and_whole_steps_agree_with_the_curve_everywhere(curve):
    lines, steps = straight_lines(curve), whole_steps(curve)
    for cycle in np.arange(0.003, 20.0, 0.017):
        here = cycle if curve.period is None else cycle % curve.period
        start, value, slope = next(line for line in reversed(lines) if line[0] <= here)
        assert value + slope * (here - start) == pytest.approx(curve.at(cycle))
        assert steps.at(cycle) == round(curve.at(cycle))


# Time, seeds and room


def test_the_same_seed_gives_the_same_run_in_another_process():
    code = (
        "from lab.arena.node import Node; from tests.unit.lab.arena.test_node import CASES\n"
        "print(Node(CASES['contended'], 5).advance(30.0).pods['api'].service.latencies_seconds.sum().hex())"
    )
    here = Node(CASES["contended"], 5).advance(30.0).pods["api"].service.latencies_seconds.sum()
    other = Node(CASES["contended"], 6).advance(30.0).pods["api"].service.latencies_seconds.sum()
    root = Path(__file__).parents[4]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert float.fromhex(ran.stdout) == here != other


def test_the_order_of_pods_changes_no_arrival():
    one = Node(node_of(api(), web()), 1).advance(20.0)
    two = Node(node_of(web(), api(), job()), 1).advance(20.0)
    for name in ("api", "web"):
        assert one.pods[name].service.arrivals == two.pods[name].service.arrivals


def test_nodes_together_are_each_as_they_are_alone():
    scenarios = [CASES["contended"], CASES["past capacity, unbounded"], node_of(job(3.0)), CASES["past capacity"]]
    together, alone = Nodes(scenarios, [1, 2, 3, 4]), [Node(one, seed) for seed, one in enumerate(scenarios, 1)]
    assert len(together) == 4
    for turn in range(8):
        if turn == 3:
            together.set_weights(1, {"api": 5000})
            alone[1].set_weights({"api": 5000})
        for seen, expected in zip(together.advance(7.0), [node.advance(7.0) for node in alone], strict=True):
            assert list(seen.pods) == list(expected.pods)
            assert seen.some_seconds == expected.some_seconds
            for name, pod in expected.pods.items():
                assert seen.pods[name].cpu_seconds == pod.cpu_seconds
                if pod.service is not None:
                    service = seen.pods[name].service
                    assert np.array_equal(service.latencies_seconds, pod.service.latencies_seconds)
                    assert (service.arrivals, service.shed, service.waiting, service.in_service) == (
                        (pod.service.arrivals, pod.service.shed, pod.service.waiting, pod.service.in_service)
                    )
    assert together.weights(1)["api"] == 5000


def test_windows_stay_as_they_were_when_the_node_goes_on():
    node = Node(CASES["contended"], 1)
    first = node.advance(5.0)
    before = first.pods["api"].service.latencies_seconds.copy()
    node.advance(5.0)
    assert np.array_equal(first.pods["api"].service.latencies_seconds, before)


def test_an_unbounded_line_grows_and_is_answered_first_come_first_served():
    """A second of 3,000 requests, then nothing: the last waits for the work of all."""
    curve = Curve(((0.0, 3000.0), (1.0, 0.0)))
    scenario = node_of(api(curve, work_seconds=0.01, spread=0.0, workers=1), cores=1, queue="unbounded")
    node = Node(scenario, 1, cycle_seconds=1.0)
    first = node.advance(1.0).pods["api"].service
    assert first.waiting + first.in_service + len(first.latencies_seconds) == first.arrivals
    assert first.waiting > 2500
    rest = node.advance(100.0).pods["api"].service
    assert (rest.arrivals, rest.waiting, rest.in_service, rest.shed) == (0, 0, 0, 0)
    latencies = np.concatenate([first.latencies_seconds, rest.latencies_seconds])
    ends = 0.01 * (1 + np.arange(first.arrivals))
    assert (np.diff(ends - latencies)[100:] > 0.0).all()  # that is: they are answered in the order they came
    assert latencies[-1] == pytest.approx(first.arrivals * 0.01 - 1.0, abs=0.02)


def test_more_waiting_requests_than_there_is_room_for_are_an_error_that_names_the_pod(monkeypatch):
    monkeypatch.setattr(arena_node, "MAX_WAITING", 1024)
    node = Node(node_of(api(500.0, work_seconds=0.1), queue="unbounded"), 1)
    with pytest.raises(MemoryError, match="api: 1024 requests wait"):
        node.advance(60.0)


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="at most 16 pods"):
        Node(node_of(*(job(1.0, name=f"job{index}") for index in range(17))), 1)
    with pytest.raises(ValueError):
        Nodes([CASES["contended"]], [1, 2])
    for seconds in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="time does not go back"):
            Node(CASES["contended"], 1).advance(seconds)
    with pytest.raises(ValueError, match="cycle_seconds"):
        Node(CASES["contended"], 1, cycle_seconds=0.0)


def test_without_a_place_for_its_cache_the_kernel_still_works():
    """numba finds no folder to write to: it compiles in the process. One small function stands for all."""
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from lab.arena.node_kernel import compiled\n"
        "def twice(number): return 2 * number\n"
        "print(compiled(twice)(21))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("42", 0), ran.stderr
