"""The bus on NATS: core publish/subscribe for control, JetStream pull consumers for learning.

Nothing is queued while disconnected: a control message that arrives late must not actuate. Reconnecting is for ever;
`on_event` hears of connects, disconnects and drops. One of the two modules that import `nats`.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

# nats-py imports aiohttp, for websockets, wherever it is installed: 10 MiB in each of five processes for nothing.
_aiohttp = sys.modules.get("aiohttp")
sys.modules["aiohttp"] = None  # type: ignore[assignment]  # an import of it now fails, which nats-py expects
from nats.aio.client import Client  # noqa: E402
from nats.aio.msg import Msg  # noqa: E402
from nats.aio.subscription import Subscription as NatsSubscription  # noqa: E402
from nats.errors import (  # noqa: E402
    ConnectionClosedError,
    ConnectionDrainingError,
    ConnectionReconnectingError,
    Error,
    MaxPayloadError,
    OutboundBufferLimitError,
    SlowConsumerError,
)
from nats.js import JetStreamContext  # noqa: E402
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: E402
from nats.js.errors import NotFoundError, ServiceUnavailableError  # noqa: E402

if _aiohttp is None:
    del sys.modules["aiohttp"]
else:
    sys.modules["aiohttp"] = _aiohttp

from runtime.bus import Entry, EntryHandler, Handler, Received, Stored  # noqa: E402
from runtime.bus_login import NO_TLS, REFUSED, Login, log_in, unreachable  # noqa: E402
from runtime.bus_refusals import Refusals  # noqa: E402
from runtime.errors import BusDown, BusError  # noqa: E402
from runtime.settings import BusSettings, mask_url  # noqa: E402
from runtime.streams import ensure_streams  # noqa: E402
from runtime.turns import Turns, end, within  # noqa: E402

EventHandler = Callable[[str, str], None]
"""Called with an event (`connected`, `disconnected`, `reconnected`, `closed`, `slow_consumer`, `handler_failed`, `gap`,
`refused`, `replayed`, `error`) and a line of detail. `refused`: this credential has no permission for what we tried;
`replayed`: a stored message came on a live subject. After `closed` nothing more comes: the server ended it for good."""

_FETCH_SECONDS = 5.0
_TIMEOUTS_BEFORE_CHECK = 3
_MAX_DELIVER = 5
_RETRY_SECONDS = 1.0
_SHARED_BY = 64
_STORED = "$JS.ACK."
"""What JetStream asks to be answered to; a live message asks for nothing that begins so."""
_STALLED_BYTES = 1 << 20
"""Bytes waiting for the socket at which the connection counts as down. nats-py itself would block at 2 MiB."""


class NatsBus:
    """The `Bus` protocol on one NATS connection. Made by `connect`."""

    def __init__(self, client: Client, settings: BusSettings, on_event: EventHandler) -> None:
        self._client = client
        self._settings = settings
        self._on_event = on_event
        self._readers: set[_Reader] = set()
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
            raise BusError(
                f"{stream}: {subject} was not stored ({type(error).__name__}: {error}), though whoever listens may "
                f"have heard it; check that the server runs with JetStream (-js) and that this account may publish it"
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

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> "_Consumer":
        """Calls `handler` for each stored message from where this durable stopped."""
        consumer = _Consumer(self, stream, durable, subject, handler)
        await consumer.declare()
        consumer.start()
        self._readers.add(consumer)
        return consumer

    async def watch_entry(self, bucket: str, key: str, handler: EntryHandler) -> "_Watcher":
        """Calls `handler` for the present value of `key` and every later one."""
        watcher = _Watcher(self, bucket, key, handler)
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
        try:
            return await self._last(stream, subject, limit)
        except (NotFoundError, ServiceUnavailableError):
            return []
        except (Error, TimeoutError) as error:
            raise BusError(
                f"{stream}: {subject} cannot be read ({type(error).__name__}: {error}); check that the server answers "
                f"and that this account may use $JS.API.>"
            ) from error

    async def kept_since_ns(self, stream: str) -> int:
        """When the oldest message that the stream still has was stored; 0 if it has all that it ever had."""
        try:
            info = await self.jetstream.stream_info(stream)
            state = info.state
            if state.first_seq <= 1:
                return 0
            if state.messages == 0:  # all too old
                return time.time_ns() - int((info.config.max_age or 0.0) * 1e9)
            first = await self.jetstream.get_msg(stream, seq=state.first_seq, subject=">", next=True)
        except (Error, TimeoutError) as error:
            raise BusError(
                f"{stream}: its oldest message cannot be read ({type(error).__name__}: {error}); check that the server "
                f"answers and that this account may use $JS.API.>"
            ) from error
        return _ns(first.time) if first.time is not None else 0

    async def _last(self, stream: str, subject: str, limit: int) -> list[Stored]:
        js = self.jetstream
        state = (await js.stream_info(stream, subjects_filter=subject)).state
        total = (state.subjects or {}).get(subject, 0)
        wanted = min(limit, total)
        if wanted <= 0:
            return []
        # Other subjects share the stream: start far enough back that `limit` of ours should follow, not at its begin.
        reach = limit * _SHARED_BY if total > limit else state.last_seq
        while True:
            start = max(state.first_seq, state.last_seq - reach, 1)
            subscription = await js.pull_subscribe(
                subject,
                stream=stream,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=start,
                    ack_policy=AckPolicy.NONE,
                    filter_subject=subject,
                    inactive_threshold=30.0,
                    mem_storage=True,
                ),
            )
            try:
                left = (await subscription.consumer_info()).num_pending or 0
                if left < wanted and start > state.first_seq:
                    reach *= _SHARED_BY
                    continue
                return await self._read(subscription, left, limit)
            finally:
                with contextlib.suppress(Error):
                    await subscription.unsubscribe()

    async def _read(self, subscription: JetStreamContext.PullSubscription, left: int, limit: int) -> list[Stored]:
        found: list[Stored] = []
        while left > 0:
            try:
                batch = await subscription.fetch(min(256, left), timeout=self._settings.request_timeout_seconds)
            except TimeoutError:
                if (await subscription.consumer_info()).num_pending:
                    raise
                break  # the rest has just grown too old
            left = batch[-1].metadata.num_pending
            read = [Stored(message.data, _ns(message.metadata.timestamp)) for message in batch]
            found = (found + read)[-limit:]
        return found

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

    def forget(self, reader: "_Reader") -> None:
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
    def __init__(self, subscription: NatsSubscription, turns: Turns) -> None:
        self._subscription = subscription
        self._turns = turns

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        with contextlib.suppress(Error):
            await self._subscription.unsubscribe()
        await self._turns.finish()


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


class _Reader:
    """Reads a stream in a task of its own, for ever: whatever ends `_pull` is told, and it begins again."""

    def __init__(self, bus: NatsBus, name: str) -> None:
        self._bus = bus
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._turns = Turns()

    def start(self) -> None:
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


class _Consumer(_Reader):
    """A durable pull consumer that survives the loss of its server, its stream and itself (NA-01)."""

    def __init__(self, bus: NatsBus, stream: str, durable: str, subject: str, handler: Handler) -> None:
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


class _Watcher(_Reader):
    """The values of one key of a bucket: the present one, then each later one by its revision.

    An ephemeral consumer, made anew after every reconnect from where we are. A bucket that was made anew begins anew.
    """

    def __init__(self, bus: NatsBus, bucket: str, key: str, handler: EntryHandler) -> None:
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
        entry = Entry(self._key, None if is_gone else message.data, revision, _ns(message.metadata.timestamp))
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
    client = _Client(login)
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
    bus = NatsBus(client, settings, on_event)
    try:
        await _check_permissions(client, bus, settings, login, refusals)
    except BaseException:
        await bus.close()
        raise
    on_event("connected", mask_url(settings.url))
    return bus


class _Client(Client):
    """nats-py's client, which would go on in clear text with a server that offers no TLS, whatever it was given."""

    def __init__(self, login: Login) -> None:
        super().__init__()
        self._needs_tls = login.tls is not None
        self._public_nkey = login.public_key  # nats-py itself takes it from a file only, with the package `nkeys`

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        if initial_connection and self._needs_tls and not info.get("tls_required"):
            raise Error(NO_TLS)
        await super()._process_info(info, initial_connection)


