"""The streams and buckets, declared as data and made idempotently at start."""

import asyncio
from dataclasses import dataclass
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, KeyValueConfig, ObjectStoreConfig, StorageType, StoreCompression, StreamConfig
from nats.js.errors import APIError, BadRequestError, BucketNotFoundError, NotFoundError

from runtime.errors import BusError
from schemas.subjects import ROOT
from schemas.version import SCHEMA_VERSION

STATE: Final = "TRIMTAB_STATE"
AUDIT: Final = "TRIMTAB_AUDIT"
_DAY: Final = 86_400.0
_GIB: Final = 1 << 30


@dataclass(frozen=True)
class Stream:
    """One stream: what it captures and how long it keeps it. `append_only` denies delete and purge for good."""

    name: str
    kinds: tuple[str, ...]
    max_age_seconds: float
    max_bytes: int
    description: str
    append_only: bool = False

    def config(self) -> StreamConfig:
        """The declaration for the server."""
        return StreamConfig(
            name=self.name,
            description=self.description,
            subjects=[f"{ROOT}.{kind}.*" for kind in self.kinds],
            max_age=self.max_age_seconds,
            max_bytes=self.max_bytes,
            storage=StorageType.FILE,
            compression=StoreCompression.S2,
            discard=DiscardPolicy.OLD,
            duplicate_window=120.0,
            deny_delete=self.append_only,
            deny_purge=self.append_only,
            metadata={"schema": f"v{SCHEMA_VERSION}"},
        )


STREAMS: Final = (
    Stream(STATE, ("state",), 7 * _DAY, _GIB, "What collectors saw"),
    Stream(
        AUDIT,
        ("action", "verdict", "actuation", "reward", "command"),
        90 * _DAY,
        2 * _GIB,
        "What was proposed, judged, done and learned",
        append_only=True,
    ),
)
KEY_VALUES: Final = {"trimtab-mode": "The agent's mode, by node", "trimtab-policy": "Which model is in force, by node"}
OBJECTS: Final = {"trimtab-models": "Model snapshots: plain arrays, never pickles"}


def _differs(wanted: StreamConfig, found: StreamConfig) -> bool:
    return (
        sorted(wanted.subjects or []) != sorted(found.subjects or [])
        or wanted.max_age != found.max_age
        or wanted.max_bytes != found.max_bytes
    )


async def _ensure_stream(js: JetStreamContext, stream: Stream) -> None:
    wanted = stream.config()
    try:
        found = (await js.stream_info(stream.name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        return
    if _differs(wanted, found):
        await js.update_stream(wanted)


async def ensure_streams(js: JetStreamContext, timeout_seconds: float = 10.0) -> None:
    """Makes every declared stream and bucket that is missing and updates limits that differ. Safe to call from many
    processes at once. Raises BusError with the server's words and the way out.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            for stream in STREAMS:
                await _ensure_stream(js, stream)
            for name, description in KEY_VALUES.items():
                await _ensure_key_value(js, name, description)
            for name, description in OBJECTS.items():
                try:
                    await js.object_store(name)
                except (BucketNotFoundError, NotFoundError):
                    await js.create_object_store(name, config=ObjectStoreConfig(bucket=name, description=description))
    except APIError as error:
        raise BusError(
            f"streams: the server refused: {error.description or error}; "
            f"check JetStream's storage limits and this account's permissions"
        ) from error
    except (TimeoutError, Exception) as error:
        if isinstance(error, BusError):
            raise
        raise BusError(
            f"streams: no answer from JetStream ({type(error).__name__}); start the server with JetStream (-js), "
            f"and allow this account $JS.API.>"
        ) from error


async def _ensure_key_value(js: JetStreamContext, name: str, description: str) -> None:
    try:
        await js.key_value(name)
    except (BucketNotFoundError, NotFoundError):
        try:
            await js.create_key_value(KeyValueConfig(bucket=name, description=description, history=8))
        except BadRequestError:
            await js.key_value(name)  # another process made it in between
