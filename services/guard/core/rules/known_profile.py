"""The rule `known_profile`: only profiles that somebody has looked at."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.messages import Action
from schemas.profile import on_profile_scale
from schemas.settings import WeightSettings
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class KnownProfile:
    """Prevents weights that nobody has approved, where the operator has listed the profiles that may be asked for."""

    name: str = "known_profile"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused unless the ratios between the classes with pods are those of a profile on the list."""
        if not situation.profiles:
            return None
        weights, limits, present = action.weights or {}, situation.limits, situation.current.keys()
        asked = on_profile_scale({name: weights[name] for name in present & weights.keys()}, limits)
        if any(_over(profile, present, limits) == asked for profile in situation.profiles.values()):
            return None
        told = ", ".join(f"{name} {weight}" for name, weight in sorted(asked.items()))
        return Finding(self.name, "refuse", f"no profile of guard.profiles: {told or 'no class with pods'}")


def _over(profile: Mapping[str, int], names: Iterable[str], limits: WeightSettings) -> dict[str, int]:
    """A class that a profile does not name weighs what the decider takes it to: as `default`, else the least."""
    other = profile.get("default", limits.min_weight)
    return on_profile_scale({name: profile.get(name, other) for name in names}, limits)
