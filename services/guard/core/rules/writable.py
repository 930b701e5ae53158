"""The rule `writable`: nothing where nothing can be written."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Writable:
    """Prevents proposals from being credited where nothing can be written (WT-05)."""

    name: str = "writable"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused while the node can only be observed."""
        if situation.state.writable:
            return None
        return Finding(self.name, "refuse", "weights cannot be written now; the state's notes say why")
