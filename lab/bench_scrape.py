"""What scraping costs: 110 pods of 2,000 samples, twice a cycle, against half a core of a 5 s tick.

Each kind of page has a server and a client in processes of their own: what is measured is the client alone, which
does what the collector does. Speed and memory are measured, never asserted.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from hostfs.cgroup import GroupReading
from hostfs.pressure import PressureAbsent
from lab.bench_pages import page_of
from lab.cgroup_sandbox import CgroupSandbox, SandboxUnavailable, open_sandbox
from runtime.errors import TrimtabError
from runtime.processes import Child, spawn
from schemas.settings import Shared
from services.collector.config import CollectorConfig
from services.collector.core.exposition import Exposition, LabelTexts
from services.collector.core.latency import LatencyWindows
from services.collector.core.latency_source import find_latency
from services.collector.core.targets import Target
from services.collector.core.view import Raw, View
from services.collector.core.workload import Workload
from services.collector.sources.scrape import Scraper

PODS: Final = 110
"""Pods of a full node: the kubelet's own limit."""

ROUNDS: Final = 10
CYCLE_CPU_SECONDS: Final = 2.5
"""Half a core of a 5 s tick."""

_HALF_A_CORE: Final = "50000 100000"
_HALF_CORE_ROUNDS: Final = 3
_START_SECONDS: Final = 30.0
_ROUND_SECONDS: Final = 10.0
_HALF_PERIOD_SECONDS: Final = 0.05
_TEXTS: Final = {
    "usual": "usual pages",
    "usual-gzip": "usual pages in gzip",
    "buckets": "2,000 buckets",
    "buckets-own-label": "2,000 buckets, own label",
    "one-hostile": "usual pages, one hostile",
}
_READ_AT_MOST: Final = {"usual": 0.2, "buckets": 0.5}
"""Largest part of the full parser's CPU that reading a page may take."""


@dataclass(frozen=True)
class Figure:
    """One measured number and its budget, if it has one."""

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def verdict(self) -> str:
        """Whether it keeps its budget."""
        if self.budget is None:
            return ""
        return "within" if self.value <= self.budget else "OVER"


@dataclass(frozen=True)
class Round:
    """One collection: CPU of all threads and wall time in seconds, pods without a page, memory afterwards in MiB."""

    cpu: float
    wall: float
    missing: int
    rss_mib: float
    errors: Sequence[str] = ()


async def collect_rounds(ports: Sequence[int], rounds: int) -> list[Round]:
    """Scrapes so many times what listens on these ports and takes it in, as the collector does with its defaults."""
    config, shared = CollectorConfig(), Shared()
    workloads = [Workload(uid=str(number), name=f"pod-{number}", group=f"pod{number}") for number in range(len(ports))]
    groups = {
        pod.group: GroupReading(pod.group, 1, 39, False, None, PressureAbsent("psi_off"), None) for pod in workloads
    }
    targets = [Target(pod.uid, f"http://127.0.0.1:{port}/metrics") for pod, port in zip(workloads, ports, strict=True)]
    windows = LatencyWindows(config.min_requests, config.max_window_seconds)
    view = View(shared.classes, shared.weights, windows, config.contended_pressure_ratio, config.contended_run_queue)
    scraper = Scraper(
        timeout_seconds=config.scrape_timeout_seconds,
        max_bytes=config.scrape_max_bytes,
        concurrency=config.scrape_concurrency,
        metrics=config.latency_metrics,
    )
    found: list[Round] = []
    known: Iterable[str] = ()
    try:
        for number in range(rounds):
            cpu, wall = time.process_time(), time.monotonic()
            pages, errors = await scraper.scrape(targets)
            raw = Raw(
                at=float(number),
                workloads=[(pod, "latency-critical") for pod in workloads],
                groups=groups,
                without_controller=frozenset(),
                pages=pages,
                run_queue=None,
                proc_stat=None,
                node_pressure_usec=None,
                cpus=2,
                scrape_errors=errors,
            )
            latency = view.advance(raw, may_grow=True).classes["latency-critical"].latency
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            both = len(pages.keys() & set(known))
            if number and (latency.pods != both or (both and not latency.requests)):
                raise TrimtabError(f"round {number}: {latency.pods} of {both} pods brought {latency.requests} requests")
            known = pages.keys()
            found.append(Round(cpu, wall, len(ports) - len(pages), rss_mib(), sorted(set(errors.values()))[:3]))
    finally:
        await scraper.close()
    return found


