"""The models of a decider: where it goes on from, what it stores and when, and orders to go on from another."""

import json
from collections.abc import Callable

import msgspec
import pytest

from runtime.clock import ManualClock, settle
from runtime.errors import BusError
from runtime.memory_bus import MemoryBus
from runtime.streams import MODELS
from schemas.codec import encode
from schemas.messages import Action, Command
from schemas.subjects import message_id, node_token, subject, subject_of
from services.decider.config import DeciderConfig
from services.decider.core.catch_up import Past, first_unlearned
from services.decider.core.model import Model, decode_model, encode_model
from services.decider.service import DeciderService
from tests.support import builders
from tests.support.builders import BATCH, CRITICAL, DEFAULT, NODE, state
from tests.support.harness import harness

ARM = "lc10-d3-b1"
OF_ARM = {CRITICAL: 1000, DEFAULT: 316, BATCH: 100}
FOLDER = node_token(NODE)
SHADOWS = {"decider.shadows": {"calm": {"policy": "linucb", "epsilon": 0.0}}}


class Lasting(MemoryBus):
    """A server that is there for one decider after the other."""

    async def close(self):
        for subscription in list(self.subscriptions):
            await subscription.stop()


def reward(cycle=1, at=10**9, value=0.5, **fields):
    return builders.reward(**{"arm": ARM, "weights": OF_ARM, "cycle": cycle, "at": at, "value": value, **fields})


def decider(bus, settings=None, *, clock=None, boot="run-1", **options):
    chosen = {"decider.seed": 1, **(settings or {})}
    return harness("decider", DeciderConfig, DeciderService, chosen, bus=bus, clock=clock, boot=boot, **options)


def stored(bus: MemoryBus) -> list[Model]:
    return [decode_model(raw, name.partition("/")[2]) for (_, name), raw in bus.objects.items()]


async def publish(bus, *messages):
    for message in messages:
        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))


def order(model, id_="o1", **fields):
    values = {"node": NODE, "boot": "operator", "cycle": 0, "at": 1, "verb": "model", "by": "jo", "reason": "a trial"}
    return Command(**{**values, "id": id_, "model": model, **fields})


# ---- what is stored, and when ----------------------------------------------------------------------------------------


async def test_a_run_begins_with_a_stored_model_that_its_actions_name():
    bus = Lasting()
    async with decider(bus) as made:
        (begun,) = stored(bus)
        await made.inject(state())
        (action,) = made.sent(Action)
    assert (begun.why, begun.node, begun.run, begun.parent, begun.lessons) == ("start", NODE, "run-1", None, 0)
    assert action.model == encode_model(begun)[0]
    assert (action.lessons, action.event) == (0, None)
    assert begun.trimtab
    assert begun.python.startswith("3.")
    assert begun.river
    assert begun.prior  # the default policy begins with what the simulator taught


async def test_it_is_stored_again_when_it_is_time_and_something_happened_and_lessons_count_from_there():
    bus, clock = Lasting(), ManualClock()
    async with decider(bus, {"decider.checkpoint_seconds": 100.0}, clock=clock) as made:
        await made.inject(reward(), state(cycle=1))
        assert len(stored(bus)) == 1  # not yet time
        await made.advance(101.0)
        assert len(stored(bus)) == 1  # nothing has been said since
        await made.inject(state(cycle=2))
        await made.inject(state(cycle=3))
        begun, point = stored(bus)
        before, last, after = made.sent(Action)
        assert (point.why, point.lessons, point.parent) == ("checkpoint", 1, encode_model(begun)[0])
        assert (before.lessons, last.lessons, after.lessons) == (1, 1, 0)
        assert (last.model, after.model) == (point.parent, encode_model(point)[0])
    assert [model.why for model in stored(bus)] == ["start", "checkpoint", "stop"]


