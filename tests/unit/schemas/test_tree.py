"""Structural shares: what weights mean on the tree when everybody wants more, of pods and of classes."""

import msgspec
import pytest

from schemas.messages import State
from schemas.tree import class_weights, groups_above, parent_of, structural_shares
from tests.support.builders import BATCH, CRITICAL, pod, state

PARENTS = {"burstable": 79, "besteffort": 1}
DB = pod("db", CRITICAL, 20, group="pod-db")
API = pod("api", CRITICAL, 30, group="burstable/pod-api")
AGENT = pod("agent", None, 10, group="burstable/pod-agent")
JOB = pod("job", BATCH, 100, group="besteffort/pod-job")
ALL = (DB, API, AGENT, JOB)


def test_a_groups_way_from_the_root():
    assert list(groups_above("a/b/c")) == ["a", "a/b"]
    assert list(groups_above("a")) == []
    assert [parent_of(group) for group in ("a/b/c", "a/b", "a")] == ["a/b", "a", ""]


def test_shares_multiply_along_the_path_over_all_siblings_whatever_they_do():
    assert structural_shares(ALL, PARENTS) == {
        "pod-db": pytest.approx(0.2),
        "burstable/pod-api": pytest.approx(0.79 * 0.75),
        "burstable/pod-agent": pytest.approx(0.79 * 0.25),
        "besteffort/pod-job": pytest.approx(0.01),
    }


@pytest.mark.parametrize("weight", [None, 0, -5])
def test_who_has_no_weight_has_no_share_and_takes_none(weight):
    without = msgspec.structs.replace(AGENT, weight=weight)
    found = structural_shares((DB, API, without, JOB), PARENTS)
    assert "burstable/pod-agent" not in found
    assert found["burstable/pod-api"] == pytest.approx(0.79)


@pytest.mark.parametrize("parents", [{}, {"burstable": 0, "besteffort": 1}, {"besteffort": 1}])
def test_below_a_group_whose_weight_is_not_known_no_share_is(parents):
    assert "burstable/pod-api" not in structural_shares(ALL, parents)


def test_in_one_parent_a_class_weighs_what_its_pods_weigh_together():
    pods = (API, pod("b", CRITICAL, 9, group="burstable/pod-b"), pod("j", BATCH, 13, group="burstable/pod-j"), AGENT)
    steered = [one for one in pods if one.cls]
    assert class_weights(steered, pods, PARENTS) == class_weights(steered, pods, {}) == {CRITICAL: 39, BATCH: 13}


def test_in_several_parents_it_weighs_what_it_has_of_the_cpu():
    found = class_weights([DB, API, JOB], ALL, PARENTS)
    assert found[CRITICAL] / found[BATCH] == pytest.approx((0.2 + 0.79 * 0.75) / 0.01)


def test_where_the_weights_above_are_not_known_it_is_the_sum_again():
    assert class_weights([DB, API, JOB], ALL, {}) == {CRITICAL: 50, BATCH: 100}


def test_a_class_with_next_to_nothing_still_weighs_something():
    parents = {"a": 10_000, "b": 1}
    tiny = [pod("big", CRITICAL, 10_000, group="a/pod-big"), pod("small", BATCH, 1, group="b/x/pod-small")]
    found = class_weights(tiny, [*tiny, pod("n", None, 10_000, group="b/pod-n")], {**parents, "b/x": 1})
    assert found[CRITICAL] / found[BATCH] == pytest.approx(10_000 * 10_001, rel=1e-3)
    assert class_weights([], [], {}) == {}


def test_a_class_whose_share_is_too_small_for_the_scale_is_still_there():
    above = {"b": 1, "b/x": 1, "b/x/y": 1}
    tiny = [pod("big", CRITICAL, 10_000, group="pod-big"), pod("small", BATCH, 1, group="b/x/y/pod-small")]
    others = [pod(f"n{n}", None, 10_000, group=f"{place}/pod-n{n}") for n, place in enumerate(above)]
    assert class_weights(tiny, [*tiny, *others], above)[BATCH] == 1


def test_a_state_of_an_earlier_release_has_no_parents():
    old = msgspec.json.decode(msgspec.json.encode(state()))
    del old["parents"]
    assert msgspec.convert(old, State).parents == {}