def rss_mib() -> float:
    """Resident memory of this process in MiB (proc(5), statm)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


async def measure(
    kind: str,
    pods: int = PODS,
    rounds: int = ROUNDS,
    *,
    enter: Callable[[], None] | None = None,
    is_halved: bool = False,
) -> list[Round]:
    """The rounds of one kind of page. `enter` runs in the client's process before it begins; `is_halved`: it runs 50 of
    every 100 ms, which is what a quota of half a core leaves to one that is never idle.
    """
    children: list[Child] = []
    halving: asyncio.Task[None] | None = None
    try:
        server = await _start(children, "lab.bench_pages", kind, str(pods))
        ports = await _line(server, _START_SECONDS)
        client = await _start(children, "lab.bench_scrape", "--rounds", str(rounds), "--ports", ports, enter=enter)
        if is_halved:
            halving = asyncio.create_task(_halve(client))
        found = await _line(client, _START_SECONDS + rounds * _ROUND_SECONDS)
        return [Round(**each) for each in json.loads(found)]
    finally:
        if halving is not None:
            halving.cancel()
            await asyncio.gather(halving, return_exceptions=True)
        for child in children:
            await child.stop()


async def _halve(child: Child) -> None:
    try:
        while True:
            for order in (signal.SIGSTOP, signal.SIGCONT):
                child.process.send_signal(order)
                await asyncio.sleep(_HALF_PERIOD_SECONDS)
    except ProcessLookupError:
        pass  # it is done
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGCONT)


async def _start(children: list[Child], *argv: str, enter: Callable[[], None] | None = None) -> Child:
    child = await spawn(argv[0], (sys.executable, "-m", *argv), pipes=True, enter=enter)
    children.append(child)
    return child


async def _line(child: Child, seconds: float) -> str:
    assert child.process.stdout is not None  # spawned with pipes
    try:
        async with asyncio.timeout(seconds):
            line = await child.process.stdout.readline()
    except TimeoutError as error:
        raise TrimtabError(f"{child.name} gave no result in {seconds:g} s; is the machine busy?") from error
    if not line:
        raise TrimtabError(f"{child.name} ended without its result")
    return line.decode().strip()


def figures_of(kind: str, rounds: Sequence[Round]) -> list[Figure]:
    """What the rounds of one kind of page come to. The first one is apart: its label texts were never seen."""
    name, later = _TEXTS[kind], rounds[1:]
    cycles = [before.cpu + after.cpu for before, after in pairwise(rounds)]
    return [
        Figure(f"{name}: pods missing, worst round", max(each.missing for each in rounds), f"of {PODS}", _may_miss()),
        Figure(f"{name}: first round", rounds[0].cpu * 1000, "ms CPU"),
        Figure(f"{name}: later rounds", statistics.median(each.cpu for each in later) * 1000, "ms CPU"),
        Figure(f"{name}: later rounds, wall time", statistics.median(each.wall for each in later) * 1000, "ms"),
        Figure(f"{name}: costliest cycle of two rounds", max(cycles), "s CPU", CYCLE_CPU_SECONDS),
        Figure(f"{name}: memory added after round 1", rounds[-1].rss_mib - rounds[0].rss_mib, "MiB RSS"),
    ]


def _may_miss() -> float | None:
    """None, and nobody is judged by it, where the pods' server and the client share the only CPU."""
    return 0.0 if len(os.sched_getaffinity(0)) > 1 else None


