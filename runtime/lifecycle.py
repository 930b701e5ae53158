"""The life of one service process: flags, config, logs, bus, HTTP, heartbeat, signals, and an orderly end.

SIGTERM and SIGINT drain: the service stops first, then the bus, then the process, with exit code 0. A lifeline (an
inherited pipe, see runtime/config.py) ends the process in the same way when its parent dies.
"""

import asyncio
import contextlib
import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.clock import Clock, SystemClock
from runtime.config import LIFELINE, Config, describe, load
from runtime.errors import BusUnreachable, TrimtabError
from runtime.flags import FlagParser, add_config_flags, overrides_of
from runtime.health import Health
from runtime.http import HttpServer
from runtime.logs import Log, get_log, set_up
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from runtime.nats_bus import EventHandler, NatsBus, connect
from runtime.settings import mask_url
from runtime.turns import end
from schemas.messages import Heartbeat, Mode
from schemas.settings import Section, Shared

STOP_SECONDS = 10.0
_QUIET_SECONDS = 10.0
_COUNTED = {"slow_consumer": "overflow", "handler_failed": "handler_failed", "replayed": "replayed"}


@dataclass
class Context:
    """What a service is given to work with."""

    config: Config
    messenger: Messenger
    metrics: CommonMetrics
    health: Health
    clock: Clock
    log: Log
    boot: str

    @property
    def shared(self) -> Shared:
        """The settings that all services agree on."""
        return self.config.shared


class Service(Protocol):
    """One of the five, wired."""

    async def start(self) -> None:
        """Subscribes and becomes ready."""
        ...

    async def run(self) -> None:
        """Works until cancelled."""
        ...

    async def stop(self) -> None:
        """Leaves things as they should be left. Called once, also when `run` failed."""
        ...

    @property
    def cycle(self) -> int:
        """The last cycle worked on."""
        ...

    @property
    def mode(self) -> Mode | None:
        """The mode it works in, if it knows."""
        ...

    @property
    def paces_itself(self) -> bool:
        """Whether it calls `health.beat` in a loop of its own; else its event loop's turning is its health."""
        ...


@dataclass(frozen=True)
class ServiceDefinition:
    """What `run_service` must know of a service."""

    name: str
    section: type[Section]
    create: Callable[[Context], Service]
    recover: Callable[[Config, Log, bool], None] | None = None
    """Puts right what an earlier, killed run left behind; before the bus is looked for, which may be down too. With
    True (`--restore`) it must succeed or raise."""


def run_service(definition: ServiceDefinition, argv: Sequence[str] | None = None) -> int:
    """Runs the service until a signal. Returns the exit code; errors are one line on stderr."""
    parser = FlagParser(prog=f"python -m services.{definition.name}", description=definition.name)
    add_config_flags(parser)
    parser.add_argument("--http-port", type=int, help="port of /healthz, /readyz, /metrics (0: any)")
    if definition.recover is not None:
        parser.add_argument("--restore", action="store_true", help="put right what a killed run left behind, and exit")
    try:
        args = parser.parse_args(argv)
        config = load({definition.name: definition.section}, path=args.config, overrides=overrides_of(args))
        if args.print_config:
            print("\n".join(describe(config)))  # noqa: T201 - data on stdout
            return 0
        set_up(config.log)
        if definition.recover is not None:
            definition.recover(config, get_log(definition.name, node=config.shared.node), args.restore)
            if args.restore:
                return 0
        port = args.http_port if args.http_port is not None else config.http.port_of(definition.name)
        asyncio.run(_live(definition, config, port))
    except TrimtabError as error:
        print(f"trimtab {definition.name}: {error}", file=sys.stderr)  # noqa: T201 - the one line
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


async def _live(definition: ServiceDefinition, config: Config, port: int) -> None:
    clock = SystemClock()
    shared = config.shared
    log = get_log(definition.name, node=shared.node)
    for warning in config.warnings:
        log.warning("setting_ignored", detail=warning)
    metrics = CommonMetrics(definition.name)
    health = Health(stall_seconds=3 * shared.loop.tick_seconds + 5.0, last_beat=clock.monotonic())
    health.require("bus", f"not yet connected to {mask_url(config.bus.url)}")
    health.require("service", "starting")
    stop = asyncio.Event()
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _on_end(stop, log)
    http = HttpServer(metrics.registry, health, clock)
    await http.start(config.http.host, port)
    try:
        bus = await _connect(
            config,
            f"trimtab-{definition.name}-{shared.node}",
            bus_ear(metrics, health, log, lost),
            stop,
            lambda: health.beat(clock.monotonic()),
        )
    except BaseException:
        await http.close()
        raise
    if bus is None:
        await http.close()
        return
    messenger = Messenger(bus, shared.node, metrics, clock, log)
    context = Context(config, messenger, metrics, health, clock, log, boot=secrets.token_hex(4))
    service: Service | None = None
    try:
        service = definition.create(context)
        await service.start()
        health.require("service", None)
        log.info("started", port=http.port, pid=os.getpid(), boot=context.boot)
        await _until_stopped(service, context, definition.name, stop, lost)
    finally:
        log.info("stopping")
        health.require("service", "stopping")
        async with contextlib.AsyncExitStack() as rest:  # what comes later happens, whatever goes wrong before
            rest.push_async_callback(http.close)
            rest.push_async_callback(bus.close)
            rest.push_async_callback(messenger.stop)
            if service is not None:
                await _stop(service, log)
        log.info("stopped")


