"""Owns the stored form of a mind: a versioned object of plain values with its origin. Never a pickle.

Its name is its digest: what an action calls its `model` can be fetched, checked and loaded, here and in a replay.
"""

import hashlib
from typing import Final

import msgspec

from services.decider.core.mind import MindState
from services.decider.core.snapshot import SnapshotMismatch

MODEL_VERSION: Final = 1

MOST_BYTES: Final = 64 * 1024 * 1024
"""Largest model that is read. One policy of the default grid takes 160 kB."""


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mind as it was at one moment, and where it came from.

    `run` is the decider's run that stored it, `why` the word for the occasion (`start`, `checkpoint`, `stop`,
    `promotion`, `demotion`, `order`). `parent` is the digest of the model that the run went on from, None if it began
    fresh; `lessons` how many rewards it learned since that. `settings` is the fingerprint of the decider's settings,
    `features_schema` that of the features. `made_at` is in nanoseconds since the Unix epoch. `order` is the id of the
    last order of a model that was obeyed; a model that was stored for one has in `replaced` the digest of what was in
    force before it.
    """

    version: int
    node: str
    run: str
    why: str
    made_at: int
    parent: str | None
    lessons: int
    settings: str
    features_schema: str
    trimtab: str
    python: str
    river: str
    prior: str
    mind: MindState
    order: str | None = None
    replaced: str | None = None


def encode_model(model: Model) -> tuple[str, bytes]:
    """The digest (SHA-256, 64 hex digits) and the JSON bytes that have it; floats survive bit for bit."""
    raw = msgspec.json.encode(model)
    return hashlib.sha256(raw).hexdigest(), raw


def decode_model(raw: bytes, digest: str) -> Model:
    """The model in `raw`. Raises SnapshotMismatch: `damaged` where the bytes are not those of the digest or no model,
    `version` for another release's format.
    """
    if len(raw) > MOST_BYTES:
        raise SnapshotMismatch("damaged", f"{len(raw)} bytes, the limit is {MOST_BYTES}")
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise SnapshotMismatch("damaged", f"its bytes have the digest {found[:12]}, its name says {digest[:12]}")
    try:
        version = msgspec.json.decode(raw, type=_Versioned).version
        if version != MODEL_VERSION:
            raise SnapshotMismatch("version", f"model format {version}, this release reads {MODEL_VERSION}")
        return msgspec.json.decode(raw, type=Model)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SnapshotMismatch("damaged", str(error)) from error


class _Versioned(msgspec.Struct, frozen=True):
    version: int
