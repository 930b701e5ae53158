"""The rule `unchanged`: what is in force is not written again."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Unchanged:
    """Prevents a proposal of what is in force from being written, and from being counted as a change."""

    name: str = "unchanged"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Held when no class weight would change."""
        if changed(action, situation):
            return None
        return Finding(self.name, "hold", "the weights are in force already")


def changed(action: Action, situation: Situation) -> list[str]:
    """The classes with pods whose weight would become another one, by name."""
    current = situation.current
    return sorted(name for name, weight in (action.weights or {}).items() if current.get(name, weight) != weight)
