"""What is read out of streams for ever: durable consumers, and the values of one key of a bucket."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Final, Protocol

from runtime.bus import Entry, EntryHandler, Handler, Received
from runtime.errors import BusError
from runtime.nats_bus_client import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Error,
    JetStreamContext,
    Msg,
    NotFoundError,
)
from runtime.nats_bus_history import ns_of
from runtime.turns import Turns, end

_FETCH_SECONDS: Final = 5.0
_TIMEOUTS_BEFORE_CHECK: Final = 3
_MAX_DELIVER: Final = 5
_RETRY_SECONDS: Final = 1.0


class Connection(Protocol):
    """What a reader needs of its bus."""

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream on the connection of now."""

    @property
    def reconnects(self) -> int:
        """How often the connection became another."""

    def report(self, event: str, detail: str) -> None:
        """Tells the owner of the bus what happened."""

    def forget(self, reader: "Reader") -> None:
        """Takes a stopped reader off the list."""


class Reader:
    """Reads a stream in a task of its own, for ever: whatever ends `_pull` is told, and it begins again."""

    def __init__(self, bus: Connection, name: str) -> None:
        self._bus = bus
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._turns = Turns()

    def start(self) -> None:
        """Reads from now on."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        if self._task is not None:
            await end(self._task)
        await self._turns.finish()
        self._bus.forget(self)

    async def _run(self) -> None:
        while True:
            try:
                await self._pull()
            except (Error, TimeoutError, OSError) as error:
                self._bus.report("error", f"{self._name}: {type(error).__name__}: {error}")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _pull(self) -> None:
        raise NotImplementedError


class Consumer(Reader):
    """A durable pull consumer that survives the loss of its server, its stream and itself (NA-01)."""

    def __init__(self, bus: Connection, stream: str, durable: str, subject: str, handler: Handler) -> None:
        super().__init__(bus, f"consumer {durable}")
        self._stream = stream
        self._durable = durable
        self._subject = subject
        self._handler = handler
        self._resume_at: datetime | None = None

    async def declare(self) -> None:
        """Makes the consumer before the caller goes on, so that what is published next is not missed."""
        with contextlib.suppress(Error, TimeoutError):  # `start` tries again, for ever
            await self._bus.jetstream.add_consumer(self._stream, self._config())
        self._resume_at = datetime.now(UTC)

    def _config(self) -> ConsumerConfig:
        """A consumer from now on, or in place of a lost one from the last message that it delivered."""
        return ConsumerConfig(
            name=self._durable,  # with the name, the filter is part of the request's subject, and so of a permission
            durable_name=self._durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=30.0,
            max_deliver=_MAX_DELIVER,
            deliver_policy=DeliverPolicy.NEW if self._resume_at is None else DeliverPolicy.BY_START_TIME,
            opt_start_time=self._resume_at,
            filter_subject=self._subject,
        )

    async def _pull(self) -> None:
        """Fetches until nothing came for a while: then whoever calls makes sure that the consumer is still there."""
        js = self._bus.jetstream
        try:
            await js.consumer_info(self._stream, self._durable)
        except NotFoundError:
            await js.add_consumer(self._stream, self._config())
            self._bus.report("gap", f"consumer {self._durable} was lost and is made again, from {self._resume_at}")
        subscription = await js.pull_subscribe_bind(self._durable, stream=self._stream)
        timeouts = 0
        try:
            while timeouts < _TIMEOUTS_BEFORE_CHECK:
                try:
                    batch = await subscription.fetch(32, timeout=_FETCH_SECONDS)
                except TimeoutError:  # nats.errors.TimeoutError is one: nothing new, or a deaf consumer
                    timeouts += 1
                    continue
                timeouts = 0
                for message in batch:
                    await self._turns.take(self._deliver(message))
        finally:
            with contextlib.suppress(Error):
                await subscription.unsubscribe()

    async def _deliver(self, message: Msg) -> None:
        try:
            await self._handler(Received(message.subject, message.data))
        except Exception as error:  # noqa: BLE001 - delivered again, and after max_deliver left
            self._bus.report("handler_failed", f"{message.subject}: {type(error).__name__}: {error}")
            await message.nak(delay=_RETRY_SECONDS)
            return
        await message.ack()
        self._resume_at = message.metadata.timestamp


class Watcher(Reader):
    """The values of one key of a bucket: the present one, then each later one by its revision.

    An ephemeral consumer, made anew after every reconnect from where we are. A bucket that was made anew begins anew.
    """

    def __init__(self, bus: Connection, bucket: str, key: str, handler: EntryHandler) -> None:
        super().__init__(bus, f"entry {bucket}/{key}")
        self._key = key
        self._stream = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}.{key}"
        self._handler = handler
        self._bucket_made_at: datetime | None = None
        self._next: int | None = None  # the first revision to come; None: the present value's
        self._told: str | None = None

    async def _pull(self) -> None:
        """Fetches until the connection was another or the consumer is gone."""
        try:
            await self._follow()
        except (Error, TimeoutError, OSError) as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        """Once, not at every attempt."""
        text = f"{self._name}: {type(error).__name__}: {error}"
        if text != self._told:
            self._bus.report("error", text)
        self._told = text

    async def _follow(self) -> None:
        js, reconnects = self._bus.jetstream, self._bus.reconnects
        bucket = await js.stream_info(self._stream)
        if bucket.created != self._bucket_made_at:
            self._bucket_made_at, self._next = bucket.created, None
        subscription = await js.pull_subscribe(self._subject, stream=self._stream, config=self._config())
        if self._next is None and not (await subscription.consumer_info()).num_pending:
            self._next = bucket.state.last_seq + 1  # no value yet: all that come from here on are later ones
        timeouts = 0
        try:
            while self._bus.reconnects == reconnects:
                batch: list[Msg] = []
                with contextlib.suppress(TimeoutError):
                    batch = await subscription.fetch(32, timeout=_FETCH_SECONDS)
                timeouts = 0 if batch else timeouts + 1
                if timeouts == _TIMEOUTS_BEFORE_CHECK:
                    await subscription.consumer_info()
                    timeouts = 0
                for message in batch:
                    await self._hand(message)
        finally:
            with contextlib.suppress(Error):
                await subscription.unsubscribe()

    def _config(self) -> ConsumerConfig:
        return ConsumerConfig(
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT if self._next is None else DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._subject,
            inactive_threshold=30.0,
            mem_storage=True,
        )

    async def _hand(self, message: Msg) -> None:
        """Until it is taken: what cannot be acted upon yet is not passed over, nor overtaken."""
        headers = message.headers or {}
        is_gone = headers.get("KV-Operation") in ("DEL", "PURGE") or "Nats-Marker-Reason" in headers
        revision = message.metadata.sequence.stream
        entry = Entry(self._key, None if is_gone else message.data, revision, ns_of(message.metadata.timestamp))
        while not self._has_taken(revision):
            await self._turns.take(self._deliver(entry))
            if not self._has_taken(revision):
                await asyncio.sleep(_RETRY_SECONDS)
        self._told = None

    def _has_taken(self, revision: int) -> bool:
        return self._next is not None and revision < self._next

    async def _deliver(self, entry: Entry) -> None:
        try:
            await self._handler(entry)
        except BusError as error:
            self._tell(error)
            return
        except Exception as error:  # noqa: BLE001 - one bad value must not end the watch
            self._bus.report("handler_failed", f"{self._name}: {type(error).__name__}: {error}")
        self._next = entry.revision + 1
