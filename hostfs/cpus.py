"""Lists of CPUs as the kernel writes them, and which pods have CPUs that no other pod may run on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hostfs.counters import parse_unsigned

MAX_CPUS: Final = 8192
"""The kernel's own limit (NR_CPUS)."""

SANDBOX_WEIGHT: Final = 1
"""Runtimes give a pod's sandbox 2 shares, which is this weight. So has a container that requests no CPU."""


class Affinity(NamedTuple):
    """One container's group: the CPUs of its `cpuset.cpus`, none if it was given none, and its `cpu.weight`."""

    cpus: frozenset[int]
    weight: int | None


def parse_cpu_list(text: str) -> frozenset[int] | None:
    """The CPUs of a `cpuset.cpus` such as `0-3,8`; none for an empty text, which leaves the choice to the groups above.
    None for a text of another form. Source: kernel, admin-guide/cgroup-v2.rst, "Cpuset Interface Files".
    """
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, is_range, last = part.partition("-")
        low = parse_unsigned(first)
        high = parse_unsigned(last) if is_range else low
        if low is None or high is None or not low <= high < MAX_CPUS:
            return None
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def pods_apart(pods: Mapping[str, Sequence[Affinity]]) -> set[str]:
    """The pods that have a container with CPUs that no container of another pod may run on, by the affinities of all
    container groups of each pod.

    The kubelet's static CPU manager gives a set to every container of every pod, its own CPUs or the shared ones, and
    none to the sandboxes, whose groups are named like containers' (pkg/kubelet/cm/cpumanager, `reconcileState`;
    containerd#10155). So an empty set means all CPUs, but for what may be a sandbox: beside a container with a set, or
    alone. Where a single pod was given a set nobody manages them, and there is nothing to be apart from.
    """
    given = {uid: [found.cpus for found in groups if found.cpus] for uid, groups in pods.items()}
    if sum(bool(sets) for sets in given.values()) < 2:  # noqa: PLR2004 - one and another
        return set()
    roaming = {uid for uid, groups in pods.items() if _roams(groups)}
    users = Counter(cpu for sets in given.values() for cpu in frozenset[int]().union(*sets))
    return {
        uid
        for uid, sets in given.items()
        if not roaming - {uid} and any(all(users[cpu] == 1 for cpu in cpus) for cpus in sets)
    }


def _roams(groups: Sequence[Affinity]) -> bool:
    """Whether some workload container of the pod may run on all CPUs."""
    free = [found for found in groups if not found.cpus]
    if any(found.weight is not None and found.weight > SANDBOX_WEIGHT for found in free):
        return True
    return len(free) == len(groups) > 1
