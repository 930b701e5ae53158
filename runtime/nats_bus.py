"""The bus on NATS: core publish/subscribe for control, JetStream pull consumers for learning.

Nothing is queued while disconnected: a control message that arrives late must not actuate. Reconnecting is for ever;
`on_event` hears of connects, disconnects and drops.
"""

import asyncio
import contextlib
from collections.abc import Callable

from runtime.bus import EntryHandler, Extent, Handler, Kept, Received, Span, Stored
from runtime.bus_login import REFUSED, log_in, unreachable
from runtime.bus_refusals import Refusals
from runtime.errors import BusDown, BusError
from runtime.nats_bus_client import (
    Client,
    ConnectionClosedError,
    ConnectionDrainingError,
    ConnectionReconnectingError,
    Error,
    JetStreamContext,
    MaxPayloadError,
    Msg,
    OutboundBufferLimitError,
    SecureClient,
    SlowConsumerError,
    Subscription,
)
from runtime.nats_bus_history import History
from runtime.nats_bus_kept import Shelf
from runtime.nats_bus_objects import Objects
from runtime.nats_bus_permissions import check_permissions
from runtime.nats_bus_readers import Consumer, Reader, Watcher
from runtime.settings import BusSettings, mask_url
from runtime.streams import ensure_streams
from runtime.turns import Turns, within

EventHandler = Callable[[str, str], None]
"""Called with an event (`connected`, `disconnected`, `reconnected`, `closed`, `slow_consumer`, `handler_failed`, `gap`,
`refused`, `replayed`, `error`) and a line of detail. `refused`: this credential has no permission for what we tried;
`replayed`: a stored message came on a live subject. After `closed` nothing more comes: the server ended it for good."""

_RETRY_SECONDS = 1.0
_STORED = "$JS.ACK."
"""What JetStream asks to be answered to; a live message asks for nothing that begins so."""
_STALLED_BYTES = 1 << 20
"""Bytes waiting for the socket at which the connection counts as down. nats-py itself would block at 2 MiB."""


