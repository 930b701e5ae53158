"""`python -m lab.bench_kube`: what following the API and looking at a full node cost, as CPU time.

A synthetic node: 300 pods of three QoS classes as files, their objects as large as real ones, and 1,000 events. No
server: bytes are handed over as the client's stream would hand them.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from hostfs.pod_tree import PodTree
from lab.bench_scrape import Figure, show
from lab.kernel_files import cpu_stat
from schemas.settings import Shared
from services.collector.core.latency import LatencyWindows
from services.collector.core.targets import targets
from services.collector.core.view import Raw, Seen, View
from services.collector.core.workload import Namespaces, settle
from services.collector.sources.kernel import Kernel
from services.collector.sources.pod_watch import Pace, PodWatch

_CLASSES = ("latency-critical", "default", "batch")
_FOLDERS = ("", "burstable/", "besteffort/")
_LABEL = "trimtab.dev/workload-class"
_PRESSURE = "some avg10=1.00 avg60=1.00 avg300=1.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_CONTAINERS = 2
_OBJECT_BYTES = 12_000


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _container(number: int, index: int) -> str:
    return f"{number:032x}{index:032x}"


def _pod(number: int, version: int) -> dict[str, object]:
    statuses = [{"containerID": f"containerd://{_container(number, index)}"} for index in range(_CONTAINERS)]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "shop",
            "uid": _uid(number),
            "resourceVersion": str(version),
            "labels": {_LABEL: _CLASSES[number % 3], "app": "shop", "pod-template-hash": "7c9d"},
            "annotations": {"prometheus.io/port": "9102", "prometheus.io/scrape": "true"},
            "managedFields": [{"fieldsV1": {f"f:{index}": {} for index in range(_OBJECT_BYTES // 12)}}],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "ports": [{"containerPort": 9102}]}]},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.{number // 250}.{number % 250 + 1}",
            "containerStatuses": statuses,
        },
    }


class _Recorded:
    """One list, and events that come when they are asked for."""

    node = "node-1"

    def __init__(self, pods: int, events: int) -> None:
        listed = {"metadata": {"resourceVersion": "1000"}, "items": [_pod(number, 1000) for number in range(pods)]}
        self.listed = json.dumps(listed).encode()
        self.lines = [
            json.dumps({"type": "MODIFIED", "object": _pod(number % pods, 1001 + number)}).encode()
            for number in range(events)
        ]
        self.go = threading.Event()
        self.ended = threading.Event()
        self.cpu_seconds = 0.0

    def list_pods(self, version: str | None, rest: str | None = None) -> bytes:  # noqa: ARG002 - there is one
        """The list."""
        return self.listed

    def watch_pods(self, version: str, timeout_seconds: float) -> Generator[bytes, None, None]:  # noqa: ARG002
        """All events at once, when it is time; how much CPU time this thread took meanwhile."""
        yield b""
        self.go.wait()
        before = time.thread_time()
        yield from self.lines
        self.cpu_seconds = time.thread_time() - before
        self.ended.set()
        threading.Event().wait()

    def interrupt(self) -> None:
        """Nothing to interrupt: the thread is a daemon."""

    def close(self) -> None:
        """Nothing to close."""


def _make_files(root: Path, pods: int) -> None:
    groups = ["", "burstable", "besteffort"]
    for number in range(pods):
        pod = f"{_FOLDERS[number % 3]}pod{_uid(number)}"
        groups += [pod, *(f"{pod}/{_container(number, index)}" for index in range(_CONTAINERS))]
    texts = {
        "cpu.weight": "39\n",
        "cpu.idle": "0\n",
        "cpu.stat": cpu_stat(1_000_000),
        "cpu.pressure": _PRESSURE,
        "memory.current": "1048576\n",
        "cgroup.subtree_control": "cpu\n",
        "cpuset.cpus.effective": "0-1\n",
        "cgroup.events": "populated 1\nfrozen 0\n",
    }
    for group in groups:
        folder = root / "kubepods" / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="ascii")


def measure(pods: int, events: int) -> list[Figure]:
    """CPU time of a list, of the events, and of one whole look without scraping."""
    shared = Shared()
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-", dir=_memory()) as folder:
        _make_files(Path(folder), pods)
        api, listed = _Recorded(pods, events), threading.Event()
        tree = PodTree.below(folder, "kubepods")
        pace = Pace(relist=3600.0, silence=3600.0, max_age=3600.0)
        watch = PodWatch(
            api, tree, pace, time.monotonic, lambda what, _: listed.set() if what == "list" else None, (_LABEL,)
        )
        started = time.process_time()
        watch.start()
        listed.wait()
        of_list = time.process_time() - started
        api.go.set()
        api.ended.wait()
        kernel = Kernel(folder, "kubepods", "/proc")
        view = View(shared.classes, shared.weights, LatencyWindows(20, 30.0), 0.05, 0.5)

        def look() -> Seen:
            workloads = watch.workloads()
            found = [settle(one, (_LABEL,), shared.classes, Namespaces()) for one in workloads]
            targets([one.workload for one in found])
            sweep = kernel.sweep(one.group for one in workloads)
            return view.advance(
                Raw(
                    at=time.monotonic(),
                    workloads=[(one.workload, one.cls) for one in found],
                    groups=sweep.groups,
                    without_controller=sweep.without_controller,
                    pages={},
                    run_queue=sweep.run_queue,
                    proc_stat=sweep.proc_stat,
                    node_pressure_usec=sweep.node_pressure_usec,
                    cpus=2,
                    run_delays=sweep.run_delays,
                ),
                may_grow=True,
            )

        if sum(state.pods for state in look().classes.values()) != pods:
            raise RuntimeError("the bench does not see its own pods")
        figures = [
            Figure(f"a list of {pods} pods, {len(api.listed) >> 10} KiB", of_list * 1000, "ms CPU"),
            Figure(f"{events} events of {len(api.lines[0]) >> 10} KiB", api.cpu_seconds * 1000, "ms CPU"),
            Figure(f"pods and groups of {pods} pods", _cpu_ms(watch.workloads), "ms CPU"),
            Figure(f"one look at {pods} pods", _cpu_ms(look), "ms CPU", 150.0),
        ]
        watch.close()
    return figures


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a name of its own is made in it


def _cpu_ms(work: Callable[[], object], rounds: int = 10) -> float:
    started = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - started) / rounds * 1000


def main() -> int:
    """Measures and prints; 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench_kube", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--pods", type=int, default=300, help="pods on the node (default: 300)")
    parser.add_argument("--events", type=int, default=1000, help="events of the API (default: 1000)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    return show(measure(args.pods, args.events), args.json)


if __name__ == "__main__":
    sys.exit(main())
