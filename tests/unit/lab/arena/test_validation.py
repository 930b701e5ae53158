"""The comparison of kernel and simulator: rank correlation by hand, what requests cost, and where the two part."""

import numpy as np
import pytest

from lab.arena import validation
from lab.arena.cgroup_backend import Fixed, RequestCosts
from lab.arena.sim_world import CycleOutcome
from lab.arena.validation import Costs, Point

COSTS = Costs(api_seconds=0.008, web_seconds=0.01, client_seconds=0.001)
NOMINAL = RequestCosts(0.002, 0.0015)


def point(rate, profile, kernel, simulated):
    return Point(
        rate_per_second=rate,
        profile=profile,
        kernel_p99_ms=kernel,
        kernel_p99_with_pauses_ms=2.0 * kernel,
        paused_seconds=0.5,
        simulated_p99_ms=simulated,
        kernel_requests=100,
        kernel_batch_share=0.5,
        simulated_batch_share=0.6,
        costs=COSTS,
    )


def outcome(api, web):
    ended = {"latency-critical": api, "default": web}
    return CycleOutcome(0.0, 0.0, 0.5, 0.1, {name: np.full(n, 0.01) for name, n in ended.items()}, ended)


def fixed(outcomes, used, due=None):
    """A run in which every request that ended was answered, unless a test says otherwise."""
    answered = [{"api": o.ended["latency-critical"], "web": o.ended["default"]} for o in outcomes]
    return Fixed(outcomes, [], used, due or {}, answered)


def test_equal_values_share_the_mean_of_their_ranks():
    assert validation.ranks([10.0, 30.0, 20.0]) == [1.0, 3.0, 2.0]
    assert validation.ranks([5.0, 7.0, 5.0, 5.0]) == [2.0, 4.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], [1.0, 10.0, 100.0, 1000.0], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], -1.0),
        ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0], 0.6),
        ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], 0.8660254),
    ],
)
def test_the_rank_correlation_is_spearmans(one, other, expected):
    assert validation.rank_correlation(one, other) == pytest.approx(expected)


def test_a_request_costs_what_the_group_used_by_those_that_ended():
    used = [
        {"api": 0.7, "web": 0.3, "batch": 3.0, "clients": 0.2},
        {"api": 0.5, "web": 0.2, "batch": 2.0, "clients": 0.08},
    ]
    run = fixed([outcome(60, 20), outcome(40, 20)], used)
    costs = validation.costs_of(run, NOMINAL)
    assert (costs.api_seconds, costs.web_seconds, costs.client_seconds) == pytest.approx((0.012, 0.0125, 0.002))


def test_requests_that_gave_up_waiting_make_no_other_cheaper_but_each_has_its_client():
    used = [{"api": 0.4, "web": 0.2, "batch": 3.0, "clients": 0.12}] * 2
    run = Fixed([outcome(100, 20)] * 2, [], used, {}, [{"api": 20, "web": 20}, {"api": 60, "web": 20}])
    costs = validation.costs_of(run, NOMINAL)
    assert (costs.api_seconds, costs.web_seconds, costs.client_seconds) == pytest.approx((0.01, 0.01, 0.001))
    assert validation.slowness(run, costs) == pytest.approx([0.72 / 0.52, 0.72 / 0.92])


def test_of_a_starved_class_too_few_ended_to_tell():
    run = fixed([outcome(3, 100)], [{"api": 1.2, "web": 1.0, "batch": 5.0, "clients": 0.206}])
    assert validation.costs_of(run, NOMINAL) == Costs(api_seconds=0.008, web_seconds=0.01, client_seconds=0.002)


def test_a_cycle_is_slow_by_what_its_requests_used_against_the_mean():
    used = [
        {"api": 0.08, "web": 0.1, "clients": 0.02, "batch": 1.0},
        {"api": 0.16, "web": 0.2, "clients": 0.04, "batch": 0.0},
        {"api": 9.0, "web": 0.0, "clients": 0.0, "batch": 0.0},
        {"api": 0.5, "web": 0.0, "clients": 0.0, "batch": 0.0},
    ]
    run = fixed([outcome(10, 10)] * 3 + [outcome(1, 1)], used)
    assert validation.slowness(run, COSTS) == pytest.approx([1.0, 2.0, 8.0, 1.0])


