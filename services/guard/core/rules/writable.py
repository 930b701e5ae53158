"""The rule `writable`: nothing while the node's pods are not known."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Writable:
    """Prevents weights from being moved on a view of pods that may be gone, or others by now (KW-03)."""

    name: str = "writable"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused while the collector says that its view of the pods is too old."""
        if situation.state.writable:
            return None
        return Finding(self.name, "refuse", "the view of the node's pods is too old; the state's notes say why")
