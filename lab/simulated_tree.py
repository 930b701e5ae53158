"""The directory that stands in for a kernel: a cgroup2 tree and a proc tree, and the weights that others write there.

Files that this process rewrites are replaced whole, so that no reader sees half of one; they are staged outside both
trees, so that no reader sees a stranger among them either. That is cheap on a tmpfs; a journalling file system makes a
disk write of every replacement. `cpu.weight` belongs to its writers: it is created here,
read, and written again only to undo what a kernel would have refused.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab import kernel_files
from lab.kernel_files import LOAD_HORIZONS_SECONDS, PRESSURE_HORIZONS_SECONDS, Averages, usec
from lab.simnode_scenario import PODS_ROOT, BatchSpec, PodSpec, Scenario, ServiceSpec, tree_of
from lab.simulator import Group, GroupReading, NodeReading
from runtime.errors import HostError

CONTROLLERS: Final = "cpu io memory pids\n"

FIRST_PID: Final = 4_194_305
"""Pids in `cgroup.procs` start above the kernel's largest (2**22), so that they can mean no process of this machine."""

POD_MEMORY_BYTES: Final = 64 * 1024 * 1024
"""`memory.current` of every pod: memory is not simulated."""


CONTAINER_SECONDS: Final = 1.0
"""Time between two updates of the containers' files, which nobody steers by: half of all writes are saved."""


@dataclass(slots=True)
class _Pressure:
    """The pressure averages of one group and the totals they have been fed up to."""

    some: Averages = field(default_factory=lambda: Averages(PRESSURE_HORIZONS_SECONDS))
    full: Averages = field(default_factory=lambda: Averages(PRESSURE_HORIZONS_SECONDS))
    some_seconds: float = 0.0
    full_seconds: float = 0.0

    def add(self, reading: GroupReading, seconds: float) -> None:
        self.some.add((reading.some_seconds - self.some_seconds) / seconds, seconds)
        self.full.add((reading.full_seconds - self.full_seconds) / seconds, seconds)
        self.some_seconds, self.full_seconds = reading.some_seconds, reading.full_seconds


