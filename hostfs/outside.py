"""Containers outside their pods' groups.

A runtime that was given a systemd name and uses the cgroupfs manager makes one folder of the name, below its own group:
`<pod's slice>:<runtime>:<id>` (kubernetes#106514).
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.pods import parse_pod_group

MAX_DEPTH: Final = 4
"""How deep a runtime's group may be: `system.slice/docker-<id>.scope/system.slice/containerd.service` is 4."""

MAX_FOLDERS: Final = 2048
"""Most folders listed in one search, nearest to the root first: a few times a large node's services."""

AGAIN_AFTER: Final = 12
"""Finds after which pods that were searched for in vain are searched for again. 12: at most a minute of ticks."""

Outside: TypeAlias = dict[str, dict[str, str]]
"""Groups below the cgroup root by container id, by uid."""


class OutsideGroups:
    """Looks for them below the cgroup root. Holds where some were found, and for which pods none were."""

    def __init__(self, tree: CgroupTree, pods_root: str) -> None:
        self._tree = tree
        self.pods_root = pods_root
        self._parents: set[str] = set()
        self._in_vain: set[str] = set()
        self._finds_left = AGAIN_AFTER

    def find(self, uids: Collection[str]) -> Outside:
        """What these pods have outside the pods root, for those that have anything there. Looks where some were found
        before; the whole tree is searched for pods that are new, and for the others now and then.
        """
        wanted = set(uids)
        found = outside_in((child for parent in sorted(self._parents) for child in self._tree.children(parent)), wanted)
        missing = wanted - found.keys()
        self._finds_left -= bool(missing)
        if missing and (missing - self._in_vain or self._finds_left <= 0):
            self._finds_left = AGAIN_AFTER
            found = outside_in(self._search(), wanted)
        groups = {group for outside in found.values() for group in outside.values()}
        self._parents = {group.rpartition("/")[0] for group in groups}
        self._in_vain = wanted - found.keys()
        return found

    def _search(self) -> Iterable[str]:
        """The groups of the tree breadth first, those below the pods root apart."""
        level, left = [ROOT_GROUP], MAX_FOLDERS
        for _ in range(MAX_DEPTH + 1):
            below = [child for parent in level[: max(0, left)] for child in self._tree.children(parent)]
            yield from below
            left -= len(level)
            level = [group for group in below if group != self.pods_root]


def outside_in(groups: Iterable[str], wanted: Collection[str]) -> Outside:
    """Those of the groups whose own names say both a pod, one of `wanted`, and a container."""
    found: Outside = {}
    for group in groups:
        name = group.rpartition("/")[2]
        named = parse_pod_group(name) if ":" in name else None
        if named is not None and named.container is not None and named.uid.lower() in wanted:
            found.setdefault(named.uid.lower(), {})[named.container.lower()] = group
    return found
