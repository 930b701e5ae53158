import json

import msgspec
import pytest

from schemas.codec import MAX_MESSAGE_BYTES, DecodeError, EncodeError, decode, decode_as, decode_on, encode
from schemas.messages import Action, ClassState, Heartbeat, Latency, Reward, State, Verdict
from schemas.subjects import KINDS as SPOKEN
from schemas.subjects import subject, subject_of
from tests.unit.schemas.test_recorded import KINDS, recorded

IDENTITY = {"node": "node-1", "boot": "b", "cycle": 1, "at": 1}


def changed(kind: str, **fields: object) -> bytes:
    """A recorded message with some fields replaced; `...` removes one."""
    whole = {**json.loads(recorded(kind)), **fields}
    return json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()


# ---- MS-02: position carries no meaning, and another version is never misread ----


def test_ms_02_a_reordered_fields_keep_their_values():
    fields = json.loads(recorded("reward"))
    reordered = json.dumps(dict(reversed(fields.items()))).encode()
    assert decode(reordered) == decode(recorded("reward"))


def test_ms_02_b_an_old_recording_read_by_a_later_struct_takes_the_new_default():
    class LaterReward(Reward, frozen=True, kw_only=True, tag="reward"):
        weight: int = 100

    later = msgspec.json.decode(recorded("reward"), type=LaterReward)
    assert later.weight == 100
    assert (later.value, later.propensity, later.arm) == (-0.31, 0.95, "10-3-1")


def test_ms_02_c_a_field_that_older_writers_lack_is_an_error_not_a_shift():
    class InsertedReward(Reward, frozen=True, kw_only=True, tag="reward"):
        weight: float

    with pytest.raises(msgspec.ValidationError, match="weight"):
        msgspec.json.decode(recorded("reward"), type=InsertedReward)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_ms_02_another_schema_version_is_refused_by_name(version):
    with pytest.raises(DecodeError, match=f"schema version {version}, this process reads 1"):
        decode(changed("reward", schema=version))


# ---- MS-03 ----


@pytest.mark.parametrize("kind", KINDS)
def test_ms_03_a_a_field_of_a_newer_writer_is_ignored(kind):
    assert decode(changed(kind, psi=0.4, nested={"deep": [1, {"a": None}]})) == decode(recorded(kind))


def test_ms_03_a_unknown_fields_are_ignored_inside_too():
    fields = json.loads(recorded("state"))
    fields["classes"]["latency-critical"]["latency"]["p999_seconds"] = 0.4
    fields["pods"][0]["numa_node"] = 1
    assert decode(json.dumps(fields).encode()) == decode(recorded("state"))


def test_ms_03_b_an_old_writer_without_an_optional_field_leaves_its_default():
    assert decode_as(changed("verdict", changes_left=..., deadline=...), Verdict).deadline is None
    assert decode_as(recorded("action"), Action).context == {}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("action", "weights", {"batch": 50.0}),
        ("action", "weights", {"batch": "50"}),
        ("action", "weights", {"batch": True}),
        ("verdict", "weights", {"batch": 50.0}),
        ("command", "weights", {"batch": 49.6}),
        ("state", "cycle", 17.0),
        ("verdict", "execute", 1),
        ("verdict", "mode", "reckless"),
        ("state", "classes", {"batch": {"judged_by": "guesswork"}}),
    ],
)
def test_ms_03_d_a_value_of_another_type_is_a_decode_error_that_names_the_field(kind, field, value):
    with pytest.raises(DecodeError, match=field):
        decode(changed(kind, **{field: value}))


@pytest.mark.parametrize("tag", ["rollback", "STATE", "", None, 3, ...])
def test_ms_03_e_an_unknown_kind_is_a_decode_error(tag):
    with pytest.raises(DecodeError):
        decode(changed("actuation", type=tag))


@pytest.mark.parametrize("weight", [0, -3, 10_001, 38_144])
def test_ms_03_f_messages_carry_weights_unchecked_so_that_the_guard_must_look(weight):
    proposed = Action(**IDENTITY, policy="p", arm="a", weights={"batch": weight})
    assert decode_as(encode(proposed), Action).weights == {"batch": weight}


