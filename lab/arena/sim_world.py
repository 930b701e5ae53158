"""Owns the simulated node as the loop sees it: two looks a cycle as states, class weights in, what the cycle was worth.

The states are made by the collector's own cores; what the kernel's files and the pods' pages would have told comes from
the simulator's window.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from lab.arena.node import Node
from lab.arena.scenario import Scenario, ServicePod
from lab.arena.score import cycle_score
from lab.arena.window import Floats, Window
from schemas.features import features_schema
from schemas.messages import ActuationOutcome, ClassState, Latency, PodState, PodWrite, Previous, State
from schemas.objective import judged_by, objective_seconds
from schemas.profile import on_profile_scale
from schemas.settings import DEFAULT_CLASSES, ClassSettings, LoopSettings, Shared
from services.collector.core.contention import contention
from services.collector.core.features import features

TOP_BUCKET_SECONDS: Final = 10.0
"""Last bound of a usual histogram: a quantile beyond it is only known to be at least this."""

MIN_REQUESTS: Final = 20
MAX_WINDOW_SECONDS: Final = 30.0
_PRESSURE_LIMIT, _RUN_QUEUE_LIMIT = 0.05, 0.5
"""As the collector's defaults (services/collector/config.py)."""


@dataclass(frozen=True)
class CycleOutcome:
    """What a whole cycle came to, as clients and the kernel would count it."""

    violation_lc: float | None
    violation_default: float | None
    batch_share: float
    score: float
    latencies: dict[str, Floats] = field(repr=False)
    ended: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    batch_cpu_seconds: float = 0.0
    services_share: float = 0.0
    """Of all CPUs, what the pods had that are not batch."""


def shared_settings(scenario: Scenario, cycle_seconds: float = 5.0) -> Shared:
    """The configuration that a user of this node would have: the defaults, with the scenario's objectives."""
    classes = {
        name: msgspec.structs.replace(spec, objective_p99_seconds=scenario.objectives.get(name))
        if spec.kind == "latency" and name in scenario.objectives
        else spec
        for name, spec in DEFAULT_CLASSES.items()
    }
    loop = LoopSettings(tick_seconds=cycle_seconds, settle_seconds=0.4 * cycle_seconds)
    return Shared(node="arena", mode="active", loop=loop, classes=classes)