async def _check_permissions(
    client: Client, bus: NatsBus, settings: BusSettings, login: Login, refusals: Refusals
) -> None:
    """Finds out now what would else end in silence later, and makes the streams. Raises BusError."""
    if login.sign is not None:
        await _check_inbox(client, refusals, login.inbox_prefix)
    if settings.declare_streams:
        await _declare_streams(bus, refusals)


async def _check_inbox(client: Client, refusals: Refusals, prefix: str) -> None:
    """Raises BusError where answers would not arrive: every request would end in silence."""
    try:
        probe = await client.subscribe(client.new_inbox())
        await client.flush()  # nats-py lets this PING overtake what is pending; the next comes after it
        await client.flush()
        await probe.unsubscribe()
    except Error as error:
        raise BusError(f"bus.inbox_prefix: {prefix} cannot be tried ({type(error).__name__}: {error})") from error
    if refusals.first.done():
        raise BusError(
            f"bus.inbox_prefix: answers cannot arrive: {refusals.first.result()}; "
            f"set it to the prefix that belongs to this credential (`trimtab creds show DIR`)"
        )


async def _declare_streams(bus: NatsBus, refusals: Refusals) -> None:
    """Raises BusError when JetStream or the permissions refuse."""
    declaring = asyncio.create_task(ensure_streams(bus.jetstream))
    try:
        waits: set[asyncio.Future[Any]] = {declaring, refusals.first}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not declaring.done():
            declaring.cancel()
            await asyncio.wait({declaring})
    if declaring.cancelled():
        raise BusError(
            f"bus.declare_streams: {refusals.first.result()}; set it to false, and let `trimtab creds declare DIR` "
            f"make the streams"
        )
    declaring.result()


async def _give_up(client: Client) -> None:
    with contextlib.suppress(Exception):  # half a connection has half of what closing it needs
        await client.close()
