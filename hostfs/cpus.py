"""Lists of CPUs as the kernel writes them, and which pods have CPUs that no other pod may run on."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from hostfs.counters import parse_unsigned

MAX_CPUS: Final = 8192
"""The kernel's own limit (NR_CPUS)."""


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


def pods_apart(pods: Mapping[str, Collection[frozenset[int]]]) -> set[str]:
    """The pods that were given CPUs, for all of it or for a container, that no other pod was given, by the sets of
    each pod's group and its containers' groups.

    The kubelet's static CPU manager gives a set to every container of every pod, its own CPUs or the shared ones, and
    none to the sandboxes, whose groups are named like containers' (pkg/kubelet/cm/cpumanager, `reconcileState`;
    containerd#10155). It comes to a new container up to ten seconds late, so a group without a set says nothing of the
    others' sets: a pod that has CPUs of its own must not lose them because another pod was born.
    """
    given = {uid: [cpus for cpus in sets if cpus] for uid, sets in pods.items()}
    users = Counter(cpu for sets in given.values() for cpu in frozenset[int]().union(*sets))
    return {uid for uid, sets in given.items() if any(all(users[cpu] == 1 for cpu in cpus) for cpus in sets)}
