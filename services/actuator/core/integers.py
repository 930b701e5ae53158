"""From wishes to whole weights in 1..10000: in order, with a sum where one is bound."""

import math
from collections.abc import Mapping
from typing import Final

from schemas.settings import KERNEL_MAX_WEIGHT, KERNEL_MIN_WEIGHT

_FINE_RATIO: Final = 0.05
"""What rounding may make of one pod's wish where that can be helped. Not less: before Linux 6.7 a group whose weight is
raised waits until the others have caught up with what it ran under its old weight, measured in their new weights. On
6.1 a busy pod that went from 20 to 5482, beside one of 3411, had no CPU for 10 s; from 20 to 228, 0.8 of its share.
"""
_ROUNDING: Final = 1e-9


def kernel(weight: float) -> int:
    """The nearest weight that the kernel takes."""
    return max(KERNEL_MIN_WEIGHT, min(KERNEL_MAX_WEIGHT, round(weight)))


def free(wishes: Mapping[str, float]) -> dict[str, int]:
    """Weights where only ratios matter: the wishes as they are where rounding leaves them within 5 %, else so many
    times as much that it does, as far as the largest can go. Who wishes more never gets less.
    """
    is_fine = all(abs(kernel(wish) - wish) <= _FINE_RATIO * wish for wish in wishes.values())
    least = min(wishes.values())
    factor = 1.0 if is_fine else max(1.0, 0.5 / _FINE_RATIO / least) if least > 0 else math.inf
    factor = min(factor, KERNEL_MAX_WEIGHT / max(wishes.values()))
    return {group: kernel(wish * factor) for group, wish in wishes.items()}


def bound(wishes: Mapping[str, float], total: int) -> dict[str, int]:
    """Weights that add up to `total`, in proportion to the wishes, each at least 1: what a small one has more than it
    wishes for the others go without. Largest remainders are rounded up, of equal ones the first by name; who wishes
    more never gets less. Where one would be beyond the kernel's bound all are smaller, and so is their sum.

    `total` must be at least their number.
    """
    rest, among = total, dict(wishes)
    while True:
        scale = rest / sum(among.values()) if among else 0.0
        small = [group for group, wish in among.items() if wish * scale < KERNEL_MIN_WEIGHT - _ROUNDING]
        if not small:
            break
        for group in small:
            del among[group]
        rest -= KERNEL_MIN_WEIGHT * len(small)
    scale = min(scale, KERNEL_MAX_WEIGHT / max(among.values())) if among else 0.0
    weights = dict.fromkeys(wishes, KERNEL_MIN_WEIGHT)
    weights |= {group: max(KERNEL_MIN_WEIGHT, int(wish * scale + _ROUNDING)) for group, wish in among.items()}
    spare = round(sum(among.values()) * scale) - sum(weights[group] for group in among)
    first = sorted(among, key=lambda group: (weights[group] - among[group] * scale, group))
    for group in first[: max(0, spare)]:
        weights[group] += 1
    return weights
