"""Runs one service object on a `MemoryBus` and a `ManualClock`: no process, no network, no waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from runtime.clock import ManualClock, settle
from runtime.config import Config, load
from runtime.health import Health
from runtime.lifecycle import Context, Service
from runtime.logs import get_log
from runtime.memory_bus import MemoryBus
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from schemas.codec import decode, encode
from schemas.messages import AnyMessage
from schemas.settings import Section
from schemas.subjects import ROOT, message_id, subject_of
from tests.support.builders import NODE

M = TypeVar("M", bound=AnyMessage)
S = TypeVar("S", bound=Service)


class SlowBus(MemoryBus):
    """A bus on which messages of one kind take their time to leave, while everybody else goes on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Delivers, after everybody else had many turns if it is of the slow kind."""
        if subject.startswith(f"{ROOT}.{self._kind}."):
            await settle(100)
        await super().publish(subject, payload, msg_id=msg_id)


@dataclass
class Harness(Generic[S]):
    """A service under test, and its world. `inject` plays the others; `sent` is what the service said."""

    service: S
    context: Context
    bus: MemoryBus
    clock: ManualClock
    _injected: set[int] = field(default_factory=set)
    _running: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """What the bus has seen before is not the service's."""
        self._injected |= set(range(len(self.bus.history)))

    async def start(self) -> None:
        """Starts it and runs its `run`, until the harness ends."""
        await self.service.start()
        self._running = asyncio.create_task(self.service.run())
        await settle()

    async def inject(self, *messages: AnyMessage) -> None:
        """Publishes what another service would, one after the other, and lets the service work on all of it."""
        for message in messages:
            await self.bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
            self._injected.add(len(self.bus.history) - 1)
        await settle(20 + 10 * len(messages))

    async def inject_raw(self, subject: str, *payloads: bytes) -> None:
        """Publishes bytes that need not be a message."""
        for payload in payloads:
            await self.bus.publish(subject, payload)
            self._injected.add(len(self.bus.history) - 1)
        await settle(20 + 10 * len(payloads))

    def at(self) -> int:
        """The wall clock now: the `at` of a message that is just made."""
        return self.clock.now_ns()

    async def advance(self, seconds: float) -> None:
        """Moves the clock and lets the service work."""
        await self.clock.advance(seconds)

    def sent(self, kind: type[M]) -> list[M]:
        """What the service itself published of one kind, in order."""
        own = [item for index, item in enumerate(self.bus.history) if index not in self._injected]
        return [message for item in own if isinstance(message := decode(item.payload), kind)]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample, 0 if it has none yet."""
        value = self.context.metrics.registry.get_sample_value(name, labels)
        return 0.0 if value is None else value

    def dropped(self, kind: str, reason: str) -> float:
        """How many messages of a kind were dropped for a reason."""
        return self.metric("trimtab_messages_dropped_total", kind=kind, reason=reason)

    async def stop(self) -> None:
        """Ends `run`, then the service, as the lifecycle does."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        await self.service.stop()
        await self.context.messenger.stop()


def config_of(name: str, section: type[Section], settings: Mapping[str, Any] | None = None) -> Config:
    """A checked configuration; `settings` are dotted paths. The environment is not read."""
    values = {"node": NODE, **(settings or {})}
    return load({name: section}, overrides=[(path, value, "test") for path, value in values.items()], env={})


@asynccontextmanager
async def harness(
    name: str,
    section: type[Section],
    create: Callable[[Context], S],
    settings: Mapping[str, Any] | None = None,
    *,
    start: bool = True,
    bus: MemoryBus | None = None,
    clock: ManualClock | None = None,
    boot: str = "service-boot",
    may_fail: bool = False,
) -> AsyncIterator[Harness[S]]:
    """The service in a harness, started unless told not to; stopped at the end.

    A bus can be given to start with a history; else its server's clock is the service's own. At the end no handler may have raised, unless `may_fail`.
    """
    config = config_of(name, section, settings)
    clock = clock or ManualClock()
    bus = bus or MemoryBus(clock.now_ns)
    metrics, log = CommonMetrics(name), get_log(name, node=config.shared.node)
    health = Health(stall_seconds=60.0, last_beat=clock.monotonic())
    context = Context(
        config, Messenger(bus, config.shared.node, metrics, clock, log), metrics, health, clock, log, boot=boot
    )
    made: Harness[S] = Harness(create(context), context, bus, clock)
    try:
        if start:
            await made.start()
        yield made
    finally:
        await made.stop()
        await bus.close()
    if not may_fail:
        assert bus.errors == []
