"""The rules in the order in which they are asked, and how the matter ends."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from schemas.messages import Action, VerdictOutcome
from services.guard.core.rules.bounds import Bounds
from services.guard.core.rules.budget import Budget
from services.guard.core.rules.canary import Canary
from services.guard.core.rules.class_rate import ClassRate
from services.guard.core.rules.contention import Contention
from services.guard.core.rules.freshness import Freshness
from services.guard.core.rules.frozen import Frozen
from services.guard.core.rules.hold import Proposed
from services.guard.core.rules.known_classes import KnownClasses
from services.guard.core.rules.known_profile import KnownProfile
from services.guard.core.rules.max_step import MaxStep
from services.guard.core.rules.min_share import MinShare
from services.guard.core.rules.present_classes import PresentClasses
from services.guard.core.rules.rate import Rate
from services.guard.core.rules.situation import Finding, Rule, Situation
from services.guard.core.rules.unchanged import Unchanged
from services.guard.core.rules.writable import Writable

# `bounds` comes before all that counts with weights; `known_profile`, which counts with what was asked for, before it
# is read for the classes with pods. What is asked for must leave everybody a share before a step toward it is made.
RULES: Final[tuple[Rule, ...]] = (
    Budget(),
    Freshness(),
    Frozen(),
    Writable(),
    Proposed(),
    Canary(),
    KnownClasses(),
    Bounds(),
    KnownProfile(),
    Contention(),
    PresentClasses(),
    MinShare(),
    MaxStep(),
    Unchanged(),
    Rate(),
    ClassRate(),
)

_OF_A_STEP: Final[Rule] = MinShare()
"""What must hold for the step that a clamp leaves, too: its weights are others than those that were asked about, and
rounded. It keeps the bounds by itself.
"""

ALWAYS_ENFORCED: Final[Mapping[str, str]] = {
    "budget": "the cycle is over by then",
    "frozen": "a stop is a stop, of an operator and of the breaker; to only watch, use mode shadow",
    "hold": "there is nothing to enforce",
    "canary": "there is nothing to write",
    "present_classes": "it reads the proposal and objects to nothing",
}
"""The rules that cannot be watched, and why."""

WATCHABLE: Final = tuple(rule.name for rule in RULES if rule.name not in ALWAYS_ENFORCED)


class Judgement(msgspec.Struct, frozen=True):
    """The end of the matter: outcome, the rule that decided (None: nobody objected), and the weights to execute.

    `would_refuse` are the watched rules that would have ended or changed it.
    """

    outcome: VerdictOutcome
    rule: str | None
    reason: str | None
    weights: dict[str, int] | None
    execute: bool
    would_refuse: tuple[str, ...] = ()


def judge(
    action: Action, situation: Situation, rules: tuple[Rule, ...] = RULES, *, watched: Collection[str] = ()
) -> Judgement:
    """Asks the rules in order. The first finding that ends the matter wins; a clamp changes the weights, and the next
    rule is asked. What a watched rule finds is noted and has no effect. In `shadow` all are asked and nothing is
    executed.
    """
    clamp: Finding | None = None
    noted: dict[str, None] = {}
    for rule in rules:
        finding = rule(action, situation)
        if finding is not None and finding.outcome == "clamp" and finding.rule not in watched:
            clamp, action = finding, replace_weights(action, finding.weights or {})
            finding = _OF_A_STEP(action, situation)
        if finding is None:
            continue
        if finding.rule in watched:
            noted[finding.rule] = None
        elif finding.outcome == "allow":
            action = replace_weights(action, finding.weights or {})
        else:
            return Judgement(finding.outcome, finding.rule, finding.reason, None, execute=False, would_refuse=(*noted,))
    current = situation.current
    weights = {name: weight for name, weight in (action.weights or {}).items() if name in current}
    if not weights:  # only where `known_classes` is watched
        return Judgement("hold", None, "nothing is left of it", None, execute=False, would_refuse=(*noted,))
    outcome: VerdictOutcome = "clamp" if clamp else "allow"
    if situation.mode == "shadow":
        reason = "the mode is shadow: decided, not written"
        return Judgement(outcome, "shadow", reason, weights, execute=False, would_refuse=(*noted,))
    rule_name, reason_told = (clamp.rule, clamp.reason) if clamp else (None, None)
    return Judgement(outcome, rule_name, reason_told, weights, execute=True, would_refuse=(*noted,))


def replace_weights(action: Action, weights: Mapping[str, int]) -> Action:
    """The same action with other weights."""
    return msgspec.structs.replace(action, weights=dict(weights))
