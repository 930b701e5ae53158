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
    run = Fixed([outcome(60, 20), outcome(40, 20)], [], {"api": 1.2, "web": 0.5, "batch": 5.0, "clients": 0.28})
    assert validation.costs_of(run, NOMINAL) == Costs(api_seconds=0.012, web_seconds=0.0125, client_seconds=0.002)


def test_of_a_starved_class_too_few_ended_to_tell():
    run = Fixed([outcome(3, 100)], [], {"api": 1.2, "web": 1.0, "batch": 5.0, "clients": 0.206})
    assert validation.costs_of(run, NOMINAL) == Costs(api_seconds=0.008, web_seconds=0.01, client_seconds=0.002)


def test_the_simulator_plays_the_costs_and_the_clients():
    scenario = validation.as_played(validation.grid_scenario(30.0, 1), COSTS)
    assert [(pod.name, pod.request_millicpu) for pod in scenario.pods][-1] == ("clients", 262_144)
    assert [pod.work_seconds for pod in scenario.pods if pod.name != "batch"] == [0.008, 0.01, 0.001]
    assert scenario.pods[-1].rate.at(0.0) == 30.0 + 10.0


def test_in_the_simulator_a_higher_weight_makes_the_api_faster():
    scenario = validation.grid_scenario(36.0, 1)
    p99 = {}
    for name in ("requests", "1:1:1", "100:10:1"):
        outcomes = validation.simulated(scenario, validation.PROFILES[name], COSTS, 4, 1)
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


def test_the_grid_has_24_points():
    assert len(validation.LOADS) * len(validation.PROFILES) >= 24
