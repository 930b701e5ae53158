"""Bytes to messages and back. The only place where a message is parsed; a bad one costs a `DecodeError`, no more."""

import math
from typing import Final, TypeVar

import msgspec

from schemas.messages import AnyMessage
from schemas.subjects import kind_of, subject_of
from schemas.version import SCHEMA_VERSION

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Largest message sent or read, in bytes: under the NATS default `max_payload` of 1 MiB with room for headers."""

M = TypeVar("M", bound=AnyMessage)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)


class DecodeError(ValueError):
    """Bytes that are no message of this schema version; the text says what is wrong with them."""


class EncodeError(ValueError):
    """A message that must not leave the process: a number no reader takes, text that is not Unicode, too many bytes."""


def encode(message: AnyMessage) -> bytes:
    """The message as JSON bytes. Raises EncodeError for NaN, infinity, text with lone surrogates or more than
    MAX_MESSAGE_BYTES.
    """
    try:
        raw = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{type(message).__name__}: {error}") from error
    if len(raw) > MAX_MESSAGE_BYTES:
        raise EncodeError(f"{type(message).__name__} has {len(raw)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    where = non_finite(msgspec.structs.asdict(message))
    if where is not None:
        raise EncodeError(f"{type(message).__name__}.{where} is not finite")
    return raw


def decode(raw: bytes) -> AnyMessage:
    """The message in `raw`. Raises DecodeError for anything else, an unknown kind or another schema version."""
    if len(raw) > MAX_MESSAGE_BYTES:
        raise DecodeError(f"message of {len(raw)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    try:
        message = _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(str(error)) from error
    if message.schema != SCHEMA_VERSION:
        raise DecodeError(f"schema version {message.schema}, this process reads {SCHEMA_VERSION}")
    if not message.boot or not message.node:
        raise DecodeError("node and boot must not be empty")
    return message


def decode_on(subject: str, raw: bytes) -> AnyMessage:
    """The message in `raw`, heard or stored on `subject`. Raises DecodeError as `decode` does, and for a message that
    belongs on another subject: who may say one kind of one node must not be believed another.
    """
    message = decode(raw)
    try:
        own = subject_of(message)
    except ValueError as error:
        raise DecodeError(str(error)) from error
    if own != subject:
        raise DecodeError(f"it is of kind {kind_of(message)} and of node {message.node}, which belongs on {own}")
    return message


def decode_as(raw: bytes, kind: type[M]) -> M:
    """The message in `raw` if it is a `kind`; DecodeError otherwise."""
    message = decode(raw)
    if not isinstance(message, kind):
        raise DecodeError(f"a {type(message).__name__} where a {kind.__name__} was expected")
    return message


def non_finite(value: object, path: str = "") -> str | None:
    """Where inside nested structs, mappings and sequences the first NaN or infinity sits, or None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        for key, item in value.items():
            if (found := non_finite(item, f"{path}.{key}" if path else str(key))) is not None:
                return found
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            if (found := non_finite(item, f"{path}[{index}]")) is not None:
                return found
    return None
