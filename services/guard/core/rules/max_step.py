"""The rule `max_step`: one step at a time (I2)."""

import math
from dataclasses import dataclass

from schemas.messages import Action
from schemas.settings import WeightSettings
from services.guard.core.rules.situation import Finding, Situation

_ROUNDING = 1e-9


@dataclass(frozen=True)
class MaxStep:
    """Prevents jumps: a class weight changes by at most the step ratio, the rest is left for later cycles."""

    name: str = "max_step"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Clamped toward the proposal, all classes by the same part of the way, so that their order is kept. Refused
        where a weight stands so far outside the bounds that no step leads back into them, or is asked to be none.
        """
        current, limits, limit = situation.current, situation.limits, situation.limits.max_step_ratio
        target = {name: weight for name, weight in (action.weights or {}).items() if name in current}
        for name in sorted(target):
            if not limits.min_weight / limit <= current[name] <= limits.max_weight * limit:
                reason = f"{name}: from weight {current[name]} no step of {limit:g} leads into the bounds"
                return Finding(self.name, "refuse", reason)
            if target[name] <= 0:  # only where `bounds` is watched: a ratio to nothing is no step
                return Finding(self.name, "refuse", f"{name}: no step leads to weight {target[name]}")
        moved = [(current[name], weight) for name, weight in target.items() if weight != current[name]]
        widest = max([abs(math.log(weight) - math.log(start)) for start, weight in moved], default=0.0)
        if widest <= math.log(limit) * (1 + _ROUNDING):
            return None
        part = math.log(limit) / widest
        clamped = {name: toward(current[name], weight, part, limits) for name, weight in target.items()}
        reason = f"a step of {_times(widest)} is beyond the ratio {limit:g}"
        return Finding(self.name, "clamp", reason, clamped)


def toward(start: int, target: int, part: float, limits: WeightSettings) -> int:
    """`part` of the way from `start` to `target` in ratios, as an integer that keeps the step ratio and the bounds.

    `start` is at most one step outside the bounds, so that there is such an integer.
    """
    wish = round(start * math.exp(part * (math.log(target) - math.log(start))))
    lowest = math.ceil(start / limits.max_step_ratio - _ROUNDING)
    highest = math.floor(start * limits.max_step_ratio + _ROUNDING)
    return max(lowest, limits.min_weight, min(highest, limits.max_weight, wish))


def _times(log_ratio: float) -> str:
    return f"{math.exp(min(log_ratio, 99.0)):.1f}"
