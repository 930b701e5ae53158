"""The rule `contention`: nothing while nobody waits."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Contention:
    """Prevents changes that could not be seen: weights do nothing while nobody waits for CPU."""

    name: str = "contention"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Held without contention."""
        if situation.state.contention.contended or not situation.require_contention:
            return None
        return Finding(self.name, "hold", situation.state.contention.reason or "nobody waits for CPU")
