"""Policies side by side: what the messages of some cycles say of them, by node and over nodes."""

import random

import pytest

from cli.compare import told_of
from lab.compare import LEAST_NODES, LEAST_REWARDS, compare, over_nodes
from schemas.messages import Action, Shadow, Trial
from tests.support import builders

FIELDS = {"boot": "b", "at": 0, "arm": "x"}


def action(cycle, in_charge="old", *, node="n1", trial=True, shadows=None, **fields):
    told = trial or None
    if trial is True:
        told = Trial(challenger="new", phase="trial", block=0, in_charge=in_charge, incumbent="old")
    values = {**FIELDS, "policy": in_charge, "champion": "old", "trial": told, "shadows": shadows or {}}
    return Action(node=node, cycle=cycle, **{**values, **fields})


def reward(cycle, value, *, node="n1", **fields):
    return builders.reward(node=node, boot="b", cycle=cycle, value=value, **fields)


def test_a_reward_belongs_to_who_decided_its_cycle_and_to_nobody_else():
    told = [action(1, "old"), action(2, "new"), reward(1, 0.25), action(3, "new"), reward(2, 0.5), reward(3, 1.0)]
    found = compare([*told, reward(3, -1.0), reward(9, -1.0), reward(1, -1.0, outcome="censored")])["n1"]
    assert (found.policies["old"].decided, found.policies["old"].mean_reward) == (1, 0.25)
    assert (found.policies["new"].decided, found.policies["new"].mean_reward) == (2, 0.75)


def test_agreement_is_told_of_the_cycles_that_others_decided_and_failures_apart():
    shadows = [{"s": Shadow(policy="p", arm=arm)} for arm in ("x", "y", "x")]
    shadows.append({"s": Shadow(policy="p", error="ValueError: no")})
    found = compare(action(cycle, shadows=said, trial=False) for cycle, said in enumerate(shadows, 1))["n1"]
    standing = found.policies["s"]
    assert (standing.asked, standing.failed, standing.decided, standing.mean_reward) == (3, 1, 0, None)
    assert standing.agreement_ratio == pytest.approx(2 / 3)
    assert found.policies["old"].agreement_ratio is None
    assert over_nodes({"n1": found}) is None


def test_messages_of_before_there_were_champions_count_for_their_policy():
    found = compare([Action(node="n1", cycle=1, policy="linucb", **FIELDS), reward(1, 0.5)])["n1"]
    assert (found.champion, found.policies["linucb"].mean_reward) == ("linucb", 0.5)


def test_what_happened_is_told_with_its_cycle():
    ended = Trial(challenger="new", phase="over", block=3, in_charge="old", incumbent="old", event="the trial ends: x")
    nodes = compare([action(7, trial=False, event="goes on from abc"), action(8)])
    assert nodes["n1"].events == [(7, "goes on from abc")]
    nodes = compare([Action(node="n1", cycle=9, policy="old", champion="old", trial=ended, **FIELDS)])
    assert "n1: cycle 9: the trial ends: x" in told_of(nodes, over_nodes(nodes))


def test_a_trial_of_which_nothing_more_is_told_is_over_as_by_an_order():
    nodes = compare([action(1, "new"), action(2, trial=False, champion="new", event="goes on from new")])
    trial = nodes["n1"].trial
    assert (trial.challenger, trial.incumbent, trial.phase) == ("new", "old", "over")
    assert "n1: new against old, over, 0 pairs: nothing compared yet" in told_of(nodes, None)
    assert compare([action(1, trial=False), action(2)])["n1"].trial.phase == "trial"


def test_a_challenger_that_has_won_is_still_compared_with_the_one_before():
    won = Trial(challenger="new", phase="over", block=9, in_charge="new", incumbent="new", event="confirmed: x")
    messages = list(fleet(0.1, by_node=False, nodes=LEAST_NODES))
    messages += [action(999, "new", node=f"n{number}", trial=won, champion="new") for number in range(LEAST_NODES)]
    nodes = compare(messages)
    assert (nodes["n1"].trial.incumbent, nodes["n1"].trial.phase) == ("old", "over")
    assert over_nodes(nodes).difference == pytest.approx(0.1, abs=0.05)


def fleet(difference, *, by_node, nodes=24, cycles=2 * LEAST_REWARDS, seed=1):
    """Nodes with loads of their own; on half of them, or in half of the cycles, the challenger decides."""
    rng = random.Random(seed)
    for number in range(nodes):
        level, node = rng.gauss(0.2, 0.05), f"n{number}"
        for cycle in range(1, cycles + 1):
            new = number % 2 == 0 if by_node else cycle % 2 == 0
            yield action(cycle, "new" if new else "old", node=node)
            yield reward(cycle, level + difference * new + rng.gauss(0.0, 0.1), node=node)


@pytest.mark.parametrize("by_node", [True, False])
def test_over_nodes_the_interval_covers_the_truth_nineteen_times_of_twenty(by_node):
    covered = 0
    for seed in range(100):
        found = over_nodes(compare(fleet(0.1, by_node=by_node, nodes=12, seed=seed)))
        assert (found.challenger, found.nodes, found.others) == ("new", 6 if by_node else 12, 6 if by_node else None)
        covered += found.low <= 0.1 <= found.high
    assert 89 <= covered <= 99


def test_by_turns_the_nodes_own_loads_do_not_blur_what_differs_on_each():
    by_node, by_turns = (over_nodes(compare(fleet(0.1, by_node=way))) for way in (True, False))
    assert by_turns.high - by_turns.low < 0.6 * (by_node.high - by_node.low)


@pytest.mark.parametrize("by_node", [True, False])
def test_too_few_nodes_are_no_answer_and_that_is_said(by_node):
    nodes = 2 * LEAST_NODES - 2 if by_node else LEAST_NODES - 1
    found = over_nodes(compare(fleet(0.1, by_node=by_node, nodes=nodes)))
    assert (found.difference, found.low) == (None, None)
    assert f"{LEAST_NODES - 1} nodes" in found.refused
    few = over_nodes(compare(fleet(0.1, by_node=by_node, cycles=LEAST_REWARDS - 1)))
    assert "0 nodes" in few.refused
