"""The rules of step 6, in the order in which they are asked. Each prevents one thing and says so.

A rule gets the proposal and the situation and answers None (no objection) or a Finding. The first finding that ends
the matter wins; a clamp changes the weights and the next rule is asked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from schemas.messages import Action, Mode, State, VerdictOutcome
from schemas.profile import on_profile_scale
from schemas.settings import WeightSettings

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Situation:
    """All that a rule may look at. Ages and budgets are in seconds, measured by the guard's own clock.

    `since_moved_seconds` is how long ago the guard last let weights move, or ordered them back.
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

    @property
    def current(self) -> dict[str, int]:
        """The class weights in force, for the classes that have pods with weights (a weight of 0 is none: idle)."""
        return {name: seen.weight for name, seen in self.state.classes.items() if seen.weight and seen.weight > 0}


@dataclass(frozen=True)
class Finding:
    """A rule's word: how the matter ends (or, for `clamp`, goes on), and why."""

    rule: str
    outcome: VerdictOutcome
    reason: str
    weights: Mapping[str, int] | None = None


class Rule(Protocol):
    """One reason not to do it."""

    name: str

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """None, or the finding."""
        ...


class Budget:
    """Prevents an answer that took too long from acting on a node that has moved on."""

    name = "budget"

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


class Freshness:
    """Prevents acting on an old picture: one of long ago, or one from before weights last moved, which would let two
    steps count as one.
    """

    name = "freshness"

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


class Frozen:
    """Prevents everything while an operator or the breaker says stop."""

    name = "frozen"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused in mode frozen and while the breaker is open."""
        if situation.breaker_open is not None:
            return Finding("breaker", "refuse", situation.breaker_open)
        if situation.mode == "frozen":
            return Finding(self.name, "refuse", "the mode is frozen: originals stay")
        return None


class Writable:
    """Prevents proposals from being credited where nothing can be written (WT-05)."""

    name = "writable"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused while the node can only be observed."""
        if situation.state.writable:
            return None
        return Finding(self.name, "refuse", "weights cannot be written here: observe only")


class Proposed:
    """Ends the matter where the decider wants to hold."""

    name = "hold"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Held without weights."""
        if action.weights is not None:
            return None
        return Finding(self.name, "hold", action.reason or "the decider holds")


class KnownClasses:
    """Prevents weights for classes that nobody configured."""

    name = "known_classes"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused for an unknown class, or when no class with pods is named."""
        weights = action.weights or {}
        unknown = sorted(set(weights) - situation.classes)
        if unknown:
            return Finding(self.name, "refuse", f"unknown class {unknown[0]!r}")
        if not set(weights) & set(situation.current):
            return Finding(self.name, "refuse", "no class that is proposed has pods here")
        return None


class Bounds:
    """Prevents weights outside the configured range; refused, never bent (one rule for all: WT-02)."""

    name = "bounds"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Refused outside [min_weight, max_weight]."""
        low, high = situation.limits.min_weight, situation.limits.max_weight
        for name, weight in sorted((action.weights or {}).items()):
            if not low <= weight <= high:
                return Finding(self.name, "refuse", f"{name}: weight {weight} is outside {low}..{high}")
        return None


class Contention:
    """Prevents changes that could not be seen: weights do nothing while nobody waits for CPU."""

    name = "contention"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Held without contention."""
        if situation.state.contention.contended or not situation.require_contention:
            return None
        return Finding(self.name, "hold", situation.state.contention.reason or "nobody waits for CPU")


