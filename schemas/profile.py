"""The profile scale: class weights as ratios, written so that one profile can be compared with another.

Only ratios of weights act (docs/adr/0005-profile-scale-and-solver.md). Collector, decider and guard read weights on
this scale, over the classes that have pods.
"""

from collections.abc import Mapping, Sequence

from schemas.settings import WeightSettings


def on_profile_scale(weights: Mapping[str, int], limits: WeightSettings) -> dict[str, int]:
    """The same ratios with the smallest class at `min_weight`, rounded. Classes without a positive weight are left out.

    What is too far apart for the bounds stays so: a step is measured from where a weight really is.
    """
    numbers = scaled(tuple(weights.values()), limits.min_weight)
    return {name: number for name, number in zip(weights, numbers, strict=True) if number}


def scaled(weights: Sequence[int], min_weight: int) -> tuple[int, ...]:
    """The same of weights without their names, 0 for those that are left out."""
    smallest = min([weight for weight in weights if weight > 0], default=1)
    return tuple([round(weight * min_weight / smallest) if weight > 0 else 0 for weight in weights])


def within_bounds(weights: Mapping[str, int], limits: WeightSettings) -> dict[str, int]:
    """The weights on the profile scale, cut at `max_weight`: what a profile may ask for."""
    return {name: min(limits.max_weight, weight) for name, weight in on_profile_scale(weights, limits).items()}
