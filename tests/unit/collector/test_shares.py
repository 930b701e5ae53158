"""Effective shares on the tree, and the profile scale."""

import pytest

from services.collector.core.shares import effective_shares

TREE = {
    "pod-g": 200,
    "burstable": 100,
    "burstable/pod-a": 300,
    "burstable/pod-b": 100,
    "besteffort": 1,
    "besteffort/pod-c": 100,
}


def test_shares_multiply_along_the_path():
    active = set(TREE)
    assert effective_shares(["burstable/pod-a"], TREE, active) == {"burstable/pod-a": pytest.approx(100 / 301 * 0.75)}
    assert effective_shares(["pod-g"], TREE, active) == {"pod-g": pytest.approx(200 / 301)}


def test_idle_rivals_do_not_count():
    assert effective_shares(["burstable/pod-a"], TREE, ()) == {"burstable/pod-a": 1.0}
    assert effective_shares(["burstable/pod-a"], TREE, {"burstable/pod-b"}) == {"burstable/pod-a": 0.75}


def test_pods_of_one_class_want_their_shares_together():
    shares = effective_shares(["burstable/pod-a", "burstable/pod-b"], TREE, ())
    assert shares == {"burstable/pod-a": 0.75, "burstable/pod-b": 0.25}


def test_the_shares_of_a_class_never_add_up_to_more_than_the_node():
    shares = effective_shares(["pod-g", "burstable/pod-a", "besteffort/pod-c"], TREE, {"burstable/pod-b"})
    assert sum(share for share in shares.values() if share) == pytest.approx(1 - 100 / 301 * 0.25)


@pytest.mark.parametrize("missing", ["burstable", "burstable/pod-a"])
def test_without_a_weight_on_the_path_the_share_is_unknown(missing):
    weights = {group: weight for group, weight in TREE.items() if group != missing}
    assert effective_shares(["burstable/pod-a"], weights, set(TREE)) == {"burstable/pod-a": None}


def test_an_idle_group_has_no_share():
    assert effective_shares(["burstable/pod-a"], {**TREE, "burstable/pod-a": 0}, ()) == {"burstable/pod-a": None}
