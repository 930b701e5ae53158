"""The bus as the services see it: a protocol of a few calls, so that tests run offline and NATS stays at one edge.

Control path: `publish` and `subscribe`, fresh or nothing. Learning path: `consume`, durable with explicit ack. Orders:
`publish_stored`, and `watch_entry` for those that are given as an entry of a key-value bucket. Models: objects.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,253}")


class Received(NamedTuple):
    """One message as it came off the wire."""

    subject: str
    payload: bytes


class Stored(NamedTuple):
    """One message as a stream keeps it. `stored_ns` is the server's wall time, in nanoseconds since the Unix epoch."""

    payload: bytes
    stored_ns: int


class Kept(NamedTuple):
    """One message with its place in the stream that keeps it; the first that a stream ever had is sequence 1."""

    sequence: int
    stored_ns: int
    subject: str
    payload: bytes


class Span(NamedTuple):
    """Messages of a stream in order: all that it has, from where was asked, up to the sequence `last`."""

    messages: list[Kept]
    last: int


class Extent(NamedTuple):
    """The first and the last sequence that a stream has now; of an empty one `first` is `last` + 1."""

    first: int
    last: int


class Entry(NamedTuple):
    """One value of a key in a bucket; `None` where the key was deleted. `revision` grows within the life of a bucket,
    `created_ns` is the server's wall time, in nanoseconds since the Unix epoch.
    """

    key: str
    value: bytes | None
    revision: int
    created_ns: int


Handler: TypeAlias = Callable[[Received], Awaitable[None]]
EntryHandler: TypeAlias = Callable[[Entry], Awaitable[None]]


class Subscription(Protocol):
    """A running subscription."""

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        ...


class Bus(Protocol):
    """A connection to the message bus."""

    @property
    def connected(self) -> bool:
        """Whether a publish would leave the process now."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and regained: what was said meanwhile was not heard."""
        ...

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Sends at once or raises BusDown: nothing is kept for a later connection. `msg_id` is for the stream's
        duplicate window; a duplicate still reaches live subscribers twice.
        """
        ...

    async def publish_stored(self, subject: str, payload: bytes, *, msg_id: str, stream: str) -> None:
        """Sends at once and returns when `stream` has it (a repeated `msg_id` counts). BusError when it does not say
        so: whoever listens may have heard it all the same.
        """
        ...

    async def subscribe(self, subject: str, handler: Handler, *, limit: int = 256) -> Subscription:
        """Calls `handler` for each message, one at a time; beyond `limit` waiting ones the newest are dropped and
        counted.
        """
        ...

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> Subscription:
        """Calls `handler` for each stored message from where this durable consumer stopped, a new one from now on;
        acknowledged when the handler returns, delivered again when it raises, five times at most.
        """
        ...

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:
        """Up to `limit` newest stored payloads of `subject`, oldest first; BusError when the stream does not answer."""
        ...

    async def stored(self, stream: str, subject: str, limit: int) -> list[Stored]:
        """As `last`, with the time at which each was stored."""
        ...

    async def kept_since_ns(self, stream: str) -> int:
        """When the oldest message that the stream still has was stored, or would have been if all were too old; 0 if
        it has all that it ever had. BusError when the stream does not answer.
        """
        ...

    async def extent(self, stream: str) -> Extent | None:
        """What the stream has now; None where there is no such stream. BusError when the server does not answer."""
        ...

    async def kept(self, stream: str, subject: str, first: int, last: int, *, most_bytes: int = 16 << 20) -> Span:
        """The messages with the sequences `first` to `last` that the stream still has on subjects that match `subject`.
        It may end before `last`, behind at least one message, where there are more than `most_bytes` of them. BusError
        when the stream does not answer.
        """
        ...

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        """The first message from sequence `first` on whose subject matches; None if there is none."""
        ...

    async def watch_entry(self, bucket: str, key: str, handler: EntryHandler) -> Subscription:
        """Calls `handler` for the present value of `key`, if there is one, and for every later one that the bucket
        still holds when we come to it, one at a time and in order. Across lost connections, and lost buckets; a value
        is handed again, after a pause, while the handler raises BusError.
        """
        ...

    async def put_object(self, bucket: str, name: str, payload: bytes) -> None:
        """Stores an object called `<folder>/<name>` (letters, digits, `-`, `_`); returns when the bucket has it.
        BusError when it does not say so.
        """
        ...

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        """What was last put under this name; None if there is no such object. BusError when the bucket does not answer.
        Whoever reads it checks that it is what it should be: an object may be half there.
        """
        ...

    async def list_objects(self, bucket: str, folder: str) -> list[str]:
        """The names (`<folder>/<name>`) of all objects in a folder, in all folders for "", by when each was put, oldest
        first. BusError when the bucket does not answer.
        """
        ...

    async def delete_object(self, bucket: str, name: str) -> None:
        """Removes an object, if there is one. BusError when the bucket does not answer."""
        ...

    async def close(self) -> None:
        """Sends what is under way and closes."""
        ...


def split_name(name: str) -> tuple[str, str]:
    """Folder and last part of an object's name. Raises ValueError for what is not `<folder>/<name>` in letters,
    digits, `-` and `_`.
    """
    folder, _, last = name.partition("/")
    if not _TOKEN.fullmatch(folder) or not _TOKEN.fullmatch(last):
        raise ValueError(f"object {name!r}: is not <folder>/<name> in letters, digits, '-' and '_'")
    return folder, last
