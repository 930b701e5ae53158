"""The rule `bounds`: no weight outside the configured range (I2)."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Bounds:
    """Prevents weights outside the configured range; refused, never bent (one rule for all: WT-02)."""

    name: str = "bounds"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused outside [min_weight, max_weight]."""
        low, high = situation.limits.min_weight, situation.limits.max_weight
        for name, weight in sorted((action.weights or {}).items()):
            if not low <= weight <= high:
                return Finding(self.name, "refuse", f"{name}: weight {weight} is outside {low}..{high}")
        return None