async def test_an_orderly_stop_stores_what_was_learned_and_nothing_twice():
    bus = Lasting()
    async with decider(bus) as made:
        await made.inject(reward())
    assert [(model.why, model.lessons) for model in stored(bus)] == [("start", 0), ("stop", 1)]
    async with decider(bus, boot="run-2"):
        pass
    assert [model.why for model in stored(bus)] == ["start", "stop", "start"]


async def test_no_more_are_kept_than_are_wanted_and_others_nodes_are_left_alone():
    bus = Lasting()
    await bus.put_object(MODELS, "another/x", b"theirs")
    for run in range(4):
        async with decider(bus, {"decider.models_kept": 2}, boot=f"run-{run}") as made:
            await made.inject(reward(cycle=run + 1))
    names = [name for _, name in bus.objects]
    assert names[0] == "another/x"
    kept = [decode_model(bus.objects[MODELS, name], name.partition("/")[2]) for name in names[1:]]
    assert [(model.run, model.why) for model in kept] == [("run-2", "stop"), ("run-3", "start"), ("run-3", "stop")]


class Refusing(Lasting):
    """Its store takes nothing while told so, or moves the decider on while it stores."""

    is_full = False
    meanwhile: Callable | None = None

    async def put_object(self, bucket, name, payload):
        if self.is_full:
            raise BusError("no space left")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        await super().put_object(bucket, name, payload)


async def test_a_store_that_takes_nothing_stops_no_decision_and_is_told_once(caplog):
    bus, clock = Refusing(), ManualClock()
    bus.is_full = True
    async with decider(bus, {"decider.checkpoint_seconds": 10.0}, clock=clock) as made:
        for cycle in range(1, 5):
            await made.inject(state(cycle=cycle))
            await made.advance(11.0)
        assert [action.model for action in made.sent(Action)] == [""] * 4
        assert made.metric("trimtab_decider_models_unstored_total") == 4
        assert [record.message for record in caplog.records].count("model_not_stored") == 1
        bus.is_full = False
        await made.inject(state(cycle=5))
        await made.inject(state(cycle=6))
        assert made.sent(Action)[-1].model == encode_model(stored(bus)[0])[0]


async def test_a_model_that_was_overtaken_while_it_was_stored_is_none_that_actions_name():
    bus, clock = Refusing(), ManualClock()
    async with decider(bus, {"decider.checkpoint_seconds": 10.0}, clock=clock) as made:

        async def learn_one():
            await publish(bus, reward(cycle=1))
            await settle()

        await made.advance(11.0)
        bus.meanwhile = learn_one
        await made.inject(state(cycle=2))
        await made.inject(state(cycle=3))
        _, overtaken, later = stored(bus)
        assert (overtaken.lessons, later.lessons) == (0, 1)
        assert made.sent(Action)[-1].model == encode_model(later)[0]
        assert made.sent(Action)[-1].lessons == 0


# ---- where it goes on from -------------------------------------------------------------------------------------------


async def test_a_restart_goes_on_exactly_where_it_was_and_learns_only_what_came_since():
    bus, clock, other = Lasting(), ManualClock(), MemoryBus()
    lessons = [reward(cycle=cycle, value=0.1 * cycle) for cycle in range(1, 6)]
    async with decider(bus, clock=clock) as made:
        await made.inject(*lessons[:3])
    await publish(bus, *lessons[3:])
    async with decider(bus, boot="run-2", clock=clock) as made, decider(other, boot="run-2", clock=clock) as never:
        assert made.metric("trimtab_decider_updates_total", policy="linucb") == 2  # the rest it knew
        begun = stored(bus)[-1]
        assert (begun.why, begun.lessons, begun.parent) == ("start", 2, encode_model(stored(bus)[-2])[0])
        await never.inject(*lessons)
        for each in (made, never):
            await each.inject(state(cycle=9, features={f"{CRITICAL}.need": 0.3}))
        (restarted,), (whole,) = made.sent(Action), never.sent(Action)
    assert (restarted.scores, restarted.propensities, restarted.arm) == (whole.scores, whole.propensities, whole.arm)
    assert restarted.policy_updates == whole.policy_updates == 5


