"""Owns the reward message as a function of a cycle's messages and the settings. The service and the replay call it."""

from typing import TYPE_CHECKING, Final

from schemas.messages import Reward
from schemas.settings import Shared
from services.rewarder.core.censor import Cycle, censor_reason
from services.rewarder.core.reward import RewardWeights, Worth, reward

if TYPE_CHECKING:
    from services.rewarder.config import RewarderConfig

INTERRUPTED: Final = ("overrun", "stopped", "failed")
"""Why a cycle can end before all was seen: the next one began, the rewarder left, or its own code failed."""


def conclude(cycle: Cycle, interrupted: str | None, config: "RewarderConfig", shared: Shared) -> Reward:
    """The cycle's last word, at time 0. `interrupted` says why it ended early, if it did: that counts only where the
    second look was still missing.
    """
    reason = interrupted if cycle.after is None or interrupted == "failed" else None
    reason = reason or censor_reason(
        cycle, shared.classes, min_requests=config.min_requests, require_contention=config.require_contention
    )
    worth: Worth | None = None
    if cycle.after is not None:
        moved_to = cycle.actuation.weights if cycle.actuation and cycle.actuation.outcome == "applied" else None
        weights = RewardWeights(
            config.violation_weight, config.severity_weight, config.throughput_weight, config.oscillation_weight
        )
        worth = reward(cycle.before, cycle.after, moved_to, shared.classes, weights)
    return reward_message(cycle, worth, reason)


def reward_message(cycle: Cycle, worth: Worth | None, reason: str | None) -> Reward:
    """What a cycle was worth, or why it is not learned from, as a message at time 0."""
    before, action, verdict = cycle.before, cycle.action, cycle.verdict
    learned = reason is None and worth is not None
    return Reward(
        node=before.node,
        boot=before.boot,
        cycle=before.cycle,
        at=0,
        outcome="joined" if learned else "censored",
        reason=reason,
        value=worth.value if worth is not None and learned else None,
        terms=worth.terms if worth is not None else {},
        arm=action.arm if action else None,
        propensity=verdict.propensity if verdict else None,
        policy=action.policy if action else None,
        features=before.features | (action.context if action else {}) if learned else {},
        features_schema=before.features_schema,
        verdict=verdict.outcome if verdict else None,
        actuation=cycle.actuation.outcome if cycle.actuation else None,
        weights=action.weights if action else None,
    )
