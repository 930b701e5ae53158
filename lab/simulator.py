"""A node's CPUs shared among its pods by a tree of weights, as a fluid simulation. Pure: no clock, no files.

Between two events (an arrival, a completion, a timeout) every pod gets a constant rate of CPU from weighted max-min
sharing over the tree, so time jumps from event to event and nothing depends on how finely the caller steps. Fluid
means: no time slices, no wake-up delay, no caches and no migration. Latency here is what weights alone decide.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lab.fair_share import water_fill
from lab.service_queue import Completion, Service, ServiceQueue

__all__ = [
    "Batch",
    "Completion",
    "Group",
    "GroupReading",
    "Idle",
    "NodeReading",
    "NodeSimulator",
    "Service",
    "Workload",
]

MAX_KNOWN_ALLOCATIONS: Final = 4096
"""Allocations remembered at a time. A dozen pods reach about a thousand states; each is a few hundred bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A pod with `processes` single-threaded processes that always want to run while `running`."""

    name: str
    processes: int = 1
    running: bool = True

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ValueError(f"{self.name}: needs at least one process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A pod that never wants to run."""

    name: str


Workload: TypeAlias = Service | Batch | Idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group of the tree: either children or a workload. It competes by `weight` (1-10000) with its siblings."""

    name: str
    weight: int = 100
    children: "tuple[Group, ...]" = ()
    workload: Workload | None = None

    def __post_init__(self) -> None:
        check_weight(self.weight)
        if self.children and self.workload is not None:
            raise ValueError(f"group {self.name}: has children and a workload; put the workload into a child")


def check_weight(weight: int) -> None:
    """Raises ValueError for what `cpu.weight` does not take."""
    if not 1 <= weight <= 10_000:  # noqa: PLR2004 - the kernel's range, as the message says
        raise ValueError(f"weight {weight} is outside 1-10000")


@dataclass(frozen=True, slots=True)
class GroupReading:
    """Totals of one group since the start, in seconds; its descendants are counted in.

    `waiting_seconds` is thread time spent runnable without a CPU. `some_seconds` is time in which some runnable thread
    had none, `full_seconds` time in which moreover none of the group ran: as in the kernel's pressure stall
    information (Documentation/accounting/psi.rst). A thread that gets a fraction of a core alternates between the two.
    """

    usage_seconds: float
    waiting_seconds: float
    some_seconds: float
    full_seconds: float


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The node at one moment: runnable threads (with or without a CPU) and every group's totals by path."""

    now_seconds: float
    runnable: int
    groups: dict[str, GroupReading]


@dataclass(slots=True, eq=False)
class _Allocation:
    """Who gets how many cores while the runnable threads are these, and how long that has lasted uncounted."""

    cores: list[float]
    demands: list[int]
    speeds: list[float]
    seconds: float = 0.0


@dataclass(slots=True)
class _Node:
    """A group, flattened: parents stand before their children."""

    path: str
    weight: int
    children: list[int] = field(default_factory=list)
    leaf: int | None = None


