"""The rule `min_share`: every class with pods keeps a share."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class MinShare:
    """Prevents a class with pods from being starved by the weights of the others.

    A class that has less already may be raised, step by step, and must not be lowered. Classes that are not named keep
    the weights they have. Also asked of what a step leaves: between two sound profiles every step is sound, up to
    rounding (the logarithm of a share is concave along a way that is straight in the logarithms of the weights).
    """

    name: str = "min_share"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused if a class would have less than the least part of the sum of class weights, and less than now."""
        current = situation.current
        asked = action.weights or {}
        then = {name: max(0, asked.get(name, weight)) for name, weight in current.items()}
        least = _as_written(situation.min_share_ratio)
        part, whole = least.numerator, least.denominator
        total, total_now = max(1, sum(then.values())), sum(current.values())
        for name in sorted(current):
            is_less = then[name] * whole < part * total
            if is_less and then[name] * total_now < current[name] * total:
                left = float(Fraction(then[name], total))
                reason = f"{name}: would be left {left:.2%} of the class weights, the least is {float(least):.2%}"
                return Finding(self.name, "refuse", reason)
        return None


@lru_cache(maxsize=8)
def _as_written(ratio: float) -> Fraction:
    """0.05 is a twentieth, and not the binary number next to it."""
    return Fraction(str(ratio))