# ---- what no process may say ----


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda x: Action(**IDENTITY, policy="p", arm="a", propensity=x), "Action.propensity"),
        (lambda x: Action(**IDENTITY, policy="p", arm="a", context={"lost": x}), "Action.context.lost"),
        (lambda x: Reward(**IDENTITY, outcome="joined", terms={"moving": 0.0, "broken": x}), "Reward.terms.broken"),
        (
            lambda x: State(**IDENTITY, phase="before", classes={"batch": ClassState(latency=Latency(p99_seconds=x))}),
            "State.classes.batch.latency.p99_seconds",
        ),
    ],
)
def test_a_number_that_is_not_finite_never_leaves_and_is_located(build, where, number):
    with pytest.raises(EncodeError, match=where):
        encode(build(number))


def test_text_that_is_not_unicode_is_an_encode_error():
    with pytest.raises(EncodeError, match="Heartbeat"):
        encode(Heartbeat(**IDENTITY, service="\ud800"))


def test_a_message_over_the_limit_neither_leaves_nor_is_read():
    big = Action(**IDENTITY, policy="p" * MAX_MESSAGE_BYTES, arm="a")
    with pytest.raises(EncodeError, match="the limit is 1000000"):
        encode(big)
    with pytest.raises(DecodeError, match="the limit is 1000000"):
        decode(msgspec.json.encode(big))


def test_a_message_at_the_limit_goes_through():
    room = MAX_MESSAGE_BYTES - len(encode(Action(**IDENTITY, policy="", arm="a")))
    largest = Action(**IDENTITY, policy="p" * room, arm="a")
    assert decode(encode(largest)) == largest


# ---- what no message may do to a reader ----


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"type":"heartbeat","service":"\xff","node":"n","boot":"b","cycle":1,"at":1}',
        b"[" * 100_000,
        b'{"type":"heartbeat","x":' + b"[" * 100_000,
        b'{"type":"state","phase":"before","window_seconds":1e999,"node":"n","boot":"b","cycle":1,"at":1}',
        b'{"type":"state","phase":"before","window_seconds":NaN,"node":"n","boot":"b","cycle":1,"at":1}',
    ],
    ids=range(10),
)
def test_bytes_that_are_no_message_cost_a_decode_error(raw):
    with pytest.raises(DecodeError):
        decode(raw)


@pytest.mark.parametrize(
    "fields",
    [{"node": ""}, {"boot": ""}, {"cycle": -1}, {"at": 10**400}, {"at": 2**63}, {"cycle": 2**63}, {"node": ...}],
    ids=str,
)
def test_a_message_without_a_usable_identity_is_refused(fields):
    with pytest.raises(DecodeError):
        decode(changed("heartbeat", **fields))


def test_a_whole_number_that_no_float_can_hold_is_refused_where_it_is_read():
    with pytest.raises(DecodeError, match="requests"):
        decode(
            b'{"type":"state","phase":"before","node":"n","boot":"b","cycle":1,"at":1,"classes":{"batch":'
            b'{"latency":{"requests":' + b"9" * 400 + b"}}}}"
        )


def test_another_kind_than_expected_is_named():
    with pytest.raises(DecodeError, match="a Verdict where a Action was expected"):
        decode_as(recorded("verdict"), Action)


# ---- what is said on a subject must belong there ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_read_on_its_own_subject_and_on_no_other(kind):
    raw = recorded(kind)
    message = decode(raw)
    own = subject_of(message)
    assert decode_on(own, raw) == message
    foreign = {subject(other, message.node) for other in SPOKEN} | {subject_of(decode(changed(kind, node="other")))}
    for other in (*sorted(foreign - {own}), f"{own}.more", own.replace("trimtab", "trimtabsim"), ""):
        with pytest.raises(DecodeError, match=f"of node {message.node}, which belongs on {own}$"):
            decode_on(other, raw)


def test_a_node_whose_name_can_be_no_subject_is_an_error_of_the_message():
    with pytest.raises(DecodeError, match="DNS-1123"):
        decode_on("trimtab.v1.reward.x", changed("reward", node="a b"))
