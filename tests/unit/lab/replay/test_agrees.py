"""A recording goes through the cores again and comes out the same, also behind a restart."""

from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest

from lab.record.items import Closed, ModelCopy, Stored
from tests.unit.lab.replay.conftest import PLAN


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


def test_a_model_between_is_only_looked_at(tape):
    copies = [index for index, item in enumerate(tape.items) if isinstance(item, ModelCopy)]
    whole, _ = tape.replayed()
    report, found = tape.without(copies[1]).replayed()
    assert found == []
    assert report.agrees
    assert (report.models_verified, report.models_unverified) == (whole.models_verified - 1, 1)


def test_a_model_that_was_not_reached_is_a_difference(tape):
    copies = [index for index, item in enumerate(tape.items) if isinstance(item, ModelCopy)]
    item = tape.items[copies[1]]
    model = msgspec.json.decode(item.payload)
    model["mind"]["policies"]["linucb"]["updates"] += 1
    payload = msgspec.json.encode(model)
    digest = sha256(payload).hexdigest()
    forged = tape.with_item(copies[1], ModelCopy(digest=digest, payload=payload))
    items = tuple(
        msgspec.structs.replace(entry, payload=entry.payload.replace(item.digest.encode(), digest.encode()))
        if isinstance(entry, Stored)
        else entry
        for entry in forged.items
    )
    report, found = replace(forged, items=items).replayed()
    assert next(difference.kind for difference in found) == "model"
    assert report.models_differ == 1
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
