"""Messages that version 1 wrote must stay readable: nothing renamed, nothing moved, nothing newly required."""

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from schemas.codec import decode, encode
from schemas.messages import AnyMessage, ClassState, Latency, Message
from schemas.objective import is_violated
from schemas.settings import DEFAULT_CLASSES

RECORDED = Path(__file__).parent / "recorded_v1"
KINDS = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyMessage)}
IDENTITY = {"node": "node-1", "boot": "b", "cycle": 1, "at": 1}
REQUIRED = {
    "state": {"phase": "before"},
    "action": {"policy": "linucb", "arm": "hold"},
    "verdict": {"outcome": "allow", "execute": True, "mode": "active"},
    "actuation": {"outcome": "applied"},
    "reward": {"outcome": "joined"},
    "command": {"verb": "restore", "by": "guard", "reason": "blind"},
    "collect": {},
    "heartbeat": {"service": "guard"},
}


def recorded(kind: str) -> bytes:
    return (RECORDED / f"{kind}.json").read_bytes()


def lost(old: object, new: object, path: str = "$") -> list[str]:
    """Where `new` misses something of `old` or holds it differently."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            at
            for key, value in old.items()
            for at in (lost(value, new[key], f"{path}.{key}") if key in new else [f"{path}.{key}"])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [at for i, (a, b) in enumerate(zip(old, new, strict=True)) for at in lost(a, b, f"{path}[{i}]")]
    return [] if old == new else [path]


def test_there_is_a_recording_of_every_kind():
    assert {path.stem for path in RECORDED.glob("*.json")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_message_decodes_with_every_value_in_its_place(kind):
    message = decode(recorded(kind))
    assert type(message) is KINDS[kind]
    assert lost(json.loads(recorded(kind)), json.loads(encode(message))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_version_1_did_not_require_is_not_required_now(kind):
    raw = json.dumps({"type": kind, **IDENTITY, **REQUIRED[kind]}).encode()
    assert type(decode(raw)) is KINDS[kind]


def test_a_recorded_state_is_judged_by_latency_though_its_classes_now_have_a_ceiling():
    seen = decode(recorded("state")).classes["latency-critical"]
    fresh = (seen.waited_ratio, seen.run_delay, seen.waited_source, seen.objective_pressure_ratio, seen.judged_by)
    assert fresh == (None, None, None, None, None)
    assert (seen.latency.source, seen.latency.pods) == (None, 0)
    assert is_violated(seen, DEFAULT_CLASSES["latency-critical"])
    fine = msgspec.structs.replace(seen, latency=msgspec.structs.replace(seen.latency, over_ratio=0.0))
    assert not is_violated(fine, DEFAULT_CLASSES["latency-critical"])


def test_fields_that_recordings_lack_come_last():
    seen = json.loads(recorded("state"))["classes"]["latency-critical"]
    for kind, known in ((ClassState, seen), (Latency, seen["latency"])):
        names = [field.name for field in msgspec.structs.fields(kind)]
        assert names[: len(known)] == list(known)


def test_ms_02_messages_are_objects_by_name_never_arrays_by_position():
    structs = [
        *KINDS.values(),
        *(sub for sub in msgspec.Struct.__subclasses__() if sub.__module__ == Message.__module__),
    ]
    assert len(structs) >= 13
    for kind in structs:
        assert not kind.__struct_config__.array_like, kind
        assert kind.__struct_config__.frozen, kind
        assert not kind.__struct_config__.forbid_unknown_fields, kind
