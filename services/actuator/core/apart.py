"""Each parent by itself: how weights are solved where the state does not tell the weights above the pods.

States of earlier releases have no `parents`. Where the parent holds groups that are not steered, the steered pods keep
the sum that they had (docs/adr/0005-profile-scale-and-solver.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from schemas.messages import PodState
from schemas.settings import KERNEL_MAX_WEIGHT
from schemas.tree import groups_above, parent_of
from services.actuator.core.integers import kernel
from services.actuator.core.target import Target

_CLASSES_TO_WEIGH: Final = 2


def solve_apart(
    steered: Iterable[PodState], others: Iterable[PodState], weights: Mapping[str, int], own: Mapping[str, int]
) -> list[Target]:
    """Targets of the `steered` pods; `own` are originals by group."""
    families: dict[str, list[PodState]] = defaultdict(list)
    shared: set[str] = set()
    for pod in steered:
        families[parent_of(pod.group)].append(pod)
    for pod in others:
        if pod.weight:
            shared.add(parent_of(pod.group))
    for pod in (*steered, *others):  # what holds a group that is on the way to a pod holds no pod there itself
        shared.update(("", *groups_above(parent_of(pod.group))) if parent_of(pod.group) else ())
    targets: list[Target] = []
    for parent, family in families.items():
        targets += _solve_family(family, weights, own, keep_sum=parent in shared)
    return targets


def without_common_parent(steered: Iterable[PodState]) -> list[str]:
    """The classes that share no parent with another one: no weight of theirs acts on the others."""
    families: dict[str, set[str]] = defaultdict(set)
    for pod in steered:
        families[parent_of(pod.group)].add(pod.cls or "")
    present = set().union(*families.values())
    reached = {name for family in families.values() if len(family) >= _CLASSES_TO_WEIGH for name in family}
    return sorted(present - reached) if len(present) >= _CLASSES_TO_WEIGH else []


def _solve_family(
    family: list[PodState], weights: Mapping[str, int], own: Mapping[str, int], *, keep_sum: bool
) -> list[Target]:
    of_class: dict[str, int] = defaultdict(int)
    for pod in family:
        of_class[pod.cls or ""] += own[pod.group]
    wishes = {pod.group: weights[pod.cls or ""] * own[pod.group] / of_class[pod.cls or ""] for pod in family}
    scale = sum(own[pod.group] for pod in family) / sum(wishes.values()) if keep_sum else 1.0
    scale = min(scale, KERNEL_MAX_WEIGHT / max(wishes.values()))
    return [Target(pod.uid, pod.name, pod.group, kernel(wishes[pod.group] * scale)) for pod in family]