class NodeSimulator:
    """A node of `cores` CPUs whose pods are the leaves of `root`. Deterministic: the same `rng` state, the same run."""

    def __init__(self, *, cores: int, root: Group, rng: random.Random) -> None:
        if cores < 1:
            raise ValueError("a node has at least one core")
        self._cores = cores
        self._now = 0.0
        self._nodes: list[_Node] = []
        self._demands: list[int] = []
        self._queues: dict[str, ServiceQueue] = {}
        self._batches: dict[str, tuple[int, Batch]] = {}
        self._plant(root, "", rng)
        self._index = {node.path: position for position, node in enumerate(self._nodes)}
        self._totals = [[0.0, 0.0, 0.0, 0.0] for _ in self._nodes]
        self._known: dict[tuple[int, ...], _Allocation] = {}
        self._uncounted: dict[_Allocation, None] = {}
        self._allocation = self._allocate()
        self._uncounted[self._allocation] = None

    @property
    def now_seconds(self) -> float:
        """Simulated seconds since the start."""
        return self._now

    def step(self, dt_seconds: float) -> list[Completion]:
        """Advances by `dt_seconds` and returns the requests that ended, in the order of their ends."""
        if dt_seconds < 0.0:
            raise ValueError("time does not go back")
        end = self._now + dt_seconds
        ended: list[Completion] = []
        queues = tuple(self._queues.values())
        while True:
            due, at = None, end
            for queue in queues:
                if queue.next_event_at < at:
                    due, at = queue, queue.next_event_at
            self._allocation.seconds += at - self._now
            self._now = at
            if due is None:
                return ended
            if due.handle(at, ended):
                self._demands[due.leaf] = due.busy
                self._reallocate()

    def set_weight(self, path: str, weight: int) -> None:
        """Gives the group at `path` (like `kubepods/burstable/pod1`) another weight. KeyError, ValueError."""
        check_weight(weight)
        node = self._nodes[self._index[path]]
        if node.weight != weight:
            node.weight = weight
            self._known.clear()
            self._reallocate()

    def set_rate(self, name: str, rate_per_second: float) -> None:
        """Changes a service's arrival rate from now on. KeyError for no service of that name, ValueError."""
        if not (math.isfinite(rate_per_second) and rate_per_second >= 0.0):
            raise ValueError(f"{name}: rate_per_second must be finite and not negative")
        self._queues[name].set_rate(self._now, rate_per_second)

    def set_batch_running(self, name: str, running: bool) -> None:  # noqa: FBT001 - reads as the state it sets
        """Starts or stops all processes of a batch pod. KeyError for no batch of that name."""
        leaf, batch = self._batches[name]
        self._demands[leaf] = batch.processes if running else 0
        self._reallocate()

    def reading(self) -> NodeReading:
        """The totals up to now."""
        self._count()
        groups = {node.path: GroupReading(*totals) for node, totals in zip(self._nodes, self._totals, strict=True)}
        return NodeReading(self._now, sum(self._demands), groups)

    def _plant(self, group: Group, above: str, rng: random.Random) -> int:
        position = len(self._nodes)
        node = _Node(f"{above}{group.name}", group.weight)
        if any(node.path == other.path for other in self._nodes):
            raise ValueError(f"two groups have the path {node.path}")
        self._nodes.append(node)
        if group.workload is not None:
            self._place(group.workload, node, rng)
        node.children = [self._plant(child, f"{node.path}/", rng) for child in group.children]
        return position

    def _place(self, workload: Workload, node: _Node, rng: random.Random) -> None:
        if workload.name in self._queues or workload.name in self._batches:
            raise ValueError(f"two workloads have the name {workload.name}")
        node.leaf = len(self._demands)
        self._demands.append(0)
        if isinstance(workload, Service):
            # A stream of its own: nothing that happens to one pod shifts the draws of another.
            own_rng = random.Random(rng.getrandbits(64))  # noqa: S311 - a simulation, no secrets
            self._queues[workload.name] = ServiceQueue(workload, node.leaf, own_rng)
        elif isinstance(workload, Batch):
            self._batches[workload.name] = (node.leaf, workload)
            self._demands[node.leaf] = workload.processes if workload.running else 0

    def _reallocate(self) -> None:
        self._allocation = self._known.get(tuple(self._demands)) or self._allocate()
        self._uncounted[self._allocation] = None
        for queue, speed in zip(self._queues.values(), self._allocation.speeds, strict=True):
            queue.set_speed(self._now, speed)

    def _allocate(self) -> _Allocation:
        demands = _subtree_demands(self._nodes, self._demands)
        cores = [0.0] * len(self._nodes)
        cores[0] = min(float(self._cores), demands[0])
        for position, node in enumerate(self._nodes):
            weights = [self._nodes[child].weight for child in node.children]
            wanted = [demands[child] for child in node.children]
            for child, given in zip(node.children, water_fill(cores[position], weights, wanted), strict=True):
                cores[child] = given
        by_leaf = {node.leaf: cores[position] for position, node in enumerate(self._nodes)}
        speeds = [by_leaf[queue.leaf] / queue.busy if queue.busy else 0.0 for queue in self._queues.values()]
        if len(self._known) >= MAX_KNOWN_ALLOCATIONS:
            self._known.clear()
        allocation = self._known[tuple(self._demands)] = _Allocation(cores, demands, speeds)
        return allocation

    def _count(self) -> None:
        """Adds the time that allocations have lasted since the last call to the groups' totals."""
        for allocation in self._uncounted:
            seconds, allocation.seconds = allocation.seconds, 0.0
            for totals, cores, demand in zip(self._totals, allocation.cores, allocation.demands, strict=True):
                unmet = demand - cores
                totals[0] += cores * seconds
                totals[1] += unmet * seconds
                some = min(1.0, unmet)
                totals[2] += some * seconds
                totals[3] += min(some, max(0.0, 1.0 - cores)) * seconds
        self._uncounted = {self._allocation: None}


def _subtree_demands(nodes: Sequence[_Node], leaf_demands: Sequence[int]) -> list[int]:
    """Runnable threads at or below each group."""
    demands = [0] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        demands[position] = (
            sum(demands[child] for child in node.children) if node.leaf is None else leaf_demands[node.leaf]
        )
    return demands
