"""Typed messages over the bus: encodes, decodes, filters by node and counts. A bad message costs itself only."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from runtime.bus import Bus, Entry, Received, Subscription
from runtime.clock import Clock
from runtime.errors import BusError
from runtime.logs import Log
from runtime.metrics import CommonMetrics
from schemas.codec import DecodeError, EncodeError, decode_as, encode
from schemas.messages import AnyMessage, CollectRequest, Heartbeat
from schemas.subjects import heartbeat_subject, kind_of, message_id, node_token, rpc_subject, subject, subject_of

M = TypeVar("M", bound=AnyMessage)

_MOST_STORED = 100_000


class Dated(NamedTuple, Generic[M]):
    """A stored message and the server's wall time, in nanoseconds, when it was stored."""

    message: M
    stored_ns: int


class _Unread(NamedTuple):
    """Why something is not taken: the word for it, its cycle, and what is wrong."""

    reason: str
    cycle: int
    detail: str


class Messenger:
    """One service's voice and ear for one node."""

    def __init__(self, bus: Bus, node: str, metrics: CommonMetrics, clock: Clock, log: Log) -> None:
        self._bus = bus
        self.node = node
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._subscriptions: list[Subscription] = []

    @property
    def connected(self) -> bool:
        """Whether the bus is connected."""
        return self._bus.connected

    @property
    def reconnects(self) -> int:
        """How often the bus was lost and regained."""
        return self._bus.reconnects

    async def send(self, message: AnyMessage) -> bool:
        """Publishes; False when the bus is down or the message cannot leave, which is counted and logged."""
        kind = kind_of(message)
        try:
            await self._bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
        except BusError as error:
            self._drop(kind, "bus_down", message.cycle, str(error))
            return False
        except EncodeError as error:
            self._drop(kind, "encode", message.cycle, str(error))
            return False
        self._metrics.published.labels(kind).inc()
        return True

    async def send_stored(self, message: AnyMessage, stream: str) -> None:
        """Publishes and returns when `stream` has it. Raises BusError when it does not say so, EncodeError for what
        cannot leave.
        """
        await self._bus.publish_stored(subject_of(message), encode(message), msg_id=message_id(message), stream=stream)
        self._metrics.published.labels(kind_of(message)).inc()

    async def listen(
        self,
        kind: type[M],
        handler: Callable[[M], Awaitable[None]],
        *,
        service: str = "*",
        unread: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Calls `handler` for each message of `kind` for this node; heartbeats can be of one service only. `unread` is
        called for what came there and is no such message.
        """
        tag = str(kind.__struct_config__.tag)
        if issubclass(kind, Heartbeat):
            where = heartbeat_subject(service, self.node)
        elif issubclass(kind, CollectRequest):
            where = rpc_subject("collector", self.node, "collect")
        else:
            where = subject(tag, self.node)
        self._subscriptions.append(await self._bus.subscribe(where, self._reader(kind, tag, handler, unread)))

    async def learn_from(
        self, stream: str, durable: str, kind: type[M], handler: Callable[[M], Awaitable[None]]
    ) -> None:
        """Calls `handler` for each stored message of `kind`, at least once, across restarts."""
        tag = str(kind.__struct_config__.tag)
        reader = self._reader(kind, tag, handler)
        self._subscriptions.append(await self._bus.consume(stream, durable, subject(tag, self.node), reader))

    async def history(self, stream: str, kind: type[M], limit: int) -> list[M]:
        """Up to `limit` newest stored messages of `kind`, oldest first. What cannot be read or is about another node is
        counted as dropped, and not against the limit.
        """
        return [dated.message for dated in await self.dated_history(stream, kind, limit)]

    async def dated_history(self, stream: str, kind: type[M], limit: int) -> list[Dated[M]]:
        """As `history`, with the time at which each was stored."""
        where = subject(str(kind.__struct_config__.tag), self.node)
        asked = limit
        while True:
            found = await self._bus.stored(stream, where, asked)
            read = [(self._decoded(item.payload, kind), item.stored_ns) for item in found]
            whole = [Dated(message, stored_ns) for message, stored_ns in read if not isinstance(message, _Unread)]
            if len(whole) >= limit or len(found) < asked or asked >= _MOST_STORED:
                break
            asked = min(_MOST_STORED, 10 * asked)  # others' rubbish must not hide what lies behind it
        for message, _ in read:
            if isinstance(message, _Unread):
                self._drop(str(kind.__struct_config__.tag), *message)
        return whole[-limit:] if limit > 0 else []

    async def kept_since_ns(self, stream: str) -> int:
        """When the oldest message that the stream still has was stored; 0 if it has all that it ever had."""
        return await self._bus.kept_since_ns(stream)

    async def watch_entry(self, bucket: str, handler: Callable[[Entry], Awaitable[None]]) -> None:
        """Calls `handler` for the present and every later value of this node's key in a bucket."""
        self._subscriptions.append(await self._bus.watch_entry(bucket, node_token(self.node), handler))

    async def put_object(self, bucket: str, name: str, payload: bytes) -> None:
        """Stores an object in this node's folder of a bucket. Raises BusError."""
        await self._bus.put_object(bucket, f"{node_token(self.node)}/{name}", payload)

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        """An object in this node's folder, None if there is none. Raises BusError."""
        return await self._bus.get_object(bucket, f"{node_token(self.node)}/{name}")

    async def list_objects(self, bucket: str) -> list[str]:
        """The names of the objects in this node's folder, oldest first. Raises BusError."""
        folder = node_token(self.node)
        return [name.removeprefix(f"{folder}/") for name in await self._bus.list_objects(bucket, folder)]

    async def delete_object(self, bucket: str, name: str) -> None:
        """Removes an object from this node's folder, if there is one. Raises BusError."""
        await self._bus.delete_object(bucket, f"{node_token(self.node)}/{name}")

    async def stop(self) -> None:
        """Ends all subscriptions."""
        for subscription in self._subscriptions:
            await subscription.stop()
        self._subscriptions.clear()

    def drop(self, message: AnyMessage, reason: str) -> None:
        """Counts a message that its reader decided not to use."""
        self._drop(kind_of(message), reason, message.cycle, "")

    def _reader(
        self,
        kind: type[M],
        tag: str,
        handler: Callable[[M], Awaitable[None]],
        unread: Callable[[], Awaitable[None]] | None = None,
    ) -> Callable[[Received], Awaitable[None]]:
        async def read(received: Received) -> None:
            message = self._decoded(received.payload, kind)
            if isinstance(message, _Unread):
                self._drop(tag, *message)
                if unread is not None:
                    await unread()
                return
            age = (self._clock.now_ns() - message.at) / 1e9
            if age >= 0:  # a clock that stepped back gives no age, and drops nothing (NA-09)
                self._metrics.age.labels(tag).observe(age)
            self._metrics.received.labels(tag).inc()
            started = time.perf_counter()
            await handler(message)
            self._metrics.handle.labels(tag).observe(time.perf_counter() - started)

        return read

    def _decoded(self, payload: bytes, kind: type[M]) -> "M | _Unread":
        try:
            message = decode_as(payload, kind)
        except DecodeError as error:
            return _Unread("decode", 0, str(error))
        return message if message.node == self.node else _Unread("other_node", message.cycle, message.node)

    def _drop(self, kind: str, reason: str, cycle: int, detail: str) -> None:
        self._metrics.dropped.labels(kind, reason).inc()
        self._log.debug("message_dropped", kind=kind, reason=reason, cycle=cycle, detail=detail[:300])