def read_ratio(kind: str, pages: int = 20) -> float:
    """CPU of reading pages of this kind as the collector does, as a part of what `prometheus_client`'s parser takes."""
    labels, metrics = LabelTexts(is_openmetrics=False), CollectorConfig().latency_metrics
    page = page_of(kind)
    texts = [page(0, scrape).decode() for scrape in range(pages)]
    find_latency(Exposition(texts[0], labels), None, None, metrics)
    ours = _cpu(lambda: [find_latency(Exposition(text, labels), None, None, metrics) for text in texts])
    return ours / _cpu(lambda: [list(text_string_to_metric_families(text)) for text in texts])


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


async def measure_scrape() -> list[Figure]:
    """All figures of the scrape, with a line of progress on stderr for each part."""
    figures: list[Figure] = []
    rounds: dict[str, list[Round]] = {}
    for kind, name in _TEXTS.items():
        _say(f"scraping {PODS} pods: {name} ...")
        rounds[kind] = await measure(kind)
        figures += figures_of(kind, rounds[kind])
        _say_errors(rounds[kind])
    usual, hostile = (statistics.median(each.cpu for each in rounds[kind][1:]) for kind in ("usual", "one-hostile"))
    figures.append(Figure("the hostile page alone", (hostile - usual) * 1000, "ms CPU a round"))
    figures += [
        Figure(f"{_TEXTS[kind]}: reading, to prometheus_client's CPU", read_ratio(kind), "ratio", most)
        for kind, most in _READ_AT_MOST.items()
    ]
    return figures + await half_a_core()


async def half_a_core() -> list[Figure]:
    """The same where the client gets half a core and no more: by a cgroup's quota, else stopped half of the time."""
    figures: list[Figure] = []
    sandbox: CgroupSandbox | None = None
    try:
        sandbox = open_sandbox()
    except SandboxUnavailable as error:
        _say(f"half a core: by stopping the client 50 of every 100 ms, since cpu.max cannot be had ({error.reason})")
    try:
        if sandbox is not None:
            (sandbox.add("client") / "cpu.max").write_text(_HALF_A_CORE, encoding="ascii")
        enter = sandbox.enter("client") if sandbox is not None else None
        for kind in _READ_AT_MOST:
            name = f"{_TEXTS[kind]}, {'cpu.max' if sandbox is not None else 'stopped'} at half a core"
            _say(f"scraping {PODS} pods: {name} ...")
            rounds = await measure(kind, rounds=_HALF_CORE_ROUNDS, enter=enter, is_halved=sandbox is None)
            _say_errors(rounds)
            wall = statistics.median(each.wall for each in rounds[1:])
            missing = max(each.missing for each in rounds)
            figures += [
                Figure(f"{name}: pods missing", missing, f"of {PODS}", _may_miss() if kind == "usual" else None),
                Figure(f"{name}: later rounds, wall time", wall * 1000, "ms"),
            ]
    finally:
        if sandbox is not None:
            sandbox.remove()
    return figures


def _say_errors(rounds: Iterable[Round]) -> None:
    for number, each in enumerate(rounds, 1):
        if each.missing:
            _say(f"  round {number}: {each.missing} pods missing: {', '.join(each.errors)}")


def show(figures: Iterable[Figure], file: Path | None) -> int:
    """Prints the figures and writes them to `file`; 1 if a budget is exceeded."""
    listed = list(figures)
    width = max(len(figure.name) for figure in listed)
    for figure in listed:
        budget = f"  budget {figure.budget:g}: {figure.verdict}" if figure.budget is not None else ""
        sys.stdout.write(f"{figure.name.ljust(width)}  {figure.value:9.2f} {figure.unit}{budget}\n")
    if file is not None:
        file.write_text(json.dumps([asdict(figure) for figure in listed], indent=2) + "\n", encoding="utf-8")
    return 1 if any(figure.verdict == "OVER" for figure in listed) else 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main() -> int:
    """Measures and prints; 1 if a budget is exceeded. With `--ports` it is the client: its rounds as JSON on stdout."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench_scrape", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--ports", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ports is not None:
        rounds = asyncio.run(collect_rounds(args.ports, args.rounds))
        sys.stdout.write(json.dumps([asdict(each) for each in rounds]) + "\n")
        return 0
    return show(asyncio.run(measure_scrape()), args.json)


if __name__ == "__main__":
    sys.exit(main())