class NatsBus:
    """The `Bus` protocol on one NATS connection. Made by `connect`."""

    def __init__(self, client: Client, settings: BusSettings, on_event: EventHandler, refusals: Refusals) -> None:
        self._client = client
        self._refusals = refusals
        self._history = History(lambda: self.jetstream, settings.request_timeout_seconds, refusals)
        self._shelf = Shelf(client, settings.request_timeout_seconds, refusals)
        self._objects = Objects(lambda: self.jetstream, refusals)
        self._settings = settings
        self._on_event = on_event
        self._readers: set[Reader] = set()
        self._restoring: asyncio.Task[None] | None = None
        self.reconnects = 0
        self.closing = False

    @property
    def connected(self) -> bool:
        """Whether a publish would leave the process now."""
        return self._client.is_connected

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream with the timeout of the settings."""
        return self._client.jetstream(timeout=self._settings.request_timeout_seconds)

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Sends at once or raises BusDown. Raises BusError for a message larger than the server takes."""
        self._check(subject, payload, msg_id)
        try:
            await self._client.publish(subject, payload, headers={"Nats-Msg-Id": msg_id} if msg_id else None)
        except MaxPayloadError as error:
            raise BusError(f"{subject}: {error}") from error
        except (ConnectionClosedError, ConnectionDrainingError, ConnectionReconnectingError) as error:
            raise BusDown(f"{subject}: {error}") from error
        except OutboundBufferLimitError as error:
            raise BusDown(f"{subject}: the outbound buffer is full") from error
        except Error as error:
            raise BusError(f"{subject}: {error}") from error

    async def publish_stored(self, subject: str, payload: bytes, *, msg_id: str, stream: str) -> None:
        """Sends at once and returns when `stream` has it. Raises BusError when it does not say so."""
        self._check(subject, payload, msg_id)
        try:
            await self.jetstream.publish(subject, payload, stream=stream, headers={"Nats-Msg-Id": msg_id})
        except (Error, TimeoutError) as error:
            refused = self._refusals.about(lambda where: where == subject.lower())
            if refused is not None:
                raise BusError(f"{stream}: {subject} was not stored: {refused}") from error
            raise BusError(
                f"{stream}: {subject} was not stored ({type(error).__name__}: {error}), though whoever listens may "
                f"have heard it; check that the server runs with JetStream (-js)"
            ) from error

    def _check(self, subject: str, payload: bytes, msg_id: str | None) -> None:
        """Raises BusDown or BusError for what would not leave now."""
        if not self._client.is_connected:
            raise BusDown(f"{subject}: not connected to {mask_url(self._settings.url)}")
        if self._client.pending_data_size > _STALLED_BYTES:
            raise BusDown(f"{subject}: {mask_url(self._settings.url)} does not take what was sent before")
        overhead = len(msg_id) + 64 if msg_id else 0
        if len(payload) + overhead > self._client.max_payload:  # the server counts the headers too (NA-05)
            raise BusError(
                f"{subject}: {len(payload) + overhead} bytes, the server takes {self._client.max_payload}; "
                f"raise max_payload in its configuration"
            )

    async def flush(self) -> None:
        """Returns when the server has looked at all that was published: what it refused is known then. Raises BusDown
        where it does not answer.
        """
        try:
            for _ in range(2):  # nats-py lets the first PING overtake what is pending
                await self._client.flush(max(1, round(self._settings.request_timeout_seconds)))
        except (Error, TimeoutError, ConnectionError) as error:
            text = f"{type(error).__name__}: {error}"
            raise BusDown(f"{mask_url(self._settings.url)} did not answer to what was sent ({text})") from error

    def refusal_of(self, subject: str) -> str | None:
        """Why the server did not take what was published there, and what helps; None where it did, as far as is known.
        Of the first hundred subjects that it refused.
        """
        return self._refusals.about(lambda where: where == subject.lower())

    async def subjects(self, stream: str) -> list[str]:
        """The subjects of which the stream has messages now; none where there is no such stream. Raises BusError."""
        return await self._shelf.subjects(stream)

    async def subscribe(self, subject: str, handler: Handler, *, limit: int = 256) -> "_LiveSubscription":
        """Calls `handler` for each message, one at a time. What fails in it costs that message only.

        What comes out of a stream is not taken: it is a copy, maybe on a subject that its author may not publish to.
        """
        turns = Turns()

        async def handle(message: Msg) -> None:
            try:
                await handler(Received(message.subject, message.data))
            except Exception as error:  # noqa: BLE001 - one bad message must not end the subscription
                self._on_event("handler_failed", f"{message.subject}: {type(error).__name__}: {error}")

        async def deliver(message: Msg) -> None:
            if message.reply.startswith(_STORED):  # somebody had a stream send it here, whatever he may publish himself
                self._on_event("replayed", f"{message.subject}: out of a stream, on {subject}: not taken")
                return
            await turns.take(handle(message))

        subscription = await self._client.subscribe(subject, cb=deliver, pending_msgs_limit=limit)
        return _LiveSubscription(subscription, turns)

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> Consumer:
        """Calls `handler` for each stored message from where this durable stopped."""
        consumer = Consumer(self, stream, durable, subject, handler)
        await consumer.declare()
        consumer.start()
        self._readers.add(consumer)
        return consumer

    async def watch_entry(self, bucket: str, key: str, handler: EntryHandler) -> Watcher:
        """Calls `handler` for the present value of `key` and every later one."""
        watcher = Watcher(self, bucket, key, handler)
        watcher.start()
        self._readers.add(watcher)
        return watcher

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:
        """Up to `limit` newest stored payloads of `subject`, oldest first; empty where nothing is stored.

        Raises BusError when the server does not answer: no answer is not an empty history.
        """
        return [message.payload for message in await self.stored(stream, subject, limit)]

    async def stored(self, stream: str, subject: str, limit: int) -> list[Stored]:
        """As `last`, with the time at which each was stored."""
        return await self._history.stored(stream, subject, limit)

    async def kept_since_ns(self, stream: str) -> int:
        """When the oldest message that the stream still has was stored; 0 if it has all that it ever had."""
        return await self._history.kept_since_ns(stream)

    async def extent(self, stream: str) -> Extent | None:
        """The first and the last sequence that the stream has now; None where there is no such stream."""
        return await self._shelf.extent(stream)

    async def kept(self, stream: str, subject: str, first: int, last: int, *, most_bytes: int = 16 << 20) -> Span:
        """The messages with the sequences `first` to `last` that the stream still has on subjects that match, or the
        first of them.
        """
        return await self._shelf.kept(stream, subject, first, last, most_bytes)

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        """The first message from sequence `first` on whose subject matches; None if there is none."""
        return await self._shelf.next_kept(stream, subject, first)

    async def put_object(self, bucket: str, name: str, payload: bytes) -> None:
        """Stores an object; returns when the bucket has it. Raises BusDown at once while not connected, BusError."""
        if not self._client.is_connected:
            raise BusDown(f"{bucket}: not connected to {mask_url(self._settings.url)}")
        await self._objects.put(bucket, name, payload)

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        """What was last put under this name; None if there is no such object. Raises BusError."""
        return await self._objects.get(bucket, name)

    async def list_objects(self, bucket: str, folder: str) -> list[str]:
        """The names of all objects in a folder, in all folders for "", oldest first. Raises BusError."""
        return await self._objects.names(bucket, folder)

    async def delete_object(self, bucket: str, name: str) -> None:
        """Removes an object, if there is one. Raises BusError."""
        await self._objects.delete(bucket, name)

    async def close(self) -> None:
        """Stops consumers, sends what is under way, closes. Never takes longer than a few seconds."""
        self.closing = True
        for reader in list(self._readers):
            await reader.stop()
        if self._restoring is not None:
            self._restoring.cancel()
        try:
            async with asyncio.timeout(3.0):
                if self._client.is_connected:
                    await self._client.drain()
                else:
                    await self._client.close()
        except (TimeoutError, Error):
            with contextlib.suppress(Exception):
                await self._client.close()

    def forget(self, reader: Reader) -> None:
        """Takes a stopped reader off the list."""
        self._readers.discard(reader)

    def report(self, event: str, detail: str) -> None:
        """Tells the owner of the bus what happened."""
        self._on_event(event, detail)

    def restore_streams(self) -> None:
        """After a reconnect: a server without its store has lost the streams, so they are declared again."""
        if not self._settings.declare_streams:
            return

        async def declare() -> None:
            while not self.closing:
                try:
                    await ensure_streams(self.jetstream)
                except BusError as error:  # JetStream may need a moment after its server answers again
                    self._on_event("error", str(error))
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    return

        if self._restoring is not None:
            self._restoring.cancel()
        self._restoring = asyncio.create_task(declare())


