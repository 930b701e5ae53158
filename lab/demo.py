"""The demo: a node under contention, first alone, then as Kubernetes would share it, then steered by the loop."""

import asyncio
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lab.cgroup_sandbox import SandboxUnavailable
from lab.cgroup_stage import CgroupStage
from lab.demo_report import Counts, PhaseFigures, Report, Schedule, Window, phase_figures, schedule
from lab.latency_records import read_requests, read_work
from lab.recording import Recording
from lab.sim_stage import SimStage
from lab.stage import Stage
from runtime.bus import Handler, Received
from runtime.config import read_file
from runtime.errors import ConfigError, TrimtabError
from runtime.fleet import Fleet
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import HOST, EmbeddedServer
from runtime.settings import BusSettings
from schemas.codec import DecodeError, decode, encode
from schemas.messages import AnyMessage, Command, Heartbeat, Mode, State
from schemas.subjects import ROOT, SERVICES, message_id, subject_of

NODE = "demo"
OBJECTIVES_SECONDS = {"latency-critical": 0.1, "default": 0.25}
RECORDED_AS = {"latency-critical": "api", "default": "monitor"}
MIN_DURATION_SECONDS = 30.0
_READY_SECONDS = 90.0


@dataclass(frozen=True)
class DemoOptions:
    """What the person asked for. `tick_seconds` None: two seconds, so that a short run has cycles enough."""

    duration_seconds: float
    run_dir: Path
    port: int = 0
    seed: int = 1
    tick_seconds: float = 2.0
    force_simulation: bool = False
    set_flags: tuple[str, ...] = ()


class Watcher:
    """What a view may want to know; every method may be left as it is."""

    def say(self, line: str) -> None:
        """A line of talk."""

    def phase(self, name: str, seconds: float) -> None:
        """A phase begins."""

    def message(self, message: AnyMessage) -> None:
        """A message was heard."""


