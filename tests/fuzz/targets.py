"""The targets: each takes one drawn value, puts it through the collector's core, and holds what comes out to its word.

`check("<target>", <value>)` does it once: that is how a printed failure is seen again.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from hypothesis import strategies as st

from hostfs.cgroup import (
    GroupReading,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_memory,
    parse_weight,
)
from hostfs.cgroup_files import CpuMax
from hostfs.counters import parse_all_unsigned
from hostfs.pressure import Pressure, parse_pressure, pressure_in
from hostfs.run_queue import (
    RunQueueSample,
    busy_ratio_between,
    parse_loadavg,
    parse_proc_stat,
    parse_schedstat,
    run_queue_between,
)
from hostfs.tasks import parse_task_schedstat
from schemas.codec import decode, encode, non_finite
from schemas.features import feature_names, features_schema
from schemas.messages import Latency, Previous, State
from schemas.settings import DEFAULT_CLASSES, ClassSettings, WeightSettings
from services.collector.config import CollectorConfig
from services.collector.core.exposition import Exposition, ExpositionError, LabelTexts
from services.collector.core.features import features
from services.collector.core.in_force import Ordered
from services.collector.core.latency import LatencyWindows
from services.collector.core.latency_source import NoLatency, find_latency
from services.collector.core.page import HistogramPage, Page
from services.collector.core.tally import Tally
from services.collector.core.targets import targets
from services.collector.core.view import Raw, View
from services.collector.core.workload import Workload, classify
from services.collector.sources.workloads import _is_address, _is_http
from tests.fuzz import kernel_files, nodes
from tests.fuzz import pages as page_draws

MAX_CPU_SECONDS = 5.0
"""Most CPU time for one example. They are small, or one piece many times: only more than linear work takes so long."""


class TooSlow(AssertionError):
    """An example took more than MAX_CPU_SECONDS."""


@dataclass(frozen=True)
class Target:
    """`check` raises for an input out of `inputs` that the code does not bear."""

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]

    def __call__(self, drawn: Any) -> None:
        with bounded_cpu(MAX_CPU_SECONDS):
            self.check(drawn)


@contextmanager
def bounded_cpu(seconds: float) -> Iterator[None]:
    """Raises TooSlow where the body takes more CPU time. Main thread only: a signal ends what would not end."""
    is_over = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal is_over
        is_over = True
        raise TooSlow(f"more than {seconds:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    started = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    took = time.process_time() - started
    if is_over or took > seconds:  # the signal's exception may have been taken for another
        raise TooSlow(f"{took:.1f} s of CPU, more than {seconds:g} s")


# ---- pages ----------------------------------------------------------------------------------------------------------


def read_page(body: bytes, content_type: str, metric: str | None = None, unit: str | None = None) -> Page | str:
    """The page as the scraper reads it, or the documented refusal. Believed, it is the same page or one that was suspect."""
    try:
        labels = LabelTexts(is_openmetrics="openmetrics-text" in content_type.lower())
        text = Exposition(body.decode("utf-8-sig"), labels)
        page = find_latency(text, metric, unit, page_draws.CANDIDATES)
    except NoLatency as error:
        if error.word == "unit_suspect":
            believed = _believed(text, metric, unit)
            assert isinstance(believed, HistogramPage), believed
            _hold_page(text, believed)
        return error.word
    except (ExpositionError, UnicodeDecodeError) as error:
        return f"unreadable: {error}"
    _hold_page(text, page)
    assert find_latency(text, metric, unit, page_draws.CANDIDATES, believed=page.metric) == page
    return page


def _believed(text: Exposition, metric: str | None, unit: str | None) -> Page | None:
    """What is found of a page that is suspect once one of its metrics is believed."""
    for name in (metric,) if metric is not None else page_draws.CANDIDATES:
        with suppress(NoLatency):
            return find_latency(text, metric, unit, page_draws.CANDIDATES, believed=name)
    return None


def _hold_page(text: Exposition, page: Page) -> None:
    if not page.series:  # no samples before the first request
        assert text.declared(page.metric) == ("histogram" if isinstance(page, HistogramPage) else "summary")
    if isinstance(page, HistogramPage):
        for buckets in page.series.values():
            assert math.inf in buckets
            assert all(bound >= 0 and 0 <= count < math.inf for bound, count in buckets.items()), buckets
    else:
        for series in page.series.values():
            assert 0 <= series.count < math.inf
            assert all(0 <= q <= 1 and 0 <= seconds < math.inf for q, seconds in series.quantiles.items()), series


def check_page(drawn: tuple[bytes, str, str | None, str | None]) -> None:
    """One page, any bytes."""
    read_page(*drawn)


def check_long_page(drawn: tuple[str, str, int, str, bool]) -> None:
    """One piece of a page many times over."""
    head, piece, times, tail, is_openmetrics = drawn
    page = head + piece * times + tail + ("# EOF\n" if is_openmetrics else "")
    read_page(page.encode(), page_draws.OPEN_TYPE if is_openmetrics else page_draws.PLAIN_TYPE, "request_ms")


# ---- windows --------------------------------------------------------------------------------------------------------


def hold_latency(latency: Latency) -> None:
    """What a latency promises to those who read it."""
    assert non_finite(latency) is None, latency
    assert 0 <= latency.requests < 2**63, latency
    numbers = (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds, latency.requests_per_second)
    assert all(number is None or number >= 0 for number in numbers), latency
    assert latency.over_ratio is None or 0 <= latency.over_ratio <= 1, latency
    assert latency.p99_seconds is not None or latency.reason is not None, latency
    p50, p95, p99 = latency.p50_seconds, latency.p95_seconds, latency.p99_seconds
    if latency.source == "histogram" and not latency.saturated:
        assert p50 is not None
        assert p95 is not None
        assert p99 is not None
        assert p50 <= p95 * (1 + 1e-9) <= p99 * (1 + 3e-9), latency


def check_windows(drawn: tuple[list[Any], int, float, float | None]) -> None:
    """Pages of several pods over several collections."""
    collections, min_requests, max_window_seconds, objective_seconds = drawn
    windows = LatencyWindows(min_requests, max_window_seconds)
    for elapsed, may_grow, pods in collections:
        pages: dict[str, tuple[str, Page]] = {}
        for uid, (cls, body) in pods.items():
            page = read_page(body, page_draws.content_type_of(body))
            if not isinstance(page, str):
                pages[uid] = (cls, page)
        windows.add(elapsed, pages)
        for name in ("a", "b"):
            hold_latency(windows.latency(name, objective_seconds, may_grow=may_grow))
        windows.forget_absent({cls for cls, _ in pages.values()})


# ---- kernel texts ---------------------------------------------------------------------------------------------------


def _controllers(text: str) -> None:
    assert all(name and not name.isspace() for name in parse_controllers(text))


def _cpu_max(text: str) -> None:
    limit = parse_cpu_max(text)
    assert not isinstance(limit, CpuMax) or limit.cpus is None or 0 < limit.cpus < math.inf


def _weight(text: str) -> None:
    weight = parse_weight(text)
    assert weight is None or 0 <= weight <= 10_000


def _pressure(text: str) -> None:
    found = pressure_in(text)
    if isinstance(found, Pressure):
        assert all(0 <= number < math.inf for number in (found.some.avg10, found.some.avg60, found.some.avg300))
        assert found.some.total_usec >= 0


def _proc_stat(text: str) -> None:
    found = parse_proc_stat(text)
    assert found is None or (0 <= found.busy_ticks <= found.total_ticks and found.cpus >= 0)


def _schedstat(text: str) -> None:
    found = parse_schedstat(text)
    assert found is None or (found and all(cpu >= 0 and delay >= 0 for cpu, delay in found.items()))


def _threads(text: str) -> None:
    for word in text.split():
        parse_all_unsigned([word])


_PARSERS: dict[str, Callable[[str], object]] = {
    "cpu.stat": parse_cpu_stat,
    "cpu.pressure": _pressure,
    "cpu.weight": _weight,
    "cpu.idle": parse_flag,
    "cpu.max": _cpu_max,
    "memory.current": parse_memory,
    "cgroup.threads": _threads,
    "cgroup.subtree_control": _controllers,
    "stat": _proc_stat,
    "schedstat": _schedstat,
    "loadavg": parse_loadavg,
    "pressure/cpu": _pressure,
    "task/schedstat": parse_task_schedstat,
}


def check_kernel_text(drawn: tuple[str, str]) -> None:
    """The text of one kernel file."""
    name, text = drawn
    _PARSERS[name](text)


# ---- rates ----------------------------------------------------------------------------------------------------------


def check_rates(drawn: list[Any]) -> None:
    """What a group used and waited, and how busy the node was, between readings."""
    tally, last_stat, last_queue = Tally(), None, None
    for elapsed, inode, texts, tasks, proc in drawn:
        group, delays = _reading("pod", inode, texts), _run_delays(tasks)
        readings = {"pod": group} if group is not None else {}
        for rates in tally.advance(elapsed, readings, {"pod": delays} if delays is not None else {}).values():
            assert all(rate is None or 0 <= rate < math.inf for rate in (rates.cpu_cores, rates.run_delay)), rates
            ratios = (rates.pressure_ratio, rates.throttled_ratio, rates.waited_ratio(2))
            assert all(ratio is None or 0 <= ratio <= 1 for ratio in ratios), rates
            assert (rates.unknown is None) is (rates.waited_ratio(2) is not None), rates
        stat, queue = parse_proc_stat(proc.get("stat", "")), _run_queue(proc)
        if stat is not None and last_stat is not None:
            busy = busy_ratio_between(last_stat, stat)
            assert busy is None or 0 <= busy <= 1
        if queue is not None:
            waiting = run_queue_between(last_queue, queue, elapsed, stat.cpus if stat is not None else 1)
            assert waiting is None or 0 <= waiting < math.inf
        last_stat, last_queue = stat, queue


# ---- places ---------------------------------------------------------------------------------------------------------


def _workloads(drawn: list[dict[str, Any]]) -> list[Workload]:
    """Without an address or URL that no source of workloads lets in."""
    found = []
    for fields in drawn:
        address, url = fields["address"], fields["metrics_url"]
        kept = {
            "address": address if address is not None and _is_address(address) else None,
            "metrics_url": url if url is not None and _is_http(url) else None,
        }
        found.append(Workload(**{**fields, **kept}))
    return found


def check_places(drawn: list[dict[str, Any]]) -> None:
    """Where any pods of a node are scraped."""
    workloads = _workloads(drawn)
    places = targets(workloads)
    assert not places.found.keys() & places.refused.keys()
    assert places.found.keys() | places.refused.keys() <= {workload.uid for workload in workloads}
    for uid, target in places.found.items():
        assert target.uid == uid
        assert urlsplit(target.url).scheme in ("http", "https"), target
        assert urlsplit(target.url).hostname, target
    assert all(word.split(":", 1)[0] in ("no_target", "shared_target") for word in places.refused.values())
    urls = [target.url for target in places.found.values()]
    assert len(urls) == len(set(urls)), urls


# ---- the whole ------------------------------------------------------------------------------------------------------

CLASSES = (
    DEFAULT_CLASSES,
    {
        "latency-critical": ClassSettings(objective_p99_seconds=5e-324, objective_pressure_ratio=0.0),
        "batch": ClassSettings(kind="throughput"),
    },
)


def _reading(group: str, inode: int, texts: dict[str, str]) -> GroupReading | None:
    """As `CgroupTree.reading` makes it."""
    if not texts["cpu.stat"]:
        return None
    return GroupReading(
        group,
        inode,
        parse_weight(texts["cpu.weight"]),
        parse_flag(texts["cpu.idle"]),
        parse_cpu_stat(texts["cpu.stat"]),
        pressure_in(texts["cpu.pressure"]),
        parse_memory(texts["memory.current"]),
    )


def _run_queue(texts: dict[str, str]) -> RunQueueSample | None:
    """As `RunQueueReader.sample` chooses it."""
    delays = parse_schedstat(texts.get("schedstat", ""))
    if delays is not None:
        return RunQueueSample(source="schedstat", run_delay_nsec=delays)
    pressure = parse_pressure(texts.get("pressure/cpu", ""))
    if pressure is not None:
        return RunQueueSample(source="pressure", some_usec=pressure.some.total_usec)
    runnable = parse_loadavg(texts.get("loadavg", ""))
    if runnable is not None:
        return RunQueueSample(source="loadavg", runnable=runnable)
    stat = parse_proc_stat(texts.get("stat", ""))
    if stat is not None and stat.procs_running is not None:
        return RunQueueSample(source="stat", runnable=stat.procs_running)
    return None


def _run_delays(texts: list[str]) -> dict[int, int] | None:
    """As `read_run_delays` makes them."""
    read = {task: found for task, text in enumerate(texts, 1) if (found := parse_task_schedstat(text)) is not None}
    return {task: waited for task, (_, waited) in read.items()} if any(ran > 0 for ran, _ in read.values()) else None


def _hold_state(state: State, names: tuple[str, ...]) -> None:
    assert decode(encode(state)) == state
    assert non_finite(msgspec.structs.asdict(state)) is None
    assert tuple(state.features) == names
    assert all(math.isfinite(value) and -1 <= value <= 1 for value in state.features.values()), state.features
    for seen in state.classes.values():
        hold_latency(seen.latency)
        ratios = (seen.share, seen.pressure_ratio, seen.throttled_ratio, seen.waited_ratio)
        assert all(ratio is None or 0 <= ratio <= 1 + 1e-9 for ratio in ratios), seen
        numbers = (seen.cpu_cores, seen.run_delay, seen.memory_bytes, seen.weight)
        assert all(number is None or number >= 0 for number in numbers), seen
        assert (seen.waited_reason is None) is (seen.waited_ratio is not None), seen
        assert 0 <= seen.latency.silent_pods <= seen.pods or seen.pods == 0, seen
    found = state.contention
    assert all(ratio is None or 0 <= ratio <= 1 for ratio in (found.busy_ratio, found.pressure_ratio)), found
    assert found.run_queue is None or found.run_queue >= 0, found


def check_whole(drawn: tuple[int, list[dict[str, Any]]]) -> None:
    """What the service does between reading and sending, over several collections (`CollectorService`)."""
    choice, collections = drawn
    specs, config, at, previous = CLASSES[choice], CollectorConfig(), 1000.0, None
    names = feature_names(tuple(specs))
    view = View(
        specs,
        WeightSettings(),
        LatencyWindows(config.min_requests, config.max_window_seconds),
        config.contended_pressure_ratio,
        config.contended_run_queue,
    )
    for cycle, step in enumerate(collections, 1):
        at += step["elapsed"]
        workloads = _workloads(step["workloads"])
        places = targets(workloads)
        pages: dict[str, Page] = {}
        errors = {uid: word for uid, word in step["errors"].items() if uid in places.found}
        for uid, target in places.found.items():
            if uid in step["pages"] and uid not in errors:
                content_type, body = step["pages"][uid]
                page = read_page(body, content_type, target.metric, target.unit)
                if isinstance(page, str):
                    errors[uid] = page
                else:
                    pages[uid] = page
        errors |= places.refused
        groups = {
            group: reading
            for group, (inode, texts) in step["groups"].items()
            if (reading := _reading(group, inode, texts)) is not None
        }
        stat, ordered = parse_proc_stat(step["proc"].get("stat", "")), step["ordered"]
        node_pressure = pressure_in(step["proc"].get("pressure/cpu", ""))
        steered = {workload.group for workload in workloads}
        cpus = (stat.cpus if stat is not None else 0) or 1
        seen = view.advance(
            Raw(
                at=at,
                workloads=[(each, classify(each.labels, config.class_labels, specs)) for each in workloads],
                groups=groups,
                without_controller=frozenset(
                    group for group, text in step["controllers"].items() if "cpu" not in parse_controllers(text)
                ),
                pages=pages,
                run_queue=_run_queue(step["proc"]),
                proc_stat=stat,
                node_pressure_usec=node_pressure.some.total_usec if isinstance(node_pressure, Pressure) else None,
                cpus=cpus,
                scrape_errors=errors,
                scraped_at=at - step["took"],
                run_delays={
                    group: delays
                    for group, texts in step["tasks"].items()
                    if (delays := _run_delays(texts)) is not None
                },
            ),
            may_grow=step["may_grow"],
            ordered=Ordered(ordered, {g: r.weight for g, r in groups.items() if g in steered and r.weight})
            if ordered
            else None,
        )
        state = State(
            node="node-1",
            boot="boot1",
            cycle=cycle,
            at=1_700_000_000_000_000_000 + cycle,
            phase="before" if step["may_grow"] else "after",
            window_seconds=seen.window_seconds,
            classes=seen.classes,
            pods=seen.pods,
            contention=seen.contention,
            features=features(seen.classes, seen.contention, previous, specs),
            features_schema=features_schema(tuple(specs)),
            previous=previous,
            notes=tuple(f"{uid}: {word}"[:200] for uid, word in sorted(errors.items())),
        )
        _hold_state(state, names)
        previous = Previous(cycle=cycle, outcome="applied", weights=ordered or None)


TARGETS = {
    target.name: target
    for target in (
        Target("bytes", page_draws.RAW_PAGES, check_page),
        Target("pages", page_draws.PAGES, check_page),
        Target("long-pages", page_draws.LONG_PAGES, check_long_page),
        Target("windows", page_draws.WINDOWS, check_windows),
        Target("kernel-texts", kernel_files.KERNEL_TEXTS, check_kernel_text),
        Target("rates", nodes.readings(), check_rates),
        Target("places", nodes.WORKLOADS, check_places),
        Target("whole", nodes.nodes(), check_whole),
    )
}


def check(name: str, drawn: Any) -> None:
    """Once more what was printed for this target."""
    TARGETS[name](drawn)
