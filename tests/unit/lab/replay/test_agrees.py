"""A recording goes through the cores again and comes out the same, also behind a restart."""

from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest

from lab.record.file import read_recording
from lab.record.items import Closed, ModelCopy, Stored
from lab.replay.made import FIRST_MODEL, Plan, make_recording
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from tests.unit.lab.replay.conftest import PLAN
from tests.unit.lab.replay.tape import Tape


def test_every_message_agrees_to_the_byte(tape):
    report, found = tape.replayed()
    assert found == []
    assert report.agrees
    assert report.cycles == PLAN.cycles
    counts = report.counts
    assert (counts["verdict"].agree, counts["reward"].agree) == (PLAN.cycles, PLAN.cycles)
    assert counts["action"].agree == PLAN.cycles - len(PLAN.late)
    assert [count.recorded - count.agree for count in counts.values()] == [0, 0, 0]


def test_models_that_were_stored_on_the_way_are_reached_to_the_byte_in_each_run(tape):
    runs = {message.run for message in tape.messages("action").values()}
    assert len(runs) == 3  # one at first, one behind the cycle that was missed, one behind the restart
    report, _ = tape.replayed()
    named = list(dict.fromkeys(message.model for message in tape.messages("action").values()))
    assert report.models_verified == len(named) - len(runs) > 0
    assert report.models_differ == report.models_unverified == 0


def test_there_was_something_to_compare(tape):
    rewards = list(tape.messages("reward").values())
    verdicts = list(tape.messages("verdict").values())
    assert sum(reward.outcome == "joined" for reward in rewards) > 30
    assert {verdict.outcome for verdict in verdicts} >= {"allow", "hold", "late"}
    assert any(verdict.execute for verdict in verdicts)


def test_one_node_alone_is_replayed_if_asked(tape):
    assert tape.replayed(node="simulated")[0].agrees
    report, _ = tape.replayed(node="another")
    assert report.cycles == 0
    assert not report.agrees


def test_without_a_model_the_run_is_not_replayed_and_that_is_said(tape):
    first = next(index for index, item in enumerate(tape.items) if isinstance(item, ModelCopy))
    report, found = tape.without(first).replayed()
    assert found == []
    assert not report.agrees
    (reason, *_) = report.counts["action"].not_replayed
    assert "is not in the recording" in reason
    assert report.counts["action"].agree > 0  # it begins again at the next stored model


def test_behind_a_missing_model_decisions_are_replayed_from_the_next_one_on(tape):
    """It might be one that somebody ordered: what was decided with it is not known."""
    named = [message.model for message in tape.messages("action").values()]
    missing = list(dict.fromkeys(named))[1]
    whole, _ = tape.replayed()
    place = next(i for i, item in enumerate(tape.items) if isinstance(item, ModelCopy) and item.digest == missing)
    report, found = tape.without(place).replayed()
    assert found == []
    assert not report.agrees
    assert dict(report.counts["action"].not_replayed) == {
        f"model {missing[:12]} is not in the recording": named.count(missing)
    }
    assert report.models_unverified == 1
    assert report.models_verified < whole.models_verified


def test_a_model_that_was_not_reached_is_a_difference(tape):
    named = list(dict.fromkeys(message.model for message in tape.messages("action").values()))[1]
    copies = [i for i, item in enumerate(tape.items) if isinstance(item, ModelCopy) and item.digest == named]
    item = tape.items[copies[0]]
    model = msgspec.json.decode(item.payload)
    model["mind"]["policies"]["linucb"]["updates"] += 1
    payload = msgspec.json.encode(model)
    digest = sha256(payload).hexdigest()
    forged = tape.with_item(copies[0], ModelCopy(digest=digest, payload=payload))
    items = tuple(
        msgspec.structs.replace(entry, payload=entry.payload.replace(item.digest.encode(), digest.encode()))
        if isinstance(entry, Stored)
        else entry
        for entry in forged.items
    )
    report, found = replace(forged, items=items).replayed()
    assert next(difference.kind for difference in found) == "model"
    assert report.models_differ == 2  # nor does what the run left follow from it
    assert not report.agrees


def test_a_recording_of_nothing_agrees_with_nothing(tape):
    report, found = replace(tape, items=(Closed(messages={}),)).replayed()
    assert found == []
    assert not report.agrees


@pytest.mark.parametrize("kind", ["guard", "rewarder", "decider"])
def test_other_settings_are_said_and_can_be_given(tape, kind):
    (settings,) = tape.header.settings
    prints = {**settings.fingerprints, kind: "0" * 12}
    header = msgspec.structs.replace(tape.header, settings=(msgspec.structs.replace(settings, fingerprints=prints),))
    report, found = replace(tape, header=header).replayed()
    assert found == []
    assert not report.agrees
    count = report.counts[{"guard": "verdict", "rewarder": "reward", "decider": "action"}[kind]]
    assert count.agree == 0
    assert any("--config" in reason and settings.fingerprints[kind] in reason for reason in count.not_replayed)
    assert replace(tape, header=header).replayed(extra=[settings])[0].agrees


TRIAL = DeciderConfig(
    seed=3,
    checkpoint_seconds=70.0,
    shadows={"calm": PolicySettings(policy="linucb", exploration=0.05), "stay": PolicySettings(policy="hold")},
    trial=TrialSettings(challenger="stay", block_cycles=4, washout_cycles=1, min_pairs=2, confidence=0.6),
)


@pytest.fixture(scope="module")
def trial_tape(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "trial.recording"
    make_recording(path, Plan(90, scenario="flood", decider=TRIAL, restarts=(30, 62)))
    recording = read_recording(path)
    return Tape(recording.header, tuple(recording.items()))


def test_a_trial_with_its_turns_and_what_follows_from_it_agrees_over_restarts(trial_tape):
    actions = list(trial_tape.messages("action").values())
    assert {action.trial.in_charge for action in actions if action.trial is not None} == {"linucb", "stay"}
    assert all(action.shadows for action in actions)
    report, found = trial_tape.replayed()
    assert found == []
    assert report.agrees
    assert report.models_verified > 2


@pytest.mark.parametrize("wanted", [FIRST_MODEL, "stay"])
def test_an_order_of_a_model_in_the_middle_agrees(tmp_path, wanted):
    path = tmp_path / "ordered.recording"
    shadows = {"stay": PolicySettings(policy="hold")}
    decider = DeciderConfig(seed=3, checkpoint_seconds=40.0, shadows=shadows)
    make_recording(path, Plan(45, scenario="flood", decider=decider, orders=((22, wanted),)))
    recording = read_recording(path)
    tape = Tape(recording.header, tuple(recording.items()))
    events = {message.cycle: message.event for message in tape.messages("action").values() if message.event}
    assert list(events) == [22]
    assert "a person" in events[22]
    report, found = tape.replayed()
    assert found == []
    assert report.agrees
    assert report.counts["action"].agree == 45
    changed = tape.changed(tape.find("action", 30), lambda fields: fields.update({"propensity": 0.5}))
    assert not changed.replayed()[0].agrees
