"""explain, audit and evaluate answer on a recording without a server, and say what is wrong with what they are asked."""

import json
import os

import pytest

from cli.__main__ import main
from lab.record.writer import create_recording
from services.decider.config import DeciderConfig
from tests.support import builders
from tests.support.records import Loop, Record, header_of
from tests.unit.lab.audit.test_timeline import whole

DRAWING = DeciderConfig(seed=5, policy="epsilon-greedy", epsilon=0.5)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return str(Loop().record(40).write(tmp_path_factory.mktemp("records") / "night.rec"))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """Nothing of the machine's own configuration, and no server."""
    for name in list(os.environ):
        if name.startswith("TRIMTAB_"):
            monkeypatch.delenv(name)


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_explain_tells_a_cycle_from_seen_to_worth(recording, capsys):
    code, out, err = run(capsys, "explain", "33", "--recording", recording)
    assert (code, err) == (0, "")
    assert out.startswith("cycle 33 of node-1 (boot boot1) at 2023-11-14T22:16:05.000Z\n")
    places = [
        out.index(part) for part in ("seen:", "masked:", "champion linucb", "guard (active)", "written:", "─ reward:")
    ]
    assert places == sorted(places)
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "\x1b" not in out


def test_explain_says_the_same_as_json(recording, capsys):
    code, out, _ = run(capsys, "explain", "33", "--recording", recording, "-o", "json")
    told = json.loads(out)
    assert (code, told["cycle"], told["boot"]) == (0, 33, "boot1")
    champion = told["decision"]["policies"][0]
    mean = next(arm["mean"] for arm in champion["arms"] if arm["arm"] == champion["arm"])
    assert sum(part["amount"] for part in champion["parts"]) == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize(
    "words", [("last",), ("22:16:42",), ("boot1/40",), ("40", "--boot", "boot1"), ("40", "--node", "node-1")]
)
def test_a_cycle_has_many_names(recording, capsys, words):
    assert run(capsys, "explain", *words, "--recording", recording)[1].startswith("cycle 40 of node-1")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("41",), 1, "the record has no cycle 41; it has boot1/1 to boot1/40"),
        (("nonsense",), 2, "'nonsense' is no cycle"),
        (("last", "--boot", "boot1"), 2, "flag --boot: it goes with a cycle's number"),
        (("1", "--node", "Not A Node"), 2, "flag --node"),
        (("1", "--node", "other"), 1, "the record has no cycle of node other"),
    ],
)
def test_explain_says_what_is_wrong(recording, capsys, words, code, said):
    found, out, err = run(capsys, "explain", *words, "--recording", recording)
    assert (found, out) == (code, "")
    assert said in err
    assert err.startswith("trimtab explain: ")


def test_what_is_no_recording_is_said(tmp_path, capsys):
    (tmp_path / "x").write_text("no recording")
    for words in (("explain", "1", "--recording"), ("audit", "--recording"), ("evaluate", "--policy", "hold")):
        code, _, err = run(capsys, *words, str(tmp_path / "x"))
        assert code != 0
        assert str(tmp_path / "x") in err


def test_audit_tells_who_changed_a_weight_why_on_whose_word_under_which_model(tmp_path, capsys):
    path = str(Record(*whole(), builders.reward(cycle=1)).write(tmp_path / "a.rec"))
    code, out, err = run(capsys, "audit", "--pod", "api", "--recording", path)
    assert (code, err) == (0, "")
    for part in ("api: 1000 → 2000, applied", "policy main (test)", "model abcdef0123456789", "the guard said allow"):
        assert part in out
    code, out, _ = run(capsys, "audit", "--pod", "api", "--recording", path, "-o", "jsonl")
    (event,) = (json.loads(line) for line in out.splitlines())
    assert (event["before"], event["after"], event["cause"]["model"]) == (1000, 2000, "abcdef0123456789")


def test_audit_at_a_moment_finds_what_was_in_force(recording, capsys):
    code, out, _ = run(capsys, "audit", "--at", "22:16:30", "--pod", "api", "--recording", recording, "-o", "json")
    (answer,) = json.loads(out)
    assert code == 0
    assert answer["change"]["cause"]["policy"] == "linucb"
    assert answer["weight"] == answer["change"]["after"]


