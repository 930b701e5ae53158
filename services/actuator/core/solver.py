"""From class weights to pod weights, parent by parent, since weights act among siblings only.

Inside a parent a class's weight is divided among its pods in proportion to their originals, so a big pod stays big.
Where the parent also holds groups that Trimtab does not steer (other pods, or QoS groups, which are the kubelet's), the
steered pods share what they had together: their sum stays what it was, and nothing is taken from the others
(docs/adr/0005-profile-scale-and-solver.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.messages import PodState
from schemas.settings import KERNEL_MAX_WEIGHT, KERNEL_MIN_WEIGHT

_CLASSES_TO_WEIGH = 2


@dataclass(frozen=True)
class Target:
    """The weight that one pod group should have."""

    uid: str
    name: str
    group: str
    weight: int


def solve(pods: Iterable[PodState], weights: Mapping[str, int], originals: Mapping[str, int]) -> list[Target]:
    """Targets for the pods of the classes in `weights`, in order of their groups.

    `originals` maps groups to their weights before Trimtab; a pod that is not in it has the weight it shows. Pods with
    a `skip` reason, without a weight or of another class get no target and count as neighbours. Class weights outside
    1..10000 count as the nearest bound. Every target is an integer in 1..10000; equal inputs give equal targets.
    """
    by_group = {pod.group: pod for pod in pods}
    wanted = {name: max(KERNEL_MIN_WEIGHT, min(KERNEL_MAX_WEIGHT, weight)) for name, weight in weights.items()}
    families: dict[str, list[PodState]] = defaultdict(list)
    shared: set[str] = set()
    for pod in by_group.values():
        parent = _parent(pod.group)
        if pod.cls in wanted and pod.skip is None and pod.weight:
            families[parent].append(pod)
        elif pod.weight:
            shared.add(parent)
        while parent:
            parent = _parent(parent)
            shared.add(parent)  # it holds a group that is on the way to a pod and no pod itself
    targets: list[Target] = []
    for parent, steered in families.items():
        targets += _solve_family(steered, wanted, originals, keep_sum=parent in shared)
    return sorted(targets, key=lambda target: target.group)


def unreachable(pods: Iterable[PodState], weights: Mapping[str, int]) -> list[str]:
    """The classes of `weights` that have pods and share no parent with another one: no weight of theirs acts on the
    others, whatever is written (kernel: weights are compared among siblings).
    """
    families: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        if pod.cls in weights and pod.skip is None and pod.weight:
            families[_parent(pod.group)].add(pod.cls or "")
    present = set().union(*families.values())
    reached = {name for family in families.values() if len(family) >= _CLASSES_TO_WEIGH for name in family}
    return sorted(present - reached) if len(present) >= _CLASSES_TO_WEIGH else []


def _solve_family(
    steered: list[PodState], weights: Mapping[str, int], originals: Mapping[str, int], *, keep_sum: bool
) -> list[Target]:
    own = {pod.group: float(originals.get(pod.group) or pod.weight or 1) for pod in steered}
    of_class: dict[str, float] = defaultdict(float)
    for pod in steered:
        of_class[pod.cls or ""] += own[pod.group]
    wishes = {pod.group: weights[pod.cls or ""] * own[pod.group] / of_class[pod.cls or ""] for pod in steered}
    scale = sum(own.values()) / sum(wishes.values()) if keep_sum else 1.0
    largest = max(wishes.values()) * scale
    if largest > KERNEL_MAX_WEIGHT:
        scale *= KERNEL_MAX_WEIGHT / largest
    return [Target(pod.uid, pod.name, pod.group, _kernel(wishes[pod.group] * scale)) for pod in steered]


def _kernel(weight: float) -> int:
    return max(KERNEL_MIN_WEIGHT, min(KERNEL_MAX_WEIGHT, round(weight)))


def _parent(group: str) -> str:
    return group.rpartition("/")[0]
