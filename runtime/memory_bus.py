"""A bus inside one process, for tests and for the lab: subjects with wildcards, streams that keep everything."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from runtime.bus import Handler, Received
from runtime.errors import BusDown
from runtime.turns import Turns, end

_MAX_DELIVER: Final = 5


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


class MemoryBus:
    """The `Bus` protocol in memory. `partition` cuts it off; `history` holds all that was published."""

    def __init__(self) -> None:
        self.subscriptions: set[_Subscription] = set()
        self.history: list[Received] = []
        self.errors: list[Exception] = []
        self.dropped = 0
        self.partition = False
        self.ended_partitions = 0
        self._closed = False
        self._seen_ids: set[str] = set()
        self._stored: list[Received] = []
        self._durables: dict[str, _Durable] = {}

    @property
    def connected(self) -> bool:
        """True unless partitioned or closed."""
        return not self.partition and not self._closed

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
            self._stored.append(received)
            if msg_id is not None:
                self._seen_ids.add(msg_id)
        for subscription in list(self.subscriptions):
            if matches(subscription.pattern, subject) and (is_new or subscription.durable is None):
                subscription.offer(received, number)

    def store(self, subject: str, payload: bytes) -> None:
        """What others published and nobody here heard."""
        self._stored.append(Received(subject, payload))

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

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:  # noqa: ARG002 - one store for all
        """Up to `limit` newest stored payloads of `subject`, oldest first."""
        found = [item.payload for item in self._stored if matches(subject, item.subject)]
        return found[-limit:] if limit > 0 else []

    async def close(self) -> None:
        """Ends every subscription."""
        self._closed = True
        for subscription in list(self.subscriptions):
            await subscription.stop()

    def _add(self, subscription: _Subscription) -> _Subscription:
        self.subscriptions.add(subscription)
        return subscription
