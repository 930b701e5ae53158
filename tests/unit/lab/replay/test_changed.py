"""Whatever field of an action, a verdict or a reward is changed in a recording, the replay finds it and names both."""

import math

import msgspec
import pytest

from schemas.codec import decode
from schemas.messages import Action, Reward, Verdict
from tests.unit.lab.replay.conftest import PLAN

CYCLE = 16
"""One whose change was executed and learned from: see the first test."""

TOLD = {"node", "boot", "cycle", "schema", "type"}
"""They say which message it is: with another one it is another's, and missing here."""

ACTION = {
    "policy": "step",
    "arm": "hold",
    "weights": {"latency-critical": 1, "default": 1, "batch": 1},
    "propensity": 0.123,
    "propensities": {"hold": 0.5},
    "scores": {"hold": 0.5},
    "masked": {"hold": "stay, they say"},
    "explored": None,
    "reason": "because",
    "policy_updates": 1_000,
    "context": {"moved": 0.7},
    "seed": 4711,
    "lessons": 400,
    "last_lesson": "collector-1/1",
    "heard_mode": "canary",
    "heard_changes_left": 77,
    "champion": "step",
    "shadows": {"step": {"policy": "step"}},
    "settings": "0" * 12,
    "trial": {"challenger": "a", "phase": "trial", "block": 1, "in_charge": "a"},
}
ACTION_ELSEWHERE = {"run": "another", "model": "0" * 64}
ACTION_NOT = {"at", "decide_seconds", "event"}

VERDICT = {
    "outcome": "refuse",
    "execute": None,
    "arm": "hold",
    "weights": {"latency-critical": 1},
    "rule": "step",
    "reason": "because",
    "propensity": 0.123,
    "deadline": 1,
    "changes_left": 77,
    "previous_weights": {"latency-critical": 1},
    "would_refuse": ["step"],
    "canary_ratio": 0.5,
}
VERDICT_ELSEWHERE = {"settings": "0" * 12}
VERDICT_NOT = {"at", "breaker", "known", "mode"}
"""What it says of where the guard stood is what it is judged again from."""

REWARD = {
    "outcome": "censored",
    "reason": "late",
    "value": 0.123,
    "terms": {"move": 0.5},
    "arm": "hold",
    "propensity": 0.123,
    "policy": "step",
    "features": {"bias": 2.0},
    "features_schema": "another",
    "verdict": "clamp",
    "actuation": "held",
    "weights": {"latency-critical": 1},
}
REWARD_ELSEWHERE = {"settings": "0" * 12}
REWARD_NOT = {"at"}

FIELDS = [
    (kind, name, value)
    for kind, table in (("action", ACTION), ("verdict", VERDICT), ("reward", REWARD))
    for name, value in table.items()
]


def test_the_cycle_has_all_that_can_be_changed(tape):
    verdict = tape.messages("verdict")[tape.find("verdict", CYCLE)]
    reward = tape.messages("reward")[tape.find("reward", CYCLE)]
    assert verdict.execute
    assert (reward.outcome, reward.actuation) == ("joined", "applied")
    assert CYCLE not in (*PLAN.late, *PLAN.restarts)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (Action, {*ACTION, *ACTION_ELSEWHERE, *ACTION_NOT}),
        (Verdict, {*VERDICT, *VERDICT_ELSEWHERE, *VERDICT_NOT}),
        (Reward, {*REWARD, *REWARD_ELSEWHERE, *REWARD_NOT}),
    ],
)
def test_no_field_is_left_out(kind, known):
    assert {*kind.__struct_fields__} - TOLD <= known


