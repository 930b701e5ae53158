"""A synthetic node for benchmarks: many pods as files, and one collection or one solution over them."""

from collections.abc import Callable
from pathlib import Path

from lab.kernel_files import cpu_stat
from schemas.messages import PodState
from schemas.settings import Shared
from services.actuator.core.solver import Target, solve
from services.collector.core.latency import LatencyWindows
from services.collector.core.view import Raw, Seen, View
from services.collector.core.workload import Workload
from services.collector.sources.kernel import Kernel

_CLASSES = ("latency-critical", "default", "batch")
_PRESSURE = "some avg10=1.00 avg60=1.00 avg300=1.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def _group(number: int) -> str:
    return f"burstable/pod{number:08x}-0000-4000-8000-000000000000"


def collect_once(directory: Path, pods: int) -> Callable[[], Seen]:
    """Makes the files of a node with so many pods; a function that collects from them once, scraping apart."""
    shared = Shared()
    for group in ("burstable", *(_group(number) for number in range(pods))):
        folder = directory / "kubepods" / group
        folder.mkdir(parents=True)
        texts = {
            "cpu.weight": "39\n",
            "cpu.idle": "0\n",
            "cpu.stat": cpu_stat(1_000_000),
            "cpu.pressure": _PRESSURE,
            "memory.current": "1048576\n",
            "cgroup.subtree_control": "cpu\n",
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="ascii")
    (directory / "kubepods" / "cgroup.subtree_control").write_text("cpu\n", encoding="ascii")
    kernel = Kernel(str(directory), "kubepods", "/proc")
    workloads = [
        (Workload(uid=str(number), name=f"pod-{number}", group=_group(number)), _CLASSES[number % 3])
        for number in range(pods)
    ]
    view = View(shared.classes, shared.weights, LatencyWindows(20, 30.0), 0.05, 0.5)
    now = 0.0

    def collect() -> Seen:
        nonlocal now
        now += 5.0
        sweep = kernel.sweep(workload.group for workload, _ in workloads)
        raw = Raw(
            at=now,
            workloads=workloads,
            groups=sweep.groups,
            without_controller=sweep.without_controller,
            pages={},
            run_queue=sweep.run_queue,
            proc_stat=sweep.proc_stat,
            node_pressure_usec=sweep.node_pressure_usec,
            cpus=2,
        )
        return view.advance(raw, may_grow=True)

    return collect


def solve_once(pods: int) -> Callable[[], list[Target]]:
    """A function that turns three class weights into so many pod weights, on a tree of all three QoS classes."""
    states = [
        PodState(uid=str(number), name=f"pod-{number}", group=group, cls=_CLASSES[number // 3 % 3], weight=39)
        for number in range(pods)
        for group in (("", "burstable/", "besteffort/")[number % 3] + _group(number).rpartition("/")[2],)
    ]
    weights = {"latency-critical": 1000, "default": 316, "batch": 100}
    return lambda: solve(states, weights, {}, {"burstable": 13 * pods, "besteffort": 1})
