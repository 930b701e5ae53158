"""Where a run of the decider begins, or an order tells it to go on from another model, nothing is lost unseen."""

from dataclasses import replace

import msgspec
import pytest

from lab.record.file import read_recording
from lab.record.items import ModelCopy
from lab.replay.made import FIRST_MODEL, Plan, make_recording
from schemas.settings import Shared
from services.decider.config import DeciderConfig, PolicySettings
from services.decider.core.mind import Mind
from services.decider.core.model import decode_model
from services.decider.keeper import Keeper
from services.decider.store import ModelStore
from tests.unit.lab.replay.tape import Tape

DECIDER = DeciderConfig(
    seed=1, checkpoint_seconds=50.0, history=50_000, shadows={"stay": PolicySettings(policy="hold")}
)
RESTARTED = Plan(32, scenario="flood", restarts=(20,), decider=DECIDER)


def made(tmp_path, plan: Plan) -> Tape:
    path = tmp_path / "made.recording"
    make_recording(path, plan)
    recording = read_recording(path)
    return Tape(recording.header, tuple(recording.items()))


def models(tape: Tape) -> dict:
    copies = [item for item in tape.items if isinstance(item, ModelCopy)]
    return {copy.digest: decode_model(copy.payload, copy.digest) for copy in copies if copy.payload is not None}


def lacking(tape: Tape, *digests: str) -> Tape:
    """As if the store had let go of them."""
    items = tuple(
        ModelCopy(digest=item.digest, reason="gone") if isinstance(item, ModelCopy) and item.digest in digests else item
        for item in tape.items
    )
    return replace(tape, items=items)


def first_action(tape: Tape, cycle: int):
    return tape.messages("action")[tape.find("action", cycle)]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    return made(tmp_path_factory.mktemp("links"), RESTARTED)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    plan = Plan(32, scenario="flood", decider=DECIDER, orders=((12, FIRST_MODEL), (22, "stay"), (22, FIRST_MODEL)))
    return made(tmp_path_factory.mktemp("links"), plan)


# ---- a start ----


def test_a_start_is_verified_from_the_model_that_the_run_before_left(restarted):
    start = models(restarted)[first_action(restarted, 20).model]
    assert models(restarted)[start.parent].why == "stop"
    report, found = restarted.replayed()
    assert found == []
    assert report.agrees
    assert (report.restarts.verified, report.restarts.differ, report.restarts.unverified) == (2, 0, 0)


def forget(mind: Mind) -> None:
    """Everything learned is lost, silently."""
    last = mind.last_lesson
    ORIGINAL_LOAD(mind, Mind(DECIDER, Shared(), 1).save())
    mind.last_lesson = last


ORIGINAL_LOAD = Mind.load


def test_a_restore_that_loses_what_was_learned_is_a_difference(tmp_path, monkeypatch):
    def load(self, state, **options):
        told = ORIGINAL_LOAD(self, state, **options)
        forget(self)
        return told

    with monkeypatch.context() as patch:
        patch.setattr(Mind, "load", load)
        tape = made(tmp_path, RESTARTED)
    report, found = tape.replayed()
    assert not report.agrees
    assert [(one.kind, one.cycle) for one in found] == [("model", 20)]
    fields = {path: (recorded, again) for path, recorded, again in found[0].fields}
    assert fields["mind.policies.linucb.updates"][0] == "0"
    assert int(fields["mind.policies.linucb.updates"][1]) > 5
    model = first_action(tape, 20).model
    assert fields["digest"][0] == f'"{model}"' != fields["digest"][1]
    assert msgspec.json.decode(found[0].recorded)["parent"] == models(tape)[model].parent
    assert (report.restarts.verified, report.restarts.differ) == (1, 1)


def test_a_run_that_loses_what_was_learned_when_it_ends_is_a_difference(tmp_path, monkeypatch):
    end = Keeper.end

    async def forgetful(self):
        forget(self._mind)
        await end(self)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "end", forgetful)
        tape = made(tmp_path, RESTARTED)
    report, found = tape.replayed()
    assert [(one.kind, one.cycle) for one in found] == [("model", 20)]
    assert '"why":"stop"' in found[0].recorded
    assert report.restarts.differ == 1


def test_without_the_model_that_it_went_on_from_a_start_is_not_verified_and_that_is_said(restarted):
    parent = models(restarted)[first_action(restarted, 20).model].parent
    report, found = lacking(restarted, parent).replayed()
    assert found == []
    assert report.agrees
    assert report.restarts.verified == 1
    (reason,) = report.restarts.reasons
    assert reason.startswith("cycle 20 of simulated")
    assert f"the model it went on from is missing: model {parent[:12]} is not in the recording: gone" in reason


async def nothing(self):
    pass


@pytest.mark.parametrize("history", [50_000, 4, 0])
def test_a_start_after_a_kill_is_verified_with_the_lessons_that_it_learned_again(tmp_path, monkeypatch, history):
    """It goes on from a checkpoint; with a short history, from where the history begins."""
    decider = msgspec.structs.replace(DECIDER, history=history)
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "end", nothing)
        tape = made(tmp_path, replace(RESTARTED, decider=decider))
    start = models(tape)[first_action(tape, 20).model]
    assert models(tape)[start.parent].why == "checkpoint"
    assert (start.lessons > 0) == (history > 0)
    report, found = tape.replayed()
    assert found == []
    assert report.agrees
    assert (report.restarts.verified, report.restarts.unverified) == (2, 0)