class SimulatedTree:
    """`cgroup/` and `proc/` below `directory`, for one scenario. Raises HostError where it cannot make them."""

    def __init__(self, directory: Path, scenario: Scenario, *, boot_id: str, boot_unix_seconds: int) -> None:
        self.cgroup_root = directory.resolve() / "cgroup"
        self.proc_root = directory.resolve() / "proc"
        self.refused_weights = 0
        self._cores = scenario.cores
        self._boot_unix_seconds = boot_unix_seconds
        self._staging = directory.resolve() / "staging"
        self._shown: dict[Path, str] = {}
        self._weights: dict[str, int] = {}
        self._suspects: dict[str, str] = {}
        self._containers: dict[str, str] = {}
        self._containers_shown_at = -CONTAINER_SECONDS
        self._pressure: dict[str, _Pressure] = {}
        self._node_pressure = _Pressure()
        self._loads = Averages(LOAD_HORIZONS_SECONDS)
        self._runnable_seconds = 0.0
        self._now_seconds = 0.0
        self._threads = sum(_thread_count(pod) for pod in scenario.pods)
        try:
            for path in (self.cgroup_root, self.proc_root, self._staging):
                path.mkdir(parents=True)
            self._create(scenario, boot_id)
        except FileExistsError as error:
            raise HostError(f"{error.filename} is already there; give the simulated node a new directory") from error
        except OSError as error:
            raise HostError(f"cannot create the simulated node's files: {error}") from error

    def changed_weights(self) -> dict[str, int]:
        """The weights by group path that others have written since the last call.

        A weight a kernel would refuse is counted in `refused_weights` and taken back if it is still there at the next
        call; until then, and while the file is empty, its writer may be between two steps of writing in place. A
        missing file is a group that somebody removed.
        """
        changed: dict[str, int] = {}
        for group, known in self._weights.items():
            path = self.cgroup_root / group / "cpu.weight"
            try:
                text = path.read_text(errors="replace")
            except OSError:
                continue
            weight = kernel_files.parse_weight(text)
            suspect = self._suspects.pop(group, None)
            if weight is not None:
                if weight != known:
                    changed[group] = weight
            elif text.strip() and text != suspect:
                self._suspects[group] = text
            elif text.strip():
                self.refused_weights += 1
                self._replace(path, f"{known}\n")
        self._weights.update(changed)
        return changed

    def show(self, reading: NodeReading) -> None:
        """Rewrites every file whose text the reading changes."""
        seconds = reading.now_seconds - self._now_seconds
        self._now_seconds = reading.now_seconds
        are_containers_due = reading.now_seconds - self._containers_shown_at >= CONTAINER_SECONDS
        if are_containers_due:
            self._containers_shown_at = reading.now_seconds
        for group, pressure in self._pressure.items():
            totals = reading.groups[group]
            if seconds > 0.0:
                pressure.add(totals, seconds)
            stat = kernel_files.cpu_stat(usec(totals.usage_seconds))
            stalls = _pressure_text(pressure)
            self._put(self.cgroup_root / group / "cpu.stat", stat)
            self._put(self.cgroup_root / group / "cpu.pressure", stalls)
            if are_containers_due and group in self._containers:
                self._put(self.cgroup_root / self._containers[group] / "cpu.stat", stat)
                self._put(self.cgroup_root / self._containers[group] / "cpu.pressure", stalls)
        self._show_node(reading.groups[PODS_ROOT], seconds, reading.runnable)

    def _show_node(self, node: GroupReading, seconds: float, runnable: int) -> None:
        runnable_seconds = node.usage_seconds + node.waiting_seconds
        # No task of a node can stall on CPU while nothing runs there: the kernel shows "full" as 0.
        stalls = GroupReading(node.usage_seconds, node.waiting_seconds, node.some_seconds, 0.0)
        if seconds > 0.0:
            self._node_pressure.add(stalls, seconds)
            self._loads.add((runnable_seconds - self._runnable_seconds) / seconds, seconds)
        self._runnable_seconds = runnable_seconds
        pressure = _pressure_text(self._node_pressure)
        self._put(self.cgroup_root / "cpu.stat", kernel_files.cpu_stat(usec(node.usage_seconds), controller=False))
        self._put(self.cgroup_root / "cpu.pressure", pressure)
        self._put(self.proc_root / "pressure/cpu", pressure)
        load = kernel_files.loadavg(self._loads, runnable=runnable, threads=self._threads, last_pid=FIRST_PID)
        self._put(self.proc_root / "loadavg", load)
        stat = kernel_files.stat(
            busy_seconds=node.usage_seconds,
            now_seconds=self._now_seconds,
            cores=self._cores,
            runnable=runnable,
            boot_unix_seconds=self._boot_unix_seconds,
        )
        self._put(self.proc_root / "stat", stat)
        schedstat = kernel_files.schedstat(
            busy_seconds=node.usage_seconds,
            waiting_seconds=node.waiting_seconds,
            now_seconds=self._now_seconds,
            cores=self._cores,
        )
        self._put(self.proc_root / "schedstat", schedstat)

    def _create(self, scenario: Scenario, boot_id: str) -> None:
        for name in ("pressure", "self", "sys/kernel/random"):
            (self.proc_root / name).mkdir(parents=True)
        self._put(self.proc_root / "sys/kernel/random/boot_id", f"{boot_id}\n")
        self._put(self.proc_root / "self/mountinfo", kernel_files.mountinfo(str(self.cgroup_root)))
        self._put(self.proc_root / "self/cgroup", "0::/\n")
        for name, text in (("controllers", CONTROLLERS), ("subtree_control", CONTROLLERS), ("procs", "1\n")):
            self._put(self.cgroup_root / f"cgroup.{name}", text)
        self._create_group(tree_of(scenario), "")
        pid = FIRST_PID
        for pod in scenario.pods:
            group = f"{PODS_ROOT}/{pod.group}"
            container = f"{group}/{hashlib.sha256(pod.uid.encode()).hexdigest()}"
            count = _process_count(pod)
            self._create_files(container, 100, subtree="", pids=range(pid, pid + count), memory_bytes=POD_MEMORY_BYTES)
            self._containers[group] = container
            pid += count

    def _create_group(self, group: Group, above: str) -> int:
        path = f"{above}{group.name}"
        (self.cgroup_root / path).mkdir()
        below = sum(self._create_group(child, f"{path}/") for child in group.children)
        memory_bytes = below if group.workload is None else POD_MEMORY_BYTES
        self._create_files(path, group.weight, subtree=CONTROLLERS, pids=range(0), memory_bytes=memory_bytes)
        self._weights[path] = group.weight
        self._pressure[path] = _Pressure()
        return memory_bytes

    def _create_files(self, path: str, weight: int, *, subtree: str, pids: range, memory_bytes: int) -> None:
        folder = self.cgroup_root / path
        folder.mkdir(exist_ok=True)
        self._replace(folder / "cpu.weight", f"{weight}\n")
        for name, text in (
            ("cgroup.controllers", CONTROLLERS),
            ("cgroup.subtree_control", subtree),
            ("cgroup.procs", kernel_files.procs(pids)),
            ("cpu.idle", "0\n"),
            ("cpu.max", "max 100000\n"),
            ("memory.current", f"{memory_bytes}\n"),
        ):
            self._put(folder / name, text)

    def _put(self, path: Path, text: str) -> None:
        if self._shown.get(path) != text:
            self._shown[path] = text
            self._replace(path, text)

    def _replace(self, path: Path, text: str) -> None:
        staged = os.open(self._staging / "next", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(staged, text.encode())
        finally:
            os.close(staged)
        try:
            os.replace(self._staging / "next", path)
        except FileNotFoundError:
            # Somebody removed the group, as a kubelet does: its files are nobody's any more.
            self._shown.pop(path, None)


def _process_count(pod: PodSpec) -> int:
    return pod.workload.processes if isinstance(pod.workload, BatchSpec) else 1


def _thread_count(pod: PodSpec) -> int:
    return pod.workload.workers if isinstance(pod.workload, ServiceSpec) else _process_count(pod)


def _pressure_text(pressure: _Pressure) -> str:
    return kernel_files.pressure(pressure.some, usec(pressure.some_seconds), pressure.full, usec(pressure.full_seconds))
