"""One collection, from raw readings to a state's content: holds what must be remembered between two of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from hostfs.cgroup import GroupReading
from hostfs.run_queue import ProcStat, RunQueueSample, busy_ratio_between, run_queue_between
from schemas.messages import ClassState, Contention, Latency, PodState
from schemas.objective import NO_LATENCY
from schemas.settings import ClassSettings, WeightSettings
from schemas.tree import class_weights, groups_above
from services.collector.core.classes import PodReading, class_states
from services.collector.core.contention import contention
from services.collector.core.in_force import Ordered, is_still_meant
from services.collector.core.latency import LatencyWindows
from services.collector.core.page import Page
from services.collector.core.shares import effective_shares
from services.collector.core.tally import GroupRates, Tally
from services.collector.core.workload import APART, Workload

_ACTIVE_CORES = 0.001
_RAN_CORES = 0.05

_MOST_PARENTS: Final = 256
"""Most groups above pods that a state names: real nodes have two, and a list that is cut would be a wrong tree."""


@dataclass(frozen=True)
class Raw:
    """What the edges read at one moment (`at` in monotonic seconds); pages were asked for at `scraped_at`, so that a
    slow endpoint makes nobody's window longer. `pages` and `scrape_errors` are by uid: a pod that is in neither is not
    scraped. `run_delays` are nanoseconds by group and thread, for groups without pressure.
    """

    at: float
    workloads: Sequence[tuple[Workload, str | None]]
    groups: Mapping[str, GroupReading]
    without_controller: frozenset[str]
    pages: Mapping[str, Page]
    run_queue: RunQueueSample | None
    proc_stat: ProcStat | None
    node_pressure_usec: int | None
    cpus: int
    scrape_errors: Mapping[str, str] = field(default_factory=dict)
    run_delays: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    scraped_at: float | None = None

    @property
    def asked_at(self) -> float:
        """When the pages were asked for."""
        return self.at if self.scraped_at is None else self.scraped_at


@dataclass(frozen=True)
class Seen:
    """The content of a state."""

    window_seconds: float | None
    classes: dict[str, ClassState]
    pods: tuple[PodState, ...]
    contention: Contention
    parents: dict[str, int] = field(default_factory=dict)


@dataclass
class View:
    """Makes states out of raw readings; every number is a difference to the collection before."""

    specs: Mapping[str, ClassSettings]
    limits: WeightSettings
    windows: LatencyWindows
    pressure_limit: float
    run_queue_limit: float
    _tally: Tally = field(default_factory=Tally)
    _last: Raw | None = None
    _parents: dict[str, int] = field(default_factory=dict)
    _ordered: Ordered | None = None
    _meant: dict[str, int] = field(default_factory=dict)

    def advance(self, raw: Raw, *, may_grow: bool, ordered: Ordered | None = None) -> Seen:
        """The state's content now. `may_grow`: latency windows may reach back beyond the last collection. `ordered`:
        what the last actuation put in force.
        """
        elapsed = raw.at - self._last.at if self._last is not None else None
        asked = raw.asked_at - self._last.asked_at if self._last is not None else None
        rates = self._tally.advance(elapsed, raw.groups, raw.run_delays)
        pods = self._pods(raw, rates)
        parents = _parents(raw)
        members: dict[str, list[Workload]] = {}
        for workload, cls in raw.workloads:
            if cls is not None and workload.skip is None:
                members.setdefault(cls, []).append(workload)
        class_of = {workload.uid: cls for cls, workloads in members.items() for workload in workloads}
        self.windows.add(asked, {uid: (cls, page) for uid, page in raw.pages.items() if (cls := class_of.get(uid))})
        present = {pod.state.cls for pod in pods if pod.state.cls is not None and pod.takes_part}
        self.windows.forget_absent(present)
        specs = {name: _with_objective(spec, members.get(name, ()), raw) for name, spec in self.specs.items()}
        latencies = {name: self._latency(name, specs[name], members[name], raw, may_grow=may_grow) for name in present}
        still_ordered = ordered if self._is_meant(ordered, pods, parents) else None
        classes = class_states(pods, latencies, specs, self.limits, raw.cpus, still_ordered, parents)
        seen = Seen(
            window_seconds=elapsed,
            classes=classes,
            pods=tuple(pod.state for pod in pods),
            contention=self._contention(raw, classes, pods, elapsed),
            parents=parents,
        )
        self._last, self._parents = raw, parents
        return seen

    def _is_meant(self, ordered: Ordered | None, pods: Sequence[PodReading], parents: Mapping[str, int]) -> bool:
        """Whether what was written for the order still means it: when other weights in the tree change, such as the
        kubelet's, the same pod weights come to other class weights.
        """
        steered = [pod.state for pod in pods if pod.state.cls is not None and pod.state.skip is None]
        states = [pod.state for pod in pods]
        if ordered is not self._ordered:  # it was solved for the tree that was seen last
            self._ordered, self._meant = ordered, class_weights(steered, states, self._parents)
        return ordered is None or is_still_meant(self._meant, class_weights(steered, states, parents))

    def _latency(
        self, name: str, spec: ClassSettings, members: Sequence[Workload], raw: Raw, *, may_grow: bool
    ) -> Latency:
        here = [workload.uid for workload in members if workload.group in raw.groups]
        words = [raw.scrape_errors[uid].split(":", 1)[0] for uid in here if uid in raw.scrape_errors]
        silent = sum(word not in NO_LATENCY for word in words)
        if any(workload.uid in raw.pages for workload in members):
            known = self.windows.latency(name, spec.objective_p99_seconds, may_grow=may_grow)
            return replace(known, silent_pods=silent)
        if not words:
            return Latency(reason="no_source")
        return Latency(reason="scrape_failed" if silent else min(words), silent_pods=silent)

    def _pods(self, raw: Raw, rates: Mapping[str, GroupRates]) -> list[PodReading]:
        weights = {group: reading.weight for group, reading in raw.groups.items() if reading.weight}
        active = frozenset(group for group, rate in rates.items() if (rate.cpu_cores or 0.0) > _ACTIVE_CORES)
        steered = {workload.group for workload, _ in raw.workloads}
        shares: dict[str, float | None] = {}
        for name in self.specs:
            members = [workload.group for workload, cls in raw.workloads if cls == name and workload.group in weights]
            shares |= effective_shares(members, weights, active)
        found: list[PodReading] = []
        for workload, cls in raw.workloads:
            reading = raw.groups.get(workload.group)
            if reading is None:
                continue  # gone between two calls, or not made yet: absent, not an error
            state = PodState(
                uid=workload.uid,
                name=workload.name,
                group=workload.group,
                cls=None if workload.skip in APART else cls,
                weight=reading.weight,
                skip=workload.skip or _skip(reading, raw.without_controller),
                cpu_cores=rates[workload.group].cpu_cores,
            )
            # Who is skipped for what he is, such as CPUs of his own, shows his class and takes no part in it.
            share, takes_part = shares.get(workload.group), workload.skip is None
            found.append(PodReading(state, rates[workload.group], share, reading.memory_bytes, takes_part))
        above = {group for workload, _ in raw.workloads for group in groups_above(workload.group)}
        for group, reading in raw.groups.items():
            if group in steered or group in above or reading.weight is None:
                continue
            # A folder's name may be any bytes, a message is text: a neighbour is only looked at, so it may be shown.
            shown = group.encode("utf-8", "backslashreplace").decode()
            neighbour = PodState(uid="", name=shown.rpartition("/")[2], group=shown, weight=reading.weight)
            found.append(PodReading(neighbour, rates[group], None, None))
        return found

    def _contention(
        self, raw: Raw, classes: Mapping[str, ClassState], pods: Sequence[PodReading], elapsed: float | None
    ) -> Contention:
        last = self._last
        busy = pressure = queue = None
        if last is not None and elapsed is not None and elapsed > 0:
            if last.proc_stat is not None and raw.proc_stat is not None:
                busy = busy_ratio_between(last.proc_stat, raw.proc_stat)
            if last.node_pressure_usec is not None and raw.node_pressure_usec is not None:
                waited = (raw.node_pressure_usec - last.node_pressure_usec) / 1e6 / elapsed
                pressure = min(1.0, waited) if waited >= 0 else None
        if raw.run_queue is not None:
            queue = run_queue_between(last.run_queue if last else None, raw.run_queue, elapsed or 0.0, raw.cpus)
        return contention(
            {name: seen for name, seen in classes.items() if seen.pods > 0},
            rivals=len({pod.state.cls for pod in pods if (pod.rates.cpu_cores or 0.0) > _RAN_CORES}) > 1,
            unheld_ratio=max(
                (pod.rates.unheld_ratio or 0.0 for pod in pods if pod.state.cls and pod.takes_part), default=None
            ),
            cpus=raw.cpus,
            busy_ratio=busy,
            node_pressure_ratio=pressure,
            run_queue=queue,
            run_queue_source=raw.run_queue.source if raw.run_queue else None,
            pressure_limit=self.pressure_limit,
            run_queue_limit=self.run_queue_limit,
        )


def _parents(raw: Raw) -> dict[str, int]:
    """The weights of the groups above the pods, by path, where the kernel tells them and the path is text."""
    above = {group for workload, _ in raw.workloads for group in groups_above(workload.group)}
    readings = {group: reading for group in sorted(above) if (reading := raw.groups.get(group)) is not None}
    weights = {group: reading.weight for group, reading in readings.items() if reading.weight and _is_text(group)}
    return weights if len(weights) <= _MOST_PARENTS else {}


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # a folder's name may be any bytes
        return False
    return True


def _with_objective(spec: ClassSettings, members: Iterable[Workload], raw: Raw) -> ClassSettings:
    """The class's settings with the objective that its pods here go by: the strictest of them, where a pod that has
    none of its own has the class's.
    """
    if spec.kind != "latency":
        return spec
    objectives = [
        _own_objective(workload) or spec.objective_p99_seconds for workload in members if workload.group in raw.groups
    ]
    strictest = min((seconds for seconds in objectives if seconds is not None), default=spec.objective_p99_seconds)
    return replace(spec, objective_p99_seconds=strictest)


def _own_objective(workload: Workload) -> float | None:
    seconds = workload.objective_p99_seconds
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else None


def _skip(reading: GroupReading, without_controller: frozenset[str]) -> str | None:
    if reading.weight is None:
        parent = reading.group.rpartition("/")[0]
        return "no_cpu_controller" if parent in without_controller else "no_weight"
    if reading.weight == 0 or reading.idle:
        return "idle"
    return None
