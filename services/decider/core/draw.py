"""Owns the draw of an arm from a policy's own distribution, above a floor of uniform exploration."""

import random
from collections.abc import Mapping

from services.decider.core.policy import Choice


def draw(scores: Mapping[str, float], likelihoods: Mapping[str, float], epsilon: float, rng: random.Random) -> Choice:
    """An arm by its likelihood or, with probability `epsilon`, any arm uniformly.

    `likelihoods` are of the arms in `scores`, none negative and not all zero; they need not sum to 1. The propensities
    are exact: (1-ε) · likelihood / Σ + ε/k. Takes two draws from `rng`.
    """
    names = list(scores)
    total = sum(likelihoods[name] for name in names)
    if rng.random() < epsilon:
        picked = names[rng.randrange(len(names))]
    else:
        picked = rng.choices(names, [likelihoods[name] for name in names])[0]
    floor = epsilon / len(names)
    propensities = {name: (1.0 - epsilon) * likelihoods[name] / total + floor for name in names}
    return Choice(
        arm=picked,
        propensity=propensities[picked],
        propensities=propensities,
        scores=dict(scores),
        explored=picked != max(names, key=scores.__getitem__),
    )
