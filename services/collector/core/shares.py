"""What weights mean on the tree: each pod's effective share, and each class's weight on the profile scale.

Effective share = product over the path from the pods root of weight / sum of the active siblings' weights (kernel:
Documentation/admin-guide/cgroup-v2.rst, "Weights"). A group is active if it used CPU in the window.
"""

from collections.abc import Mapping

from schemas.settings import WeightSettings


def effective_share(group: str, weights: Mapping[str, int], active: frozenset[str]) -> float | None:
    """The share (0-1) of the pods root's CPU that `group` gets when all active groups want more than they have.

    `weights` holds every group of every family on the path, by its path below the pods root. None if the path is not
    known completely. A group counts itself as active.
    """
    share = 1.0
    parts = group.split("/")
    for depth in range(1, len(parts) + 1):
        own = "/".join(parts[:depth])
        if not weights.get(own):
            return None
        parent = "/".join(parts[: depth - 1])
        rivals = sum(
            weight
            for other, weight in weights.items()
            if other != own and other.rpartition("/")[0] == parent and other in active
        )
        share *= weights[own] / (weights[own] + rivals)
    return share


def profile_weights(pods_weights: Mapping[str, int], limits: WeightSettings) -> dict[str, int]:
    """Class weights on the profile scale, where the smallest class has `min_weight`: only ratios act, so this is what
    one profile can be compared with another by. Classes too far apart for the scale are cut at `max_weight`.
    """
    known = {name: weight for name, weight in pods_weights.items() if weight > 0}
    if not known:
        return {}
    smallest = min(known.values())
    scaled = {name: round(weight * limits.min_weight / smallest) for name, weight in known.items()}
    return {name: min(limits.max_weight, weight) for name, weight in scaled.items()}