async def test_rewards_that_the_model_knows_are_not_learned_again_when_they_are_delivered_again():
    bus = Lasting()
    async with decider(bus) as made:
        await made.inject(reward(cycle=1), reward(cycle=2))
    async with decider(bus, boot="run-2") as made:
        await made.inject_raw(subject("reward", NODE), encode(reward(cycle=1)), encode(reward(cycle=2)))
        assert made.metric("trimtab_decider_updates_total", policy="linucb") == 0
        assert made.dropped("reward", "duplicate") == 2


async def test_what_is_remembered_of_the_states_before_is_of_use_for_a_minute_only():
    late = {f"{CRITICAL}.over_ratio": 0.0, f"{CRITICAL}.latency_missing": 0.0, f"{CRITICAL}.cpu_ratio": 0.4}
    seen = []
    for pause in (59.0, 61.0):
        bus, clock = Lasting(), ManualClock()
        async with decider(bus, clock=clock) as made:
            await made.inject(state(cycle=1, features=late))
        await clock.advance(pause)
        async with decider(bus, boot="run-2", clock=clock) as made:
            await made.inject(
                state(cycle=2, features={**late, f"{CRITICAL}.over_ratio": 0.05, f"{CRITICAL}.cpu_ratio": 0.1})
            )
            seen.append(made.sent(Action)[0].context[f"{CRITICAL}.need"])
    assert seen == [0.4, 0.1]


