"""Owns the verdict as a function: of state and action, what the guard knew, where it stood, and its settings.

The service and the replay call the same: what is told in a verdict is enough to reach it again.
"""

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.messages import Action, BreakerState, Known, Mode, State, Verdict
from schemas.settings import Shared
from services.guard.core.canary import Ordered, canary_weights
from services.guard.core.rules import Judgement, Situation, judge

if TYPE_CHECKING:
    from services.guard.config import GuardConfig

_REASON_LENGTH: Final = 300
_TWO: Final = 2


class Stand(NamedTuple):
    """Where the guard stood: its mode, and its breaker before the verdict."""

    mode: Mode
    breaker: BreakerState


def canary_ratio_of(state: State, stand: Stand, config: "GuardConfig", shared: Shared) -> float | None:
    """The share of pods that may be written: in mode `canary`, and for the one change of a half-open breaker, where
    that share has pods of two classes to weigh against each other. None: all.
    """
    ratio = config.canary_ratio
    if stand.mode == "canary":
        return ratio
    if stand.mode != "active" or stand.breaker != "half_open":
        return None
    weights = canary_weights(state.pods, ratio, shared.weights, parents=state.parents)
    return ratio if len(weights) >= _TWO else None


def situation_of(state: State, known: Known, stand: Stand, config: "GuardConfig", shared: Shared) -> Situation:
    """All that a rule may look at."""
    ordered = None
    if known.canary_ordered is not None:
        ordered = Ordered(known.canary_ordered, known.canary_written or {})
    moved = known.since_moved_seconds
    return Situation(
        state=state,
        mode=stand.mode,
        limits=shared.weights,
        classes=frozenset(shared.classes),
        state_age_seconds=known.seen_age_seconds + known.answer_seconds,
        max_state_age_seconds=_max_state_age_seconds(config, shared),
        answer_seconds=known.answer_seconds,
        budget_seconds=shared.loop.decision_budget_seconds,
        changes_left=known.changes_left,
        require_contention=config.require_contention,
        breaker_open=known.breaker_open,
        since_moved_seconds=math.inf if moved is None else moved,
        canary_ratio=canary_ratio_of(state, stand, config, shared),
        canary_ordered=ordered,
        profiles=config.profiles,
        min_share_ratio=config.min_share_ratio,
        class_changes_left=known.class_changes_left,
    )


def verdict_of(
    state: State, action: Action | None, known: Known, stand: Stand, *, config: "GuardConfig", shared: Shared, at: int
) -> Verdict:
    """The verdict on an action, or without one that none came in time, at this wall time in Unix nanoseconds."""
    situation = situation_of(state, known, stand, config, shared)
    if action is None:
        judgement = Judgement("late", "budget", known.late, None, execute=False)
    else:
        judgement = judge(action, situation, watched=config.watch)
    lifetime = shared.loop.decision_budget_seconds + config.apply_within_seconds
    good_for = min(lifetime, situation.max_state_age_seconds - known.seen_age_seconds) - known.answer_seconds
    is_clamped = judgement.outcome == "clamp"
    return Verdict(
        node=state.node,
        boot=state.boot,
        cycle=state.cycle,
        at=at,
        outcome=judgement.outcome,
        execute=judgement.execute,
        mode=stand.mode,
        arm=action.arm if action else None,
        weights=judgement.weights,
        rule=judgement.rule,
        reason=judgement.reason[:_REASON_LENGTH] if judgement.reason else None,
        propensity=action.propensity if action and not is_clamped else None,
        deadline=at + int(good_for * 1e9),
        changes_left=max(0, known.changes_left - judgement.execute),
        previous_weights=situation.current,
        would_refuse=judgement.would_refuse,
        canary_ratio=situation.canary_ratio,
        breaker=stand.breaker,
        known=known,
    )


def _max_state_age_seconds(config: "GuardConfig", shared: Shared) -> float:
    return config.max_state_age_ticks * shared.loop.tick_seconds