class SimWorld:
    """One scenario with one seed. In turn: `before`, perhaps `apply`, `after`, perhaps a way back, `finish`."""

    def __init__(self, scenario: Scenario, seed: int, *, cycle_seconds: float = 5.0) -> None:
        self.scenario = scenario
        self.shared = shared_settings(scenario, cycle_seconds)
        self.cycle = 0
        self._node = Node(scenario, seed, cycle_seconds=cycle_seconds)
        self._specs: dict[str, ClassSettings] = self.shared.classes
        self._schema = features_schema(tuple(self._specs))
        self._members = {name: [pod for pod in scenario.pods if pod.cls == name] for name in self._specs}
        self._originals = self._node.weights()
        self._ordered: dict[str, int] | None = None
        self._recent: deque[Window] = deque()
        self._last: Window | None = None
        self._windows: list[Window] = []
        self._previous: Previous | None = None

    def before(self) -> State:
        """The first look of the next cycle, at what happened since the last look."""
        self.cycle += 1
        self._windows = []
        return self._state("before")

    def apply(self, class_weights: Mapping[str, int], arm: str | None = None) -> tuple[PodWrite, ...]:
        """Puts class weights in force: each pod's by its part of its class's first weights. A class without pods takes
        no part. What was written, as the actuator would tell it.
        """
        return self._write(class_weights, "applied", arm)

    def roll_back(self, class_weights: Mapping[str, int]) -> None:
        """Puts the class weights of before this cycle's change back in force, by the guard's order."""
        self._write(class_weights, "rolled_back", None)

    def restore(self) -> None:
        """Puts every pod's first weight back, by the guard's order."""
        self._node.set_weights(self._originals)
        self._ordered = None
        self._previous = Previous(cycle=self.cycle, outcome="restored")

    def _write(
        self, class_weights: Mapping[str, int], outcome: ActuationOutcome, arm: str | None
    ) -> tuple[PodWrite, ...]:
        weights: dict[str, int] = {}
        for name, weight in class_weights.items():
            members = self._members.get(name, [])
            total = sum(self._originals[pod.name] for pod in members)
            for pod in members:
                weights[pod.name] = max(1, min(10_000, round(weight * self._originals[pod.name] / total)))
        was = self._node.weights()
        self._node.set_weights(weights)
        self._ordered = {name: weight for name, weight in class_weights.items() if self._members.get(name)}
        self._previous = Previous(cycle=self.cycle, outcome=outcome, arm=arm, weights=self._ordered)
        return tuple(
            PodWrite(uid=pod, group=_group_of(pod), name=pod, before=was[pod], wanted=weight, after=weight)
            for pod, weight in weights.items()
        )

    def after(self) -> State:
        """The second look, after the settle time."""
        self._advance(self.shared.loop.settle_seconds)
        return self._state("after")

    def finish(self) -> CycleOutcome:
        """Lets the rest of the cycle pass; what all of it came to."""
        self._advance(self.shared.loop.tick_seconds - self.shared.loop.settle_seconds)
        if self._previous is not None and self._previous.cycle < self.cycle:
            self._previous = msgspec.structs.replace(self._previous, cycle=self.cycle, outcome="held")
        return outcome_of(self.scenario, self._windows)

    def class_weights(self) -> dict[str, int]:
        """What is in force, on the profile scale, for the classes that have pods."""
        if self._ordered is not None:
            return on_profile_scale(self._ordered, self.shared.weights)
        weights = self._node.weights()
        sums = {name: sum(weights[pod.name] for pod in members) for name, members in self._members.items() if members}
        return on_profile_scale(sums, self.shared.weights)

    def _advance(self, seconds: float) -> None:
        window = self._node.advance(seconds)
        self._windows.append(window)
        self._last = window
        self._recent.append(window)
        while sum(past.seconds for past in self._recent) > MAX_WINDOW_SECONDS:
            self._recent.popleft()

    def _state(self, phase: str) -> State:
        weights = self.class_weights()
        classes = {
            name: self._class_state(name, spec, weights, may_grow=phase == "before")
            for name, spec in self._specs.items()
        }
        window = self._last
        cores = self.scenario.cores
        seen = contention(
            {name: state for name, state in classes.items() if state.pods > 0},
            cpus=cores,
            busy_ratio=_cpu_seconds(window) / (window.seconds * cores) if window else None,
            node_pressure_ratio=window.some_seconds / window.seconds if window else None,
            run_queue=sum(pod.waiting_seconds for pod in window.pods.values()) / window.seconds / cores
            if window
            else None,
            run_queue_source="schedstat" if window else None,
            pressure_limit=_PRESSURE_LIMIT,
            run_queue_limit=_RUN_QUEUE_LIMIT,
            rivals=sum((state.cpu_cores or 0.0) > 0.05 for state in classes.values()) > 1,  # noqa: PLR2004 - as the collector
            unheld_ratio=max((state.pressure_ratio or 0.0 for state in classes.values()), default=None),
        )
        in_force = self._node.weights()
        return State(
            node="arena",
            boot="sim",
            cycle=self.cycle,
            at=0,
            phase="before" if phase == "before" else "after",
            window_seconds=window.seconds if window else None,
            classes=classes,
            pods=tuple(
                PodState(uid=pod.name, name=pod.name, group=_group_of(pod.name), cls=pod.cls, weight=in_force[pod.name])
                for pod in self.scenario.pods
            ),
            contention=seen,
            features=features(classes, seen, self._previous, self._specs),
            features_schema=self._schema,
            previous=self._previous,
        )

    def _class_state(self, name: str, spec: ClassSettings, weights: dict[str, int], *, may_grow: bool) -> ClassState:
        members, window = self._members[name], self._last
        if not members:
            return ClassState()
        latency = Latency(reason="no_source")
        if spec.kind == "latency":
            latency = self._latency(
                [pod.name for pod in members if isinstance(pod, ServicePod)], spec, may_grow=may_grow
            )
        total = sum(weights.values())
        cpu = some = own = 0.0
        if window is not None:
            mine = [window.pods[pod.name] for pod in members]
            cpu = sum(pod.cpu_seconds for pod in mine) / window.seconds
            worst = max(mine, key=lambda pod: pod.some_seconds)
            some = min(1.0, worst.some_seconds / window.seconds)
            own = worst.cpu_seconds / window.seconds / self.scenario.cores
        state = ClassState(
            pods=len(members),
            weight=weights.get(name),
            pods_weight=sum(self._node.weights()[pod.name] for pod in members),
            share=weights[name] / total if name in weights and total else None,
            cpu_cores=cpu if window is not None else None,
            pressure_ratio=some if window is not None else None,
            throttled_ratio=0.0,
            objective_seconds=spec.objective_p99_seconds,
            latency=latency,
            waited_ratio=max(0.0, some - own) if window is not None else None,
            waited_source="pressure" if window is not None else None,
            objective_pressure_ratio=spec.objective_pressure_ratio,
        )
        return msgspec.structs.replace(state, judged_by=judged_by(latency, spec))

    def _latency(self, names: list[str], spec: ClassSettings, *, may_grow: bool) -> Latency:
        if not names:
            return Latency(reason="no_source")
        found: list[Floats] = []
        seconds, count = 0.0, 0
        for window in reversed(self._recent):
            arrays = [service.latencies_seconds for name in names if (service := window.pods[name].service)]
            found += arrays
            seconds += window.seconds
            count += sum(len(array) for array in arrays)
            if not may_grow or count >= MIN_REQUESTS:
                break
        if not seconds:
            return Latency(reason="first_look")
        shown = Latency(requests=count, requests_per_second=count / seconds, window_seconds=seconds, source="histogram")
        if count < MIN_REQUESTS:
            return msgspec.structs.replace(shown, reason="few_requests")
        latencies = np.concatenate(found)
        objective = objective_seconds(ClassState(), spec)
        p50, p95, p99 = (float(value) for value in np.quantile(latencies, (0.5, 0.95, 0.99)))
        return msgspec.structs.replace(
            shown,
            p50_seconds=min(p50, TOP_BUCKET_SECONDS),
            p95_seconds=min(p95, TOP_BUCKET_SECONDS),
            p99_seconds=min(p99, TOP_BUCKET_SECONDS),
            saturated=tuple(word for word, value in (("p95", p95), ("p99", p99)) if value >= TOP_BUCKET_SECONDS),
            over_ratio=float(np.count_nonzero(latencies > objective)) / count if objective else None,
            pods=len(names),
        )


