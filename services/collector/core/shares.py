"""What weights mean on the tree: each pod's effective share, and each class's weight on the profile scale.

Effective share = product over the path from the pods root of weight / sum of the active siblings' weights (kernel:
Documentation/admin-guide/cgroup-v2.rst, "Weights"). A group is active if it used CPU in the window.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping


def effective_shares(
    groups: Collection[str], weights: Mapping[str, int], active: Collection[str]
) -> dict[str, float | None]:
    """The share (0-1) of the pods root's CPU that each of `groups` gets when they and all active groups want more than
    they have. As they all count as active, the shares of groups that are not inside one another add up to 1 at most.

    `weights` holds every group of every family on the path, by its path below the pods root. None where the path is not
    known completely.
    """
    wanting = {*active, *(step for group in groups for step in _path(group))}
    sums: dict[str, int] = defaultdict(int)
    for group, weight in weights.items():
        if group in wanting:
            sums[group.rpartition("/")[0]] += weight
    return {group: _share(group, weights, sums) for group in groups}


def _share(group: str, weights: Mapping[str, int], sums: Mapping[str, int]) -> float | None:
    share = 1.0
    for step in _path(group):
        if not weights.get(step):
            return None
        share *= weights[step] / sums[step.rpartition("/")[0]]
    return share


def _path(group: str) -> Iterator[str]:
    """The group and all groups above it, but for the pods root."""
    parts = group.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
