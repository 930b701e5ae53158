"""A bus inside one process, for tests and for the lab: subjects with wildcards, streams that keep everything."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from runtime.bus import Entry, EntryHandler, Extent, Handler, Kept, Received, Span, Stored, split_name
from runtime.errors import BusDown, BusError
from runtime.streams import STREAMS
from runtime.turns import Turns, end

_MAX_DELIVER: Final = 5
_RETRY_SECONDS: Final = 0.01


def matches(pattern: str, subject: str) -> bool:
    """Whether a NATS subject pattern (`*` one token, `>` the rest) matches a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":  # noqa: S105 - a token of a subject
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


@dataclass
class _Durable:
    """What a stream remembers of one durable consumer: where it began and what it has acknowledged."""

    begin: int
    acked: set[int] = field(default_factory=set)
    deliveries: Counter[int] = field(default_factory=Counter)


class _Subscription:
    """Live messages, or with a `durable` the stored ones by their number in the store."""

    def __init__(
        self, bus: "MemoryBus", pattern: str, handler: Handler, limit: int, durable: _Durable | None = None
    ) -> None:
        self._bus = bus
        self.pattern = pattern
        self._handler = handler
        self.durable = durable
        self._queue: asyncio.Queue[tuple[Received, int]] = asyncio.Queue(limit)
        self._turns = Turns()
        self._task = asyncio.create_task(self._work())

    def offer(self, received: Received, number: int) -> None:
        try:
            self._queue.put_nowait((received, number))
        except asyncio.QueueFull:
            self._bus.dropped += 1

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        self._bus.subscriptions.discard(self)
        await end(self._task)
        await self._turns.finish()

    async def _work(self) -> None:
        while True:
            await self._turns.take(self._handle(*await self._queue.get()))

    async def _handle(self, received: Received, number: int) -> None:
        if self.durable is not None:
            self.durable.deliveries[number] += 1
        try:
            await self._handler(received)
        except Exception as error:  # noqa: BLE001 - as on NATS: a failing handler costs its message only
            self._bus.errors.append(error)
            if self.durable is not None and self.durable.deliveries[number] < _MAX_DELIVER:
                self.offer(received, number)
            return
        if self.durable is not None:
            self.durable.acked.add(number)


class _Watcher:
    """The values of one key, from the present one on."""

    def __init__(self, bus: "MemoryBus", where: tuple[str, str], handler: EntryHandler) -> None:
        self._bus = bus
        self._where = where
        self._handler = handler
        self._turns = Turns()
        present = bus.entries(*where)
        self._heard = present[-1].revision - 1 if present else 0
        self.changed = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        self._bus.watchers.discard(self)
        await end(self._task)
        await self._turns.finish()

    async def _work(self) -> None:
        while True:
            self.changed.clear()
            later = [entry for entry in self._bus.entries(*self._where) if entry.revision > self._heard]
            if later and self._bus.connected:
                await self._turns.take(self._handle(later[0]))
            else:
                await self.changed.wait()

    async def _handle(self, entry: Entry) -> None:
        try:
            await self._handler(entry)
        except BusError:
            await asyncio.sleep(_RETRY_SECONDS)
            return
        except Exception as error:  # noqa: BLE001 - one bad value must not end the watch
            self._bus.errors.append(error)
        self._heard = entry.revision


