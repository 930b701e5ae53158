"""A mind with a challenger: who decides, who learns, what it costs when one of them breaks, and exact goings-on."""

import msgspec
import pytest

from schemas.codec import encode
from schemas.features import features_schema
from schemas.messages import Action
from schemas.settings import Shared
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from services.decider.core.mind import Heard, Mind, MindState
from tests.support import builders
from tests.support.builders import BATCH, CRITICAL, DEFAULT, class_state

SHARED = Shared()
ACTIVE = Heard("active", 5)
OF_ARM = {CRITICAL: 1000, DEFAULT: 316, BATCH: 100}
TRIAL = TrialSettings(challenger="new", block_cycles=4, washout_cycles=1, min_pairs=2)


def mind(trial: TrialSettings = TRIAL, seed: int = 1) -> Mind:
    shadows = {"new": PolicySettings(policy="epsilon-greedy"), "third": PolicySettings(policy="hold")}
    return Mind(DeciderConfig(policy="static", shadows=shadows, trial=trial), SHARED, seed)


def state(cycle: int, boot: str = "b", node: str = "node-1"):
    classes = {name: class_state(weight=weight) for name, weight in OF_ARM.items()}
    schema = features_schema(tuple(SHARED.classes))
    return builders.state(cycle=cycle, boot=boot, node=node, classes=classes, features_schema=schema)


def reward(action: Action, value: float):
    arm = action.arm
    return builders.reward(boot=action.boot, cycle=action.cycle, arm=arm, weights=action.weights, value=value)


def play(minds: list[Mind], cycles, worth: dict[str, float]) -> list[Action]:
    """The same states and rewards for all; `worth` is that of a cycle by who decided it. The last one's actions."""
    told = []
    for cycle in cycles:
        actions = [each.decide(state(cycle), ACTIVE) for each in minds]
        told.append(actions[-1])
        in_charge = actions[0].trial.in_charge if actions[0].trial is not None else actions[0].champion
        for each in minds:
            each.learn(reward(actions[0], worth[in_charge] + 0.001 * (cycle % 7)))
    return told


def test_in_each_block_one_decides_and_all_others_are_shown_as_shadows():
    told = play([mind()], range(1, 81), {"static": 0.0, "new": 0.0})
    names = {"static": "static", "new": "epsilon-greedy"}
    for action in told:
        assert action.policy == names[action.trial.in_charge]
        assert set(action.shadows) == {"static", "new", "third"} - {action.trial.in_charge}
        assert action.champion == "static"
        assert action.trial.incumbent == "static"
    assert {action.trial.in_charge for action in told} == {"static", "new"}


def test_all_learn_from_every_reward_whoever_decided():
    tried = mind()
    play([tried], range(1, 21), {"static": 0.0, "new": 0.0})
    assert [policy.updates for policy in tried.policies.values()] == [20, 20, 20]


def test_a_better_challenger_gets_the_charge_and_the_action_says_so_with_numbers():
    tried = mind()
    told = play([tried], range(1, 200), {"static": 0.0, "new": 0.5})
    (event, *_) = [(action.champion, action.trial) for action in told if action.trial and action.trial.event]
    champion, trial = event
    assert (champion, trial.in_charge, trial.phase) == ("new", "new", "watch")
    assert trial.event.startswith("promoted: new is better than static by +0.4982 a cycle, ")
    assert tried.champion == "new"


def test_a_challenger_that_raises_in_its_own_block_is_out_and_the_cycle_is_decided():
    tried = mind()

    def fail(*_args):
        raise ValueError("no idea")

    tried.policies["new"].decide = fail
    told = play([tried], range(1, 3), {"static": 0.0})
    action = told[0] if told[0].trial.phase == "over" else told[1]
    assert action.policy == "static"
    assert action.trial.event == "new is out, static is in charge: ValueError: no idea"
    assert action.shadows["new"].error == "ValueError: no idea"
    assert play([tried], range(3, 30), {"static": 0.0})[-1].trial is None


def test_a_challenger_in_charge_that_raises_while_it_learns_is_out_too():
    tried = mind()
    play([tried], range(1, 20), {"static": 0.0, "new": 0.5})
    assert tried.champion == "new"

    def fail(*_args):
        raise ZeroDivisionError

    tried.policies["new"].learn = fail
    told = play([tried], range(20, 23), {"static": 0.0, "new": 0.5})
    assert tried.champion == "static"
    assert [action.policy for action in told[1:]] == ["static", "static"]
    assert "new is out, static is in charge" in told[1].trial.event


def test_without_a_trial_the_one_in_charge_fails_aloud():
    tried = mind(TrialSettings())

    def fail(*_args):
        raise ValueError("no idea")

    tried.policies["static"].decide = fail
    with pytest.raises(ValueError, match="no idea"):
        tried.decide(state(1), ACTIVE)


@pytest.mark.parametrize("stop", [1, 5, 11, 40, 80, 161])
def test_from_any_cycle_on_a_saved_mind_says_the_same_bytes(stop):
    """What a replay that begins at a stored model depends on."""
    worth = {"static": 0.0, "new": 0.5}
    whole = mind()
    told = play([whole], range(1, stop + 1), worth)
    raw = msgspec.json.encode(whole.save())
    whole.began()
    again = mind()
    assert again.load(msgspec.json.decode(raw, type=MindState), outlook=True) == {}
    for cycle in range(stop + 1, stop + 90):
        one, other = whole.decide(state(cycle), ACTIVE), again.decide(state(cycle), ACTIVE)
        assert encode(one) == encode(other)
        in_charge = one.trial.in_charge if one.trial is not None else one.champion
        for each in (whole, again):
            each.learn(reward(one, worth[in_charge]))
    assert len(told) == stop


def test_an_order_ends_the_trial_and_a_new_one_with_other_settings_begins_with_who_is_in_charge():
    tried = mind()
    play([tried], range(1, 10), {"static": 0.0, "new": 0.0})
    tried.put_in_charge("third")
    action = tried.decide(state(10), ACTIVE)
    assert (action.policy, action.champion, action.trial) == ("hold", "third", None)
    other = mind(msgspec.structs.replace(TRIAL, block_cycles=6))
    other.load(tried.save())
    action = other.decide(state(11), ACTIVE)
    assert (action.champion, action.trial.incumbent, action.trial.pairs) == ("third", "third", 0)


def test_a_challenger_that_is_in_charge_already_needs_no_trial():
    tried = mind()
    tried.put_in_charge("new")
    again = mind(msgspec.structs.replace(TRIAL, block_cycles=6))
    again.load(tried.save())
    assert again.decide(state(1), ACTIVE).trial is None


def test_by_node_the_challenger_decides_on_its_nodes_and_nowhere_else():
    by_node = TrialSettings(challenger="new", by="node", share=0.5)
    policies = {node: mind(by_node).decide(state(1, node=node), ACTIVE) for node in map("n{}".format, range(12))}
    assert {action.policy for action in policies.values()} == {"static", "epsilon-greedy"}
    assert all(action.champion == "static" and action.trial.phase == "trial" for action in policies.values())