class PresentClasses:
    """Prevents a proposal over all classes from looking like a step where some have no pods: what acts are the ratios
    between those that have.
    """

    name = "present_classes"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Reads such a proposal on the profile scale of the classes with pods; objects to nothing."""
        weights = action.weights or {}
        present = {name: weight for name, weight in weights.items() if name in situation.current}
        if len(present) == len(weights):
            return None
        return Finding(self.name, "allow", "", on_profile_scale(present, situation.limits))


class MaxStep:
    """Prevents jumps: a class weight changes by at most the step ratio, the rest is left for later cycles."""

    name = "max_step"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Clamped toward the proposal, all classes by the same part of the way, so that their order is kept. Refused
        where a weight stands so far outside the bounds that no step leads back into them.
        """
        current, limits, limit = situation.current, situation.limits, situation.limits.max_step_ratio
        target = {name: weight for name, weight in (action.weights or {}).items() if name in current}
        for name in sorted(target):
            if not limits.min_weight / limit <= current[name] <= limits.max_weight * limit:
                reason = f"{name}: from weight {current[name]} no step of {limit:g} leads into the bounds"
                return Finding(self.name, "refuse", reason)
        widest = max((abs(math.log(weight / current[name])) for name, weight in target.items()), default=0.0)
        if widest <= math.log(limit) * (1 + 1e-9):
            return None
        part = math.log(limit) / widest
        clamped = {name: toward(current[name], weight, part, limits) for name, weight in target.items()}
        return Finding(self.name, "clamp", f"a step of {math.exp(widest):.1f} is beyond the ratio {limit:g}", clamped)


class Unchanged:
    """Ends the matter where the proposal is what is in force."""

    name = "unchanged"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """Held when no class weight would change."""
        current = situation.current
        if any(current[name] != weight for name, weight in (action.weights or {}).items() if name in current):
            return None
        return Finding(self.name, "hold", "the weights are in force already")


class Rate:
    """Prevents flapping: only so many changes a minute."""

    name = "rate"

    def __call__(self, action: Action, situation: Situation) -> Finding | None:  # noqa: ARG002 - the protocol's shape
        """Refused when the budget is used up."""
        if situation.changes_left > 0:
            return None
        return Finding(self.name, "refuse", f"{situation.limits.max_changes_per_minute:g} changes a minute are used up")


RULES: tuple[Rule, ...] = (
    Budget(),
    Freshness(),
    Frozen(),
    Writable(),
    Proposed(),
    KnownClasses(),
    Bounds(),
    Contention(),
    PresentClasses(),
    MaxStep(),
    Unchanged(),
    Rate(),
)


@dataclass(frozen=True)
class Judgement:
    """The end of the matter: outcome, the rule that decided (None: nobody objected), and the weights to execute."""

    outcome: VerdictOutcome
    rule: str | None
    reason: str | None
    weights: dict[str, int] | None
    execute: bool


def judge(action: Action, situation: Situation, rules: tuple[Rule, ...] = RULES) -> Judgement:
    """Asks the rules in order. In `shadow` all are asked and nothing is executed."""
    clamp: Finding | None = None
    for rule in rules:
        finding = rule(action, situation)
        if finding is None:
            continue
        if finding.outcome in ("allow", "clamp"):
            clamp = finding if finding.outcome == "clamp" else clamp
            action = replace_weights(action, finding.weights or {})
            continue
        return Judgement(finding.outcome, finding.rule, finding.reason, None, execute=False)
    current = situation.current
    weights = {name: weight for name, weight in (action.weights or {}).items() if name in current}
    outcome: VerdictOutcome = "clamp" if clamp else "allow"
    if situation.mode == "shadow":
        return Judgement(outcome, "shadow", "the mode is shadow: decided, not written", weights, execute=False)
    rule_name, reason = (clamp.rule, clamp.reason) if clamp else (None, None)
    return Judgement(outcome, rule_name, reason, weights, execute=True)


def replace_weights(action: Action, weights: Mapping[str, int]) -> Action:
    """The same action with other weights."""
    return msgspec.structs.replace(action, weights=dict(weights))


def toward(start: int, target: int, part: float, limits: WeightSettings) -> int:
    """`part` of the way from `start` to `target` in ratios, as an integer that keeps the step ratio and the bounds.

    `start` is at most one step outside the bounds and `target` within them, so that there is such an integer.
    """
    wish = round(start * math.exp(part * math.log(target / start)))
    lowest = math.ceil(start / limits.max_step_ratio - _ROUNDING)
    highest = math.floor(start * limits.max_step_ratio + _ROUNDING)
    return max(lowest, limits.min_weight, min(highest, limits.max_weight, wish))
