"""The kernel's files of one node, read in one sweep: every family on the way to a pod, and the run queue."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from hostfs.cgroup import CgroupTree, GroupReading
from hostfs.pressure import Pressure, read_pressure
from hostfs.run_queue import ProcStat, RunQueueReader, RunQueueSample


@dataclass(frozen=True)
class Sweep:
    """What was there at one moment. Groups are paths below the pods root."""

    groups: dict[str, GroupReading]
    without_controller: frozenset[str]
    run_queue: RunQueueSample | None
    proc_stat: ProcStat | None
    node_pressure_usec: int | None


class Kernel:
    """Reads below one pods root and one proc root."""

    def __init__(self, cgroup_root: str, pods_root: str, proc_root: str) -> None:
        self._tree = CgroupTree(os.path.join(cgroup_root, pods_root))
        self._run_queue = RunQueueReader(proc_root)
        self._pressure = os.path.join(proc_root, "pressure/cpu")

    def sweep(self, groups: Iterable[str]) -> Sweep:
        """Readings of these groups, of all their siblings and of the groups above them."""
        parents = {ancestor for group in groups for ancestor in _ancestors(group)}
        readings: dict[str, GroupReading] = {}
        without: set[str] = set()
        for parent in sorted(parents):
            if not self._tree.has_cpu_controller(parent):
                without.add(parent)
            for child in self._tree.children(parent):
                reading = self._tree.reading(child)
                if reading is not None:
                    readings[child] = reading
        pressure = read_pressure(self._pressure)
        return Sweep(
            groups=readings,
            without_controller=frozenset(without),
            run_queue=self._run_queue.sample(),
            proc_stat=self._run_queue.proc_stat(),
            node_pressure_usec=pressure.some.total_usec if isinstance(pressure, Pressure) else None,
        )


def _ancestors(group: str) -> list[str]:
    """All groups above, the pods root ("") included."""
    parts = group.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts))]
