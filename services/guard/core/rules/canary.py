"""The rule `canary`: a canary needs pods."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Canary:
    """Prevents a canary without pods from looking like one that does well."""

    name: str = "canary"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Held in mode canary while none of the node's pods is picked."""
        if situation.canary_ratio is None or situation.current:
            return None
        reason = f"no pod with a class and a weight is in the canary of {situation.canary_ratio:g}"
        return Finding(self.name, "hold", reason)