def outcome_of(scenario: Scenario, windows: list[Window]) -> CycleOutcome:
    """What windows in a row came to."""
    ended: dict[str, int] = {}
    missed: dict[str, int] = {}
    latencies: dict[str, Floats] = {}
    batch = services = 0.0
    for name in ("latency-critical", "default"):
        pods = [pod.name for pod in scenario.pods if pod.cls == name and isinstance(pod, ServicePod)]
        served = [service for window in windows for pod in pods if (service := window.pods[pod].service)]
        all_of = np.concatenate([service.latencies_seconds for service in served]) if served else np.zeros(0)
        shed = sum(service.shed for service in served)
        objective = scenario.objectives.get(name, math.inf)
        latencies[name] = all_of
        ended[name] = len(all_of) + shed
        missed[name] = int(np.count_nonzero(all_of > objective)) + shed
    for window in windows:
        batch += sum(window.pods[pod.name].cpu_seconds for pod in scenario.pods if pod.cls == "batch")
        services += sum(window.pods[pod.name].cpu_seconds for pod in scenario.pods if pod.cls != "batch")
    seconds = sum(window.seconds for window in windows)
    share, others = (used / (seconds * scenario.cores) if seconds else 0.0 for used in (batch, services))
    lc, default = (
        missed[name] / ended[name] if ended[name] else 1.0 if _is_stuck(scenario, windows, name) else None
        for name in ("latency-critical", "default")
    )
    score = cycle_score(lc, default, share)
    return CycleOutcome(lc, default, share, score, latencies, ended, missed, batch, others)


def _is_stuck(scenario: Scenario, windows: list[Window], name: str) -> bool:
    """Whether requests of the class were there all along, and none ended: that is not "no requests"."""
    pods = [pod.name for pod in scenario.pods if pod.cls == name]
    there = [sum(s.waiting + s.in_service for pod in pods if (s := window.pods[pod].service)) for window in windows]
    return bool(there) and all(there)


def _group_of(pod: str) -> str:
    return f"burstable/pod{pod}"


def _cpu_seconds(window: Window | None) -> float:
    return sum(pod.cpu_seconds for pod in window.pods.values()) if window else 0.0
