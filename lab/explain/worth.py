"""A reward told: each term with its weight, adding up to the value; or what its censor reason means."""

import math

from lab.explain.moments import at_text
from lab.explain.told import RewardTold, TermTold
from lab.explain.words import why_censored
from schemas.messages import Reward
from schemas.settings import Shared
from services.rewarder.config import RewarderConfig


def reward_told(reward: Reward, found: tuple[Shared, RewarderConfig] | str) -> RewardTold:
    """The reward; `found` are the rewarder's settings, or why they are not known."""
    parts: tuple[TermTold, ...] = ()
    unknown = None
    if reward.value is not None:
        if isinstance(found, str):
            unknown = found
        else:
            parts = _parts(reward, found[1])
    return RewardTold(
        at=at_text(reward.at),
        outcome=reward.outcome,
        value=reward.value,
        terms=dict(reward.terms),
        parts=parts,
        total=math.fsum(part.amount for part in parts) if parts else None,
        reason=reward.reason,
        meaning=why_censored(reward.reason),
        unknown=unknown,
    )


def _parts(reward: Reward, config: RewarderConfig) -> tuple[TermTold, ...]:
    """The sum that `services.rewarder.core.reward` makes: with an objective broken, throughput counts for nothing and
    the value begins below all that an unbroken cycle can be worth.
    """
    terms, cost = reward.terms, config.oscillation_weight
    if terms.get("violation", 0.0) < 0.0:
        scale = 1.0 - 2.0 * cost
        parts = [
            TermTold(name="an objective is broken", term=None, weight=None, amount=0.0 - cost),
            _term("violation", terms, scale * config.violation_weight),
            _term("severity", terms, scale * config.severity_weight),
            _term("throughput", terms, 0.0),
        ]
    else:
        parts = [_term("throughput", terms, config.throughput_weight)]
    return (*parts, _term("oscillation", terms, cost))


def _term(name: str, terms: dict[str, float], weight: float) -> TermTold:
    term = terms.get(name, 0.0)
    return TermTold(name=name, term=term, weight=weight, amount=term * weight)
