"""One collection, from raw readings to a state's content: holds what must be remembered between two of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hostfs.cgroup import GroupReading
from hostfs.run_queue import ProcStat, RunQueueSample, busy_ratio_between, run_queue_between
from schemas.messages import ClassState, Contention, Latency, PodState
from schemas.objective import NO_LATENCY
from schemas.settings import ClassSettings, WeightSettings
from services.collector.core.classes import PodReading, class_states
from services.collector.core.contention import contention
from services.collector.core.in_force import Ordered
from services.collector.core.latency import LatencyWindows
from services.collector.core.page import Page
from services.collector.core.shares import effective_shares
from services.collector.core.tally import GroupRates, Tally
from services.collector.core.workload import Workload

_ACTIVE_CORES = 0.001
_RAN_CORES = 0.05


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

    def advance(self, raw: Raw, *, may_grow: bool, ordered: Ordered | None = None) -> Seen:
        """The state's content now. `may_grow`: latency windows may reach back beyond the last collection. `ordered`:
        what the last actuation put in force.
        """
        elapsed = raw.at - self._last.at if self._last is not None else None
        asked = raw.asked_at - self._last.asked_at if self._last is not None else None
        rates = self._tally.advance(elapsed, raw.groups, raw.run_delays)
        pods = self._pods(raw, rates)
        by_uid = {workload.uid: cls for workload, cls in raw.workloads}
        self.windows.add(asked, {uid: (cls, page) for uid, page in raw.pages.items() if (cls := by_uid.get(uid))})
        present = {pod.state.cls for pod in pods if pod.state.cls is not None}
        self.windows.forget_absent(present)
        latencies = {name: self._latency(name, raw, may_grow=may_grow) for name in present}
        classes = class_states(pods, latencies, self.specs, self.limits, raw.cpus, ordered)
        seen = Seen(
            window_seconds=elapsed,
            classes=classes,
            pods=tuple(pod.state for pod in pods),
            contention=self._contention(raw, classes, pods, elapsed),
        )
        self._last = raw
        return seen

    def _latency(self, name: str, raw: Raw, *, may_grow: bool) -> Latency:
        members = [workload.uid for workload, cls in raw.workloads if cls == name]
        here = [workload.uid for workload, cls in raw.workloads if cls == name and workload.group in raw.groups]
        words = [raw.scrape_errors[uid].split(":", 1)[0] for uid in here if uid in raw.scrape_errors]
        silent = sum(word not in NO_LATENCY for word in words)
        if any(uid in raw.pages for uid in members):
            known = self.windows.latency(name, self.specs[name].objective_p99_seconds, may_grow=may_grow)
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
                cls=cls,
                weight=reading.weight,
                skip=_skip(reading, raw.without_controller),
                cpu_cores=rates[workload.group].cpu_cores,
            )
            found.append(PodReading(state, rates[workload.group], shares.get(workload.group), reading.memory_bytes))
        above = {"/".join(group.split("/")[:depth]) for group in steered for depth in range(1, group.count("/") + 1)}
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
            unheld_ratio=max((pod.rates.unheld_ratio or 0.0 for pod in pods if pod.state.cls), default=None),
            cpus=raw.cpus,
            busy_ratio=busy,
            node_pressure_ratio=pressure,
            run_queue=queue,
            run_queue_source=raw.run_queue.source if raw.run_queue else None,
            pressure_limit=self.pressure_limit,
            run_queue_limit=self.run_queue_limit,
        )


def _skip(reading: GroupReading, without_controller: frozenset[str]) -> str | None:
    if reading.weight is None:
        parent = reading.group.rpartition("/")[0]
        return "no_cpu_controller" if parent in without_controller else "no_weight"
    if reading.weight == 0 or reading.idle:
        return "idle"
    return None
