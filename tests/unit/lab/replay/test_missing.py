"""What is not there is said, and nothing is joined over it."""

from dataclasses import replace

import msgspec
import pytest

from lab.record.blocks import SEED, START, encode_block
from lab.record.file import read_recording
from lab.record.items import Damage, Gap, ModelCopy, Stored
from lab.replay.cycles import Cycles, Recorded, Trouble
from lab.replay.replayer import Replayer
from tests.unit.lab.replay.conftest import PLAN

CYCLE = 16
NAMES = {
    "before": "first state",
    "action": "action",
    "verdict": "verdict",
    "actuation": "actuation",
    "after": "second state",
    "reward": "reward",
}


@pytest.mark.parametrize("name", NAMES)
def test_one_missing_message_is_said_by_its_sequence_and_by_its_cycle(tape, name):
    index = tape.find(name, CYCLE)
    item = tape.items[index]
    report, found = tape.without(index).replayed()
    assert not report.agrees
    assert report.troubles == [f"{item.stream} {item.sequence} are not in the recording"]
    assert any(f"cycle {CYCLE} " in text and f"no {NAMES[name]}" in text for text in report.incomplete)
    assert found == []  # what is missing makes no difference out of what is there


@pytest.mark.parametrize("name", NAMES)
def test_one_missing_message_is_said_where_sequences_are_shared_with_other_nodes(tape, name):
    header = msgspec.structs.replace(tape.header, node="simulated")
    report, found = replace(tape.without(tape.find(name, CYCLE)), header=header).replayed()
    assert not report.agrees
    assert report.troubles == []
    assert any(f"cycle {CYCLE} " in text and f"no {NAMES[name]}" in text for text in report.incomplete)
    assert found == []


def test_a_whole_missing_cycle_is_not_joined_over(tape):
    left = tape
    for name in NAMES:
        left = left.without(left.find(name, CYCLE), renumbered=True)
    report, found = left.replayed()
    assert not report.agrees
    assert report.troubles == [f"cycle {CYCLE} of simulated (boot collector-1) not in the recording"]
    assert found == []
    (reason,) = {text for text in report.counts["action"].not_replayed if "are lost" in text}
    assert f"cycle {CYCLE + 1} " in reason
    told = handed_out(left)
    assert [one.follows for one in told if one.cycle in (CYCLE - 1, CYCLE + 1, CYCLE + 2)] == [True, False, True]


def test_decisions_are_replayed_again_from_the_next_stored_model_on(tape):
    report, _ = tape.without(tape.find("before", CYCLE)).replayed()
    action = report.counts["action"]
    actions = [message for message in tape.messages("action").values() if message.cycle >= CYCLE]
    next_model = next(message.model for message in actions if message.model != actions[0].model)
    assert action.not_replayed.total() == [message.model for message in actions].index(next_model) > 0
    assert action.agree == action.recorded - action.not_replayed.total() > 40


def test_a_message_that_no_cycle_misses_is_missed_by_its_number(tape):
    place = tape.find("before", CYCLE)
    items = tuple(
        msgspec.structs.replace(item, sequence=item.sequence + 1)
        if isinstance(item, Stored) and item.stream == "TRIMTAB_AUDIT" and index > place
        else item
        for index, item in enumerate(tape.items)
    )
    report, found = replace(tape, items=items).replayed()
    assert (found, report.incomplete) == ([], [])
    assert len(report.troubles) == 1
    assert report.counts["action"].agree == report.counts["action"].recorded
    assert not report.agrees


def test_a_gap_is_said_with_its_reason(tape):
    index = tape.find("verdict", CYCLE)
    item = tape.items[index]
    gap = Gap(stream=item.stream, first=item.sequence, last=item.sequence, exact=True, reason="gone")
    report, found = tape.with_item(index, gap).replayed()
    assert report.troubles == [f"{item.stream} {item.sequence} are not in the recording: gone"]
    assert found == []
    assert not report.agrees


def test_a_damage_is_said_and_what_is_left_is_replayed(tape):
    place = tape.find("before", CYCLE)
    cut = [item for item in tape.items[place : place + 9] if isinstance(item, Stored)]
    before = {"TRIMTAB_STATE": cut[0].sequence - 1, "TRIMTAB_AUDIT": sequences(cut, "TRIMTAB_AUDIT")[0] - 1}
    after = {stream: sequences(cut, stream)[-1] + 1 for stream in before}
    damage = Damage(kind="changed", block=3, offset=99, reason="its bytes are others", before=before, after=after)
    items = (*tape.items[:place], damage, *tape.items[place + 9 :])
    report, found = replace(tape, items=items).replayed()
    assert len(report.troubles) >= 1
    assert "the recording is damaged: block 3 at byte 99" in report.troubles[0]
    assert found == []
    assert not report.agrees
    assert report.counts["verdict"].agree > PLAN.cycles - 4