class MemoryBus:
    """The `Bus` protocol in memory. `partition` cuts it off; `history` holds all that was published; `now_ns` is the
    clock of its server.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self.subscriptions: set[_Subscription] = set()
        self.watchers: set[_Watcher] = set()
        self.history: list[Received] = []
        self.errors: list[Exception] = []
        self.dropped = 0
        self.ended_partitions = 0
        self._partition = False
        self._closed = False
        self._seen_ids: set[str] = set()
        self._stored: list[Received] = []
        self._stored_ns: list[int] = []
        self._let_go = 0
        self._entries: list[tuple[str, Entry]] = []
        self._durables: dict[str, _Durable] = {}
        self.objects: dict[tuple[str, str], bytes] = {}

    @property
    def connected(self) -> bool:
        """True unless partitioned or closed."""
        return not self._partition and not self._closed

    @property
    def partition(self) -> bool:
        """Whether it is cut off."""
        return self._partition

    @partition.setter
    def partition(self, is_cut: bool) -> None:
        self._partition = is_cut
        self._wake_watchers()

    @property
    def reconnects(self) -> int:
        """How often a partition ended, as its maker says."""
        return self.ended_partitions

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Delivers to every matching subscription; stores, and so delivers to consumers, unless the id was seen."""
        if not self.connected:
            raise BusDown(f"{subject}: the bus is {'closed' if self._closed else 'partitioned'}")
        received = Received(subject, payload)
        self.history.append(received)
        is_new = msg_id is None or msg_id not in self._seen_ids
        number = len(self._stored)
        if is_new:
            self._keep(received)
            if msg_id is not None:
                self._seen_ids.add(msg_id)
        for subscription in list(self.subscriptions):
            if matches(subscription.pattern, subject) and (is_new or subscription.durable is None):
                subscription.offer(received, number)

    def store(self, subject: str, payload: bytes) -> None:
        """What others published and nobody here heard."""
        self._keep(Received(subject, payload))

    def let_go(self, count: int) -> None:
        """The store is full: its oldest messages are gone."""
        self._let_go = max(self._let_go, count)

    def put_entry(self, bucket: str, key: str, value: bytes | None) -> Entry:
        """What others put into a bucket; `None` deletes."""
        revision = 1 + sum(name == bucket for name, _ in self._entries)
        entry = Entry(key, value, revision, self._now_ns())
        self._entries.append((bucket, entry))
        self._wake_watchers()
        return entry

    def entries(self, bucket: str, key: str) -> list[Entry]:
        """All values of a key, oldest first."""
        return [entry for name, entry in self._entries if (name, entry.key) == (bucket, key)]

    async def publish_stored(self, subject: str, payload: bytes, *, msg_id: str, stream: str) -> None:  # noqa: ARG002
        """Publishes: what is published is stored."""
        await self.publish(subject, payload, msg_id=msg_id)

    async def subscribe(self, subject: str, handler: Handler, *, limit: int = 256) -> _Subscription:
        """Calls `handler` for each message published from now on."""
        return self._add(_Subscription(self, subject, handler, limit))

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> _Subscription:
        """Calls `handler` for stored messages that this durable has not acknowledged, from its first use on."""
        state = self._durables.setdefault(f"{stream}/{durable}", _Durable(begin=len(self._stored)))
        subscription = self._add(_Subscription(self, subject, handler, 100_000, state))
        for number in range(state.begin, len(self._stored)):
            received = self._stored[number]
            if number not in state.acked and matches(subject, received.subject):
                subscription.offer(received, number)
        return subscription

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:
        """Up to `limit` newest stored payloads of `subject`, oldest first."""
        return [item.payload for item in await self.stored(stream, subject, limit)]

    async def stored(self, stream: str, subject: str, limit: int) -> list[Stored]:  # noqa: ARG002 - one store for all
        """Up to `limit` newest stored messages of `subject`, oldest first."""
        kept = list(zip(self._stored, self._stored_ns, strict=True))[self._let_go :]
        found = [Stored(item.payload, at) for item, at in kept if matches(subject, item.subject)]
        return found[-limit:] if limit > 0 else []

    async def kept_since_ns(self, stream: str) -> int:  # noqa: ARG002 - one store for all
        """When the oldest message that is still there was stored; 0 if all are."""
        kept = self._stored_ns[self._let_go :]
        return (kept[0] if kept else self._now_ns()) if self._let_go else 0

    async def extent(self, stream: str) -> Extent | None:
        """The first and the last sequence that a declared stream has now."""
        numbers = self._numbers(stream)
        if numbers is None:
            return None
        gone = sum(number < self._let_go for number in numbers)
        return Extent(gone + 1, len(numbers))

    async def kept(self, stream: str, subject: str, first: int, last: int, *, most_bytes: int = 16 << 20) -> Span:
        """The messages with the sequences `first` to `last` that it still has on subjects that match, or the first of
        them.
        """
        found: list[Kept] = []
        for item in self._kept(stream, subject):
            if first <= item.sequence <= last:
                found.append(item)
                most_bytes -= len(item.payload)
                if most_bytes <= 0:
                    return Span(found, item.sequence)
        return Span(found, last)

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        """The first message from sequence `first` on whose subject matches; None if there is none."""
        return next((item for item in self._kept(stream, subject) if item.sequence >= first), None)

    async def watch_entry(self, bucket: str, key: str, handler: EntryHandler) -> _Watcher:
        """Calls `handler` for the present value of `key` and for every later one."""
        watcher = _Watcher(self, (bucket, key), handler)
        self.watchers.add(watcher)
        return watcher

    async def put_object(self, bucket: str, name: str, payload: bytes) -> None:
        """Stores an object, as the newest."""
        split_name(name)
        self._check_reach(bucket)
        self.objects.pop((bucket, name), None)
        self.objects[bucket, name] = payload

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        """The object of this name, if there is one."""
        split_name(name)
        self._check_reach(bucket)
        return self.objects.get((bucket, name))

    async def list_objects(self, bucket: str, folder: str) -> list[str]:
        """The names of all objects in a folder, in all folders for "", oldest first."""
        self._check_reach(bucket)
        return [name for own, name in self.objects if own == bucket and (not folder or name.startswith(f"{folder}/"))]

    async def delete_object(self, bucket: str, name: str) -> None:
        """Removes an object, if there is one."""
        self._check_reach(bucket)
        self.objects.pop((bucket, name), None)

    def _check_reach(self, where: str) -> None:
        if not self.connected:
            raise BusDown(f"{where}: the bus is {'closed' if self._closed else 'partitioned'}")

    async def close(self) -> None:
        """Ends every subscription."""
        self._closed = True
        for subscription in list(self.subscriptions):
            await subscription.stop()
        for watcher in list(self.watchers):
            await watcher.stop()

    def _numbers(self, stream: str) -> list[int] | None:
        """Where in the one store the messages of a declared stream are."""
        declared = next((known for known in STREAMS if known.name == stream), None)
        if declared is None:
            return None
        patterns = declared.subjects
        return [n for n, item in enumerate(self._stored) if any(matches(pattern, item.subject) for pattern in patterns)]

    def _kept(self, stream: str, subject: str) -> list[Kept]:
        return [
            Kept(sequence, self._stored_ns[number], self._stored[number].subject, self._stored[number].payload)
            for sequence, number in enumerate(self._numbers(stream) or [], 1)
            if number >= self._let_go and matches(subject, self._stored[number].subject)
        ]

    def _keep(self, received: Received) -> None:
        self._stored.append(received)
        self._stored_ns.append(self._now_ns())

    def _wake_watchers(self) -> None:
        for watcher in self.watchers:
            watcher.changed.set()

    def _add(self, subscription: _Subscription) -> _Subscription:
        self.subscriptions.add(subscription)
        return subscription
