"""From class weights to pod weights, by example. The rules for all inputs are in tests/property/test_solver.py."""

import pytest

from services.actuator.core.solver import solution, solve
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
    said = "no common parent group with another class: "
    assert solution(apart, {CRITICAL: 1000, BATCH: 100}, {}, {}).unreachable == f"{said}{BATCH}, {CRITICAL}"
    beside = [*apart, pod("web", DEFAULT, group="burstable/pod-web")]
    assert solution(beside, {CRITICAL: 1000, DEFAULT: 300, BATCH: 100}, {}, {}).unreachable == f"{said}{BATCH}"


def test_a_class_that_is_alone_on_the_node_is_not_called_unreachable():
    assert solution([pod("api", CRITICAL)], {CRITICAL: 1000, BATCH: 100}, {}, {}).unreachable is None


# ---- over the whole tree ----

QOS = {"burstable": 79, "besteffort": 1}


def at(cls, weight, group, **fields):
    return pod(group.rpartition("-")[2], cls, weight, group=group, **fields)


def test_the_one_weight_at_the_top_makes_two_parents_one_order():
    pods = [at(CRITICAL, 157, "pod-db"), at(BATCH, 60, "burstable/pod-a"), at(BATCH, 20, "burstable/pod-b")]
    found = solution(pods, {CRITICAL: 300, BATCH: 100}, {}, {"burstable": 79})
    assert weights_of(found.targets) == {"pod-db": 3 * 79, "burstable/pod-a": 60, "burstable/pod-b": 20}
    assert (found.unreachable, found.coarse) == (None, None)


def test_a_group_that_is_not_steered_beside_them_bounds_that_weight_by_what_it_was():
    """`besteffort` holds nobody that is steered: it must not have less of the CPU than under the originals."""
    pods = [at(CRITICAL, 157, "pod-db"), at(BATCH, 80, "burstable/pod-a"), at(None, 1, "besteffort/pod-proxy")]
    more = solution(pods, {CRITICAL: 300, BATCH: 100}, {}, QOS)
    assert weights_of(more.targets)["pod-db"] == 157
    assert more.unreachable == (
        f"{BATCH}: 0.333 of the pods' CPU instead of 0.249; {CRITICAL}: 0.662 of the pods' CPU instead of 0.747 "
        "(pods at the top have 157 in sum beside burstable's 79)"
    )
    less = solution(pods, {CRITICAL: 100, BATCH: 100}, {}, QOS)
    assert weights_of(less.targets)["pod-db"] == 79
    assert less.unreachable is None


def test_what_the_group_loses_the_steered_pods_in_it_go_without():
    pods = [at(CRITICAL, 100, "pod-db"), at(BATCH, 60, "burstable/pod-a"), at(None, 40, "burstable/pod-agent")]
    found = solution(pods, {CRITICAL: 700, BATCH: 100}, {}, {"burstable": 100})
    # agent has 0.2 before; of the 0.8 that is left 0.7 and 0.1, so the group has 0.3, a third of it steered.
    assert weights_of(found.targets) == {"pod-db": 233, "burstable/pod-a": 20}
    assert found.unreachable is None


def test_where_the_groups_weights_are_all_there_is_the_nearest_is_named():
    pods = [at(CRITICAL, 4, "burstable/pod-api"), at(BATCH, 1, "besteffort/pod-job")]
    found = solution(pods, {CRITICAL: 300, BATCH: 100}, {}, QOS)
    assert found.unreachable == (
        f"{BATCH}: 0.0125 of the pods' CPU instead of 0.25 (besteffort has weight 1 beside burstable's 79); "
        f"{CRITICAL}: 0.988 of the pods' CPU instead of 0.75"
    )
    assert weights_of(found.targets) == {
        "burstable/pod-api": 4,
        "besteffort/pod-job": 1,
    }  # alone: nothing to be weighed


def test_within_2_percent_of_the_order_is_reached():
    pods = [at(CRITICAL, 4, "burstable/pod-api"), at(BATCH, 1, "besteffort/pod-job")]
    for weight, is_reached in ((7900, True), (7775, True), (8030, True), (7700, False), (8100, False)):
        assert (solution(pods, {CRITICAL: weight, BATCH: 100}, {}, QOS).unreachable is None) is is_reached


def test_a_class_in_both_makes_up_in_one_parent_for_what_the_other_gives():
    """`web` lives in `burstable` alone, batch in both: what `besteffort` gives it is taken off there."""
    pods = [at(DEFAULT, 40, "burstable/pod-web"), at(BATCH, 40, "burstable/pod-job"), at(BATCH, 1, "besteffort/pod-x")]
    found = solution(pods, {DEFAULT: 100, BATCH: 100}, {}, {"burstable": 60, "besteffort": 20})
    # half of all is two thirds of burstable
    assert weights_of(found.targets) == {"burstable/pod-web": 53, "burstable/pod-job": 27, "besteffort/pod-x": 1}
    assert found.unreachable is None


