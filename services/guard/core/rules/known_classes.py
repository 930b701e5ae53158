"""The rule `known_classes`: only what is configured and here."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class KnownClasses:
    """Prevents weights for classes that nobody configured."""

    name: str = "known_classes"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused for an unknown class, or when no class with pods is named."""
        weights = action.weights or {}
        unknown = sorted(set(weights) - situation.classes)
        if unknown:
            return Finding(self.name, "refuse", f"unknown class {unknown[0]!r}")
        if not set(weights) & set(situation.current):
            return Finding(self.name, "refuse", "no class that is proposed has pods here")
        return None
