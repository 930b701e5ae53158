"""The decider's wiring on a bus in memory: one action a state, every reward learned once."""

import msgspec
import pytest

from runtime.memory_bus import MemoryBus
from schemas.codec import encode
from schemas.messages import Action
from schemas.subjects import message_id, subject, subject_of
from services.decider.config import DeciderConfig
from services.decider.core import warm
from services.decider.service import DeciderService
from tests.support import builders
from tests.support.builders import BATCH, CRITICAL, DEFAULT, NODE, batch_state, class_state, state, verdict
from tests.support.harness import Harness, harness

ARM = "lc10-d3-b1"
OF_ARM = {CRITICAL: 1000, DEFAULT: 316, BATCH: 100}


@pytest.fixture
async def decider():
    async with harness("decider", DeciderConfig, DeciderService, {"decider.seed": 1}) as made:
        yield made


def reward(**fields):
    return builders.reward(**{"arm": ARM, "weights": OF_ARM, **fields})


def updates(made: Harness[DeciderService]) -> float:
    return made.metric("trimtab_decider_updates_total", policy="linucb")


async def test_every_first_state_gets_one_action_of_its_own_cycle_with_all_propensities(decider):
    await decider.inject(state(cycle=4))
    (action,) = decider.sent(Action)
    assert (action.node, action.boot, action.cycle) == (NODE, state().boot, 4)
    assert sum(action.propensities.values()) == pytest.approx(1.0)
    assert action.propensity == action.propensities[action.arm]
    assert set(action.propensities).isdisjoint(action.masked)
    assert action.decide_seconds > 0


async def test_a_state_that_comes_twice_or_late_gets_no_second_action(decider):
    await decider.inject(state(cycle=4), state(cycle=4), state(cycle=3), state(cycle=5, phase="after"))
    assert [action.cycle for action in decider.sent(Action)] == [4]
    assert decider.dropped("state", "duplicate") == 2


async def test_a_spent_change_budget_masks_every_move(decider):
    await decider.inject(state(cycle=1), verdict(cycle=1, changes_left=0), state(cycle=2))
    action = decider.sent(Action)[-1]
    assert "rate" in action.masked.values()
    assert len(action.propensities) == 1
    assert action.reason == "all else is masked: rate"


async def test_a_hold_that_was_chosen_says_that_nothing_better_is_known():
    between = state(classes={name: class_state(weight=weight) for name, weight in ((CRITICAL, 150), (BATCH, 100))})
    async with harness("decider", DeciderConfig, DeciderService, {"decider.policy": "hold"}) as made:
        await made.inject(between, verdict(changes_left=0), msgspec.structs.replace(between, cycle=2))
        free, bound = made.sent(Action)
    assert (free.arm, free.reason) == ("hold", "nothing better is known from here")
    assert (bound.arm, bound.reason) == ("hold", "all else is masked: rate")


async def test_a_hold_that_was_drawn_says_so():
    between = state(classes={name: class_state(weight=weight) for name, weight in ((CRITICAL, 150), (BATCH, 100))})
    settings = {"decider.policy": "epsilon-greedy", "decider.epsilon": 1.0, "decider.seed": 1}
    async with harness("decider", DeciderConfig, DeciderService, settings) as made:
        for cycle in range(1, 60):
            await made.inject(msgspec.structs.replace(between, cycle=cycle))
        drawn = {action.reason for action in made.sent(Action) if action.arm == "hold" and action.explored}
        moved = {action.reason for action in made.sent(Action) if action.arm != "hold"}
    assert (drawn, moved) == ({"drawn by chance"}, {None})


async def test_the_budget_of_another_collectors_run_says_nothing(decider):
    await decider.inject(verdict(boot="older", changes_left=0), state())
    assert "rate" not in decider.sent(Action)[-1].masked.values()


async def test_a_frozen_node_is_offered_no_move(decider):
    await decider.inject(verdict(mode="frozen"), state())
    action = decider.sent(Action)[-1]
    assert set(action.masked.values()) >= {"frozen"}
    assert len(action.propensities) == 1


async def test_a_reward_is_learned_once_whatever_is_delivered_twice(decider):
    again = encode(reward())
    await decider.inject(reward(), reward(cycle=2))
    await decider.inject_raw(subject("reward", NODE), again, again)  # without an id, as a redelivery reaches it
    assert updates(decider) == 2
    assert decider.dropped("reward", "duplicate") == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"outcome": "censored", "reason": "late", "value": None}, None),
        ({"arm": "an-arm-of-yesterday"}, "unknown_arm"),
        ({"features_schema": "f1-other"}, "features_schema"),
        ({"value": 1e9}, "not_usable"),
        ({"features": {"bias": 1e9}}, "not_usable"),
        ({"weights": {**OF_ARM, DEFAULT: 1000}}, "other_weights"),
        ({"weights": None}, "other_weights"),
        ({"arm": "hold", "weights": OF_ARM}, "other_weights"),
    ],
)
async def test_what_must_not_be_learned_is_not_and_says_why(decider, fields, reason):
    await decider.inject(reward(**fields))
    assert updates(decider) == 0
    if reason is not None:
        assert decider.metric("trimtab_decider_rejected_rewards_total", reason=reason) == 1


