"""The profile scale: class weights as ratios, written so that one profile can be compared with another.

Only ratios of weights act (docs/adr/0005-profile-scale-and-solver.md). Collector, decider and guard read weights on
this scale, over the classes that have pods.
"""

from collections.abc import Mapping

from schemas.settings import WeightSettings


def on_profile_scale(weights: Mapping[str, int], limits: WeightSettings) -> dict[str, int]:
    """The same ratios with the smallest class at `min_weight`, rounded. Classes without a positive weight are left out.

    What is too far apart for the bounds stays so: a step is measured from where a weight really is.
    """
    known = {name: weight for name, weight in weights.items() if weight > 0}
    if not known:
        return {}
    smallest = min(known.values())
    return {name: round(weight * limits.min_weight / smallest) for name, weight in known.items()}


def within_bounds(weights: Mapping[str, int], limits: WeightSettings) -> dict[str, int]:
    """The weights on the profile scale, cut at `max_weight`: what a profile may ask for."""
    return {name: min(limits.max_weight, weight) for name, weight in on_profile_scale(weights, limits).items()}