@pytest.mark.parametrize(("kind", "name", "value"), FIELDS, ids=[f"{kind}.{name}" for kind, name, _ in FIELDS])
def test_a_changed_field_is_found_and_both_are_named(tape, kind, name, value):
    index = tape.find(kind, CYCLE)

    def change(fields):
        fields[name] = (not fields[name]) if isinstance(fields[name], bool) else value

    report, found = tape.changed(index, change).replayed()
    assert not report.agrees
    of_it = next(one for one in found if (one.kind, one.cycle) == (kind, CYCLE))
    assert any(path == name or path.startswith(f"{name}.") for path, _, _ in of_it.fields)
    assert of_it.recorded != of_it.replayed
    assert report.counts[kind].differ >= 1


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("action", name, value) for name, value in ACTION_ELSEWHERE.items()]
    + [("verdict", "settings", "0" * 12), ("reward", "settings", "0" * 12)],
)
def test_a_changed_name_of_what_it_began_from_is_said(tape, kind, name, value):
    report, _ = tape.changed(tape.find(kind, CYCLE), lambda fields: fields.update({name: value})).replayed()
    assert not report.agrees or report.models_unverified > 0
    assert report.counts[kind].not_replayed or report.models_unverified


@pytest.mark.parametrize(
    ("kind", "name", "value"), [("action", "at", 7), ("action", "decide_seconds", 7.0), ("reward", "at", 7)]
)
def test_times_that_were_measured_on_the_node_are_not_compared(tape, kind, name, value):
    report, found = tape.changed(tape.find(kind, CYCLE), lambda fields: fields.update({name: value})).replayed()
    assert found == []
    assert report.agrees


def test_the_last_bit_of_a_number_is_seen(tape):
    index = tape.find("reward", CYCLE)

    def change(fields):
        fields["value"] = math.nextafter(fields["value"], 1.0)

    report, found = tape.changed(index, change).replayed()
    assert ("reward", CYCLE) in [(one.kind, one.cycle) for one in found]
    assert not report.agrees


@pytest.mark.parametrize(("name", "value"), [("actuation", None), ("terms", {})])
def test_a_rewarder_that_says_it_had_not_heard_what_came_long_before_is_not_believed(tape, name, value):
    """In a cycle that is not learned from anyway, so that nothing else would follow from it."""
    index = tape.find("reward", PLAN.late[0])
    assert tape.messages("reward")[index].reason == "late"
    report, found = tape.changed(index, lambda fields: fields.update({name: value})).replayed()
    (only,) = found
    assert {path.partition(".")[0] for path, _, _ in only.fields} == {name}
    assert not report.agrees


def test_what_came_only_just_before_the_reward_may_not_have_been_heard(tape):
    index = tape.find("reward", PLAN.late[0])
    after = tape.find("after", PLAN.late[0])
    stored_ns = tape.items[index].stored_ns
    before = tape.find("before", PLAN.late[0])
    late = tape.with_item(after, msgspec.structs.replace(tape.items[after], stored_ns=stored_ns - 1_000_000))
    unheard = late.changed(index, lambda fields: fields.update({"terms": {}}))
    assert not unheard.replayed()[0].agrees  # nobody waited for it long enough to have missed it
    began = msgspec.structs.replace(tape.items[before], stored_ns=stored_ns - 3_600_000_000)
    assert unheard.with_item(before, began).replayed()[0].agrees


def test_the_order_of_keys_is_part_of_the_bytes(tape):
    def change(fields):
        fields["features"] = dict(reversed(fields["features"].items()))

    report, found = tape.changed(tape.find("reward", CYCLE), change).replayed()
    assert [path for path, _, _ in found[0].fields] == ["features (order of keys)"]
    assert not report.agrees


def more(payload: bytes, text: bytes) -> bytes:
    return payload.removesuffix(b"}") + b"," + text + b"}"


SAME = "the same message in other bytes: "