async def test_a_move_out_of_trouble_is_told_apart_from_broken_numbers(decider):
    await decider.inject(reward(features={f"{CRITICAL}.over_ratio": 0.5}))
    assert updates(decider) == 0
    assert decider.metric("trimtab_decider_rejected_rewards_total", reason="after_move") == 1


async def test_an_action_carries_what_was_remembered_of_the_states_before(decider):
    late = {f"{CRITICAL}.over_ratio": 0.9, f"{CRITICAL}.latency_missing": 0.0, f"{CRITICAL}.cpu_ratio": 0.4}
    late |= {f"{name}.present": 1.0 for name in (CRITICAL, DEFAULT, BATCH)}
    for cycle in (1, 2):
        await decider.inject(state(cycle=cycle, features=late))
    first, second = decider.sent(Action)
    assert set(first.context) == {"moved"} | {
        f"{n}.{w}" for n in (CRITICAL, DEFAULT) for w in ("need", "lost", "rescue")
    }
    assert (first.context[f"{CRITICAL}.need"], first.context[f"{CRITICAL}.rescue"]) == (0.4, 0.0)
    assert second.context[f"{CRITICAL}.rescue"] == 1.0


async def test_features_of_another_schema_are_not_remembered(decider):
    late = {f"{CRITICAL}.over_ratio": 0.9, f"{CRITICAL}.latency_missing": 0.0, f"{CRITICAL}.cpu_ratio": 0.4}
    for cycle in (1, 2):
        await decider.inject(state(cycle=cycle, features=late, features_schema="f1-000000000000"))
    assert not any(decider.sent(Action)[-1].context.values())


async def test_a_class_that_is_lost_is_protected_by_the_mask_no_more(decider):
    """Nine states with a latency that cannot be seen, with all the weight that latency-critical can get."""
    late = {f"{CRITICAL}.over_ratio": 1.0, f"{CRITICAL}.latency_missing": 0.0, f"{CRITICAL}.weight_log": 1.0}
    late |= {f"{name}.present": 1.0 for name in (CRITICAL, DEFAULT, BATCH)}
    slow = builders.latency(0.5, over_ratio=1.0)
    classes = {
        CRITICAL: class_state(weight=10_000, latency=slow),
        DEFAULT: class_state(weight=316),
        BATCH: batch_state(),
    }
    for cycle in range(1, 10):
        await decider.inject(state(cycle=cycle, features=late, classes=classes))
    masks = ["no_harm" in action.masked.values() for action in decider.sent(Action)]
    assert masks == [True] * 7 + [False] * 2


async def test_a_hold_is_learned_without_weights(decider):
    await decider.inject(reward(arm="hold", weights=None))
    assert updates(decider) == 1


async def test_rewards_of_a_profile_that_was_redefined_are_not_credited_to_its_successor():
    bus = MemoryBus()
    past = [
        builders.reward(arm="p", weights={CRITICAL: 300, DEFAULT: 100, BATCH: 100}),
        builders.reward(arm="p", weights={CRITICAL: 200, DEFAULT: 100, BATCH: 100}, cycle=2),
    ]
    for message in past:
        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
    profiles = {
        "p": {CRITICAL: 200, DEFAULT: 100, BATCH: 100},
        "q": {CRITICAL: 100, DEFAULT: 100, BATCH: 100},
    }
    settings = {"decider.profiles": profiles, "decider.seed": 1}
    async with harness("decider", DeciderConfig, DeciderService, settings, bus=bus) as made:
        assert updates(made) == 1
        assert made.metric("trimtab_decider_rejected_rewards_total", reason="other_weights") == 1


async def test_a_decider_that_starts_anew_relearns_the_last_rewards_and_no_more():
    bus = MemoryBus()
    past = [reward(cycle=cycle) for cycle in range(1, 8)]
    for message in past:
        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
    settings = {"decider.history": 3, "decider.seed": 1}
    async with harness("decider", DeciderConfig, DeciderService, settings, bus=bus, start=False) as made:
        await made.start()
        assert updates(made) == 3
        await made.inject_raw(subject("reward", NODE), encode(past[-1]))
        await made.inject(reward(cycle=9))
        assert updates(made) == 4


async def test_bytes_that_are_no_state_cost_that_message_only(decider):
    broken = msgspec.json.encode({"type": "state", "node": NODE})
    await decider.inject_raw(subject("state", NODE), b"{", broken, encode(reward()))
    await decider.inject(state())
    assert len(decider.sent(Action)) == 1
    assert decider.dropped("state", "decode") == 3


async def test_a_damaged_prior_is_set_aside_and_the_service_starts_cold_and_decides(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    prior = msgspec.json.decode(warm.PRIOR_FILE.read_bytes())
    (tmp_path / "prior.json").write_bytes(msgspec.json.encode({**prior, "strength": -60.0}))
    monkeypatch.setattr(warm, "PRIOR_FILE", tmp_path / "prior.json")
    async with harness("decider", DeciderConfig, DeciderService, {"decider.seed": 1}) as made:
        await made.inject(state())
        assert len(made.sent(Action)) == 1
    said = [(record.getMessage(), record.trimtab_fields) for record in caplog.records]
    (aside,) = [fields for event, fields in said if event == "prior_set_aside"]
    assert "prior.json: strength: -60" in aside["reason"]
    assert [fields["begins"] for event, fields in said if event == "policy_ready"] == ["cold"]
