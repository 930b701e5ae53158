"""From class weights to pod weights, by example. The rules for all inputs are in tests/property/test_solver.py."""

import pytest

from services.actuator.core.solver import solve, unreachable
from tests.support.builders import BATCH, CRITICAL, DEFAULT, pod


def weights_of(targets):
    return {target.group: target.weight for target in targets}


def test_a_class_weight_is_divided_by_the_originals_of_its_pods():
    pods = [pod("a", CRITICAL, 300), pod("b", CRITICAL, 100), pod("c", BATCH, 100)]
    assert weights_of(solve(pods, {CRITICAL: 1000, BATCH: 100}, {})) == {"pod-a": 750, "pod-b": 250, "pod-c": 100}


def test_originals_count_and_not_what_was_written_since():
    pods = [pod("a", CRITICAL, 5000), pod("b", CRITICAL, 5000)]
    assert weights_of(solve(pods, {CRITICAL: 1000}, {"pod-a": 300, "pod-b": 100})) == {"pod-a": 750, "pod-b": 250}


def test_beside_unsteered_pods_the_sum_is_kept():
    pods = [pod("a", CRITICAL, 100), pod("b", BATCH, 100), pod("other", None, 50)]
    assert weights_of(solve(pods, {CRITICAL: 900, BATCH: 100}, {})) == {"pod-a": 180, "pod-b": 20}


def test_a_skipped_pod_is_a_neighbour():
    pods = [pod("a", CRITICAL, 100), pod("b", CRITICAL, 100, skip="exclusive")]
    assert weights_of(solve(pods, {CRITICAL: 1000}, {})) == {"pod-a": 100}


def test_an_idle_group_is_no_neighbour():
    pods = [pod("a", CRITICAL, 100), pod("b", BATCH, 0, skip="idle")]
    assert weights_of(solve(pods, {CRITICAL: 1000}, {})) == {"pod-a": 1000}


def test_a_guaranteed_pod_takes_nothing_from_the_qos_groups_beside_it():
    pods = [
        pod("a", CRITICAL, 157, group="pod-a"),
        pod("b", BATCH, 100, group="burstable/pod-b"),
        pod("c", None, 39, group="burstable/pod-c"),
    ]
    assert weights_of(solve(pods, {CRITICAL: 10_000, BATCH: 100}, {})) == {"pod-a": 157, "burstable/pod-b": 100}


def test_two_guaranteed_classes_share_what_they_had_beside_a_qos_group():
    pods = [
        pod("a", CRITICAL, 100),
        pod("b", BATCH, 100),
        pod("c", DEFAULT, 10, group="burstable/pod-c"),
    ]
    targets = weights_of(solve(pods, {CRITICAL: 300, BATCH: 100, DEFAULT: 100}, {}))
    assert targets == {"pod-a": 150, "pod-b": 50, "burstable/pod-c": 100}


def test_pods_of_other_classes_and_without_weight_get_no_target():
    pods = [pod("a", CRITICAL, None), pod("b", DEFAULT, 100), pod("c", None, 100)]
    assert solve(pods, {CRITICAL: 1000}, {}) == []
    assert solve([], {CRITICAL: 1000}, {}) == []


def test_a_pod_that_is_listed_twice_is_one_target():
    assert weights_of(solve([pod("a"), pod("a")], {CRITICAL: 700}, {})) == {"pod-a": 700}


@pytest.mark.parametrize(
    ("weight", "written"), [(0, 1), (-3, 1), (10_001, 10_000), (11_443, 10_000), (38_144, 10_000), (10**400, 10_000)]
)
def test_wt_02_class_weights_beyond_the_kernels_range_are_its_bounds(weight, written):
    assert weights_of(solve([pod("a")], {CRITICAL: weight}, {})) == {"pod-a": written}


def test_wt_02_a_fraction_is_rounded():
    pods = [pod("a", CRITICAL, 1), pod("b", CRITICAL, 1)]
    assert weights_of(solve(pods, {CRITICAL: 99}, {})) == {"pod-a": 50, "pod-b": 50}


def test_targets_carry_who_they_are_for_and_come_in_order():
    pods = [pod("b"), pod("a")]
    assert [(target.uid, target.name, target.group) for target in solve(pods, {CRITICAL: 100}, {})] == [
        ("uid-a", "a", "pod-a"),
        ("uid-b", "b", "pod-b"),
    ]


def test_classes_without_a_common_parent_are_out_of_each_others_reach():
    apart = [pod("api", CRITICAL, group="burstable/pod-api"), pod("job", BATCH, group="besteffort/pod-job")]
    assert unreachable(apart, {CRITICAL: 1000, BATCH: 100}) == [BATCH, CRITICAL]
    beside = [*apart, pod("web", DEFAULT, group="burstable/pod-web")]
    assert unreachable(beside, {CRITICAL: 1000, DEFAULT: 300, BATCH: 100}) == [BATCH]


def test_a_class_that_is_alone_on_the_node_is_not_called_unreachable():
    assert unreachable([pod("api", CRITICAL)], {CRITICAL: 1000, BATCH: 100}) == []
