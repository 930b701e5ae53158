"""The demo: a node under contention, first alone, then as Kubernetes would share it, then steered by the loop."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.cgroup_sandbox import SandboxUnavailable
from lab.cgroup_stage import CgroupStage
from lab.demo_report import Counts, PhaseFigures, Report, Schedule, Window, phase_figures, schedule
from lab.latency_records import read_requests, read_work
from lab.rig import OBJECTIVES_SECONDS, Rig, RigOptions
from lab.sim_stage import SimStage
from lab.stage import Stage
from runtime.errors import ConfigError, ServerError, TrimtabError
from runtime.nats_server import check_port_free
from schemas.messages import AnyMessage, Heartbeat
from schemas.subjects import ROOT

RECORDED_AS = {"latency-critical": "api", "default": "monitor"}
MIN_DURATION_SECONDS = 30.0
MIN_TICK_SECONDS = 1.0


@dataclass(frozen=True)
class DemoOptions:
    """What the person asked for. The tick is shorter than a node agent's, so that a short run has cycles enough."""

    duration_seconds: float
    run_dir: Path
    port: int = 0
    seed: int = 1
    tick_seconds: float = 2.0
    force_simulation: bool = False
    set_flags: tuple[str, ...] = ()
    metrics: bool = True


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
    restored: bool | None = None
    """Whether every weight is what it was and nothing is left. None: nothing was set up, and so nothing changed."""

    async def run(self) -> Report:
        """The whole demo. Raises TrimtabError where it cannot go on; on cancellation cleans up and re-raises."""
        options = self.options
        stage, reason = self._choose_stage()
        try:
            rig = Rig(
                stage,
                RigOptions(
                    options.run_dir,
                    options.port,
                    options.seed,
                    options.tick_seconds,
                    options.set_flags,
                    metrics=options.metrics,
                    record=True,
                ),
                on_message=self._hear,
            )
        except OSError as error:
            await stage.close()
            raise TrimtabError(f"{options.run_dir}: {error.strerror}; choose another --run-dir") from error
        pids: dict[str, int] = {}
        try:
            url = await rig.start_server()
            self.watcher.say(f"nats-server at {url} (watch it: trimtab tail --nats-url {url}, or nats sub '{ROOT}.>')")
            await rig.start()
            await self._phases(rig, schedule(options.duration_seconds))
            pids = rig.fleet.pids()
        finally:
            await _to_the_end(self._close(rig))
        return self._report(rig, reason, pids)

    async def _close(self, rig: Rig) -> None:
        is_set_up = bool(rig.originals)
        if is_set_up:
            self.watcher.say("stopping: the actuator returns every weight")
        is_closed = await rig.close()
        for trouble in rig.troubles:
            self.watcher.say(trouble)
        if rig.recorded is not None:
            self.watcher.say(
                f"recorded: trimtab replay {rig.recorded}, or trimtab explain last --recording {rig.recorded}"
            )
        elif rig.not_recorded is not None:
            self.watcher.say(f"not recorded: {rig.not_recorded}")
        self.restored = is_closed if is_set_up or not is_closed else None

    def _choose_stage(self) -> tuple[Stage, str | None]:
        if self.options.force_simulation:
            reason = "asked for with --simulate"
        else:
            try:
                stage = CgroupStage(self.options.duration_seconds, self.options.seed)
            except SandboxUnavailable as error:
                reason = f"{error.reason}. To use real cgroups: {error.remedy}"
            else:
                self.watcher.say(f"real cgroups: {stage.host.cgroup_root}/{stage.host.pods_root}")
                return stage, None
        self.watcher.say(f"SIMULATED NODE, no real cgroups: {reason}")
        return SimStage(self.options.seed), reason

    def _hear(self, message: AnyMessage) -> None:
        if not isinstance(message, Heartbeat):
            self.counts.add(message)
            self.watcher.message(message)

    # ---- the phases ----

    async def _phases(self, rig: Rig, times: Schedule) -> None:
        await self._phase("solo", times.solo_seconds, times.settle_seconds, rig)
        await rig.stage.start_batch()
        await self._phase("baseline", times.baseline_seconds, times.settle_seconds, rig)
        await rig.order("active", "the controlled phase begins")
        await self._phase("learning", times.learning_seconds, 0.0, rig)
        await self._phase("controlled", times.controlled_seconds, 0.0, rig)

    async def _phase(self, name: str, seconds: float, unmeasured: float, rig: Rig) -> None:
        self.watcher.phase(name, seconds)
        start = time.time()
        server = asyncio.ensure_future(rig.server_ended())
        waits: set[asyncio.Future[Any]] = {rig.failed, server}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        server.cancel()
        if rig.failed.done():
            raise TrimtabError(rig.failed.result())
        if not rig.server.alive:
            raise ServerError(f"the NATS server ended in the phase {name!r}; see {rig.server.log}")
        self.windows.append(Window(name, start + unmeasured, time.time()))

    # ---- the report ----

    def _report(self, rig: Rig, reason: str | None, pids: dict[str, int]) -> Report:
        stage, options = rig.stage, self.options
        requests = {name: read_requests(stage.record_of(pod)).records for name, pod in RECORDED_AS.items()}
        work = read_work(stage.record_of("batch")).records
        figures: dict[str, PhaseFigures] = {
            window.name: phase_figures(window, requests, work, OBJECTIVES_SECONDS) for window in self.windows
        }
        state = rig.last_state
        final = {name: seen.weight for name, seen in state.classes.items() if seen.weight} if state else {}
        return Report(
            backend=stage.backend,
            backend_reason=reason,
            duration_seconds=options.duration_seconds,
            cpus=stage.cpus,
            pids=pids,
            restarts=dict(rig.fleet.supervisor.restarts),
            cycles=len(self.counts.cycles),
            complete_cycles=self.counts.complete,
            counts=self.counts.as_dict(),
            phases={name: figures[name] for name in ("solo", "baseline", "controlled")},
            learning=figures["learning"],
            initial_weights={group: text.strip() for group, text in rig.originals.items()},
            final_class_weights={name: weight for name, weight in final.items() if weight is not None},
            restored=bool(self.restored),
            recording=str(options.run_dir / "recording.jsonl"),
            run_dir=str(options.run_dir),
        )


async def _to_the_end(call: Coroutine[object, object, None]) -> None:
    """Waits for the whole call, however often this task is cancelled meanwhile; then passes the cancellation on."""
    task = asyncio.ensure_future(call)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def check_options(options: DemoOptions) -> None:
    """Raises ConfigError for what cannot be run, PortInUse for a port that is taken."""
    if not MIN_DURATION_SECONDS <= options.duration_seconds <= 3600.0:  # noqa: PLR2004 - an hour
        raise ConfigError(
            f"--duration {options.duration_seconds:g}: three phases need {MIN_DURATION_SECONDS:g} to 3600 seconds"
        )
    if not MIN_TICK_SECONDS <= options.tick_seconds <= options.duration_seconds / 12:
        raise ConfigError(
            f"--tick {options.tick_seconds:g}: must be {MIN_TICK_SECONDS:g} to a twelfth of --duration, "
            f"{options.duration_seconds / 12:g} seconds"
        )
    if not 0 <= options.port <= 65_535:  # noqa: PLR2004 - the range of TCP ports
        raise ConfigError(f"--port {options.port}: must be 0 (any free one) to 65535")
    check_port_free(options.port, "--port", "stop what listens there, or choose another --port")