async def _connect(
    config: Config, name: str, on_bus: EventHandler, stop: asyncio.Event, beat: Callable[[], None]
) -> NatsBus | None:
    """The bus, or None when a signal came first. `beat` is called while it waits: who waits for the bus is alive."""
    connecting = asyncio.create_task(connect(config.bus, name, on_bus))
    stopped = asyncio.create_task(stop.wait())
    done: set[asyncio.Future[Any]] = set()
    while not done:
        beat()
        done, _ = await asyncio.wait({connecting, stopped}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if connecting.done():
        return connecting.result()
    await end(connecting)
    if not connecting.cancelled() and connecting.exception() is None:
        await connecting.result().close()
    return None


def bus_ear(
    metrics: CommonMetrics,
    health: Health,
    log: Log,
    lost: "asyncio.Future[None]",
    monotonic: Callable[[], float] = time.monotonic,
) -> EventHandler:
    """What the bus reports, as health, metrics and log; `lost` fails when the bus will not come back. What is counted
    is logged once in ten seconds: a flood would fill the disk with lines that all say the same.
    """
    told_at: dict[str, float] = {}

    def on_bus(event: str, detail: str) -> None:
        connected = event in ("connected", "reconnected")
        if connected or event in ("disconnected", "closed"):
            metrics.bus_connected.set(1 if connected else 0)
            health.require("bus", None if connected else f"not connected to {detail}")
        if event == "reconnected":
            metrics.reconnects.inc()
        if event in _COUNTED:
            metrics.dropped.labels("any", _COUNTED[event]).inc()
            if monotonic() - told_at.get(event, -math.inf) < _QUIET_SECONDS:
                return
            told_at[event] = monotonic()
        if event == "closed" and not lost.done():
            lost.set_exception(BusUnreachable(f"bus.url: the server ended the connection for good: {detail}"))
        (log.info if connected else log.warning)(f"bus_{event}", detail=detail)

    return on_bus


async def _stop(service: Service, log: Log) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS) as limit:
            await service.stop()
    except TimeoutError:
        if not limit.expired():
            raise
        log.error("stop_unfinished", seconds=STOP_SECONDS)


async def _until_stopped(
    service: Service, context: Context, name: str, stop: asyncio.Event, lost: "asyncio.Future[None]"
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(service.run())
            beat = group.create_task(_beat(service, context, name))
            ended = group.create_task(stop.wait())
            gone = group.create_task(_wait_for(lost))
            await asyncio.wait({work, beat, ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, beat, ended, gone):
                await end(task)
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from group_error


async def _wait_for(lost: "asyncio.Future[None]") -> None:
    await lost


async def _beat(service: Service, context: Context, name: str) -> None:
    """Tells the others, and the health, that the event loop turns: at least twice a tick."""
    interval = min(2.0, context.shared.loop.tick_seconds / 2)
    while True:
        if not service.paces_itself:
            context.health.beat(context.clock.monotonic())
            context.metrics.last_tick.set(context.clock.now_ns() / 1e9)
        if context.messenger.connected:
            ready, _ = context.health.ready()
            await context.messenger.send(
                Heartbeat(
                    node=context.shared.node,
                    boot=context.boot,
                    cycle=service.cycle,
                    at=context.clock.now_ns(),
                    service=name,
                    status="ok" if ready else "not_ready",
                    mode=service.mode,
                )
            )
        await context.clock.sleep(interval)


def _on_end(stop: asyncio.Event, log: Log) -> None:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    descriptor = os.environ.get(LIFELINE)
    if descriptor is not None and descriptor.isdigit():

        def parent_gone() -> None:
            loop.remove_reader(int(descriptor))
            log.warning("parent_gone")
            stop.set()

        try:
            loop.add_reader(int(descriptor), parent_gone)
        except OSError as error:  # a descriptor that did not come with the variable
            log.warning("lifeline_unusable", detail=str(error))