@pytest.mark.parametrize("kind", ["action", "verdict", "reward"])
@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda raw: more(raw, b'"approved_by":"ceo"'),
            "a field that this release does not know: approved_by",
        ),
        (lambda raw: more(raw, b'"a":1,"b":null'), "fields that this release does not know: a, b"),
        (lambda raw: raw.replace(b":", b": ", 1), "spaces, or another way to write the same text"),
        (lambda raw: raw + b"\n", "spaces, or another way to write the same text"),
        (lambda raw: raw.replace(b'"simulated"', b'"simul\\u0061ted"', 1), "spaces, or another way"),
        (lambda raw: more(raw, b'"node":"simulated"'), "spaces, or another way to write the same text"),
    ],
)
def test_the_same_message_in_other_bytes_is_a_difference_of_its_own_kind(tape, kind, write, words):
    index = tape.find(kind, CYCLE)
    item = tape.items[index]
    payload = write(item.payload)
    assert decode(payload) == decode(item.payload)
    report, (found,) = tape.with_item(index, msgspec.structs.replace(item, payload=payload)).replayed()
    assert (found.kind, found.cycle) == (kind, CYCLE)
    assert found.words.startswith(SAME + words)
    assert found.words in str(found)
    assert found.recorded.encode() == payload
    assert found.replayed.encode() == item.payload
    assert report.counts[kind].differ == 1
    assert not report.agrees


@pytest.mark.parametrize("value", [b'"\xff"', b"1e999"])
def test_what_nobody_can_read_in_an_unknown_field_is_said(tape, value):
    index = tape.find("reward", CYCLE)
    item = tape.items[index]
    _, (found,) = tape.with_item(
        index, msgspec.structs.replace(item, payload=more(item.payload, b'"x":' + value))
    ).replayed()
    assert found.words == f"{SAME}a field that this release does not know, and whose value it cannot read"
    assert found.recorded == found.replayed == item.payload.decode()


def test_other_bytes_name_what_is_not_there_and_what_is_written_otherwise(tape):
    index = tape.find("action", CYCLE)
    item = tape.items[index]
    fields = msgspec.json.decode(item.payload)
    assert fields.pop("event") is None
    fields["propensity"] = int(fields["propensity"]) if fields["propensity"] == 1.0 else fields["propensity"]
    payload = msgspec.json.encode(dict(reversed(fields.items())))
    _, (found,) = tape.with_item(index, msgspec.structs.replace(item, payload=payload)).replayed()
    assert found.words.startswith(f"{SAME}a field that this release writes is not there: event")
    payload = msgspec.json.encode(dict(reversed(msgspec.json.decode(item.payload).items())))
    _, (found,) = tape.with_item(index, msgspec.structs.replace(item, payload=payload)).replayed()
    assert found.words == f"{SAME}written another way:  (order of keys)"


def test_a_difference_that_means_something_has_no_words_of_other_bytes_and_names_unknown_fields_too(tape):
    index = tape.find("reward", CYCLE)
    changed = tape.changed(index, lambda fields: fields.update({"value": 0.123, "approved_by": "ceo"}))
    found = next(one for one in changed.replayed()[1] if one.kind == "reward")
    assert found.words == ""
    assert [path for path, _, _ in found.fields] == ["value", "approved_by"]


@pytest.mark.parametrize("outcome", ["allow", "hold"])
def test_another_mode_is_found_by_what_follows_from_it(tape, outcome):
    """From the verdict itself, if that executed; and from what the decider says that it heard."""
    verdicts = tape.messages("verdict")
    index = next(index for index, verdict in verdicts.items() if verdict.outcome == outcome and verdict.cycle > 25)
    report, found = tape.changed(index, lambda fields: fields.update({"mode": "shadow"})).replayed()
    cycle = verdicts[index].cycle
    kinds = {(one.kind, one.cycle) for one in found}
    assert ("action", cycle + 1) in kinds
    assert (("verdict", cycle) in kinds) == (outcome == "allow")
    heard = next(one for one in found if one.kind == "action")
    assert ("heard_mode", '"active"', '"shadow"') in heard.fields
    assert not report.agrees


@pytest.mark.parametrize("name", ["before", "after"])
def test_what_was_seen_otherwise_gives_something_else(tape, name):
    def change(fields):
        fields["classes"]["batch"]["cpu_cores"] = 0.01
        fields["features"]["node.contended"] = 0.0
        fields["contention"]["contended"] = False
        fields["classes"]["latency-critical"]["latency"]["over_ratio"] = 1.0
        fields["classes"]["latency-critical"]["latency"]["p99_seconds"] = 3.0

    report, found = tape.changed(tape.find(name, CYCLE), change).replayed()
    assert found
    assert not report.agrees
