"""A rig: a stage, a NATS server and the five services, heard by one listener. The demo and the tests run on it."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lab.record.recorder import new_header, record_now
from lab.record.settings import settings_of
from lab.recording import Recording
from lab.sections import SECTIONS
from lab.stage import Stage
from runtime.bus import Received
from runtime.config import load
from runtime.errors import HostError, TrimtabError
from runtime.flags import assignments
from runtime.fleet import Fleet
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import HOST, EmbeddedServer
from runtime.settings import BusSettings
from runtime.yaml_text import parse_yaml
from schemas.codec import DecodeError, decode_on, encode
from schemas.messages import AnyMessage, Command, Heartbeat, Mode, State
from schemas.settings import DEFAULT_CLASSES
from schemas.subjects import ROOT, SERVICES, message_id, subject_of

NODE = "demo"
RECORDING = "recording.jsonl"
RECORDED = "run.recording"
OBJECTIVES_SECONDS = {"latency-critical": 0.1, "default": 0.25}
CEILINGS = {name: spec.objective_pressure_ratio for name, spec in DEFAULT_CLASSES.items()}
_READY_SECONDS = 90.0
_RECORD_SECONDS = 30.0
_MIN_REQUESTS = 10
"""Enough for the second look at the monitor: it runs twenty times a second, and the window is 0.9 s at a tick of 2."""


def _ignore(message: AnyMessage) -> None:
    """For a rig that nobody watches."""


@dataclass(frozen=True)
class RigOptions:
    """How the rig is set up. `port` 0: any free one. `flags` go to every service. Without `metrics` the agent knows of
    no metrics endpoint: it steers by what the kernel shows. `access` is the server's file of users and TLS, `bus` how
    all reach it, but for its address; where `bus` declares no streams, somebody has made them before `start`. `record`:
    at the end the streams go into `RECORDED`, which `trimtab replay` reads.
    """

    run_dir: Path
    port: int = 0
    seed: int = 1
    tick_seconds: float = 2.0
    flags: tuple[str, ...] = ()
    metrics: bool = True
    access: Path | None = None
    bus: BusSettings = field(default_factory=BusSettings)
    record: bool = False


@dataclass
class Rig:
    """Started once, closed once; closing restores every weight and removes everything."""

    stage: Stage
    options: RigOptions
    on_message: Callable[[AnyMessage], None] = _ignore
    url: str = ""
    originals: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    last_state: State | None = None
    recorded: Path | None = None
    not_recorded: str | None = None
    fleet: Fleet = field(init=False)
    bus: NatsBus | None = None
    server: EmbeddedServer = field(init=False)
    recording: Recording = field(init=False)
    _ready: set[str] = field(default_factory=set)
    _all_ready: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Makes the run's folders; nothing is started yet. What an earlier run left there is set aside: its orders
        and records would be taken for this one's.
        """
        run_dir = self.options.run_dir
        set_aside(run_dir)
        for folder in ("logs", "records"):
            (run_dir / folder).mkdir(parents=True, exist_ok=True)
        self.server = EmbeddedServer(run_dir / "nats", self.options.port, self.options.access)
        self.fleet = Fleet(
            run_dir / "trimtab.yaml", run_dir, flags=self.options.flags, place=self.stage.place, inherit_settings=False
        )
        self.recording = Recording(run_dir / RECORDING)

    async def start_server(self) -> str:
        """The server alone; its URL."""
        self.url = await self.server.start()
        _write(self.options.run_dir / "nats.url", self.url + "\n")
        return self.url

    async def start(self) -> None:
        """The stage and the five services, ready. Raises TrimtabError."""
        if not self.url:
            await self.start_server()
        await self.stage.open(self.options.run_dir)
        self.originals = self.stage.weights()
        write_config(self.stage, self.options, self.url)
        settings = msgspec.structs.replace(self.options.bus, url=self.url)
        self.bus = await connect(settings, "trimtab-rig", ignore_events)
        await self.bus.subscribe(f"{ROOT}.>", self._hear, limit=10_000)
        await self.fleet.start()
        await self._until_ready()
        await self.stage.start_load()

    async def close(self) -> bool:
        """Ends everything, the services first, whatever goes wrong on the way; whether every weight is what it was and
        nothing is left. Otherwise `troubles` says what.
        """
        for end in (self.fleet.stop, self._compare, self._record, self._close_bus, self.server.stop, self._close_stage):
            try:
                await end()
            except TrimtabError as error:
                self.troubles.append(str(error))
            except Exception as error:  # noqa: BLE001 - what comes later must happen, whatever failed before
                self.troubles.append(f"{type(error).__name__}: {error}")
        self.recording.close()
        return not self.troubles

    async def _compare(self) -> None:
        if not self.fleet.pids():
            return  # no service ever ran: nobody changed a weight
        now = self.stage.weights()
        changed = [
            f"{group}: {now.get(group, 'gone').strip()}, was {original.strip()}"
            for group, original in self.originals.items()
            if now.get(group) != original
        ]
        if changed or not self.originals:
            raise HostError(f"not every weight is what it was: {'; '.join(changed) or 'none could be read'}")

    async def _record(self) -> None:
        """Keeps the streams. That this failed is no reason to call the machine anything but restored."""
        if not self.options.record or self.bus is None or not self.fleet.pids():
            return
        path = self.options.run_dir / RECORDED
        config = load(SECTIONS, path=str(self.options.run_dir / "trimtab.yaml"), env={})
        try:
            async with asyncio.timeout(_RECORD_SECONDS):
                await record_now(self.bus, path, new_header(time.time_ns(), [settings_of(config, NODE)]))
        except (TrimtabError, TimeoutError, OSError) as error:
            self.not_recorded = f"{path}: {type(error).__name__}: {error}"
        else:
            self.recorded = path

    async def _close_bus(self) -> None:
        if self.bus is not None:
            await self.bus.close()

    async def _close_stage(self) -> None:
        left = await self.stage.close()
        if left:
            raise HostError(f"could not be removed: {', '.join(left)}")

    async def server_ended(self) -> None:
        """Returns when the server's process has ended."""
        assert self.server.child is not None
        await self.server.child.process.wait()

    async def order(self, mode: Mode, reason: str, by: str = "trimtab demo") -> None:
        """Orders a mode, as an operator does."""
        state = self.last_state
        command = Command(
            node=NODE,
            boot=state.boot if state else "operator",
            cycle=state.cycle if state else 0,
            at=time.time_ns(),
            verb="mode",
            by=by,
            reason=reason,
            mode=mode,
            id=secrets.token_hex(4),
        )
        assert self.bus is not None
        await self.bus.publish(subject_of(command), encode(command), msg_id=message_id(command))

    @property
    def failed(self) -> "asyncio.Future[str]":
        """Set when a service cannot start."""
        assert self.fleet.supervisor.failed is not None
        return self.fleet.supervisor.failed

    async def _hear(self, received: Received) -> None:
        self.recording.add(received, time.time_ns())
        try:
            message = decode_on(received.subject, received.payload)
        except DecodeError:
            return
        if isinstance(message, Heartbeat):
            self._ready.add(message.service)
            if self._ready >= set(SERVICES):
                self._all_ready.set()
        elif isinstance(message, State):
            self.last_state = message
        self.on_message(message)

    async def _until_ready(self) -> None:
        waiting = asyncio.ensure_future(self._all_ready.wait())
        waits: set[asyncio.Future[Any]] = {waiting, self.failed}
        await asyncio.wait(waits, timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ready = waiting.done()
        waiting.cancel()
        if self.failed.done():
            raise TrimtabError(self.failed.result())
        if not ready:
            missing = ", ".join(sorted(set(SERVICES) - self._ready))
            raise TrimtabError(f"not ready after {_READY_SECONDS:g} s: {missing}; see {self.options.run_dir / 'logs'}")


def write_config(stage: Stage, options: RigOptions, url: str) -> None:
    """`trimtab.yaml` and `workloads.yaml` of the run: what a person would write for this stage."""
    run_dir, tick = options.run_dir, options.tick_seconds
    workloads = [
        {
            "uid": pod.uid,
            "name": pod.name,
            "group": pod.group,
            "labels": {"trimtab.dev/workload-class": pod.cls},
            "metrics_url": pod.metrics_url if options.metrics else None,
            "latency_metric": pod.latency_metric if options.metrics else None,
        }
        for pod in stage.pods
    ]
    _write(run_dir / "workloads.yaml", msgspec.yaml.encode({"workloads": workloads}).decode())
    config = common_settings(tick, options.seed)
    config["bus"] = msgspec.to_builtins(msgspec.structs.replace(options.bus, url=url))
    config["http"] = {"base_port": _free_ports(len(SERVICES))}
    config["host"] = {
        "cgroup_root": stage.host.cgroup_root,
        "pods_root": stage.host.pods_root,
        "proc_root": stage.host.proc_root,
        "simulated": stage.host.simulated,
    }
    config["collector"] = {**config["collector"], "workloads": str(run_dir / "workloads.yaml")}
    config["actuator"] = {**config["actuator"], "journal": str(run_dir / "journal")}
    for path, text, flag in assignments([flag for flag in options.flags if flag != "--set"]):
        _put(config, path.split("."), parse_yaml(str(text), f"flag {flag}: {path}"))
    _write(run_dir / "trimtab.yaml", msgspec.yaml.encode(config).decode())


def _put(settings: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Sets one setting in a tree of them, so that the file alone says how the run was set up."""
    *sections, name = path
    for section in sections:
        settings = settings.setdefault(section, {})
    settings[name] = value


def common_settings(tick_seconds: float, seed: int) -> dict[str, Any]:
    """The settings of a rig that depend on neither the stage nor the machine."""
    tick = tick_seconds
    return {
        "version": 1,
        "node": NODE,
        "mode": "shadow",
        "loop": {"tick_seconds": tick, "settle_seconds": round(tick * 0.45, 3)},
        "weights": {"max_changes_per_minute": round(60.0 / tick)},
        "classes": {
            "latency-critical": {
                "objective_p99_seconds": OBJECTIVES_SECONDS["latency-critical"],
                "objective_pressure_ratio": CEILINGS["latency-critical"],
            },
            "default": {
                "objective_p99_seconds": OBJECTIVES_SECONDS["default"],
                "objective_pressure_ratio": CEILINGS["default"],
                "importance": 0.5,
            },
            "batch": {"kind": "throughput"},
        },
        "collector": {
            "scrape_timeout_seconds": round(min(1.0, tick * 0.18), 3),
            "max_window_seconds": round(6 * tick, 3),
            "min_requests": _MIN_REQUESTS,
        },
        "decider": {"seed": seed},
        "guard": {"apply_within_seconds": round(min(0.5, tick * 0.25), 3)},
        "actuator": {"dead_man_seconds": round(max(5.0, 3 * tick), 3)},
        "rewarder": {
            "min_requests": _MIN_REQUESTS,
            "answer_timeout_seconds": round(min(1.5, 0.5 * tick), 3),
        },
    }


def set_aside(run_dir: Path) -> Path | None:
    """Moves an earlier run's files into `earlier-<n>` beside them; where to, or None if there are none."""
    left = [path for path in run_dir.iterdir() if not path.name.startswith("earlier-")] if run_dir.is_dir() else []
    if not any(path.name == RECORDING for path in left):
        return None
    number = 1 + sum(path.name.startswith("earlier-") for path in run_dir.iterdir())
    target = run_dir / f"earlier-{number}"
    target.mkdir()
    for path in left:
        path.rename(target / path.name)
    return target


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that nothing listens on; 0 (any) if none are found. The search begins at a
    place of this process's own, so that two runs that start together do not meet.
    """
    first = 9401 + count * (os.getpid() % 4000)
    for base in range(first, first + 100 * count, count):
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    return 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
