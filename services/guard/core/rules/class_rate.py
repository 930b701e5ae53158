"""The rule `class_rate`: only so many changes of one class a minute (I2)."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation
from services.guard.core.rules.unchanged import changed


@dataclass(frozen=True)
class ClassRate:
    """Prevents one class from being moved to and fro within the node's rate: only so many changes of it a minute."""

    name: str = "class_rate"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused when the budget of a class that would change is used up."""
        for name in changed(action, situation):
            if situation.class_changes_left.get(name, 1) <= 0:
                return Finding(self.name, "refuse", f"{name}: the changes of this class are used up for now")
        return None
