"""Owns how a scenario is played on this machine's real cgroups, by the real five services.

The scenario is scaled to the CPUs that there are, at most two, less what its clients need of them (cgroup_loads.py says
how), and a request's work is made smaller by what the HTTP service around it costs; both are measured once per process.
What is left beside the model: the clients and the agent run on the same CPUs, ahead of the pods.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from lab.arena.cgroup_loads import beside_clients, lighter, scaled
from lab.arena.cgroup_pauses import Pause, PauseWatch, outside
from lab.arena.cgroup_records import Told, settled_share, told_of, windows_of
from lab.arena.cgroup_scene import AGENT, CLIENTS, Scene, open_scene
from lab.arena.episode import DECIDERS, summary
from lab.arena.results import Curves, Row
from lab.arena.scenario import Scenario, ServicePod, constant
from lab.arena.sim_world import CycleOutcome, outcome_of
from lab.arena.window import Window
from lab.latency_records import nearest_rank, read_requests
from lab.rig import Rig, RigOptions
from runtime.errors import HostError, ServerError, TrimtabError
from schemas.messages import Actuation, AnyMessage
from services.decider.config import DeciderConfig
from services.decider.core.zoo import POLICIES

ALONE: Final = "alone"
STATIC: Final = "static:"
_CLASSES: Final = ("latency-critical", "default", "batch")
FIXED_CYCLE_SECONDS: Final = 1.0
_PROBE_SECONDS: Final = 1.0
_PROBE_CYCLES: Final = 8
_PROBE_RATE: Final = 40.0


async def play(  # noqa: PLR0917 - what a run is, in the order of a sentence; the bench calls it so
    scenario: Scenario,
    policy: str,
    seed: int,
    cycles: int,
    tick_seconds: float,
    run_dir: Path,
    load_ratio: float = 1.0,
) -> tuple[Row, Curves]:
    """One run, with `load_ratio` of the scenario's requests. The row's shortfall, regrets and plateau are for the bench
    to say.

    `policy`: `alone` (no batch runs and nothing is steered: the best there can be); `static:PROFILE` with a profile's
    name, or weights of latency-critical, default and batch as in `static:100:10:1`; or a policy's name, as the bench or
    the decider knows it. Raises ValueError for a policy that is none, HostError where real cgroups cannot be had or
    were not left as found, TrimtabError for what goes wrong on the way.
    """
    decider = decider_of(policy)
    started = time.monotonic()
    costs = await request_costs(run_dir / "probe")
    scene = open_scene(scenario, cycles, tick_seconds, seed, costs.pod_seconds)
    scene.scenario = beside_clients(lighter(scaled(scenario, scene.cpus), load_ratio), costs.client_seconds, cycles)
    scene.with_batch = policy != ALONE
    options = RigOptions(run_dir, seed=seed, tick_seconds=tick_seconds, flags=flags_of(scene.scenario, decider))
    run = _Run(scene)
    try:
        rig = Rig(scene, options, on_message=run.hear)
    except OSError as error:
        await scene.close()
        raise TrimtabError(f"{run_dir}: {error.strerror}; choose another folder for the runs") from error
    failure: TrimtabError | None = None
    try:
        await rig.start()
        await run.through(rig, steered=policy != ALONE)
        await scene.stop_clients()
    except TrimtabError as error:
        failure = error
    except asyncio.CancelledError:
        sys.stderr.write("stopping: weights go back and groups are removed, which takes some seconds\n")
        raise
    finally:
        with undisturbed():
            is_restored = await rig.close()
    if not is_restored:
        raise HostError("; ".join([*([] if failure is None else [str(failure)]), *rig.troubles])) from failure
    if failure is not None:
        raise failure
    outcomes = run.outcomes()
    told = told_of(run.actuations, run.edges)
    minutes = cycles * tick_seconds / 60.0
    row = replace(
        summary(scene.scenario, policy, seed, outcomes, tick_seconds),
        changes_per_minute=told.changes / minutes,
        rollbacks=told.rollbacks,
        seconds=time.monotonic() - started,
        clients_share_settled=settled_share(CLIENTS, run.edges, run.used, scene.cpus),
        agent_share_settled=settled_share(AGENT, run.edges, run.used, scene.cpus),
    )
    return row, _curves(scene.scenario, policy, seed, outcomes, told)


@contextmanager
def undisturbed() -> Iterator[None]:
    """No Ctrl-C meanwhile: a second one, out of impatience, would leave groups and processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class _Run:
    """The scenario's clock: turns the scene at each cycle, and notes what was used until then."""

    scene: Scene
    actuations: list[Actuation] = field(default_factory=list)
    edges: list[float] = field(default_factory=list)
    used: list[dict[str, float]] = field(default_factory=list)

    def hear(self, message: AnyMessage) -> None:
        """Notes what the agent did."""
        if isinstance(message, Actuation):
            self.actuations.append(message)

    async def through(self, rig: Rig | None = None, *, steered: bool = False) -> None:
        """All cycles; `steered` from the first one's end on, so that every run shows where it came from. Raises
        TrimtabError where a service, the server or a pod has ended.
        """
        scene = self.scene
        await self._until(scene.begins_at, rig)
        for cycle in range(scene.cycles):
            scene.turn_to(cycle)
            self._note()
            if cycle == 1 and steered and rig is not None:
                await rig.order("active", "a bench run begins", by="trimtab bench")
            await self._until(scene.begins_at + (cycle + 1) * scene.cycle_seconds, rig)
            scene.check_alive()
        self._note()

    def _note(self) -> None:
        self.edges.append(time.time())
        self.used.append(self.scene.cpu_seconds())

    async def _until(self, unix_seconds: float, rig: Rig | None) -> None:
        wait = max(0.0, unix_seconds - time.time())
        if rig is None:
            await asyncio.sleep(wait)
            return
        server = asyncio.ensure_future(rig.server_ended())
        waits: set[asyncio.Future[Any]] = {rig.failed, server}
        await asyncio.wait(waits, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        server.cancel()
        if rig.failed.done():
            raise TrimtabError(rig.failed.result())
        if not rig.server.alive:
            raise ServerError(f"the NATS server ended; see {rig.server.log}")

    def due_seconds(self) -> dict[str, list[float]]:
        """When each service's requests were due, from the start of the run on, ascending."""
        return {
            pod.name: sorted(
                record.scheduled_unix_seconds - self.edges[0]
                for record in read_requests(self.scene.record_of(pod.name)).records
                if record.scheduled_unix_seconds >= self.edges[0]
            )
            for pod in self.scene.scenario.pods
            if isinstance(pod, ServicePod)
        }

    def outcomes(self, pauses: Sequence[Pause] = ()) -> list[CycleOutcome]:
        """What each cycle came to outside pauses, once the clients' records are whole."""
        return [outcome_of(self.scene.scenario, [window]) for window in self.windows(pauses)]

    def windows(self, pauses: Sequence[Pause] = ()) -> list[Window]:
        """What was seen in each cycle outside pauses, as above."""
        scene = self.scene
        records = {
            pod.name: outside(read_requests(scene.record_of(pod.name)).records, pauses)
            for pod in scene.scenario.pods
            if isinstance(pod, ServicePod)
        }
        return windows_of(scene.scenario, records, self.edges, self.used)


@dataclass(frozen=True)
class Fixed:
    """A run under fixed weights: each cycle's outcome, and that of the requests outside pauses of the machine; the CPU
    seconds of each pod and of the clients (CLIENTS) in each cycle; when requests were due, in seconds from the start,
    by pod; how many of each pod's were answered in each cycle, and not given up or turned away; and for how long the
    machine stood still.
    """

    outcomes: list[CycleOutcome]
    unpaused: list[CycleOutcome]
    cpu_seconds: list[dict[str, float]]
    due_seconds: dict[str, list[float]]
    answered: list[dict[str, int]]
    paused_seconds: float = 0.0


@dataclass(frozen=True)
class FixedRun:
    """What to play without an agent: a scenario as it is, not scaled, under weights by pod."""

    scenario: Scenario
    weights: Mapping[str, int]


async def play_fixed(
    runs: Sequence[FixedRun], heard: Callable[[int, Fixed], None], *, seed: int, cycles: int, run_dir: Path
) -> None:
    """Plays runs one after the other with the same pods' processes, which must therefore differ in rates and weights
    only, and have a bounded queue: what one leaves waiting is gone a second later. Tells of each with its place. Raises
    as `play`.
    """
    costs = await request_costs(run_dir / "probe")
    scene = open_scene(runs[0].scenario, cycles, FIXED_CYCLE_SECONDS, seed, costs.pod_seconds)
    try:
        await _open(scene, run_dir)
        for place, fixed in enumerate(runs):
            scene.scenario, scene.seed = fixed.scenario, seed + place
            for pod, weight in fixed.weights.items():
                scene.set_weight(pod, weight)
            _make_room(run_dir)
            await scene.start_load()
            run = _Run(scene)
            with PauseWatch() as watch:
                await run.through()
            await scene.stop_clients()
            fixed_run = Fixed(
                outcomes=run.outcomes(),
                unpaused=run.outcomes(watch.pauses),
                cpu_seconds=[
                    {name: after.get(name, used) - used for name, used in before.items()}
                    for before, after in pairwise(run.used)
                ],
                due_seconds=run.due_seconds(),
                answered=[answered_in(window) for window in run.windows()],
                paused_seconds=sum(end - start for start, end in watch.pauses),
            )
            heard(place, fixed_run)
    finally:
        left = await scene.close()
    if left:
        raise HostError(f"could not be removed: {', '.join(left)}")


def answered_in(window: Window) -> dict[str, int]:
    """Requests of each service pod that ended in the window with an answer."""
    return {
        name: len(pod.service.latencies_seconds) - pod.service.timeouts
        for name, pod in window.pods.items()
        if pod.service is not None
    }


@dataclass(frozen=True)
class RequestCosts:
    """CPU seconds that a request costs beside its work: its pod, and its client."""

    pod_seconds: float
    client_seconds: float


_measured: list[RequestCosts] = []


async def request_costs(run_dir: Path) -> RequestCosts:
    """What a request costs on this machine: measured the first time (about 15 s), known from then on. Raises as
    `play`.
    """
    if not _measured:
        _measured.append(await _measure(run_dir))
    return _measured[0]


async def _measure(run_dir: Path) -> RequestCosts:
    """An API that does next to nothing, alone with its client."""
    pod = ServicePod(
        name="api",
        cls="latency-critical",
        request_millicpu=1000,
        rate=constant(_PROBE_RATE),
        work_seconds=1e-5,
        workers=8,
    )
    probe = Scenario(name="probe", text="What a request costs.", pods=(pod,))
    scene = open_scene(probe, _PROBE_CYCLES, _PROBE_SECONDS, 1, 0.0)
    run = _Run(scene)
    try:
        await _open(scene, run_dir)
        await scene.start_load()
        await run.through()
        await scene.stop_clients()
    finally:
        await scene.close()
    answered = [outcome.ended["latency-critical"] for outcome in run.outcomes()]
    try:
        return RequestCosts(*(least_cost(answered, [used[name] for used in run.used]) for name in ("api", CLIENTS)))
    except ValueError as error:
        raise TrimtabError(f"what a request costs could not be measured: {error}; see {run_dir / 'logs'}") from error


def least_cost(answered: Sequence[int], used_seconds: Sequence[float]) -> float:
    """CPU seconds per request in the cheapest stretch: `answered` requests between each two readings of a counter. The
    least and not the mean, since a machine that loses its CPU to others counts that as use, too. A stretch with less
    than half the requests of the busiest does not count. Raises ValueError where no request was answered.
    """
    most = max(answered, default=0)
    if most == 0:
        raise ValueError("no request was answered")
    pairs = zip(answered, pairwise(used_seconds), strict=True)
    return min((after - before) / count for count, (before, after) in pairs if 2 * count >= most)


async def _open(scene: Scene, run_dir: Path) -> None:
    _make_room(run_dir)
    await scene.open(run_dir)


def _make_room(run_dir: Path) -> None:
    for folder in ("logs", "records"):
        (run_dir / folder).mkdir(parents=True, exist_ok=True)
    for record in (run_dir / "records").iterdir():
        record.unlink()  # records are appended to: those of an earlier run are not this one's


def decider_of(policy: str) -> DeciderConfig:
    """The settings of a policy, by the name that `play` takes. Raises ValueError that lists what is known."""
    if policy == ALONE:
        return DeciderConfig(policy="hold")
    if policy in DECIDERS:
        return DECIDERS[policy]
    if policy.startswith(STATIC):
        profile = policy.removeprefix(STATIC)
        parts = profile.split(":")
        if len(parts) == len(_CLASSES) and all(part.isdigit() for part in parts):
            weights = dict(zip(_CLASSES, (100 * int(part) for part in parts), strict=True))
            return DeciderConfig(policy="static", static_profile="given", profiles={"given": weights})
        return DeciderConfig(policy="static", static_profile=profile)
    if policy in POLICIES:
        return DeciderConfig(policy=policy)
    known = ", ".join(dict.fromkeys((ALONE, *DECIDERS, *POLICIES)))
    raise ValueError(f"unknown policy {policy!r}; known: {known}, {STATIC}PROFILE")


def flags_of(scenario: Scenario, decider: DeciderConfig) -> tuple[str, ...]:
    """The services' flags: the decider's settings that are not as shipped, and the scenario's objectives."""
    plain = DeciderConfig()
    settings = {
        f"decider.{name}": getattr(decider, name)
        for name in DeciderConfig.__struct_fields__
        if getattr(decider, name) != getattr(plain, name)
    }
    for name, seconds in scenario.objectives.items():
        settings[f"classes.{name}.objective_p99_seconds"] = seconds
    return tuple(word for path, value in settings.items() for word in ("--set", f"{path}={_as_text(value)}"))


def _as_text(value: object) -> str:
    """A setting as a flag has it: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(to_builtins(value))


def _curves(scenario: Scenario, policy: str, seed: int, outcomes: Sequence[CycleOutcome], told: Told) -> Curves:
    return Curves(
        scenario=scenario.name,
        queue=scenario.queue,
        policy=policy,
        seed=seed,
        scores=tuple(round(outcome.score, 5) for outcome in outcomes),
        p99_lc_ms=tuple(_p99_ms(outcome, "latency-critical") for outcome in outcomes),
        p99_default_ms=tuple(_p99_ms(outcome, "default") for outcome in outcomes),
        batch_share=tuple(round(outcome.batch_share, 5) for outcome in outcomes),
        arms=told.arms,
        outcomes=told.outcomes,
    )


def _p99_ms(outcome: CycleOutcome, name: str) -> float | None:
    latencies = sorted(outcome.latencies[name])
    p99 = nearest_rank(latencies, 99)
    return None if p99 is None else round(float(p99) * 1000.0, 3)