def truncated(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def changed(raw: bytes, change: Callable[[dict], object]) -> bytes:
    plain = json.loads(raw)
    change(plain)
    return json.dumps(plain).encode()


def identity(**fields) -> Callable[[bytes], bytes]:
    return lambda raw: changed(raw, lambda plain: plain["mind"]["policies"]["linucb"]["identity"].update(fields))


BROKEN = {
    "truncated file": (truncated, "damaged"),
    "river": (identity(river="0.21.2"), "river"),
    "schema": (identity(features_schema="f3-older"), "features"),
    "arms": (identity(arms=["hold", "p"]), "arms"),
    "code of the policy": (identity(policy_version=0), "policy_version"),
    "format": (lambda raw: changed(raw, lambda plain: plain.update(version=99)), "version"),
    "another policy": (
        lambda raw: changed(raw, lambda plain: plain["mind"].update(policies={}, champion="thompson")),
        "policy",
    ),
    "another node": (lambda raw: changed(raw, lambda plain: plain.update(node="other")), "node"),
    "numbers missing": (
        lambda raw: changed(raw, lambda plain: plain["mind"]["policies"]["linucb"].update(numbers={})),
        "shape",
    ),
    "a pickle": (lambda _raw: b"\x80\x04cos\nsystem\n", "damaged"),
}


@pytest.mark.parametrize("renamed", [True, False], ids=["under its own digest", "under the digest of before"])
@pytest.mark.parametrize("case", BROKEN)
async def test_rv_05_a_model_that_does_not_fit_is_set_aside_for_the_one_before_it(case, renamed):
    import hashlib  # noqa: PLC0415 - one test's

    spoil, reason = BROKEN[case]
    bus = Lasting()
    async with decider(bus) as made:
        await made.inject(reward(cycle=1))
    (_, name), raw = list(bus.objects.items())[-1]
    spoilt = spoil(raw)
    bus.objects[MODELS, f"{FOLDER}/{hashlib.sha256(spoilt).hexdigest()}" if renamed else name] = spoilt
    async with decider(bus, boot="run-2") as made:
        word = reason if renamed else "damaged"
        assert made.metric("trimtab_decider_policy_resets_total", reason=word) == 1
        await made.inject(state(cycle=1), state(cycle=2))
        first, second = made.sent(Action)
        assert first.policy_updates == 1  # from the model before it or, what that does not know, the stored reward
    assert "set aside model" in first.event
    assert word in first.event
    assert second.event is None


async def test_rv_05_with_no_model_that_fits_it_begins_fresh_and_learns_from_all_stored_rewards():
    bus = Lasting()
    async with decider(bus, {"decider.policy": "thompson"}) as made:
        await made.inject(reward(cycle=1), reward(cycle=2))
    async with decider(bus, boot="run-2") as made:
        assert made.metric("trimtab_decider_policy_resets_total", reason="policy") == 2
        assert made.metric("trimtab_decider_updates_total", policy="linucb") == 2
        assert stored(bus)[-1].parent is None


async def test_rv_05_a_shadow_that_does_not_fit_begins_fresh_alone():
    bus = Lasting()
    async with decider(bus) as made:
        await made.inject(reward(cycle=1))
    async with decider(bus, SHADOWS, boot="run-2") as made:
        await made.inject(state())
        (action,) = made.sent(Action)
        assert (action.policy_updates, action.shadows["calm"].policy_updates) == (1, 0)
        assert action.event == "policy calm begins fresh: policy: none of this name was saved"


class Silent(Lasting):
    """Its store says nothing of what it holds."""

    async def list_objects(self, bucket, folder):
        raise BusError(f"{bucket}/{folder}: no answer")


async def test_a_store_that_does_not_answer_costs_the_model_and_not_the_start():
    bus = Silent()
    await publish(bus, reward(cycle=1))
    async with decider(bus) as made:
        await made.inject(state(cycle=5))
        assert made.sent(Action)[0].policy_updates == 1


# ---- rewards, once each ----------------------------------------------------------------------------------------------


def test_what_a_model_does_not_know_begins_after_its_last_lesson():
    history = [reward(cycle=cycle, at=cycle) for cycle in range(1, 6)]
    boot = history[0].boot
    assert first_unlearned(history, f"{boot}/3", 0) == 3
    assert first_unlearned(history, f"{boot}/5", 0) == 5
    assert first_unlearned(history, "gone/7", 3) == 3
    assert first_unlearned(history, "gone/7", 9) == 5
    assert first_unlearned(history, None, 9) == 0
    assert first_unlearned([], f"{boot}/3", 0) == 0


def test_past_is_what_is_older_than_a_history_that_does_not_reach_back_until_that_begins():
    history = [reward(cycle=cycle, at=cycle) for cycle in range(3, 6)]
    whole, cut = Past(history, limit=4), Past(history, limit=3)
    assert not whole.has(reward(cycle=1, at=1))
    assert cut.has(reward(cycle=1, at=1))
    assert cut.has(reward(cycle=2, at=2))
    assert not cut.has(history[0])
    assert not cut.has(reward(cycle=9, at=1))  # a clock that stepped back hides nothing


async def test_a_reward_from_before_the_history_that_was_read_is_dropped_as_past():
    bus = Lasting()
    await publish(bus, *[reward(cycle=cycle, at=cycle) for cycle in range(1, 6)])
    async with decider(bus, {"decider.history": 2}) as made:
        await made.inject_raw(subject("reward", NODE), encode(reward(cycle=1, at=1)), encode(reward(cycle=5, at=5)))
        assert (made.dropped("reward", "past"), made.dropped("reward", "duplicate")) == (1, 1)
        assert made.metric("trimtab_decider_updates_total", policy="linucb") == 2


# ---- orders ----------------------------------------------------------------------------------------------------------


async def test_an_order_goes_on_from_a_stored_model_and_the_next_action_says_on_whose_word():
    bus = Lasting()
    async with decider(bus) as made:
        first = encode_model(stored(bus)[0])[0]
        for message in (reward(cycle=1), reward(cycle=2), state(cycle=3), order(first), state(cycle=4), state(cycle=5)):
            await made.inject(message)
        learned, ordered, later = made.sent(Action)
        models = stored(bus)
    assert (learned.policy_updates, ordered.policy_updates) == (2, 0)
    assert ordered.event == f"goes on from {first[:12]} on the word of jo: a trial"
    assert later.event is None
    assert [model.why for model in models[:3]] == ["start", "checkpoint", "order"]
    assert (models[2].parent, models[2].replaced, models[2].order) == (first, encode_model(models[1])[0], "o1")
    assert (ordered.model, ordered.lessons) == (encode_model(models[2])[0], 0)
    assert models[2].mind.last_lesson == f"{reward().boot}/2"  # where it stands in the stream stays


async def test_an_ordered_model_is_not_taught_again_what_it_was_to_forget():
    bus = Lasting()
    async with decider(bus) as made:
        first = encode_model(stored(bus)[0])[0]
        await made.inject(reward(cycle=1))
        await made.inject(order(first))
    async with decider(bus, boot="run-2") as made:
        await made.inject(state())
        assert made.sent(Action)[0].policy_updates == 0
        assert made.sent(Action)[0].event is None  # the order was obeyed before


async def test_an_order_that_was_given_while_nobody_listened_is_obeyed_at_start():
    bus = Lasting()
    async with decider(bus) as made:
        first = encode_model(stored(bus)[0])[0]
        await made.inject(reward(cycle=1))
    await publish(bus, order(first))
    async with decider(bus, boot="run-2") as made:
        await made.inject(state())
        assert made.sent(Action)[0].policy_updates == 0
        assert "on the word of jo" in made.sent(Action)[0].event


async def test_a_name_puts_a_shadow_in_charge_also_after_a_restart():
    bus = Lasting()
    async with decider(bus, SHADOWS) as made:
        await made.inject(order("calm"))
        await made.inject(state())
        (action,) = made.sent(Action)
        assert (action.champion, set(action.shadows)) == ("calm", {"linucb"})
        assert action.event == "goes on from calm on the word of jo: a trial"
        assert action.model == encode_model(stored(bus)[-1])[0]
    async with decider(bus, SHADOWS, boot="run-2") as made:
        await made.inject(state())
        assert made.sent(Action)[0].champion == "calm"
    async with decider(bus, boot="run-3") as made:  # it is not configured any more
        await made.inject(state())
        assert made.sent(Action)[0].champion == "linucb"


@pytest.mark.parametrize(
    ("model", "reason"),
    [("f" * 64, "missing"), ("nobody", "missing"), (None, "missing"), ("a.b >", "missing"), ("damaged", "damaged")],
)
async def test_an_order_that_cannot_be_obeyed_is_said_and_changes_nothing(model, reason):
    bus = Lasting()
    async with decider(bus) as made:
        bus.objects[MODELS, f"{FOLDER}/damaged"] = b"{"
        await made.inject(reward(cycle=1))
        await made.inject(order(model))
        await made.inject(state(cycle=1), state(cycle=2))
        first, second = made.sent(Action)
        assert (first.policy_updates, first.lessons) == (1, 1)
        assert first.event.startswith("not obeyed: model ")
        assert "on the word of jo" in first.event
        assert second.event is None
        assert made.metric("trimtab_decider_policy_resets_total", reason=reason) == 1


async def test_an_order_is_obeyed_once_and_an_old_one_never_again():
    bus = Lasting()
    async with decider(bus) as made:
        first = encode_model(stored(bus)[0])[0]
        for message in (order(first, "o1"), reward(cycle=1), order(first, "o2"), reward(cycle=2)):
            await made.inject(message)
        await made.inject_raw(subject("command", NODE), encode(order(first, "o1")))
        await made.inject(state())
        assert made.sent(Action)[0].policy_updates == 1
        assert made.dropped("command", "duplicate") == 1
    async with decider(bus, boot="run-2") as made:
        await made.inject_raw(subject("command", NODE), encode(order(first, "o1")))
        assert made.dropped("command", "duplicate") == 1


async def test_orders_of_other_kinds_are_others_business():
    bus = Lasting()
    async with decider(bus) as made:
        await made.inject(msgspec.structs.replace(order(None), verb="mode", mode="active"), state())
        assert made.sent(Action)[0].event is None
        assert len(stored(bus)) == 1
