"""The streams and buckets, declared as data and made idempotently at start."""

import asyncio
from dataclasses import dataclass
from typing import Final

from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, KeyValueConfig, ObjectStoreConfig, StorageType, StoreCompression, StreamConfig
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError

from runtime.errors import BusError
from schemas.subjects import ROOT
from schemas.version import SCHEMA_VERSION

STATE: Final = "TRIMTAB_STATE"
AUDIT: Final = "TRIMTAB_AUDIT"
ORDERS: Final = "TRIMTAB_ORDERS"
MODELS: Final = "trimtab-models"
_DAY: Final = 86_400.0
_GIB: Final = 1 << 30
_PAUSES_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class Stream:
    """One stream: what it captures and how long it keeps it. An age of 0 is no limit, and so are -1 bytes;
    `max_per_subject` is how many messages it keeps of each node and kind, -1 for all. `append_only` denies delete and
    purge for good.
    """

    name: str
    kinds: tuple[str, ...]
    max_age_seconds: float
    max_bytes: int
    description: str
    append_only: bool = False
    max_per_subject: int = -1

    @property
    def subjects(self) -> list[str]:
        """What it captures, as patterns."""
        return [f"{ROOT}.{kind}.*" for kind in self.kinds]

    def config(self) -> StreamConfig:
        """The declaration for the server."""
        return StreamConfig(
            name=self.name,
            description=self.description,
            subjects=self.subjects,
            max_age=self.max_age_seconds,
            max_bytes=self.max_bytes,
            max_msgs_per_subject=self.max_per_subject,
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
        ("action", "verdict", "actuation", "reward"),
        90 * _DAY,
        2 * _GIB,
        "What was proposed, judged, done and learned",
        append_only=True,
    ),
    Stream(  # after the audit, which had the orders once: a subject has one stream
        ORDERS,
        ("command",),
        0.0,
        -1,
        "Who ordered what, and why: a mode holds until another one is ordered, however long ago that was",
        append_only=True,
        max_per_subject=10_000,
    ),
)
KEY_VALUES: Final = {
    "trimtab-mode": "The mode wished for, by node",
    "trimtab-policy": "Which model is in force, by node",
}
OBJECTS: Final = {MODELS: "What deciders have learned: plain arrays, never pickles"}
MOST_OBJECT_BYTES: Final = _GIB // 2
"""Room of a bucket of objects, unless an operator gave it another: whoever fills it leaves the orders theirs. Half a
GiB: 200 models of 75 kB of each of 35 nodes, and with the streams less than the 4 GiB of our server's configuration."""


def _differs(wanted: StreamConfig, found: StreamConfig) -> bool:
    return (
        sorted(wanted.subjects or []) != sorted(found.subjects or [])
        or wanted.max_age != found.max_age
        or wanted.max_bytes != found.max_bytes
        or wanted.max_msgs_per_subject != found.max_msgs_per_subject
        or bool(wanted.deny_delete) > bool(found.deny_delete)
        or bool(wanted.deny_purge) > bool(found.deny_purge)
    )


async def _ensure_stream(js: JetStreamContext, stream: Stream) -> None:
    wanted = stream.config()
    try:
        found = (await js.stream_info(stream.name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        return
    if _differs(wanted, found):  # replicas, placement and the rest stay as an operator has set them
        await js.update_stream(
            found.evolve(
                subjects=wanted.subjects,
                max_age=wanted.max_age,
                max_bytes=wanted.max_bytes,
                max_msgs_per_subject=wanted.max_msgs_per_subject,
                deny_delete=wanted.deny_delete,
                deny_purge=wanted.deny_purge,
            )
        )


async def ensure_streams(js: JetStreamContext, timeout_seconds: float = 10.0) -> None:
    """Makes every declared stream and bucket that is missing and updates limits that differ. Safe to call from many
    processes at once. Raises BusError with the server's words and the way out.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            await _until_agreed(js)
    except APIError as error:
        raise BusError(
            f"streams: the server refused: {error.description or error}; "
            f"check JetStream's storage limits and what this credential may do (`trimtab creds show DIR`)"
        ) from error
    except (TimeoutError, Error, OSError) as error:
        raise BusError(
            f"streams: no answer from JetStream ({type(error).__name__}); start the server with JetStream (-js), "
            f"where it has users, set bus.declare_streams: false and let `trimtab creds declare DIR` make the streams"
        ) from error


async def _until_agreed(js: JetStreamContext) -> None:
    """Others may declare the same at the same time: while two do, the server counts the space that one takes twice."""
    for pause in (*_PAUSES_SECONDS, None):
        try:
            for stream in STREAMS:
                await _ensure_stream(js, stream)
            for name, description in KEY_VALUES.items():
                await _ensure_key_value(js, name, description)
            for name, description in OBJECTS.items():
                await _ensure_object_store(js, name, description)
        except APIError:
            if pause is None:
                raise
            await asyncio.sleep(pause)
        else:
            return


async def _ensure_object_store(js: JetStreamContext, name: str, description: str) -> None:
    try:
        found = (await js.stream_info(f"OBJ_{name}")).config
    except NotFoundError:
        config = ObjectStoreConfig(bucket=name, description=description, max_bytes=MOST_OBJECT_BYTES)
        await js.create_object_store(name, config=config)
        return
    if (found.max_bytes or -1) < 0:
        await js.update_stream(found.evolve(max_bytes=MOST_OBJECT_BYTES))


async def _ensure_key_value(js: JetStreamContext, name: str, description: str) -> None:
    try:
        await js.key_value(name)
    except (BucketNotFoundError, NotFoundError):
        await js.create_key_value(KeyValueConfig(bucket=name, description=description, history=8))
