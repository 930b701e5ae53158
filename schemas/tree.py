"""Owns what weights mean on the tree when everybody wants more than he has: structural shares, of pods and classes.

Structural share of a group = product over its path from the pods root of weight / sum of all siblings' weights (kernel:
Documentation/admin-guide/cgroup-v2.rst, "Weights"). Nobody's activity enters, so it changes with weights alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from schemas.messages import PodState

_READABLE: Final = 10**12
"""Shares as whole numbers, fine enough for a class that has a millionth of what another one has."""


def parent_of(group: str) -> str:
    """The group that this one lies in; "" is the pods root."""
    return group.rpartition("/")[0]


def groups_above(group: str) -> Iterator[str]:
    """All groups on the way from the pods root to this one, from the top; the root and the group itself apart."""
    parts = group.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def structural_shares(pods: Iterable[PodState], parents: Mapping[str, int]) -> dict[str, float]:
    """The share (0-1) of the pods root's CPU of each pod group, by group. `parents` are the weights of the groups above
    (`State.parents`). A pod without a weight, or below a group whose weight is not known, is left out.
    """
    weight_of = {group: weight for group, weight in parents.items() if weight > 0}
    groups: dict[str, None] = {}
    for pod in pods:
        if pod.weight is not None and pod.weight > 0:
            weight_of[pod.group] = pod.weight
            groups[pod.group] = None
    sums: dict[str, int] = defaultdict(int)
    for group, weight in weight_of.items():
        sums[parent_of(group)] += weight
    share_of: dict[str, float | None] = {"": 1.0}

    def share(group: str) -> float | None:
        if group not in share_of:
            above, weight = share(parent_of(group)), weight_of.get(group)
            share_of[group] = None if above is None or weight is None else above * weight / sums[parent_of(group)]
        return share_of[group]

    return {group: found for group in groups if (found := share(group)) is not None}


def class_weights(
    members: Collection[PodState], pods: Iterable[PodState], parents: Mapping[str, int]
) -> dict[str, int]:
    """What the weights of these pods come to, by class: only the ratios mean something.

    In one parent it is the sum of their weights; in several, where digits of one family say nothing of another, their
    structural shares among all `pods` in units of 10^-12. Where a share is not known it is the sum again.
    """
    counted = [pod for pod in members if pod.cls is not None and pod.weight is not None and pod.weight > 0]
    shares: Mapping[str, float] = {}
    if len({parent_of(pod.group) for pod in counted}) > 1:
        shares = structural_shares(pods, parents)
    is_known = all(pod.group in shares for pod in counted)
    sums: dict[str, float] = defaultdict(float)
    for pod in counted:
        sums[pod.cls or ""] += shares[pod.group] * _READABLE if is_known else pod.weight or 0
    return {name: max(1, round(total)) for name, total in sums.items()}
