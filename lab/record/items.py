"""The items of a recording: what the streams kept, what they no longer had, and what is needed to make sense of it.

On the file an item is a msgpack array that begins with its tag (docs/recording.md). New fields go last and have a
default. `Damage` is never written: it is what a reader says in the place of what it could not read.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from schemas.version import SCHEMA_VERSION

FORMAT: Final = 1
"""Version of the file format. A reader refuses a newer one."""


class Item(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Base of all items."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One whole configuration as plain values without secrets, `{"shared": …, "decider": …, …}`; `fingerprints` by
    service: `schemas.settings.settings_digest` of the shared settings and its own, as its messages carry them.
    """

    values: dict[str, object]
    fingerprints: dict[str, str]


class Header(Item, frozen=True, kw_only=True, tag="header"):
    """What a recording is of. `node` is the only node recorded, or None for all; `since_ns` from when on, in
    nanoseconds since the Unix epoch, or None for all that the streams had. `versions` are those of the libraries that
    the numbers depend on. A resumed recording that knows of other settings has one more.
    """

    format: int = FORMAT
    schema: int = SCHEMA_VERSION
    trimtab: str = ""
    made_at: int = 0
    node: str | None = None
    since_ns: int | None = None
    streams: tuple[str, ...] = ()
    settings: tuple[Settings, ...] = ()
    versions: dict[str, str] = {}


class Stored(Item, frozen=True, kw_only=True, tag="stored"):
    """One message as `stream` kept it under `sequence`: `payload` are its bytes as on the wire, `stored_ns` is the
    server's wall time in nanoseconds since the Unix epoch.
    """

    stream: str
    sequence: int
    stored_ns: int
    subject: str
    payload: bytes


class Gap(Item, frozen=True, kw_only=True, tag="gap"):
    """Messages `first` to `last` of `stream` were gone before they were read. `exact`: all of them are missing. Not
    exact, where one node was recorded: any of them may have been other nodes'.
    """

    stream: str
    first: int
    last: int
    exact: bool
    reason: str


class ModelCopy(Item, frozen=True, kw_only=True, tag="model"):
    """The model object that an action, or a model that goes on from it, names by `digest`. `payload` is None where the
    store does not have it (`reason`).
    """

    digest: str
    payload: bytes | None = None
    reason: str | None = None


class Closed(Item, frozen=True, kw_only=True, tag="closed"):
    """The recorder ended in an orderly way here; how many messages the file holds so far, by stream."""

    messages: dict[str, int]


AnyItem: TypeAlias = Header | Stored | Gap | ModelCopy | Closed

DamageKind: TypeAlias = Literal["changed", "missing", "misplaced", "unreadable", "torn", "unclosed"]


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot be read, in the place where it should be. Its neighbours in the sequence are no neighbours.

    `block` is the first block hit, counted from 0, `offset` the byte where it begins. `before` is the last sequence of
    each stream that was read before it, `after` the first that what follows may hold: what lies between is lost.
    Without `after` nothing follows.

    Kinds: `changed` (bytes differ from what was written), `missing` (blocks or messages), `misplaced` (a block or a
    message that belongs before; it is left out), `unreadable` (as written, but no items that this release reads),
    `torn` (the last block is incomplete), `unclosed` (nothing is damaged, but the recorder did not end in an orderly
    way, or has not yet: always the last entry).
    """

    kind: DamageKind
    block: int
    offset: int
    reason: str
    before: dict[str, int] = {}
    after: dict[str, int] = {}

    def __str__(self) -> str:
        """One line: where, what, which sequences."""
        text = f"block {self.block} at byte {self.offset}: {self.reason}"
        lost = lost_between(self.before, self.after)
        return f"{text}; lost: {lost}" if lost else text


Entry: TypeAlias = AnyItem | Damage
"""What a reader hands out."""


def lost_between(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The sequences that lie between, by stream, for people."""
    parts = []
    for stream in sorted({*before, *after}):
        first, last = before.get(stream, 0) + 1, after.get(stream, 0) - 1
        if stream not in after:
            continue
        if first == last:
            parts.append(f"{stream} {first}")
        elif first < last:
            parts.append(f"{stream} {first} to {last}" if stream in before else f"{stream} up to {last}")
    return ", ".join(parts)
