"""Weighted max-min fair sharing of CPU among sibling groups. Pure arithmetic: no time, no state."""

from collections.abc import Sequence


def water_fill(capacity: float, weights: Sequence[int], demands: Sequence[float]) -> list[float]:
    """How many cores each sibling gets of `capacity` cores: in proportion to its weight, but never above its demand.

    What one leaves unused goes to the others by their weights (work conservation), so the sum is the smaller of
    `capacity` and the sum of the demands. This is the fluid limit that proportional-share schedulers approximate
    (Parekh and Gallager, "A generalized processor sharing approach to flow control", 1993).
    """
    given = [0.0] * len(demands)
    left = capacity
    weight_left = sum(weight for weight, demand in zip(weights, demands, strict=True) if demand > 0.0)
    # Whoever needs least per weight is filled first; from the first one that is not filled, all share by weight.
    for index in sorted(range(len(demands)), key=lambda i: demands[i] / weights[i]):
        if demands[index] <= 0.0:
            continue
        given[index] = min(demands[index], left * weights[index] / weight_left)
        left -= given[index]
        weight_left -= weights[index]
    return given
