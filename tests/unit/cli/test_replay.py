"""`trimtab replay` on a file: what it says, and what it ends with."""

import json

import msgspec
import pytest

from cli.__main__ import main
from lab.record.file import read_recording
from lab.record.items import Damage, ModelCopy, Stored
from lab.record.writer import create_recording
from lab.replay.made import make_recording
from schemas.codec import decode
from schemas.messages import Action
from tests.unit.lab.replay.conftest import PLAN


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("replay") / "made.recording"
    make_recording(made, PLAN)
    return made


@pytest.fixture
def changed(path, tmp_path):
    """With another propensity in the actions of the cycles 16 and 18."""

    def change(item):
        if not isinstance(item, Stored) or not isinstance(message := decode(item.payload), Action):
            return item
        if message.cycle not in (16, 18):
            return item
        fields = msgspec.json.decode(item.payload)
        fields["propensity"] = 0.125
        return msgspec.structs.replace(item, payload=msgspec.json.encode(fields))

    recording = read_recording(path)
    target = tmp_path / "changed.recording"
    with create_recording(target, recording.header) as writer:
        for item in recording.items():
            if not isinstance(item, Damage):
                writer.add(change(item))
    return target


def test_what_agrees_is_counted_and_ends_with_0(path, capsys):
    assert main(["replay", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    decided = PLAN.cycles - len(PLAN.late)
    assert out[0].split() == ["kind", "recorded", "agree", "differ", "not_replayed", "cut_off"]
    assert out[1].split() == ["action", str(decided), str(decided), "0", "0", "0"]
    assert out[-1] == (
        f"{decided} of {decided} actions, {PLAN.cycles} of {PLAN.cycles} verdicts, "
        f"{PLAN.cycles} of {PLAN.cycles} rewards agree"
    )


def test_the_first_difference_ends_it_with_1_and_both_messages(changed, capsys):
    assert main(["replay", str(changed)]) == 1
    out = capsys.readouterr().out
    assert "DIFFERS: action of cycle 16 of simulated" in out
    assert "  propensity\n    recorded  0.125\n    replayed  " in out
    recorded, replayed = (
        json.loads(line.split(": ", 1)[1])
        for line in out.splitlines()
        if line.startswith(("  recorded: ", "  replayed: "))
    )
    assert recorded["propensity"] == 0.125
    assert {**replayed, "propensity": 0.125} == recorded
    assert "cycle 18" not in out
    assert out.splitlines()[-1].endswith("agree up to the first difference; --all goes on")


def test_all_goes_on_and_counts(changed, capsys):
    assert main(["replay", str(changed), "--all", "-o", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [row for row in rows if row["type"] == "difference"]
    assert [(row["kind"], row["cycle"]) for row in found if row["kind"] == "action"] == [("action", 16), ("action", 18)]
    assert found[0]["fields"] == ["propensity"]
    summary = rows[-1]
    assert (summary["type"], summary["agrees"], summary["stopped_at_first_difference"]) == ("summary", False, False)
    assert summary["kinds"]["action"]["differ"] == 2


def test_json_is_one_document(path, capsys):
    assert main(["replay", str(path), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["agrees"] is True
    assert document["found"] == []
    assert document["models"]["verified"] > 0
    assert document["restarts"] == {"verified": 3, "differ": 0, "not_verified": 0, "reasons": [], "forgotten": []}
    assert document["orders"] == {"verified": 0, "differ": 0, "not_verified": 0, "reasons": [], "forgotten": []}


def test_a_restart_that_cannot_be_verified_is_said_and_is_no_difference(path, tmp_path, capsys):
    recording = read_recording(path)
    entries = list(recording.items())
    (copy, *_) = (item for item in entries if isinstance(item, ModelCopy) and b'"why":"stop"' in (item.payload or b""))
    target = tmp_path / "lacking.recording"
    with create_recording(target, recording.header) as writer:
        for entry in entries:
            if isinstance(entry, Stored | ModelCopy):
                writer.add(ModelCopy(digest=copy.digest, reason="gone") if entry == copy else entry)
    assert main(["replay", str(target)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "restarts verified: 2, not verified: 1" in lines
    assert any(line.startswith("note: restart not verified: cycle ") and copy.digest[:12] in line for line in lines)
    assert lines[-1].endswith("rewards agree; restarts not verified: 1")


def test_another_policy_shows_its_differences_and_ends_with_0(path, capsys):
    assert main(["replay", str(path), "--policy", "hold", "--first", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("cycle ")
    assert out[1].startswith("cycle ")
    assert out[2].startswith("... and ")
    assert out[-1].startswith("hold chooses as recorded in ")
    assert main(["replay", str(path), "--seed", "77", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policy"] == "linucb"
    assert document["cycles"] == PLAN.cycles - len(PLAN.late)


def test_other_versions_are_warned_of(path, tmp_path, capsys):
    recording = read_recording(path)
    header = msgspec.structs.replace(recording.header, versions={**recording.header.versions, "numpy": "0.1"})
    target = tmp_path / "old.recording"
    with create_recording(target, header) as writer:
        for item in recording.items():
            if not isinstance(item, Damage):
                writer.add(item)
    assert main(["replay", str(target)]) == 0
    assert "recorded with numpy 0.1, this is " in capsys.readouterr().err


def test_a_paced_replay_says_the_same(path, capsys):
    assert main(["replay", str(path), "--speed", "1000000"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("rewards agree")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speed", "fast"], "flag --speed: 'fast' is no speed"),
        (["--speed", "0"], "flag --speed: '0' is no speed"),
        (["--publish", "a.b"], "flag --publish: 'a.b' is no name for a replay"),
        (["--node", "A B"], "flag --node: "),
        (["--since", "2h"], "flag --since: only with 'live'"),
        (["--policy", "no-such"], "flag --policy: decider.policy: 'no-such' is not known"),
        (["--policy", "linucb:x=1"], "flag --policy: 'x=1' is no key=value"),
        (["--seed", "-1"], "flag --seed: -1 is no seed"),
        (["--first", "-1"], "flag --first: -1 is no number"),
    ],
)
def test_wrong_flags_are_said_with_2(path, words, said, capsys):
    assert main(["replay", str(path), *words]) == 2
    assert capsys.readouterr().err.startswith(f"trimtab replay: {said}")


def test_what_is_no_recording_is_said(tmp_path, capsys):
    target = tmp_path / "text"
    target.write_text("no recording")
    assert main(["replay", str(target)]) == 2
    assert "is no recording" in capsys.readouterr().err
