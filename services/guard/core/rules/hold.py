"""The rule `hold`: who proposes nothing gets nothing."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Proposed:
    """Prevents anything from moving where the decider wants to hold."""

    name: str = "hold"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Held without weights."""
        if action.weights is not None:
            return None
        return Finding(self.name, "hold", action.reason or "the decider holds")