def test_lessons_that_were_not_learned_again_are_a_difference(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "end", nothing)
        patch.setattr("services.decider.service.first_unlearned", lambda history, *_: len(history) - 1)
        tape = made(tmp_path, RESTARTED)
    report, found = tape.replayed()
    assert [(one.kind, one.cycle) for one in found] == [("model", 20)]
    assert report.restarts.differ == 1


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The second run finds no model, and learns all again."""

    async def none(self):
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelStore, "digests", none)
        return made(tmp_path_factory.mktemp("links"), RESTARTED)


def test_a_run_that_begins_fresh_is_verified_if_all_that_it_learned_is_there(fresh):
    start = models(fresh)[first_action(fresh, 20).model]
    assert (start.parent, start.lessons > 5) == (None, True)
    report, found = fresh.replayed()
    assert found == []
    assert (report.restarts.verified, report.restarts.unverified) == (2, 0)
    assert report.restarts.forgotten == []


def test_a_run_that_begins_fresh_and_learns_nothing_again_is_verified_and_its_loss_is_told(tmp_path, monkeypatch):
    async def none(self):
        return []

    monkeypatch.setattr(ModelStore, "digests", none)
    tape = made(tmp_path, replace(RESTARTED, decider=msgspec.structs.replace(DECIDER, history=0)))
    known = first_action(tape, 19).policy_updates
    report, found = tape.replayed()
    assert found == []
    assert (report.restarts.verified, report.restarts.unverified) == (2, 0)
    assert report.restarts.forgotten[0].startswith("cycle 20 of simulated")
    assert f" {known} lessons of linucb 0 are left" in report.restarts.forgotten[0]


def test_a_run_that_begins_fresh_is_not_verified_if_there_were_rewards_before(fresh):
    header = msgspec.structs.replace(fresh.header, since_ns=1)
    report, found = replace(fresh, header=header).replayed()
    assert found == []
    (reason,) = report.restarts.reasons
    assert "rewards that it learned again are not in the recording" in reason


def test_a_lost_reward_makes_no_difference_of_a_start(fresh):
    report, found = fresh.without(fresh.find("reward", 8)).replayed()
    assert found == []
    assert not report.agrees
    assert report.restarts.unverified == 1


@pytest.mark.parametrize("wanted", [FIRST_MODEL, "stay"])
def test_a_start_with_an_order_is_verified_step_by_step(tmp_path, wanted):
    tape = made(tmp_path, Plan(26, scenario="flood", decider=DECIDER, late=(16,), orders=((16, wanted),)))
    stored = models(tape)
    start = stored[first_action(tape, 17).model]
    assert stored[start.parent].why == "order"
    assert stored[stored[start.parent].replaced].run == start.run
    report, found = tape.replayed()
    assert found == []
    assert (report.restarts.verified, report.restarts.unverified) == (2, 0)
    stop = stored[stored[start.parent].replaced].parent
    (reason,) = lacking(tape, stop).replayed()[0].restarts.reasons
    assert stop[:12] in reason


# ---- an order ----


def test_orders_are_verified_also_one_right_after_the_other(ordered):
    report, found = ordered.replayed()
    assert found == []
    assert report.agrees
    assert (report.orders.verified, report.orders.unverified) == (2, 0)
    last = models(ordered)[first_action(ordered, 22).model]
    between = models(ordered)[models(ordered)[last.replaced].parent]
    assert (last.why, between.why, between.mind.champion) == ("order", "order", "stay")


def test_an_order_that_loses_what_was_learned_is_a_difference(tmp_path, monkeypatch):
    def put_in_charge(self, name):
        forget(self)
        self.champion = name
        self.steps += 1

    plan = Plan(20, scenario="flood", decider=DECIDER, orders=((12, "stay"),))
    with monkeypatch.context() as patch:
        patch.setattr(Mind, "put_in_charge", put_in_charge)
        tape = made(tmp_path, plan)
    report, found = tape.replayed()
    assert ("model", 12) in [(one.kind, one.cycle) for one in found]
    assert (report.orders.verified, report.orders.differ) == (0, 1)
    assert not report.agrees


def test_without_what_was_before_an_order_is_not_verified(ordered):
    order = models(ordered)[first_action(ordered, 12).model]
    for missing in {order.parent, order.replaced} - {first_action(ordered, 1).model}:
        report, found = lacking(ordered, missing).replayed()
        assert found == []
        assert report.agrees
        assert report.orders.verified == 1
        assert any(missing[:12] in reason for reason in report.orders.reasons)


def test_a_missing_model_of_an_order_makes_no_difference_and_is_said(ordered):
    order = first_action(ordered, 12).model
    report, found = lacking(ordered, order).replayed()
    assert found == []
    assert not report.agrees
    named = [message.model for message in ordered.messages("action").values()]
    reason = f"model {order[:12]} is not in the recording: gone"
    assert dict(report.counts["action"].not_replayed) == {reason: named.count(order)}
    assert report.counts["action"].agree == 32 - named.count(order)


def test_an_order_that_could_not_be_stored_is_replayed_and_what_is_stored_later_is_reached(tmp_path, monkeypatch):
    put = ModelStore.put

    async def refusing(self, digest, raw, why):
        return False if why == "order" else await put(self, digest, raw, why)

    plan = Plan(30, scenario="flood", decider=DECIDER, orders=((14, FIRST_MODEL),))
    with monkeypatch.context() as patch:
        patch.setattr(ModelStore, "put", refusing)
        tape = made(tmp_path, plan)
    named = [message.model for message in tape.messages("action").values()]
    assert named[13] == named[0] != named[12]
    assert named[-1] not in named[:14]
    report, found = tape.replayed()
    assert found == []
    assert report.agrees
    assert report.models_verified == len(set(named)) - 1
