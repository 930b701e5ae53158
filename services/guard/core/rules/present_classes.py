"""The rule `present_classes`: a proposal is read over the classes that have pods."""

from dataclasses import dataclass

from schemas.messages import Action
from schemas.profile import on_profile_scale
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class PresentClasses:
    """Prevents a proposal over all classes from looking like a step where some have no pods: what acts are the ratios
    between those that have.
    """

    name: str = "present_classes"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Reads such a proposal on the profile scale of the classes with pods; objects to nothing."""
        weights = action.weights or {}
        present = {name: weight for name, weight in weights.items() if name in situation.current}
        if len(present) == len(weights):
            return None
        return Finding(self.name, "allow", "", on_profile_scale(present, situation.limits))
