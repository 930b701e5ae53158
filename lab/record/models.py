"""The models that actions name, and those that these come of, taken along from the server where it has them."""

import hashlib
import re
from typing import Final, Protocol, runtime_checkable

import msgspec

from lab.record.items import ModelCopy
from runtime.errors import BusError

MODELS: Final = "trimtab-models"
MOST_MODEL_BYTES: Final = 32 << 20
"""Largest model that is taken along: a reader holds a block with it in memory."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class Objects(Protocol):
    """A bus that reads objects too."""

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        """The object, or None where the bucket has none of that name. BusError when the server does not answer."""
        ...


class Origin(msgspec.Struct, frozen=True):
    """What of a stored model says where it came from (services/decider/core/model.py)."""

    run: str = ""
    why: str = ""
    parent: str | None = None
    replaced: str | None = None
    order: str | None = None

    @property
    def digests(self) -> list[str]:
        """The models that it was made of."""
        return [digest for digest in dict.fromkeys((self.parent, self.replaced)) if digest]


_origin: Final = msgspec.json.Decoder(Origin)

_ANEW: Final = ("start", "order")
"""Why a model is stored that goes on from another one than the mind that was there."""


def origin_of(payload: bytes | None) -> Origin | None:
    """What a model in these bytes says; None where they are not there, or are no model."""
    try:
        return _origin.decode(payload or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def behind(payload: bytes | None, run: str | None) -> tuple[str, list[str]]:
    """The run of a model, and the models that are needed to see that it follows from them. `run` is that of the model
    that led to this one, None if an action did: within the start of one run, or from one order to the next, models are
    stored that no action names.
    """
    origin = origin_of(payload)
    if origin is None:
        return "", []
    is_asked = origin.why in _ANEW if run is None else origin.run == run
    return origin.run, origin.digests if is_asked else []


async def copy_model(bus: object, token: str, digest: str) -> ModelCopy:
    """The model of a node by its digest, or why there is none; `token` is the node's in subjects."""
    if not isinstance(bus, Objects):
        return ModelCopy(digest=digest, reason="this bus has no objects")
    if _DIGEST.fullmatch(digest) is None:
        return ModelCopy(digest=digest, reason="its name is no digest")
    try:
        payload = await bus.get_object(MODELS, f"{token}/{digest}")
    except BusError as error:
        return ModelCopy(digest=digest, reason=str(error))
    reason = _what_is_wrong(payload, digest)
    return ModelCopy(digest=digest, payload=payload if reason is None else None, reason=reason)


def _what_is_wrong(payload: bytes | None, digest: str) -> str | None:
    if payload is None:
        return f"{MODELS} does not have it"
    if len(payload) > MOST_MODEL_BYTES:
        return f"it has {len(payload)} bytes, the limit is {MOST_MODEL_BYTES}"
    if hashlib.sha256(payload).hexdigest() != digest:  # an object may be half there
        return f"{MODELS} has other bytes under its name"
    return None
