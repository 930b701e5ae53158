"""Owns the saved form of a policy: plain numbers under a header that says what they mean. Never a pickle.

A snapshot fits only the model that wrote it: same policy and version of its code, same features, same arms, same
settings that give the numbers their meaning, same River. Anything else is a `SnapshotMismatch`, raised before a single
number has been taken over, so that there is no half-used state: the caller sets the snapshot aside and starts fresh.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

SNAPSHOT_VERSION: Final = 1
"""Version of the header. Numbers are versioned per policy (`policy_version`)."""


class SnapshotMismatch(Exception):
    """A snapshot that this policy cannot take over. `reason` is a short constant word for a metric label.

    Reasons: damaged, version, policy, policy_version, features, arms, model, river, shape.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


class DamagedPrior(ValueError):
    """The file of the warm start is not one. The text is one line: which file, and what is wrong with it."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal on both sides before numbers are taken over.

    `model` is a fingerprint of the settings that give the numbers their meaning (see `fingerprint`); `river` is empty
    for policies that do not use River.
    """

    policy: str
    policy_version: int
    features_schema: str
    arms: tuple[str, ...]
    model: str
    river: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy's learned state. Every entry of `numbers` is a flat list of finite floats, matrices row by row."""

    version: int
    identity: Identity
    updates: int
    numbers: dict[str, list[float]]

    def require(self, own: Identity, shapes: Mapping[str, int]) -> None:
        """Raises SnapshotMismatch unless header and shapes (name → length of its list) fit `own`."""
        if self.version != SNAPSHOT_VERSION:
            raise SnapshotMismatch("version", f"snapshot format {self.version}, this release reads {SNAPSHOT_VERSION}")
        theirs = self.identity
        for reason, saved, wanted in (
            ("policy", theirs.policy, own.policy),
            ("policy_version", theirs.policy_version, own.policy_version),
            ("features", theirs.features_schema, own.features_schema),
            ("arms", theirs.arms, own.arms),
            ("model", theirs.model, own.model),
            ("river", theirs.river, own.river),
        ):
            if saved != wanted:
                raise SnapshotMismatch(reason, f"saved with {saved!r}, this policy has {wanted!r}")
        lengths = {name: len(values) for name, values in self.numbers.items()}
        if lengths != dict(shapes):
            raise SnapshotMismatch("shape", f"lists of {lengths}, expected {dict(shapes)}")
        if self.updates < 0:
            raise SnapshotMismatch("damaged", f"{self.updates} updates")


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as JSON bytes; floats survive the round trip bit for bit."""
    return msgspec.json.encode(snapshot)


def decode_snapshot(raw: bytes) -> Snapshot:
    """The snapshot in `raw`. Raises SnapshotMismatch (`damaged`) for truncated or foreign bytes and for NaN (null)."""
    try:
        return msgspec.json.decode(raw, type=Snapshot)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SnapshotMismatch("damaged", str(error)) from error


def fingerprint(*parts: Sequence[object] | Mapping[str, object] | str | float) -> str:
    """A short id of plain values and their order; mappings count by key, not by insertion order."""
    raw = msgspec.json.encode(parts, order="deterministic")
    return hashlib.sha256(raw).hexdigest()[:12]