def test_audit_within_a_time(recording, capsys):
    everything = run(capsys, "audit", "--recording", recording, "-o", "jsonl")[1].splitlines()
    some = run(capsys, "audit", "--recording", recording, "-o", "jsonl", "--since", "22:13:20", "--until", "22:14")[1]
    ago = run(capsys, "audit", "--recording", recording, "-o", "jsonl", "--since", "100s")[1]
    assert set(some.splitlines()) < set(everything)
    assert set(ago.splitlines()) < set(everything)
    assert not set(ago.splitlines()) & set(some.splitlines())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--pod", "web"), 1, "the record has no pod web; it has api, job"),
        (("--at", "22:14", "--since", "1h"), 2, "flag --at: it is one moment"),
        (("--at", "noon"), 2, "'noon' is no time"),
        (("--at", "2020-01-01T00:00Z"), 1, "it begins later"),
        (("--since", "yesterday"), 2, "flag --since"),
        (("--node", "nope"), 1, "flag --node: the record has no node nope; it has node-1"),
        (("--since", "22:15", "--until", "22:14"), 2, "22:14:00.000Z is not after --since 2023-11-14T22:15:00.000Z"),
        (("--since", "22:15", "--until", "22:15"), 2, "flag --until"),
    ],
)
def test_audit_says_what_is_wrong(recording, capsys, words, code, said):
    found, out, err = run(capsys, "audit", *words, "--recording", recording)
    assert (found, out) == (code, "")
    assert said in err


@pytest.fixture(scope="module")
def unclosed(tmp_path_factory):
    """A recording in which one message cannot be read, and whose end is gone."""
    path = tmp_path_factory.mktemp("records") / "torn.rec"
    record = Record(*whole(1), builders.reward(cycle=1)).spoil(builders.reward(cycle=2), b"{")
    with create_recording(path, header_of()) as writer:
        for item in record.items:
            writer.add(item)
        writer.flush()
        size = path.stat().st_size
    os.truncate(path, size)
    return str(path)


@pytest.mark.parametrize(
    "words", [("audit", "--recording"), ("explain", "1", "--recording"), ("compare",)], ids=lambda words: words[0]
)
def test_what_of_the_record_is_lost_is_said_in_a_line_beside_the_answer(recording, unclosed, capsys, words):
    code, out, err = run(capsys, *words, unclosed)
    assert (code, bool(out), err.count("\n")) == (0, True, 1)
    assert err.startswith(
        f"trimtab {words[0]}: the record is not whole: TRIMTAB_AUDIT 5 on trimtab.v1.reward.node-1 is"
    )
    assert "; the recording was not closed: whether more was recorded cannot be known" in err
    assert run(capsys, *words, recording)[2] == ""
    if words[0] != "audit":
        told = json.loads(run(capsys, *words, unclosed, "-o", "json")[1])
        assert len(told["lost"] if words[0] == "explain" else told[-1]["lost"]) == 2


def test_what_is_lost_is_said_where_there_is_no_answer(unclosed, capsys):
    code, _, err = run(capsys, "explain", "7", "--recording", unclosed)
    assert code == 1
    assert "the record is not whole" in err


def test_evaluate_refuses_a_short_night_with_reasons(recording, capsys):
    code, out, _ = run(capsys, "evaluate", recording, "--policy", "hold", "--policy", "linucb")
    assert code == 1
    assert "few_rows" in out
    report = json.loads(run(capsys, "evaluate", recording, "--policy", "hold", "-o", "json")[1])
    assert [judged["policy"] for judged in report["policies"]] == ["hold"]
    assert report["logged"]["refused"]


def test_evaluate_answers_where_every_policy_has_an_answer(tmp_path, capsys):
    path = str(Loop(DRAWING).record(700).write(tmp_path / "long.rec", header_of(DRAWING)))
    code, out, _ = run(capsys, "evaluate", path, "--policy", "epsilon-greedy", "-o", "json")
    report = json.loads(out)
    values = {one["estimator"]: one["value"] for one in report["policies"][0]["estimates"]}
    assert code == 0
    assert values["ips"] == pytest.approx(report["logged"]["value"])
    assert {one["other"] for one in report["differences"]} == {"logged"}
    code, _, _ = run(capsys, "evaluate", path, "--policy", "epsilon-greedy", "--policy", "static")
    assert code in (0, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "brilliant"), "brilliant"),
        (("--policy", "logged"), "logged is what the recording itself earned"),
        (("--policy", "hold:wings=2"), "'wings=2' is no key=value"),
    ],
)
def test_evaluate_says_what_is_wrong(recording, capsys, words, said):
    code, out, err = run(capsys, "evaluate", recording, *words)
    assert (code, out) == (2, "")
    assert said in err
