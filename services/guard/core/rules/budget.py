"""The rule `budget`: no answer that came too late."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Budget:
    """Prevents an answer that took too long from acting on a node that has moved on."""

    name: str = "budget"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Late beyond the decision budget."""
        if situation.answer_seconds <= situation.budget_seconds:
            return None
        return Finding(
            self.name,
            "late",
            f"the action came after {situation.answer_seconds * 1000:.0f} ms, "
            f"the budget is {situation.budget_seconds * 1000:.0f} ms",
        )