def test_a_class_is_not_driven_out_of_a_parent_for_anothers_lost_cause():
    """Batch can have a hundredth of what it should, and all of it would still be next to nothing."""
    pods = [
        at(CRITICAL, 4, "burstable/pod-api"),
        at(CRITICAL, 1, "besteffort/pod-tool"),
        at(BATCH, 1, "besteffort/pod-job"),
    ]
    found = weights_of(solution(pods, {CRITICAL: 100, BATCH: 50}, {"besteffort/pod-tool": 50}, QOS).targets)
    assert 1 < found["besteffort/pod-tool"] < found["besteffort/pod-job"]


def test_a_guaranteed_pod_is_not_starved_for_anothers_lost_cause():
    """Batch would have most if `db` had nothing: `api`, of the same class, could have all of it."""
    pods = [at(CRITICAL, 157, "pod-db"), at(CRITICAL, 4, "burstable/pod-api"), at(BATCH, 1, "besteffort/pod-job")]
    found = solution(pods, {CRITICAL: 1000, BATCH: 100}, {}, QOS)
    assert weights_of(found.targets)["pod-db"] == 151
    assert f"{BATCH}: 0.00433 of the pods' CPU instead of 0.0909" in found.unreachable


def test_what_whole_numbers_make_of_an_order_is_told():
    """Three pods beside each other, and beside one that is not steered: each weighs 1 at least, and did already."""
    pods = [at(CRITICAL, 1, "pod-a"), at(BATCH, 1, "pod-b"), at(None, 1, "pod-c")]
    found = solution(pods, {CRITICAL: 900, BATCH: 100}, {}, {})
    assert weights_of(found.targets) == {"pod-a": 1, "pod-b": 1}
    assert found.unreachable is None
    assert found.coarse == (
        f"weights are whole numbers: {BATCH}: 0.333 of the pods' CPU instead of 0.0667; "
        f"{CRITICAL}: 0.333 of the pods' CPU instead of 0.6"
    )


def test_where_the_weights_above_are_not_all_known_each_parent_is_solved_by_itself():
    pods = [at(CRITICAL, 157, "pod-db"), at(BATCH, 60, "burstable/pod-a"), at(None, 1, "besteffort/pod-x")]
    for parents in ({}, {"burstable": 79}, {"burstable": 0, "besteffort": 1}, {"besteffort": 1}):
        found = solution(pods, {CRITICAL: 300, BATCH: 100}, {}, parents)
        assert weights_of(found.targets) == {"pod-db": 157, "burstable/pod-a": 100}
        assert found.unreachable == f"no common parent group with another class: {BATCH}, {CRITICAL}"


def test_a_neighbour_that_is_about_to_get_its_original_back_counts_with_it():
    pods = [at(CRITICAL, 50, "pod-a"), at(BATCH, 50, "pod-b"), at(None, 9000, "pod-left")]
    found = solution(pods, {CRITICAL: 300, BATCH: 100}, {"pod-a": 50, "pod-b": 50, "pod-left": 100}, {})
    assert weights_of(found.targets) == {"pod-a": 75, "pod-b": 25}


def test_a_deeper_tree_is_solved_like_any_other():
    pods = [at(CRITICAL, 100, "a/b/pod-x"), at(BATCH, 100, "a/c/pod-y"), at(BATCH, 30, "a/pod-z")]
    found = solution(pods, {CRITICAL: 200, BATCH: 100}, {}, {"a": 5, "a/b": 100, "a/c": 20})
    assert weights_of(found.targets) == {"a/b/pod-x": 100, "a/c/pod-y": 100, "a/pod-z": 30}
    assert found.unreachable is None


def test_a_sum_at_the_top_that_costs_a_group_a_whole_unit_is_not_taken_where_what_was_will_do():
    """With one more than 4 at the top `burstable` would have to give up 1.01, in whole numbers the one of two it has."""
    pods = [
        at(CRITICAL, 2, "besteffort/pod-a"),
        at(None, 157, "burstable/pod-agent"),
        at(BATCH, 2, "burstable/pod-b"),
        *(at(BATCH, 1, f"pod-{name}") for name in "cdef"),
    ]
    parents = {"besteffort": 2, "burstable": 10_000}
    shares = {CRITICAL: 2, BATCH: 10_000 * 2 / 159 + 4}
    order = {name: round(10_000 * share / shares[BATCH]) for name, share in shares.items()}
    found = solution(pods, order, {}, parents)
    assert weights_of(found.targets)["burstable/pod-b"] == 2
    assert (found.unreachable, found.coarse) == (None, None)


def test_a_sum_at_the_top_that_leaves_a_group_more_than_its_pods_can_weigh_is_not_taken():
    """`tool` has most of `besteffort` for itself: it could not weigh enough to make use of ten times its share."""
    pods = [
        at(CRITICAL, 39, "besteffort/pod-a"),
        at(CRITICAL, 10_000, "besteffort/pod-tool", skip="exclusive_cpus"),
        at(DEFAULT, 10_000, "pod-b"),
        at(CRITICAL, 1, "pod-c"),
    ]
    found = solution(pods, {CRITICAL: 10_000, DEFAULT: 10_000}, {}, {"besteffort": 39})
    weights = weights_of(found.targets)
    assert weights["pod-b"] + weights["pod-c"] >= 5000
    assert (found.unreachable, found.coarse) == (None, None)
