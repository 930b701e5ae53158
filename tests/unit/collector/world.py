"""A folder that looks like a node's kernel files, and the collector's eyes on it."""

import os
from pathlib import Path

from hostfs.cgroup import CgroupTree, GroupReading
from hostfs.cgroup_files import CpuStat
from hostfs.files import read_at
from hostfs.pressure import Pressure, PressureAbsent, PressureLine
from schemas.settings import DEFAULT_CLASSES, WeightSettings
from services.collector.core.latency import LatencyWindows
from services.collector.core.view import Raw, View
from services.collector.core.workload import Workload
from services.collector.sources.kernel import Kernel

LABEL = "trimtab.dev/workload-class"
PODS_ROOT = "kubepods"


class Node:
    """Groups below `kubepods` and a proc folder. Counters stand still until they are set."""

    def __init__(self, path: Path) -> None:
        self.root, self.proc = path / "cgroup", path / "proc"
        self.base = self.root / PODS_ROOT
        self.base.mkdir(parents=True)
        self.proc.mkdir()
        self.controllers("", "cpu memory pids")
        self.run_queue(waited_nsec=0)
        self.cpu_time(busy=0, idle=0)

    def controllers(self, group: str, text: str) -> None:
        (self.base / group / "cgroup.subtree_control").write_text(text + "\n")

    def add(self, group: str, weight: int | None = 100, *, pressure: bool = True, idle: int = 0) -> None:
        folder = self.base / group
        folder.mkdir(parents=True)
        self.controllers(group, "cpu memory")
        if weight is not None:
            (folder / "cpu.weight").write_text(f"{weight}\n")
            (folder / "cpu.idle").write_text(f"{idle}\n")
        (folder / "memory.current").write_text("4096\n")
        self.usage(group, 0)
        if pressure:
            self.waited(group, 0)

    def usage(self, group: str, usec: int, throttled: int = 0) -> None:
        text = f"usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\n"
        (self.base / group / "cpu.stat").write_text(f"{text}throttled_usec {throttled}\n")

    def waited(self, group: str, usec: int) -> None:
        (self.base / group / "cpu.pressure").write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={usec}\n")

    def run_queue(self, waited_nsec: int) -> None:
        line = f"0 0 0 0 0 0 0 {waited_nsec} 0"
        (self.proc / "schedstat").write_text(f"version 15\ntimestamp 1\ncpu0 {line}\ncpu1 {line}\n")

    def tasks(self, group: str, **delays: int) -> None:
        """The group's tasks, as `t7=…`: nanoseconds that each waited. All of them have run."""
        (self.base / group / "cgroup.threads").write_text("".join(f"{name[1:]}\n" for name in delays))
        for name, waited_nsec in delays.items():
            (self.proc / name[1:]).mkdir(exist_ok=True)
            (self.proc / name[1:] / "schedstat").write_text(f"1000 {waited_nsec} 5\n")

    def cpu_time(self, busy: int, idle: int) -> None:
        (self.proc / "stat").write_text(
            f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nprocs_running 1\n"
        )

    def again(self, group: str, **fields) -> None:
        """Another group under the same path, with another inode."""
        (self.base / group).rename(self.root / f"grave-{len(list(self.root.iterdir()))}")
        self.add(group, **fields)

    def kernel(self) -> Kernel:
        return Kernel(str(self.root), PODS_ROOT, str(self.proc))


def failing(kernel: Kernel, place: str, number: int) -> None:
    """From now on reading the file at `group/name` fails with this errno, as it does for a group that is going."""
    tree, name = kernel._tree, place.rpartition("/")[2]
    doomed = tree.inode(place.rpartition("/")[0])

    def read(wanted: str, dir_fd: int) -> str:
        if wanted == name and os.fstat(dir_fd).st_ino == doomed:
            raise OSError(number, os.strerror(number))
        return read_at(wanted, dir_fd)

    kernel._tree = CgroupTree(tree.root, read)


def workload(name: str, cls: str | None = None, *, url: str | None = None, **fields) -> Workload:
    labels = {LABEL: cls} if cls else {}
    return Workload(
        uid=f"uid-{name}", name=name, metrics_url=url, **{"group": f"pod-{name}", "labels": labels} | fields
    )


def view(*, min_requests: int = 20, max_window_seconds: float = 30.0, classes=DEFAULT_CLASSES) -> View:
    return View(classes, WeightSettings(), LatencyWindows(min_requests, max_window_seconds), 0.05, 0.5)


def look(
    eyes: View,
    kernel: Kernel,
    at: float,
    members,
    pages=None,
    *,
    errors=None,
    scraped_at=None,
    may_grow: bool = False,
    ordered=None,
):
    """One collection: `members` are (workload, class) pairs; `errors` are words by uid."""
    sweep = kernel.sweep(workload.group for workload, _ in members)
    return eyes.advance(
        Raw(
            at=at,
            workloads=members,
            groups=sweep.groups,
            without_controller=sweep.without_controller,
            pages=pages or {},
            run_queue=sweep.run_queue,
            proc_stat=sweep.proc_stat,
            node_pressure_usec=sweep.node_pressure_usec,
            cpus=sweep.proc_stat.cpus if sweep.proc_stat else 1,
            scrape_errors=errors or {},
            run_delays=sweep.run_delays,
            scraped_at=scraped_at,
        ),
        may_grow=may_grow,
        ordered=ordered,
    )


def reading(usage: int | None, *, inode: int = 1, waited: int | None = None, throttled: int | None = 0) -> GroupReading:
    """A group's reading from its counters in microseconds. `throttled` is None without the cpu controller."""
    stat = None if usage is None else CpuStat(usage, usage, 0, throttled_usec=throttled)
    pressure = PressureAbsent("psi_off") if waited is None else Pressure(PressureLine(0.0, 0.0, 0.0, waited))
    return GroupReading("pod-a", inode, 100, False, stat, pressure, 4096)
