"""Owns the edge of every policy: what is not a usable number is counted here and never reaches a model (RV-02)."""

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from services.decider.core.policy import Arm, Choice, Policy, Snapshot

LIMIT: Final = 10.0
"""Largest magnitude taken for a feature or a reward. Both are within [-1, 1] by contract; a little more is rounding,
ten times more is damage, and squared it would outweigh all that was learned."""

_NUMBERS: Final = frozenset((float,))
"""Of what a vector must be to be checked at once."""


class Checked:
    """A policy behind a check of its numbers; itself a `Policy`.

    `rejected` counts by reason: `feature` (learning refused), `reward` (learning refused), `decision` (a decision was
    made without the broken features). After a refusal the inner policy is exactly as before.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rejected: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The inner policy's name."""
        return self.policy.name

    @property
    def updates(self) -> int:
        """The inner policy's count: refused rewards are not in it."""
        return self.policy.updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """One of `arms`, whatever the features hold: a broken one counts as not given. ValueError without arms."""
        if not arms:
            raise ValueError("no arm to choose from")
        if not are_usable(features.values()):
            self.rejected["decision"] += 1
            features = {name: value for name, value in features.items() if is_usable(value)}
        return self.policy.decide(features, arms, rng)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Learns, or counts the refusal: a lesson with one broken number is a broken lesson."""
        if not is_usable(reward):
            self.rejected["reward"] += 1
        elif not are_usable(features.values()):
            self.rejected["feature"] += 1
        else:
            self.policy.learn(features, arm, reward)

    def save(self) -> Snapshot:
        """The inner policy's state."""
        return self.policy.save()

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the inner policy's state; SnapshotMismatch if it does not fit."""
        self.policy.load(snapshot)


def are_usable(values: Collection[object]) -> bool:
    """True if each is."""
    if not _NUMBERS.issuperset(map(type, values)):
        return all(is_usable(value) for value in values)
    # No number is larger than the vector is long, and a NaN makes that NaN, or infinite.
    return math.hypot(*cast("Collection[float]", values)) <= LIMIT or all(is_usable(value) for value in values)


def is_usable(value: object) -> bool:
    """True for a finite number of at most LIMIT in magnitude; `None`, text, NaN and infinity are not."""
    return isinstance(value, (int, float)) and -LIMIT <= value <= LIMIT
