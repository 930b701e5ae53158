"""A bus inside one process, for tests and for the lab: subjects with wildcards, streams that keep everything."""

import asyncio
from collections import defaultdict

from runtime.bus import Handler, Received
from runtime.errors import BusDown


def matches(pattern: str, subject: str) -> bool:
    """Whether a NATS subject pattern (`*` one token, `>` the rest) matches a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":  # noqa: S105 - a token of a subject
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


class _Subscription:
    def __init__(self, bus: "MemoryBus", pattern: str, handler: Handler, limit: int) -> None:
        self._bus = bus
        self.pattern = pattern
        self._handler = handler
        self._queue: asyncio.Queue[Received] = asyncio.Queue(limit)
        self._task = asyncio.create_task(self._work())

    def offer(self, received: Received) -> None:
        try:
            self._queue.put_nowait(received)
        except asyncio.QueueFull:
            self._bus.dropped += 1

    async def stop(self) -> None:
        self._bus.subscriptions.discard(self)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            received = await self._queue.get()
            try:
                await self._handler(received)
            except Exception as error:  # noqa: BLE001 - as on NATS: a failing handler costs its message only
                self._bus.errors.append(error)


class MemoryBus:
    """The `Bus` protocol in memory. `partition` cuts it off; `history` holds all that was published."""

    def __init__(self) -> None:
        self.subscriptions: set[_Subscription] = set()
        self.history: list[Received] = []
        self.errors: list[Exception] = []
        self.dropped = 0
        self.partition = False
        self._seen_ids: set[str] = set()
        self._stored: list[Received] = []
        self._acked: dict[str, int] = defaultdict(int)

    @property
    def connected(self) -> bool:
        """True unless partitioned."""
        return not self.partition

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Delivers to every matching subscription; stores unless the id was seen."""
        if self.partition:
            raise BusDown(f"{subject}: the bus is partitioned")
        received = Received(subject, payload)
        self.history.append(received)
        if msg_id is None or msg_id not in self._seen_ids:
            self._stored.append(received)
            if msg_id is not None:
                self._seen_ids.add(msg_id)
        for subscription in list(self.subscriptions):
            if matches(subscription.pattern, subject):
                subscription.offer(received)

    async def subscribe(self, subject: str, handler: Handler, *, limit: int = 256) -> _Subscription:
        """Calls `handler` for each message published from now on."""
        subscription = _Subscription(self, subject, handler, limit)
        self.subscriptions.add(subscription)
        return subscription

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> _Subscription:
        """Calls `handler` for stored messages after this durable's last acknowledged one, then for new ones."""
        key = f"{stream}/{durable}"

        async def acknowledge(received: Received) -> None:
            await handler(received)
            self._acked[key] += 1

        subscription = await self.subscribe(subject, acknowledge, limit=100_000)
        stored = [item for item in self._stored if matches(subject, item.subject)]
        for item in stored[self._acked[key] :]:
            subscription.offer(item)
        return subscription

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:  # noqa: ARG002 - one store for all
        """Up to `limit` newest stored payloads of `subject`."""
        found = [item.payload for item in self._stored if matches(subject, item.subject)]
        return found[-limit:] if limit > 0 else []

    async def close(self) -> None:
        """Ends every subscription."""
        for subscription in list(self.subscriptions):
            await subscription.stop()