class _LiveSubscription:
    def __init__(self, subscription: Subscription, turns: Turns) -> None:
        self._subscription = subscription
        self._turns = turns

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        with contextlib.suppress(Error):
            await self._subscription.unsubscribe()
        await self._turns.finish()


def ignore_events(event: str, detail: str) -> None:
    """For those who only look."""


async def connect(settings: BusSettings, name: str, on_event: EventHandler) -> NatsBus:  # noqa: C901 - its callbacks
    """A connected bus with its streams declared.

    Raises BusUnreachable after `settings.connect_timeout_seconds` without an answer, BusError if JetStream refuses,
    ConfigError for credentials that cannot be used.
    """
    login = log_in(settings, name)
    last_error = ""
    bus: NatsBus | None = None
    client = SecureClient(login)
    refusals = Refusals(on_event)

    async def on_error(error: Exception) -> None:
        nonlocal last_error
        if refusals.take(error):
            return
        before, text = last_error, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if bus is not None or REFUSED not in before:  # a refusal says more than the reset that may follow it
            last_error = text
        if isinstance(error, SlowConsumerError):
            on_event("slow_consumer", f"{error.subject}: the handler is too slow")
        elif bus is not None and last_error != before:  # an outage is told once, not twice a second
            on_event("error", last_error)

    async def on_disconnect() -> None:
        # What the dead connection did not take must not arrive with the next one: nats-py would send it then.
        client._pending.clear()  # noqa: SLF001 - there is no public way to let go of it
        client._pending_data_size = 0  # noqa: SLF001
        refusals.forget()
        if bus is not None and not bus.closing:
            on_event("disconnected", mask_url(settings.url))

    async def on_reconnect() -> None:
        nonlocal last_error
        last_error = ""
        if bus is not None:
            bus.reconnects += 1
            on_event("reconnected", mask_url(settings.url))
            bus.restore_streams()

    async def on_close() -> None:
        if bus is not None and not bus.closing:
            on_event("closed", f"{mask_url(settings.url)}: {client.last_error or 'no reason given'}")

    try:
        await within(
            settings.connect_timeout_seconds,
            client.connect(
                [address.strip() for address in settings.url.split(",")],
                name=name,
                error_cb=on_error,
                disconnected_cb=on_disconnect,
                reconnected_cb=on_reconnect,
                closed_cb=on_close,
                connect_timeout=2,
                reconnect_time_wait=settings.reconnect_wait_seconds,  # type: ignore[arg-type]  # any number of seconds
                max_reconnect_attempts=-1,
                ping_interval=5,
                max_outstanding_pings=2,
                inbox_prefix=login.inbox_prefix,
                user=settings.user,
                password=settings.password,
                token=settings.token,
                signature_cb=login.sign,
                user_jwt_cb=login.jwt,
                tls=login.tls,
                tls_hostname=login.server_name,
            ),
        )
    except (TimeoutError, Error, OSError, ValueError) as error:
        await _give_up(client)
        raise unreachable(settings, last_error or str(error) or "no answer", login) from error
    except BaseException:
        await _give_up(client)
        raise
    bus = NatsBus(client, settings, on_event, refusals)
    try:
        await check_permissions(client, bus.jetstream, settings, login, refusals)
    except BaseException:
        await bus.close()
        raise
    on_event("connected", mask_url(settings.url))
    return bus


async def _give_up(client: Client) -> None:
    with contextlib.suppress(Exception):  # half a connection has half of what closing it needs
        await client.close()
