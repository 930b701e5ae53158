"""Where each pod is on this node: found by scanning the tree below the pods root, whatever made it."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.cpus import parse_cpu_list, pods_apart
from hostfs.outside import OutsideGroups
from hostfs.pods import PodGroup, Qos, container_id, parse_pod_group

EXCLUSIVE_CPUS: Final = "exclusive_cpus"
NO_PROCESSES: Final = "no_processes"
OUTSIDE_PODS_ROOT: Final = "outside_pods_root"

_DEPTH: Final = 2
"""Pods' groups are directly below the pods root or below one folder there, the QoS group."""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """One pod's groups, as paths below the pods root. `containers` maps ids to groups: workload containers, and the
    sandbox's where it has one: its name tells nothing, so `members` is told which ids are meant. Monitor processes
    (conmon) and what a runtime makes inside a container's group are not in it.

    `skip` is why the pod's weight means nothing: `exclusive_cpus` (it has CPUs that no other pod may use),
    `no_processes` (nothing runs in its group) or `outside_pods_root`: its containers are not in its group but in
    `outside`, groups below the cgroup root (below the pods root, if the tree knows no other).
    """

    group: str
    qos: Qos
    containers: Mapping[str, str]
    skip: str | None = None
    outside: Mapping[str, str] = field(default_factory=dict)

    def members(self, container_ids: Iterable[str]) -> dict[str, str]:
        """The groups of these containers that are there, by id; an id may be `<runtime>://<id>`, as the API has it."""
        wanted = [name.rpartition("://")[2].lower() for name in container_ids]
        return {name: self.containers[name] for name in wanted if name in self.containers}


class PodTree:
    """The pods below a pods root. `tree` is rooted there; `outside` finds containers that were put elsewhere."""

    def __init__(self, tree: CgroupTree, outside: OutsideGroups | None = None) -> None:
        self._tree = tree
        self._outside = outside

    @classmethod
    def below(cls, cgroup_root: str, pods_root: str) -> "PodTree":
        """The pods of the group `pods_root` below the folder `cgroup_root`, and their containers in all of it."""
        outside = OutsideGroups(CgroupTree(cgroup_root), pods_root)
        return cls(CgroupTree(os.path.join(cgroup_root, pods_root)), outside)

    def scan(self) -> dict[str, PodPlace]:
        """Every pod that has a group now, by uid: dashed and lower case, or the config hash (32 hex digits) of a static
        pod. Never raises; a group that vanishes meanwhile is not there.
        """
        claims: dict[str, list[PodPlace]] = {}
        colons: dict[str, dict[str, str]] = {}
        for group, found in self._pod_groups():
            uid = found.uid.lower()
            if found.container is None:
                claims.setdefault(uid, []).append(PodPlace(group, found.qos, self._containers(group)))
            else:  # a colon name: a container beside its pod's group
                colons.setdefault(uid, {})[found.container.lower()] = group
        places = {uid: self._pick(claimed) for uid, claimed in claims.items()}
        return self._without_own_cpus(self._without_outsiders(places, colons))

    def _pod_groups(self) -> Iterable[tuple[str, PodGroup]]:
        level = self._tree.children(ROOT_GROUP)
        for depth in range(_DEPTH):
            below: list[str] = []
            for group in level:
                found = parse_pod_group(group)
                if found is not None:
                    yield group, found
                elif depth + 1 < _DEPTH:
                    below += self._tree.children(group)
            level = below

    def _containers(self, group: str) -> dict[str, str]:
        found = ((container_id(child.rpartition("/")[2]), child) for child in self._tree.children(group))
        return {name.lower(): child for name, child in found if name is not None}

    def _pick(self, claimed: list[PodPlace]) -> PodPlace:
        """Of several groups of one pod the one that something runs in; another driver may have left one behind."""
        if len(claimed) == 1:
            return claimed[0]
        populated = {place.group: self._tree.is_populated(place.group) for place in claimed}
        order = {True: 0, None: 1, False: 2}
        return min(claimed, key=lambda place: (order[populated[place.group]], -len(place.containers), place.group))

    def _without_outsiders(
        self, places: dict[str, PodPlace], colons: Mapping[str, Mapping[str, str]]
    ) -> dict[str, PodPlace]:
        """A pod's group is empty, or has a sandbox only, for a moment at the start, or because its containers are
        somewhere else, which may be out of sight: then an empty group is no idle pod either.
        """
        lone = {uid for uid, place in places.items() if len(place.containers) == 1}
        populated = {uid: self._tree.is_populated(place.group) for uid, place in places.items() if not place.containers}
        bare = lone | {uid for uid, has_processes in populated.items() if has_processes is not True}
        elsewhere = self._outside.find(bare) if self._outside is not None else {}
        for uid in bare:
            if uid in elsewhere or uid in colons:
                outside = {name: self._below_cgroup_root(group) for name, group in colons.get(uid, {}).items()}
                places[uid] = replace(places[uid], skip=OUTSIDE_PODS_ROOT, outside=outside | elsewhere.get(uid, {}))
            elif populated.get(uid) is False:
                places[uid] = replace(places[uid], skip=NO_PROCESSES)
        return places

    def _below_cgroup_root(self, group: str) -> str:
        return group if self._outside is None else f"{self._outside.pods_root}/{group}"

    def _without_own_cpus(self, places: dict[str, PodPlace]) -> dict[str, PodPlace]:
        guaranteed = [uid for uid, place in places.items() if place.qos == "Guaranteed"]
        known = {uid: self._cpu_sets(places[uid]) for uid in guaranteed}
        if not any(cpus for sets in known.values() for cpus in sets):
            return places  # as on nearly every node: the others' need not be read
        apart = pods_apart({uid: known.get(uid) or self._cpu_sets(place) for uid, place in places.items()})
        for uid in apart.intersection(guaranteed):
            places[uid] = replace(places[uid], skip=EXCLUSIVE_CPUS)
        return places

    def _cpu_sets(self, place: PodPlace) -> list[frozenset[int]]:
        return [self._cpus(group) for group in (place.group, *place.containers.values())]

    def _cpus(self, group: str) -> frozenset[int]:
        return parse_cpu_list(self._tree.read(group, "cpuset.cpus") or "") or frozenset()
