"""The doctor's table: each pod with its group, class and weight, and what could not be brought together.

Groups and weights are read from the tree. Names and classes come from whoever knows them: the file that
`collector.workloads` names, or the newest state of a running collector, which has them from its own source.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hostfs.cgroup import CgroupTree, GroupReading
from hostfs.pod_tree import PodPlace, PodTree
from runtime.host_roots import HostRoots
from schemas.messages import State
from schemas.settings import Shared
from services.collector.config import CollectorConfig
from services.collector.core.workload import Namespaces, settle
from services.collector.sources.workloads import read_workloads

NO_GROUP: Final = "no_group"
UNNAMED: Final = "unnamed"
_UNRESOLVED: Final = frozenset({NO_GROUP, UNNAMED})
_MOST_SHOWN: Final = 8


@dataclass(frozen=True)
class Named:
    """A pod as a source names it. `note` is why it is not steered, as far as the source knows."""

    uid: str
    name: str
    group: str
    cls: str | None
    note: str | None


@dataclass(frozen=True)
class PodRow:
    """One line of the table. `pod` is its name, or its uid where nobody names it; `note` is why its weight is not
    written, `no_group` (named, and not there) or `unnamed` (there, and not named).
    """

    pod: str
    uid: str
    qos: str | None
    cls: str | None
    weight: int | None
    note: str | None
    group: str


COLUMNS: Final = ("pod", "qos", "class", "weight", "note", "group")


def as_columns(row: PodRow) -> dict[str, str | int | None]:
    """The row by the names of the table's columns, and its uid."""
    return {
        "pod": row.pod,
        "uid": row.uid,
        "qos": row.qos,
        "class": row.cls,
        "weight": row.weight,
        "note": row.note,
        "group": row.group,
    }


def named_by_file(config: CollectorConfig, shared: Shared, roots: HostRoots) -> list[Named]:
    """The pods of the workload file, classified as the collector does. Raises ConfigError."""
    assert config.workloads is not None
    include = config.include_namespaces
    namespaces = Namespaces(
        None if include is None else frozenset(include),
        frozenset(config.exclude_namespaces),
    )
    found: list[Named] = []
    for workload in read_workloads(config.workloads, os.path.join(roots.cgroup_root, roots.pods_root)):
        one = settle(workload, config.class_labels, shared.classes, namespaces)
        note = one.workload.skip or (f"unknown class {one.unknown!r}" if one.unknown is not None else None)
        found.append(Named(workload.uid, workload.name, workload.group, one.cls, note))
    return found


def named_by_state(state: State) -> list[Named]:
    """The pods that a collector had found."""
    return [Named(pod.uid, pod.name, pod.group, pod.cls, pod.skip) for pod in state.pods if pod.uid]


def look(roots: HostRoots, named: Sequence[Named] | None) -> list[PodRow]:
    """The table of this node now; `named` is None where there is no source of names."""
    tree = CgroupTree(os.path.join(roots.cgroup_root, roots.pods_root))
    places = PodTree.below(roots.cgroup_root, roots.pods_root).scan()
    groups = {place.group for place in places.values()} | {pod.group for pod in named or ()}
    readings = {group: found for group in groups if (found := tree.reading(group)) is not None}
    parents = {group.rpartition("/")[0] for group in readings}
    without = {parent for parent in parents if not tree.has_cpu_controller(parent)}
    return rows(places, readings, without, named)


def rows(
    places: Mapping[str, PodPlace],
    readings: Mapping[str, GroupReading],
    without_controller: set[str],
    named: Sequence[Named] | None,
) -> list[PodRow]:
    """What a source names first, in its order, then what only the tree has, by group."""
    found: list[PodRow] = []
    by_group = {place.group: (uid, place) for uid, place in places.items()}
    for pod in named or ():
        _, place = by_group.pop(pod.group, (None, None))
        reading = readings.get(pod.group)
        note = NO_GROUP if reading is None else _why_not(reading, place, without_controller) or pod.note
        weight = None if reading is None else reading.weight
        found.append(
            PodRow(pod.name, pod.uid, place.qos if place is not None else None, pod.cls, weight, note, pod.group)
        )
    for group, (uid, place) in sorted(by_group.items()):
        reading = readings.get(group)
        if reading is None:
            continue  # gone meanwhile
        note = _why_not(reading, place, without_controller) or (UNNAMED if named is not None else None)
        found.append(PodRow(uid, uid, place.qos, None, reading.weight, note, group))
    return found


def _why_not(reading: GroupReading, place: PodPlace | None, without_controller: set[str]) -> str | None:
    if place is not None and place.skip is not None:
        return place.skip
    if reading.weight is None:
        return "no_cpu_controller" if reading.group.rpartition("/")[0] in without_controller else "no_weight"
    return "idle" if reading.weight == 0 or reading.idle else None


def summary(found: Sequence[PodRow], *, has_names: bool) -> tuple[str, list[str]]:
    """How many pods of each class there are, in words; and the names of those that could not be brought together."""
    counted: dict[str, int] = {}
    for row in found:
        counted[row.cls or "without a class"] = counted.get(row.cls or "without a class", 0) + 1
    total = f"{len(found)} pod{'' if len(found) == 1 else 's'}"
    if not has_names:
        return f"{total} in the tree; nobody says what they are", []
    parts = [f"{count} {name}" for name, count in sorted(counted.items())]
    text = f"{total}: {', '.join(parts)}" if parts else total
    unresolved = [f"{row.pod} ({row.note})" for row in found if row.note in _UNRESOLVED]
    shown = unresolved[:_MOST_SHOWN]
    if unresolved:
        more = f" and {len(unresolved) - len(shown)} more" if len(unresolved) > len(shown) else ""
        text = f"{text}; not resolved: {', '.join(shown)}{more}"
    return text, unresolved
