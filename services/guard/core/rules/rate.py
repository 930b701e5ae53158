"""The rule `rate`: only so many changes of the node a minute (I2)."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Rate:
    """Prevents flapping: only so many changes a minute."""

    name: str = "rate"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused when the budget is used up."""
        if situation.changes_left > 0:
            return None
        return Finding(self.name, "refuse", f"{situation.limits.max_changes_per_minute:g} changes a minute are used up")
