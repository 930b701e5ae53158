"""`trimtab up`: the five services together, watched; with `--embedded` also the NATS server."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cli.inputs import SECTIONS, make_run_dir
from runtime.bus import Received
from runtime.config import Config, describe, load
from runtime.errors import ConfigError, ServerError, TrimtabError
from runtime.flags import add_config_flags, overrides_of
from runtime.fleet import Fleet
from runtime.host_roots import find_roots
from runtime.logs import set_up
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import EmbeddedServer
from runtime.settings import BusSettings
from schemas.codec import DecodeError, decode_as
from schemas.messages import Heartbeat
from schemas.subjects import SERVICES, heartbeat_subject
from services.collector.config import NO_SOURCE, CollectorConfig
from services.collector.sources.workloads import read_workloads


class ServiceEnded(TrimtabError):
    """A service could not start; the exit code is the service's own."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code  # type: ignore[misc]  # of this one error


DEFAULT_PORT = 4222


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add_config_flags(parser)
    parser.add_argument("--embedded", action="store_true", help="start a NATS server on loopback for them")
    parser.add_argument(
        "--port", type=int, help=f"port of the embedded server (default: {DEFAULT_PORT}; 0: any free one)"
    )
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="logs, pids.json and the server's store")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs until a signal. What is wrong with settings, host or workloads is said before anything starts."""
    overrides = overrides_of(args)
    config = load(SECTIONS, path=args.config, overrides=overrides)
    if args.print_config:
        print("\n".join(describe(config)))
        return 0
    if args.port is not None and not args.embedded:
        raise ConfigError("flag --port: is the embedded server's; add --embedded, or set --nats-url for another server")
    for warning in config.warnings:
        print(f"trimtab up: {warning}", file=sys.stderr)
    _check_node(config)
    set_up(config.log)
    run_dir = make_run_dir(args.run_dir, "trimtab-up-")
    flags = [part for path, value, _ in overrides for part in ("--set", f"{path}={value}")]
    asyncio.run(_live(args, config, run_dir, flags))
    return 0


def _check_node(config: Config) -> None:
    """Raises ConfigError or HostError for what the collector and the actuator would refuse."""
    collector = config.section("collector", CollectorConfig)
    if collector.workloads is None and not collector.kubernetes:
        raise ConfigError(NO_SOURCE)
    roots = find_roots(config.host)
    if collector.workloads is not None:
        read_workloads(collector.workloads, os.path.join(roots.cgroup_root, roots.pods_root))


async def _live(args: argparse.Namespace, config: Config, run_dir: Path, flags: list[str]) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    port = DEFAULT_PORT if args.port is None else args.port
    server = EmbeddedServer(run_dir / "nats", port) if args.embedded else None
    settings = config.bus
    bus: NatsBus | None = None
    try:
        if server is not None:
            url = await server.start()
            (run_dir / "nats.url").write_text(url + "\n", encoding="utf-8")
            flags += ["--nats-url", url]
            settings = BusSettings(url=url)
        bus = await _reach(settings, stop)
        if bus is None:
            return
        fleet = Fleet(Path(args.config or _empty_config(run_dir)), run_dir, flags=tuple(flags))
        running = await _heartbeats(bus, config.shared.node)
        try:
            await fleet.start()
            await _until(stop, fleet, server, running)
        finally:
            await asyncio.shield(asyncio.ensure_future(fleet.stop()))
    finally:
        if bus is not None:
            await bus.close()
        if server is not None:
            await server.stop()


def _empty_config(run_dir: Path) -> Path:
    path = run_dir / "trimtab.yaml"
    path.write_text("version: 1\n", encoding="utf-8")
    return path


async def _reach(settings: BusSettings, stop: asyncio.Event) -> NatsBus | None:
    """The bus, so that five services need not find out one by one that there is none; None when a signal came first."""
    connecting = asyncio.ensure_future(connect(settings, "trimtab-up", ignore_events))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({connecting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if connecting.done():
        return connecting.result()
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    return None


async def _heartbeats(bus: NatsBus, node: str) -> asyncio.Event:
    """Set once every service was heard."""
    silent = set(SERVICES)
    heard_all = asyncio.Event()

    async def hear(received: Received) -> None:
        with contextlib.suppress(DecodeError):
            silent.discard(decode_as(received.payload, Heartbeat).service)
        if not silent:
            heard_all.set()

    await bus.subscribe(heartbeat_subject("*", node), hear)
    return heard_all


async def _until(stop: asyncio.Event, fleet: Fleet, server: EmbeddedServer | None, running: asyncio.Event) -> None:
    """Returns when told to stop. Raises TrimtabError when a service cannot start or the server ends."""
    failed = fleet.supervisor.failed
    assert failed is not None
    stopped = asyncio.ensure_future(stop.wait())
    started = asyncio.ensure_future(running.wait())
    waits: set[asyncio.Future[Any]] = {stopped, started, asyncio.ensure_future(asyncio.wait({failed}))}
    if server is not None and server.child is not None:
        waits.add(asyncio.ensure_future(server.child.process.wait()))
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if done == {started}:
        print(f"trimtab up: five services run; logs and pids.json in {fleet.run_dir}", file=sys.stderr, flush=True)
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if stopped in done:
        return
    if failed.done():
        codes = (child.process.returncode for child in fleet.supervisor.children.values())
        raise ServiceEnded(failed.result(), next((code for code in codes if code and code > 0), 1))
    raise ServerError(f"the NATS server ended; see {fleet.run_dir / 'nats' / 'nats-server.log'}")