def test_one_flipped_bit_of_the_file_is_said(recording_path, tmp_path):
    raw = bytearray(recording_path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path = tmp_path / "flipped.recording"
    path.write_bytes(raw)
    recording = read_recording(path)
    replayer = Replayer(recording.header)
    for entry in recording.items():
        list(replayer.take(entry))
    list(replayer.end())
    assert not replayer.report.agrees
    assert any("damaged" in text for text in replayer.report.troubles)


def test_ends_that_are_cut_off_are_no_losses(tape):
    begin, end = tape.find("action", 3), tape.find("verdict", 50)
    states = [index for index, message in tape.messages("before").items() if message.cycle == 3]
    assert states[0] < begin
    report, found = replace(tape, items=tape.items[states[0] : end + 1]).replayed()
    assert found == []
    assert report.incomplete == report.troubles == []
    assert dict(report.edges) == {"under way when the recording ended": 1}
    assert sum(count.cut_off for count in report.counts.values()) == 0
    assert report.counts["action"].not_replayed.total() > 0  # where its run began is not there
    report, found = replace(tape, items=tape.items[begin:]).replayed()
    assert found == []
    assert report.incomplete == report.troubles == []
    assert dict(report.edges) == {"begun before the first state of the recording": 1}


def test_rubbish_in_a_stream_is_said(tape):
    index = tape.find("reward", CYCLE)
    rubbish = msgspec.structs.replace(tape.items[index], payload=b"{}")
    report, _ = tape.with_item(index, rubbish).replayed()
    assert not report.agrees
    assert any("is no message of ours" in text for text in report.troubles)


def test_a_message_that_comes_again_is_left_out(tape):
    index = tape.find("reward", CYCLE)
    twice = tape.with_item(index, tape.items[index], tape.items[index])
    report, found = twice.replayed()
    assert found == []
    assert any("comes again" in text for text in report.troubles)


def test_a_recording_that_was_not_closed_is_no_proof_and_excuses_nothing_that_is_there(tape):
    unclosed = Damage(kind="unclosed", block=9, offset=99, reason="it was not closed")
    left = replace(tape, items=(*tape.items[:-1], unclosed))
    report, found = left.replayed()
    assert (found, report.agrees) == ([], False)
    assert report.troubles == ["the recording was not closed: whether more was recorded cannot be known"]
    last = tape.find("action", PLAN.cycles)
    assert left.changed(last, lambda fields: fields.update({"heard_changes_left": 77})).replayed()[1]


@pytest.mark.parametrize("name", ["before", "action", "verdict", "actuation", "after", "reward"])
def test_the_last_message_that_is_missing_is_missed_by_the_counts(tape, tmp_path, name):
    """Where neither a number of its stream nor another message of its cycle misses it."""
    index = tape.find(name, PLAN.cycles)
    items = tape.without(index, renumbered=True).items
    report = replay_file(write_blocks(tmp_path / "short", [tape.header, *items]))
    item = tape.items[index]
    stored = sum(isinstance(one, Stored) and one.stream == item.stream for one in tape.items)
    words = f"it was closed with {stored} messages of {item.stream}, {stored - 1} are here"
    assert any(words in text for text in report.troubles)
    assert not report.agrees


def test_an_order_that_is_the_only_message_of_its_stream_is_missed_by_the_counts(tape, tmp_path):
    closed = msgspec.structs.replace(tape.items[-1], messages={**tape.items[-1].messages, "TRIMTAB_ORDERS": 1})
    report = replay_file(write_blocks(tmp_path / "short", [tape.header, *tape.items[:-1], closed]))
    (trouble,) = report.troubles
    assert "it was closed with 1 messages of TRIMTAB_ORDERS, 0 are here" in trouble
    assert not report.agrees


def test_a_last_block_that_is_gone_leaves_a_recording_that_was_not_closed(tape, tmp_path):
    report = replay_file(write_blocks(tmp_path / "short", [tape.header, *tape.items[:-1]]))
    assert report.troubles == ["the recording was not closed: whether more was recorded cannot be known"]
    assert not report.agrees
    assert replay_file(write_blocks(tmp_path / "whole", [tape.header, *tape.items])).agrees


def test_unknown_settings_are_the_reason_of_every_message_made_under_them(tape):
    header = msgspec.structs.replace(tape.header, settings=())
    report, _ = replace(tape, header=header).replayed()
    for kind, service in (("action", "decider"), ("verdict", "guard"), ("reward", "rewarder")):
        ((reason, count),) = report.counts[kind].not_replayed.items()
        assert count == report.counts[kind].recorded
        assert reason.startswith("settings ")
        assert reason.endswith(f" of the {service} unknown; give their file by --config")


@pytest.mark.parametrize("name", ["action", "verdict"])
def test_what_begins_in_the_middle_of_a_run_is_said_until_the_next_stored_model(tape, name):
    begin = tape.find(name, 3)
    models = [item for item in tape.items[:begin] if isinstance(item, ModelCopy) and item.digest == the_model(tape, 4)]
    report, _ = replace(tape, items=(*models, *tape.items[begin:])).replayed()
    ((reason, count),) = report.counts["action"].not_replayed.items()
    assert reason.startswith("the recording begins in the middle of a run")
    assert 0 < count < report.counts["action"].agree


def the_model(tape, cycle: int) -> str:
    return next(message.model for message in tape.messages("action").values() if message.cycle == cycle)


def write_blocks(path, items):
    """A file of blocks of 50 items, as they are: what a writer would count is not counted again."""
    positions: dict[str, int] = {}
    raw, digest = START, SEED
    for number, first in enumerate(range(0, len(items), 50)):
        block = items[first : first + 50]
        encoded, digest, _ = encode_block(number, digest, dict(positions), block)
        raw += encoded
        for item in block:
            if isinstance(item, Stored):
                positions[item.stream] = item.sequence
    path.write_bytes(raw)
    return path


def replay_file(path):
    recording = read_recording(path)
    replayer = Replayer(recording.header)
    for entry in recording.items():
        list(replayer.take(entry))
    list(replayer.end())
    return replayer.report


def handed_out(tape) -> list[Recorded]:
    cycles = Cycles(tape.header)
    told = [one for item in tape.items for one in cycles.take(item)] + list(cycles.end())
    assert all(isinstance(one, Recorded | Trouble) or not isinstance(one, Stored) for one in told)
    return [one for one in told if isinstance(one, Recorded)]


def sequences(items, stream) -> list[int]:
    return [item.sequence for item in items if item.stream == stream]
