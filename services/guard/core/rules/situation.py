"""What a rule may look at, and what it may answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import msgspec

from schemas.messages import Action, Mode, State, VerdictOutcome
from schemas.settings import WeightSettings
from services.guard.core.canary import Ordered, canary_weights


class Situation(msgspec.Struct, frozen=True, dict=True):
    """All that a rule may look at. Ages and budgets are in seconds, measured by the guard's own clock.

    `since_moved_seconds` is how long ago the guard last let weights move, or ordered them back. `canary_ratio` is the
    share of pods that may be written, None for all; `canary_ordered` what was last put in force on them. `profiles` are
    the only ones that may be asked for; empty: any. `class_changes_left` is the rest of each class's own change budget;
    where a class is missing, the node's counts alone.
    """

    state: State
    mode: Mode
    limits: WeightSettings
    classes: frozenset[str]
    state_age_seconds: float
    max_state_age_seconds: float
    answer_seconds: float
    budget_seconds: float
    changes_left: int
    require_contention: bool
    breaker_open: str | None = None
    since_moved_seconds: float = math.inf
    canary_ratio: float | None = None
    canary_ordered: Ordered | None = None
    profiles: Mapping[str, Mapping[str, int]] = {}
    min_share_ratio: float = 0.0
    class_changes_left: Mapping[str, int] = {}

    @cached_property
    def current(self) -> dict[str, int]:
        """The class weights in force, for the classes that have pods with weights (a weight of 0 is none: idle). In a
        canary those of its pods alone, on the profile scale: they are what moves.
        """
        if self.canary_ratio is not None:
            return canary_weights(
                self.state.pods, self.canary_ratio, self.limits, self.canary_ordered, self.state.parents
            )
        return {name: seen.weight for name, seen in self.state.classes.items() if seen.weight and seen.weight > 0}


@dataclass(frozen=True)
class Finding:
    """A rule's word: how the matter ends (or, for `allow` and `clamp`, goes on with other weights), and why."""

    rule: str
    outcome: VerdictOutcome
    reason: str
    weights: Mapping[str, int] | None = None


class Rule(Protocol):
    """One reason not to do it. Rules are pure, and take any whole numbers for weights."""

    @property
    def name(self) -> str:
        """The word for it in verdicts, metrics and `guard.watch`."""
        ...

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """None, or the finding."""
        ...
