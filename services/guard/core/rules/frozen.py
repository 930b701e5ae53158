"""The rule `frozen`: nothing while somebody says stop."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Frozen:
    """Prevents everything while an operator or the breaker says stop."""

    name: str = "frozen"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused in mode frozen and, in the name of `breaker`, while that is open."""
        if situation.breaker_open is not None:
            return Finding("breaker", "refuse", situation.breaker_open)
        if situation.mode == "frozen":
            return Finding(self.name, "refuse", "the mode is frozen: originals stay")
        return None
