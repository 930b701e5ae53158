"""The models that actions name, taken along from the server's objects where it still has them."""

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


class _Named(msgspec.Struct, frozen=True):
    """What of an action names a model."""

    model: str = ""


_named: Final = msgspec.json.Decoder(_Named)


def model_named(action: bytes) -> str:
    """The digest that an action names; empty where it names none, or cannot be read: whoever reads it says why."""
    try:
        return _named.decode(action).model
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


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
