"""The rule `freshness`: nothing on an old picture."""

from dataclasses import dataclass

from schemas.messages import Action
from services.guard.core.rules.situation import Finding, Situation


@dataclass(frozen=True)
class Freshness:
    """Prevents acting on an old picture: one of long ago, or one from before weights last moved, which would let two
    steps count as one.
    """

    name: str = "freshness"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused beyond the age limit, and if older than the last change."""
        age = situation.state_age_seconds
        if age > situation.max_state_age_seconds:
            reason = f"the state is {age:.1f} s old, the limit is {situation.max_state_age_seconds:.1f} s"
            return Finding(self.name, "refuse", reason)
        if age > situation.since_moved_seconds:
            moved = situation.since_moved_seconds
            return Finding(self.name, "refuse", f"the state is {age:.1f} s old, weights moved {moved:.1f} s ago")
        return None
