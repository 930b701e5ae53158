"""Wiring of the collector: a tick makes a cycle and its first state, the rewarder's request its second."""

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from hostfs.pod_tree import PodTree
from hostfs.pressure import PressureAbsent, read_pressure
from runtime.errors import ConfigError
from runtime.host_roots import find_roots
from runtime.lifecycle import Context
from schemas.features import features_schema
from schemas.messages import Actuation, CollectRequest, Mode, Phase, Previous, State
from services.collector.config import NO_SOURCE, CollectorConfig
from services.collector.core.features import features
from services.collector.core.in_force import Ordered, ordered_after
from services.collector.core.latency import LatencyWindows
from services.collector.core.page import Page
from services.collector.core.targets import targets
from services.collector.core.view import Raw, Seen, View
from services.collector.core.workload import Classified, Namespaces, Workload, settle, unknown_values
from services.collector.metrics import CollectorMetrics
from services.collector.sources.kernel import Kernel
from services.collector.sources.kubernetes import KubeApi, Limits
from services.collector.sources.pod_watch import Pace, PodWatch
from services.collector.sources.root_choice import rival_roots, root_of, said
from services.collector.sources.scrape import Scraper
from services.collector.sources.tls import TlsContext
from services.collector.sources.workloads import StaticFile, WorkloadSource

T = TypeVar("T")

_FEW = 20
"""Pods that are looked at in less time than it takes to wake a thread."""

_ORDINARY = frozenset({"silent", "expired"})
"""Ends of a watch that need nobody: pods are listed anew."""

_LONGEST = 600
"""Characters of a trouble that are said in a state: what is wrong and the way out, file names and all."""

_UNDONE = frozenset({"rolled_back", "restored"})


