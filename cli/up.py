"""`trimtab up`: the five services together, watched; with `--embedded` also the NATS server."""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from runtime.config import describe, load
from runtime.errors import TrimtabError
from runtime.fleet import Fleet
from runtime.lifecycle import add_config_flags, overrides_of
from runtime.logs import set_up
from runtime.nats_server import EmbeddedServer
from schemas.settings import Section
from services.actuator.config import ActuatorConfig
from services.collector.config import CollectorConfig
from services.decider.config import DeciderConfig
from services.guard.config import GuardConfig
from services.rewarder.config import RewarderConfig

SECTIONS: dict[str, type[Section]] = {
    "collector": CollectorConfig,
    "decider": DeciderConfig,
    "guard": GuardConfig,
    "actuator": ActuatorConfig,
    "rewarder": RewarderConfig,
}


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The verb and its flags."""
    parser = verbs.add_parser("up", help="run the five services together", description=__doc__)
    add_config_flags(parser)
    parser.add_argument("--embedded", action="store_true", help="start a NATS server on loopback for them")
    parser.add_argument("--port", type=int, default=4222, help="its port (default: 4222; 0: any free one)")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="logs, pids.json and the server's store")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs until a signal. Every section of the configuration is checked before anything starts."""
    overrides = overrides_of(args)
    config = load(SECTIONS, path=args.config, overrides=overrides)
    if args.print_config:
        print("\n".join(describe(config)))
        return 0
    for warning in config.warnings:
        print(f"trimtab up: {warning}", file=sys.stderr)
    if config.section("collector", CollectorConfig).workloads is None:
        raise TrimtabError("collector.workloads: is not set; name the YAML file that lists this node's workloads")
    set_up(config.log)
    run_dir = (args.run_dir or Path(tempfile.mkdtemp(prefix="trimtab-up-"))).absolute()
    run_dir.mkdir(parents=True, exist_ok=True)
    flags = [part for path, value, _ in overrides for part in ("--set", f"{path}={value}")]
    asyncio.run(_live(args, run_dir, flags))
    return 0


async def _live(args: argparse.Namespace, run_dir: Path, flags: list[str]) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    server = EmbeddedServer(run_dir / "nats", args.port) if args.embedded else None
    config = args.config or _empty_config(run_dir)
    try:
        if server is not None:
            url = await server.start()
            (run_dir / "nats.url").write_text(url + "\n", encoding="utf-8")
            flags += ["--nats-url", url]
        fleet = Fleet(Path(config), run_dir, flags=tuple(flags))
        try:
            await fleet.start()
            print(f"trimtab up: five services run; logs and pids.json in {run_dir}", file=sys.stderr, flush=True)
            await _until(stop, fleet, server)
        finally:
            await asyncio.shield(asyncio.ensure_future(fleet.stop()))
    finally:
        if server is not None:
            await server.stop()


def _empty_config(run_dir: Path) -> Path:
    path = run_dir / "trimtab.yaml"
    path.write_text("version: 1\n", encoding="utf-8")
    return path


async def _until(stop: asyncio.Event, fleet: Fleet, server: EmbeddedServer | None) -> None:
    waits: set[asyncio.Future[object]] = {asyncio.ensure_future(stop.wait())}
    if fleet.supervisor.failed is not None:
        waits.add(asyncio.ensure_future(_failed(fleet.supervisor.failed)))
    if server is not None and server.child is not None:
        waits.add(asyncio.ensure_future(server.child.process.wait()))
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        if task.exception() is not None:
            raise task.exception() or TrimtabError("a service failed")
    if server is not None and not server.alive and not stop.is_set():
        raise TrimtabError(f"the NATS server ended; see {fleet.run_dir / 'nats' / 'nats-server.log'}")


async def _failed(failure: "asyncio.Future[str]") -> object:
    raise TrimtabError(await failure)
