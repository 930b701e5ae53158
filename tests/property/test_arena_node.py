"""Any node of the arena, under any weights: what fair sharing and open-loop arrivals promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.arena.node import Node
from lab.arena.scenario import Curve, Scenario, ServicePod, SpinnerPod

WEIGHT = st.integers(1, 10_000)


def curves(largest: float) -> st.SearchStrategy[Curve]:
    values = st.one_of(st.just(0.0), st.floats(0.01 * largest, largest))
    first = values.map(lambda value: (0.0, value))
    later = st.lists(
        st.tuples(st.integers(10, 400).map(lambda hundredths: hundredths / 100), values),
        max_size=3,
        unique_by=lambda point: point[0],
    )
    return st.builds(
        lambda start, points, shape, period: Curve((start, *sorted(points)), shape, period),
        first,
        later,
        st.sampled_from(["steps", "linear"]),
        st.one_of(st.none(), st.floats(4.5, 8.0)),
    )


def service(name: str) -> st.SearchStrategy[ServicePod]:
    return st.builds(
        ServicePod,
        name=st.just(name),
        cls=st.just("default"),
        request_millicpu=st.integers(0, 8000),
        rate=curves(300.0),
        work_seconds=st.floats(0.001, 0.05),
        distribution=st.sampled_from(["exponential", "lognormal"]),
        spread=st.floats(0.0, 1.5),
        workers=st.integers(1, 64),
    )


def spinner(name: str) -> st.SearchStrategy[SpinnerPod]:
    return st.builds(
        SpinnerPod,
        name=st.just(name),
        cls=st.just("batch"),
        request_millicpu=st.integers(0, 8000),
        processes=curves(6.0),
    )


@st.composite
def scenarios(draw: st.DrawFn, queue: str | None = None) -> Scenario:
    pods = [draw(st.one_of(service(f"p{index}"), spinner(f"p{index}"))) for index in range(draw(st.integers(1, 5)))]
    return Scenario(
        name="any",
        text="",
        pods=tuple(pods),
        cores=draw(st.integers(1, 6)),
        queue=queue or draw(st.sampled_from(["bounded", "unbounded"])),
    )


def weights_of(scenario: Scenario) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({pod.name: WEIGHT for pod in scenario.pods})


@given(st.data(), scenarios(), st.integers(0, 2**32))
def test_work_is_conserved_and_nobody_gets_more_than_it_wants(data, scenario, seed):
    """CPU used and waited for is what was wanted; while somebody waits, every core works."""
    node = Node(scenario, seed, cycle_seconds=1.0)
    for _ in range(4):
        node.set_weights(data.draw(weights_of(scenario)))
        window = node.advance(1.5)
        used = sum(pod.cpu_seconds for pod in window.pods.values())
        waited = sum(pod.waiting_seconds for pod in window.pods.values())
        assert used <= scenario.cores * 1.5 + 1e-9
        assert used >= scenario.cores * window.some_seconds - 1e-9
        assert (waited > 1e-9) == (window.some_seconds > 1e-9)
        for seen in window.pods.values():
            assert seen.waiting_seconds >= -1e-12
            assert seen.cpu_seconds >= -1e-12
            assert -1e-12 <= seen.some_seconds <= min(seen.waiting_seconds, window.some_seconds) + 1e-9


@given(
    st.lists(st.tuples(st.integers(0, 8), WEIGHT), min_size=1, max_size=16),
    st.integers(1, 16),
)
def test_nobody_whose_demand_is_unmet_gets_less_per_weight_than_anybody_else(siblings, cores):
    pods = tuple(
        SpinnerPod(name=f"p{index}", cls="batch", request_millicpu=0, processes=Curve(((0.0, float(threads)),)))
        for index, (threads, _) in enumerate(siblings)
    )
    node = Node(Scenario(name="any", text="", pods=pods, cores=cores), 1)
    node.set_weights({f"p{index}": weight for index, (_, weight) in enumerate(siblings)})
    seen = node.advance(1.0).pods
    given_cores = [seen[f"p{index}"].cpu_seconds for index in range(len(siblings))]
    demands, weights = zip(*siblings, strict=True)
    assert sum(given_cores) == pytest.approx(min(cores, sum(demands)))
    most = max(share / weight for share, weight in zip(given_cores, weights, strict=True))
    for share, demand, weight in zip(given_cores, demands, weights, strict=True):
        assert share <= demand + 1e-9
        if share < demand - 1e-9:
            assert share / weight >= most * (1 - 1e-9)


@given(st.data(), scenarios(), st.integers(0, 2**32))
def test_arrivals_do_not_depend_on_weights(data, scenario, seed):
    left, right = Node(scenario, seed, cycle_seconds=1.0), Node(scenario, seed, cycle_seconds=1.0)
    for _ in range(3):
        right.set_weights(data.draw(weights_of(scenario)))
        one, two = left.advance(1.0), right.advance(1.0)
        for name, seen in one.pods.items():
            if seen.service is not None:
                assert seen.service.arrivals == two.pods[name].service.arrivals


@given(st.data(), scenarios(), st.integers(0, 2**32))
def test_every_request_is_accounted_for_and_an_unbounded_queue_turns_none_away(data, scenario, seed):
    node = Node(scenario, seed, cycle_seconds=1.0)
    there = dict.fromkeys((pod.name for pod in scenario.pods), 0)
    for _ in range(4):
        node.set_weights(data.draw(weights_of(scenario)))
        for pod, seen in zip(scenario.pods, node.advance(1.0).pods.values(), strict=True):
            if not isinstance(pod, ServicePod):
                assert seen.service is None
                continue
            service = seen.service
            left = service.waiting + service.in_service
            assert there[pod.name] + service.arrivals == left + len(service.latencies_seconds) + service.shed
            assert service.in_service <= pod.workers
            assert service.waiting == 0 or service.in_service == pod.workers
            there[pod.name] = left
            if scenario.queue == "unbounded":
                assert service.shed == service.timeouts == 0
            else:
                assert service.waiting <= 60
                assert np.count_nonzero(service.latencies_seconds == 1.0) >= service.timeouts
                assert (service.latencies_seconds <= 1.0 + 1e-9).all()


@settings(max_examples=50)
@given(st.data(), scenarios(), st.integers(0, 2**32))
def test_nothing_depends_on_how_finely_time_is_stepped(data, scenario, seed):
    """Pieces of a quarter of a second add up without rounding, so that both see the same moments."""
    whole, pieces = Node(scenario, seed, cycle_seconds=1.0), Node(scenario, seed, cycle_seconds=1.0)
    weights = data.draw(weights_of(scenario))
    whole.set_weights(weights)
    pieces.set_weights(weights)
    cuts = sorted(data.draw(st.sets(st.integers(1, 19), max_size=6)))
    expected = whole.advance(5.0)
    seen = [pieces.advance((b - a) / 4) for a, b in zip([0, *cuts], [*cuts, 20], strict=True)]
    for name, pod in expected.pods.items():
        parts = [window.pods[name] for window in seen]
        assert sum(part.cpu_seconds for part in parts) == pytest.approx(pod.cpu_seconds, abs=1e-9)
        assert sum(part.some_seconds for part in parts) == pytest.approx(pod.some_seconds, abs=1e-9)
        if pod.service is not None:
            latencies = np.concatenate([part.service.latencies_seconds for part in parts])
            assert np.array_equal(latencies, pod.service.latencies_seconds)
            assert sum(part.service.shed for part in parts) == pod.service.shed
            assert parts[-1].service.waiting == pod.service.waiting
    assert sum(window.some_seconds for window in seen) == pytest.approx(expected.some_seconds, abs=1e-9)
