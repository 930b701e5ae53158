"""The kernel's files of one node, read in one sweep: every family on the way to a pod, and the run queue.

Where a pod's group shows no pressure, how long its tasks waited is read task by task. Where a pod's containers are not
in its group, what they use is read where they are.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hostfs.cgroup import CgroupTree, CpuStat, GroupReading, parse_cpu_stat
from hostfs.outside import OutsideGroups
from hostfs.pod_tree import PodPlace, PodTree
from hostfs.pods import parse_pod_group
from hostfs.pressure import Pressure, PressureAbsent, read_pressure
from hostfs.run_queue import ProcStat, RunQueueReader, RunQueueSample
from hostfs.tasks import MAX_GROUPS, read_run_delays

MAX_NODE_TASKS: Final = 8192
"""Most tasks whose waits are read in one sweep. What is beyond is unknown."""


@dataclass(frozen=True)
class Sweep:
    """What was there at one moment. Groups are paths below the pods root."""

    groups: dict[str, GroupReading]
    without_controller: frozenset[str]
    run_queue: RunQueueSample | None
    proc_stat: ProcStat | None
    node_pressure_usec: int | None
    run_delays: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class Kernel:
    """Reads below one pods root and one proc root."""

    def __init__(self, cgroup_root: str, pods_root: str, proc_root: str) -> None:
        self._tree = CgroupTree(os.path.join(cgroup_root, pods_root))
        self._node = CgroupTree(cgroup_root)
        self._outside = OutsideGroups(self._node, pods_root)
        self._run_queue = RunQueueReader(proc_root)
        self._pressure = os.path.join(proc_root, "pressure/cpu")
        self._proc_root = proc_root

    def sweep(self, groups: Iterable[str]) -> Sweep:
        """Readings of these groups, of all their siblings and of the groups above them."""
        pods = set(groups)
        places = self._places(pods)
        parents = {ancestor for group in pods for ancestor in _ancestors(group)}
        readings: dict[str, GroupReading] = {}
        without: set[str] = set()
        for parent in sorted(parents):
            if not self._tree.has_cpu_controller(parent):
                without.add(parent)
            for child in self._tree.children(parent):
                reading = self._tree.reading(child)
                if reading is not None and not self._is_deserted(child, pods, parents):
                    readings[child] = self._whole(reading, places.get(child)) if child in pods else reading
        delays: dict[str, Mapping[int, int]] = {}
        tasks = 0
        for group in sorted(pods):
            if tasks >= MAX_NODE_TASKS or group not in readings or isinstance(readings[group].pressure, Pressure):
                continue
            found = read_run_delays(self._tree, group, self._proc_root)
            if found is not None:
                delays[group] = found
                tasks += len(found)
        pressure = read_pressure(self._pressure)
        return Sweep(
            groups=readings,
            without_controller=frozenset(without),
            run_queue=self._run_queue.sample(),
            proc_stat=self._run_queue.proc_stat(),
            node_pressure_usec=pressure.some.total_usec if isinstance(pressure, Pressure) else None,
            run_delays=delays,
        )

    def _is_deserted(self, group: str, pods: Collection[str], parents: Collection[str]) -> bool:
        """Whether it is a folder for pods in which nothing runs, as `besteffort` often is: it competes with nobody."""
        if group in pods or group in parents or parse_pod_group(group) is not None:
            return False
        return self._tree.is_populated(group) is False

    def _places(self, groups: Iterable[str]) -> dict[str, PodPlace]:
        """By group, what the tree tells of the pods. Nothing where none of these is named like a pod's group."""
        if not any(parse_pod_group(group) is not None for group in groups):
            return {}
        return {place.group: place for place in PodTree(self._tree, self._outside).scan().values()}

    def _whole(self, pod: GroupReading, place: PodPlace | None) -> GroupReading:
        limited = self._with_limits_below(pod)
        if place is None or place.skip is None:
            return limited
        outside = [found for group in place.outside.values() if (found := self._node.reading(group)) is not None]
        return replace(_with_outside(limited, outside) if place.outside else limited, skip=place.skip)

    def _with_limits_below(self, pod: GroupReading) -> GroupReading:
        """A pod is held by its own limit and by those of its containers, which the kubelet sets where not all of them
        have one: each group's `cpu.stat` tells of its own limit only.
        """
        if pod.stat is None or pod.stat.throttled_usec is None:
            return pod
        held_usec = pod.stat.throttled_usec
        for container in self._tree.children(pod.group)[:MAX_GROUPS]:
            stat = parse_cpu_stat(self._tree.read(container, "cpu.stat") or "")
            held_usec += (stat.throttled_usec if stat is not None else None) or 0
        return replace(pod, stat=replace(pod.stat, throttled_usec=held_usec))


def _with_outside(pod: GroupReading, outside: Sequence[GroupReading]) -> GroupReading:
    """The pod's reading with what its containers outside its group used. It waited as long as that one which waited
    longest, at least. Its own weight acts on none of them, so it has none.
    """
    stats = [found.stat for found in (pod, *outside) if found.stat is not None]
    waits = [found.pressure for found in outside if isinstance(found.pressure, Pressure)]
    memory = [found.memory_bytes for found in (pod, *outside) if found.memory_bytes is not None]
    return replace(
        pod,
        weight=None,
        stat=CpuStat(
            sum(stat.usage_usec for stat in stats),
            throttled_usec=_sum(stat.throttled_usec for stat in stats),
        ),
        pressure=max(waits, key=lambda found: found.some.total_usec) if waits else PressureAbsent("vanished"),
        memory_bytes=sum(memory) if memory else None,
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _ancestors(group: str) -> list[str]:
    """All groups above, the pods root ("") included."""
    parts = group.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts))]