class CollectorService:
    """Numbers the cycles of this run and looks twice in each."""

    paces_itself = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = config = context.config.section("collector", CollectorConfig)
        self._shared = shared = context.shared
        self._metrics = CollectorMetrics(context.metrics.registry)
        self._roots = roots = find_roots(context.config.host)
        pods_root = os.path.join(roots.cgroup_root, roots.pods_root)
        if not os.path.isdir(context.config.host.proc_root):
            raise ConfigError(
                f"host.proc_root: {context.config.host.proc_root} is no folder; mount the host's /proc there"
            )
        self._source = self._source_of(config, pods_root)
        self._rivals = () if context.config.host.pods_root is not None else rival_roots(roots.cgroup_root)
        self._is_root_known = not self._rivals
        self._namespaces = Namespaces(
            None if config.include_namespaces is None else frozenset(config.include_namespaces),
            frozenset(config.exclude_namespaces),
        )
        self._kernel = Kernel(roots.cgroup_root, roots.pods_root, roots.proc_root)
        self._tls = TlsContext(
            ca_file=config.tls_ca_file,
            cert_file=config.tls_cert_file,
            key_file=config.tls_key_file,
            verify=config.tls_verify,
        )
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="look")
        self._scraper = Scraper(
            timeout_seconds=config.scrape_timeout_seconds,
            max_bytes=config.scrape_max_bytes,
            concurrency=config.scrape_concurrency,
            metrics=config.latency_metrics,
            tls=self._tls,
            tls_server_name=config.tls_server_name,
        )
        self._view = View(
            shared.classes,
            shared.weights,
            LatencyWindows(config.min_requests, config.max_window_seconds),
            config.contended_pressure_ratio,
            config.contended_run_queue,
        )
        self._schema = features_schema(tuple(shared.classes))
        self._cycle = 0
        self._answered = 0
        self._previous: Previous | None = None
        self._ordered: Ordered | None = None
        self._lock = asyncio.Lock()
        self._notes: tuple[str, ...] = ()
        self._stale: str | None = None
        self._unclassified: set[str] = set()
        self._pods = 0

    @property
    def cycle(self) -> int:
        """The cycle in progress."""
        return self._cycle

    @property
    def mode(self) -> Mode | None:
        """The collector works alike in every mode."""
        return None

    async def start(self) -> None:
        """Takes a first reading, so that the first state has a window, and listens."""
        pressure = read_pressure(os.path.join(self._context.config.host.proc_root, "pressure/cpu"))
        if isinstance(pressure, PressureAbsent):  # said once; every state says what it means for each class
            self._context.log.warning("no_pressure", reason=pressure.reason, remedy=pressure.remedy)
        if self._rivals:
            self._context.log.warning("several_pods_roots", detail=said(self._rivals, self._roots.pods_root))
        self._source.start()
        await self._look(may_grow=False)
        await self._context.messenger.listen(Actuation, self._on_actuation)
        await self._context.messenger.listen(CollectRequest, self._on_request)

    async def run(self) -> None:
        """Ticks on a grid: a late tick is skipped, the grid stays."""
        clock, tick = self._context.clock, self._shared.loop.tick_seconds
        start = clock.monotonic()
        number = 0
        while True:
            number += 1
            wait = start + number * tick - clock.monotonic()
            if wait < 0:
                missed = math.ceil(-wait / tick)
                number += missed
                self._metrics.missed.inc(missed)
                wait += missed * tick
            await clock.sleep(wait)
            self._context.health.beat(clock.monotonic())
            self._context.metrics.last_tick.set(clock.now_ns() / 1e9)
            try:
                await self._tick()
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs this cycle and not the next
                self._metrics.failed.inc()
                self._context.log.error("cycle_failed", cycle=self._cycle, detail=f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        """Closes kept connections."""
        self._source.close()
        await self._scraper.close()
        self._looker.shutdown(wait=False)

    async def _tick(self) -> None:
        async with self._lock:
            self._cycle += 1
            self._metrics.cycles.inc()
            seen = await self._look(may_grow=True)
            await self._publish("before", self._cycle, seen)

    async def _on_request(self, request: CollectRequest) -> None:
        async with self._lock:
            if request.boot != self._context.boot or request.cycle != self._cycle or request.cycle == self._answered:
                self._context.messenger.drop(request, "stale")
                return
            self._answered = request.cycle
            seen = await self._look(may_grow=False)
            await self._publish("after", request.cycle, seen)

    async def _on_actuation(self, actuation: Actuation) -> None:
        self._ordered = ordered_after(self._ordered, actuation)
        if actuation.boot == self._context.boot and _is_newer(actuation, self._previous):
            self._previous = Previous(
                cycle=actuation.cycle, outcome=actuation.outcome, arm=actuation.arm, weights=actuation.weights
            )

    async def _look(self, *, may_grow: bool) -> Seen:
        """Steps 1-4 up to the message: discovers, classifies, collects, and makes the differences."""
        step = self._context.metrics.step
        with step.labels("discover").time():
            workloads = await self._aside(self._pods, self._discover)
            self._pods = len(workloads)
            self._stale = self._source.stale()
            self._context.health.require("pods", self._stale)
        with step.labels("classify").time():
            classified = self._classify(workloads)
        with step.labels("collect").time(), self._metrics.collect.labels("metrics").time():
            seen = {one.workload.uid for one in classified if one.cls is not None}
            places = targets([one.workload for one in classified])
            scraped_at = self._context.clock.monotonic()
            pages, errors = await self._scraper.scrape([one for uid, one in places.found.items() if uid in seen])
        errors |= {uid: word for uid, word in places.refused.items() if uid in seen}
        for word in errors.values():
            self._metrics.scrape_errors.labels(word.split(":", 1)[0]).inc()
        rivals = said(self._rivals, self._roots.pods_root) if self._rivals else None
        words = (self._stale, self._source.trouble(), self._tls.trouble(), rivals)
        troubles = [word[:_LONGEST] for word in words if word]
        names = {workload.uid: workload.name for workload in workloads}
        odd = sorted(f"{one.workload.name}: {one.note}"[:200] for one in classified if one.note is not None)[:8]
        self._notes = tuple(
            [f"{names[uid]}: {word}"[:200] for uid, word in sorted(errors.items())][:16] + odd + troubles
        )
        # Beside the event loop, which must answer in time: reading a large node's files takes a while.
        pairs = [(one.workload, one.cls) for one in classified]
        return await self._aside(len(pairs), lambda: self._see(pairs, pages, errors, scraped_at, may_grow=may_grow))

    def _discover(self) -> tuple[Workload, ...]:
        """The workloads; below the pods root that has the API's pods, where there are several."""
        if not self._is_root_known and isinstance(self._source, PodWatch):
            uids, roots = self._source.uids(), self._roots
            taken = root_of(uids, roots.cgroup_root, self._rivals)
            self._is_root_known = taken is not None
            if taken is not None and taken != roots.pods_root:
                self._roots = replace(roots, pods_root=taken)
                self._kernel = Kernel(roots.cgroup_root, taken, roots.proc_root)
                self._source.look_in(PodTree.below(roots.cgroup_root, taken))
                self._context.log.warning("pods_root_taken", detail=said(self._rivals, taken))
        return self._source.workloads()

    async def _aside(self, pods: int, work: Callable[[], T]) -> T:
        """Does it here for few pods, else in the thread for that."""
        if pods <= _FEW:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._looker, work)

    def _classify(self, workloads: Sequence[Workload]) -> list[Classified]:
        labels, specs = self._config.class_labels, self._shared.classes
        found = [settle(workload, labels, specs, self._namespaces) for workload in workloads]
        counted = unknown_values(one.unknown for one in found if one.unknown is not None)
        for value in self._unclassified - set(counted):
            self._metrics.unclassified.remove(value)
        for value, pods in counted.items():
            self._metrics.unclassified.labels(value).set(pods)
        self._unclassified = set(counted)
        return found

    def _see(
        self,
        workloads: Sequence[tuple[Workload, str | None]],
        pages: Mapping[str, Page],
        errors: Mapping[str, str],
        scraped_at: float,
        *,
        may_grow: bool,
    ) -> Seen:
        with self._metrics.collect.labels("kernel").time():
            sweep = self._kernel.sweep(workload.group for workload, _ in workloads)
        cpus = (sweep.proc_stat.cpus if sweep.proc_stat is not None else 0) or os.cpu_count() or 1
        with self._context.metrics.step.labels("build").time():
            return self._view.advance(
                Raw(
                    at=self._context.clock.monotonic(),
                    workloads=workloads,
                    groups=sweep.groups,
                    without_controller=sweep.without_controller,
                    pages=pages,
                    run_queue=sweep.run_queue,
                    proc_stat=sweep.proc_stat,
                    node_pressure_usec=sweep.node_pressure_usec,
                    cpus=cpus,
                    scrape_errors=errors,
                    run_delays=sweep.run_delays,
                    scraped_at=scraped_at,
                ),
                may_grow=may_grow,
                ordered=self._ordered,
            )

    async def _publish(self, phase: Phase, cycle: int, seen: Seen) -> None:
        self._show(seen)
        previous = self._previous
        if previous is not None and previous.cycle < cycle - 1:
            previous = None  # the last cycle's actuation did not come: what an earlier one did says nothing of now
        await self._context.messenger.send(
            State(
                node=self._shared.node,
                boot=self._context.boot,
                cycle=cycle,
                at=self._context.clock.now_ns(),
                phase=phase,
                window_seconds=seen.window_seconds,
                classes=seen.classes,
                pods=seen.pods,
                contention=seen.contention,
                features=features(seen.classes, seen.contention, previous, self._shared.classes),
                features_schema=self._schema,
                previous=previous,
                writable=self._stale is None,
                notes=self._notes,
                parents=seen.parents,
            )
        )

    def _source_of(self, config: CollectorConfig, pods_root: str) -> WorkloadSource:
        """The one source that is configured. Raises ConfigError for none."""
        if config.workloads is not None:
            return StaticFile(config.workloads, pods_root)
        if not config.kubernetes:
            raise ConfigError(NO_SOURCE)
        if "node" not in self._context.config.origins:
            raise ConfigError(
                "node: is not set; set TRIMTAB_NODE to the name of this node in the API (spec.nodeName of this pod)"
            )
        monotonic, silence = self._context.clock.monotonic, config.watch_timeout_seconds
        api = KubeApi(self._shared.node, config.kubeconfig, Limits(silence=silence), monotonic)
        tree = PodTree.below(self._roots.cgroup_root, self._roots.pods_root)
        pace = Pace(relist=config.relist_seconds, silence=silence, max_age=config.max_view_age_seconds)
        watch = PodWatch(api, tree, pace, monotonic, self._on_api, config.class_labels)
        self._metrics.view_age.set_function(watch.age_seconds)
        return watch

    def _on_api(self, what: str, text: str) -> None:
        """What the API's thread has to tell; in that thread."""
        if what == "event":
            self._metrics.events.inc()
        elif what == "list":
            self._metrics.lists.inc()
        elif what == "back":
            self._context.log.info("pods_known")
        elif what == "watch":
            self._context.log.debug("pods_watched")
        else:
            self._metrics.api_failures.labels(what).inc()
            if what in _ORDINARY:
                self._context.log.info("watch_ended", reason=what, detail=text)
            else:
                self._context.log.warning("pods_unknown", reason=what, detail=text)

    def _show(self, seen: Seen) -> None:
        self._metrics.contended.set(1 if seen.contention.contended else 0)
        for name, state in seen.classes.items():
            self._metrics.pods.labels(name).set(state.pods)
            for gauge, value in (
                (self._metrics.p99, state.latency.p99_seconds),
                (self._metrics.share, state.share),
                (self._metrics.weight, state.weight),
            ):
                gauge.labels(name).set(math.nan if value is None else value)


def _is_newer(actuation: Actuation, known: Previous | None) -> bool:
    """Whether it tells more than what is known: a later cycle, or what undid the same one. Duplicates do not."""
    if known is None or actuation.cycle != known.cycle:
        return known is None or actuation.cycle > known.cycle
    return actuation.outcome in _UNDONE