def test_the_simulator_is_asked_what_the_kernel_was_with_the_clients_as_a_pod():
    used = [{"api": 0.08, "web": 0.1, "clients": 0.02}, {"api": 0.16, "web": 0.2, "clients": 0.04}]
    due = {"api": [0.1 + 0.0004 * n for n in range(2000)] + [1.5], "web": [0.05, 1.2]}
    run = fixed([outcome(10, 10)] * 2, used, due)
    requests = validation.requests_of(run, COSTS, 3)
    assert requests == validation.requests_of(run, COSTS, 3)
    assert {name: len(moments) for name, (moments, _) in requests.items()} == {"api": 2001, "web": 2, "clients": 2003}
    assert requests["web"][0] == [0.05, 1.2]
    assert requests["clients"][0] == sorted([*due["api"], *due["web"]])
    first_second = requests["api"][1][:2000]
    assert np.mean(first_second) == pytest.approx(0.008, rel=0.06)
    assert np.std(np.log(first_second)) == pytest.approx(0.5, rel=0.06)
    doubled = fixed([outcome(10, 10)] * 2, used[::-1], due)
    assert validation.requests_of(doubled, COSTS, 3)["api"][1][0] == pytest.approx(2.0 * first_second[0])
    scenario = validation.with_clients(validation.grid_scenario(30.0, 1))
    assert [(pod.name, pod.request_millicpu) for pod in scenario.pods][-1] == ("clients", 262_144)


def test_in_the_simulator_a_higher_weight_makes_the_api_faster():
    scenario = validation.grid_scenario(36.0, 1)
    due = {"api": [n / 36.0 for n in range(720)], "web": [n / 10.0 for n in range(200)]}
    run = fixed([outcome(36, 10)] * 20, [{"api": 0.288, "web": 0.1, "clients": 0.046}] * 20, due)
    p99 = {}
    for name in ("requests", "1:1:1", "100:10:1"):
        requests = validation.requests_of(run, COSTS, 1)
        outcomes = validation.simulated(scenario, validation.PROFILES[name], requests, 20)
        p99[name] = np.quantile(np.concatenate([o.latencies["latency-critical"] for o in outcomes]), 0.99)
    assert p99["100:10:1"] < p99["1:1:1"] < p99["requests"]


def test_it_says_where_they_part_and_the_table_has_every_point():
    points = (
        point(12.0, "requests", 30.0, 20.0),
        point(12.0, "1:1:1", 40.0, 20.0),
        point(24.0, "requests", 10.0, 20.0),
        point(24.0, "1:1:1", 20.0, 20.0),
    )
    assert validation.ratios_by(points, "rate_per_second") == {"12": 1.75, "24": 0.75}
    assert validation.ratios_by(points, "profile") == {"requests": 1.0, "1:1:1": 1.5}
    text = validation.table(
        validation.Validation(
            rank_correlation=0.95,
            rank_correlation_with_pauses=0.5,
            points=points,
            ratios_by_load={"12": 1.75},
            ratios_by_profile={"requests": 1.0},
            cpus=1,
            seconds_per_point=20.0,
            pod_overhead_ms=2.0,
            client_overhead_ms=1.0,
            kernel="6.1",
            seed=1,
        )
    ).splitlines()
    assert text[1].split() == ["12", "requests", "30.0", "ms", "20.0", "ms", "1.50", "0.50", "0.60"]
    assert text[5] == "rank correlation of P99 over 4 points: 0.950"
    assert text[6] == "with what was due while the machine itself stood still (2 s in all): 0.500"


def test_points_at_the_time_out_on_both_sides_prove_nothing():
    certain = [point(66.0, "requests", 1000.0, 1000.0)] * 20
    kernel, model = (20.0, 90.0, 400.0, 1000.0), (30.0, 500.0, 90.0, 700.0)
    open_ones = [point(12.0, "1:1:1", one, other) for one, other in zip(kernel, model, strict=True)]
    points = [*certain, *open_ones]
    assert validation.below_timeout(points) == open_ones
    assert validation.rank_correlation_below_timeout(points) == pytest.approx(0.8)
    everywhere = validation.rank_correlation([p.kernel_p99_ms for p in points], [p.simulated_p99_ms for p in points])
    assert everywhere == pytest.approx(0.883, abs=0.001)
    assert validation.rank_correlation_below_timeout(certain) is None
    assert validation.rank_correlation_below_timeout(open_ones[:2]) is None


def test_the_grid_has_24_points():
    assert len(validation.LOADS) * len(validation.PROFILES) >= 24