@dataclass
class Demo:
    """One run. `run` always leaves the machine as it was, also when cancelled."""

    options: DemoOptions
    watcher: Watcher
    counts: Counts = field(default_factory=Counts)
    windows: list[Window] = field(default_factory=list)
    _ready: set[str] = field(default_factory=set)
    _all_ready: asyncio.Event = field(default_factory=asyncio.Event)
    _last_state: State | None = None

    async def run(self) -> Report:
        """The whole demo. Raises TrimtabError where it cannot start; on cancellation cleans up and re-raises."""
        stage, reason = self._choose_stage()
        run_dir = self.options.run_dir
        for folder in ("logs", "records"):
            (run_dir / folder).mkdir(parents=True, exist_ok=True)
        server = EmbeddedServer(run_dir / "nats", self.options.port)
        fleet = Fleet(run_dir / "trimtab.yaml", run_dir, flags=self.options.set_flags, place=stage.place)
        recording = Recording(run_dir / "recording.jsonl")
        bus: NatsBus | None = None
        originals: dict[str, str] = {}
        restored, interrupted = False, True
        pids: dict[str, int] = {}
        try:
            url = await server.start()
            (run_dir / "nats.url").write_text(url + "\n", encoding="utf-8")
            self.watcher.say(f"nats-server at {url} (try: nats sub -s {url} '{ROOT}.>')")
            await stage.open(run_dir)
            originals = stage.weights()
            self._write_config(stage, url)
            bus = await connect(BusSettings(url=url), "trimtab-demo", ignore_events)
            await bus.subscribe(f"{ROOT}.>", self._listener(recording), limit=10_000)
            await fleet.start()
            pids = fleet.pids()
            await self._until_ready(fleet)
            await self._phases(stage, bus, fleet, schedule(self.options.duration_seconds))
            pids = fleet.pids()
            interrupted = False
        finally:
            self.watcher.say("stopping: the actuator returns every weight")
            await asyncio.shield(asyncio.ensure_future(fleet.stop()))
            restored = bool(originals) and stage.weights() == originals
            if bus is not None:
                await bus.close()
            await server.stop()
            left = await stage.close()
            recording.close()
            for path in left:
                self.watcher.say(f"could not remove {path}")
        return self._report(stage, reason, fleet, pids, originals, restored=restored, interrupted=interrupted)

    # ---- setting up ----

    def _choose_stage(self) -> tuple[Stage, str | None]:
        if not self.options.force_simulation:
            try:
                stage = CgroupStage(self.options.duration_seconds, self.options.seed)
            except SandboxUnavailable as error:
                reason = f"{error.reason}. To use real cgroups: {error.remedy}"
            else:
                self.watcher.say(f"real cgroups: {stage.host.cgroup_root}/{stage.host.pods_root}")
                return stage, None
        else:
            reason = "asked for with --simulate"
        self.watcher.say(f"SIMULATED NODE, no real cgroups: {reason}")
        return SimStage(self.options.seed), reason

    def _write_config(self, stage: Stage, url: str) -> None:
        run_dir, tick = self.options.run_dir, self.options.tick_seconds
        workloads = [
            {
                "uid": pod.uid,
                "name": pod.name,
                "group": pod.group,
                "labels": {"trimtab.dev/workload-class": pod.cls},
                "metrics_url": pod.metrics_url,
                "latency_metric": pod.latency_metric,
            }
            for pod in stage.pods
        ]
        _write_yaml(run_dir / "workloads.yaml", {"workloads": workloads})
        classes: dict[str, object] = {
            "latency-critical": {"objective_p99_seconds": OBJECTIVES_SECONDS["latency-critical"]},
            "default": {"objective_p99_seconds": OBJECTIVES_SECONDS["default"], "importance": 0.5},
            "batch": {"kind": "throughput"},
        }
        config: dict[str, object] = {
            "version": 1,
            "node": NODE,
            "mode": "shadow",
            "loop": {"tick_seconds": tick, "settle_seconds": round(tick * 0.45, 3)},
            "weights": {"max_changes_per_minute": round(60.0 / tick)},
            "classes": classes,
            "bus": {"url": url},
            "http": {"base_port": _free_ports(len(SERVICES))},
            "host": msgspec.to_builtins(stage.host),
            "collector": {
                "workloads": str(run_dir / "workloads.yaml"),
                "scrape_timeout_seconds": round(min(1.0, tick * 0.2), 3),
                "max_window_seconds": round(6 * tick, 3),
            },
            "decider": {"seed": self.options.seed},
            "guard": {"regression_floor_ratio": 0.5},
            "actuator": {"journal": str(run_dir / "journal"), "dead_man_seconds": round(max(5.0, 3 * tick), 3)},
        }
        _write_yaml(run_dir / "trimtab.yaml", config)
        read_file(str(run_dir / "trimtab.yaml"))

    def _listener(self, recording: Recording) -> Handler:
        async def hear(received: Received) -> None:
            recording.add(received, time.time_ns())
            try:
                message = decode(received.payload)
            except DecodeError:
                return
            if isinstance(message, Heartbeat):
                self._ready.add(message.service)
                if self._ready >= set(SERVICES):
                    self._all_ready.set()
                return
            if isinstance(message, State):
                self._last_state = message
            self.counts.add(message)
            self.watcher.message(message)

        return hear

    async def _until_ready(self, fleet: Fleet) -> None:
        failed = fleet.supervisor.failed
        assert failed is not None
        waiting = asyncio.ensure_future(self._all_ready.wait())
        waits: set[asyncio.Future[Any]] = {waiting, failed}
        await asyncio.wait(waits, timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ready = waiting.done()
        waiting.cancel()
        if failed.done():
            raise TrimtabError(failed.result())
        if not ready:
            missing = ", ".join(sorted(set(SERVICES) - self._ready))
            raise TrimtabError(f"not ready after {_READY_SECONDS:g} s: {missing}; see {self.options.run_dir / 'logs'}")

    # ---- the phases ----

    async def _phases(self, stage: Stage, bus: NatsBus, fleet: Fleet, times: Schedule) -> None:
        await self._phase("solo", times.solo_seconds, times.settle_seconds, fleet)
        await stage.start_batch()
        await self._phase("baseline", times.baseline_seconds, times.settle_seconds, fleet)
        await self._order(bus, "active", "the controlled phase begins")
        await self._phase("learning", times.learning_seconds, 0.0, fleet)
        await self._phase("controlled", times.controlled_seconds, 0.0, fleet)

    async def _phase(self, name: str, seconds: float, unmeasured: float, fleet: Fleet) -> None:
        self.watcher.phase(name, seconds)
        start = time.time()
        failed = fleet.supervisor.failed
        assert failed is not None
        done, _ = await asyncio.wait({failed}, timeout=seconds)
        if done:
            raise TrimtabError(failed.result())
        self.windows.append(Window(name, start + unmeasured, time.time()))

    async def _order(self, bus: NatsBus, mode: Mode, reason: str) -> None:
        state = self._last_state
        command = Command(
            node=NODE,
            boot=state.boot if state else "demo",
            cycle=state.cycle if state else 0,
            at=time.time_ns(),
            verb="mode",
            by="trimtab demo",
            reason=reason,
            mode=mode,
            id=secrets.token_hex(4),
        )
        await bus.publish(subject_of(command), encode(command), msg_id=message_id(command))

    # ---- the report ----

    def _report(
        self,
        stage: Stage,
        reason: str | None,
        fleet: Fleet,
        pids: dict[str, int],
        originals: dict[str, str],
        *,
        restored: bool,
        interrupted: bool,
    ) -> Report:
        requests = {name: read_requests(stage.record_of(pod)).records for name, pod in RECORDED_AS.items()}
        work = read_work(stage.record_of("batch")).records
        figures: dict[str, PhaseFigures] = {
            window.name: phase_figures(window, requests, work, OBJECTIVES_SECONDS) for window in self.windows
        }
        state = self._last_state
        final = {name: seen.weight for name, seen in state.classes.items() if seen.weight} if state else {}
        return Report(
            backend=stage.backend,
            backend_reason=reason,
            duration_seconds=self.options.duration_seconds,
            cpus=stage.cpus,
            pids=pids,
            restarts=dict(fleet.supervisor.restarts),
            cycles=len(self.counts.cycles),
            complete_cycles=self.counts.complete,
            counts=self.counts.as_dict(),
            phases={name: figures[name] for name in ("solo", "baseline", "controlled") if name in figures},
            learning=figures.get("learning", {}),
            initial_weights={group: text.strip() for group, text in originals.items()},
            final_class_weights={name: weight for name, weight in final.items() if weight is not None},
            restored=restored,
            recording=str(self.options.run_dir / "recording.jsonl"),
            run_dir=str(self.options.run_dir),
            interrupted=interrupted,
        )


def check_options(options: DemoOptions) -> None:
    """Raises ConfigError for what cannot be run."""
    if options.duration_seconds < MIN_DURATION_SECONDS:
        raise ConfigError(
            f"--duration {options.duration_seconds:g}: three phases need at least {MIN_DURATION_SECONDS:g} seconds"
        )
    if not 0 <= options.port <= 65_535:  # noqa: PLR2004 - the range of TCP ports
        raise ConfigError(f"--port {options.port}: must be 0 (any free one) to 65535")


def _write_yaml(path: Path, tree: dict[str, object]) -> None:
    path.write_bytes(msgspec.yaml.encode(tree))


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that nothing listens on; 0 if none are found."""
    for base in range(9401, 9401 + 100 * count, count):
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
