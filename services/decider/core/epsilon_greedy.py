"""Owns ε-greedy: the discounted mean reward of each arm, whatever the situation, and a floor of uniform exploration.

Sutton and Barto, Reinforcement Learning (2018), section 2.2; the discount is that of Garivier and Moulines (ALT 2011),
section 3.1: every lesson weighs all earlier ones down, of all arms. An arm that is not tried goes back to the prior,
which falls with the squared distance from the prior profile, as the default policy's does. River's `EpsilonGreedy` is
not used: it draws on a generator of its own that is in no snapshot, names no propensities, changes its state when it is
asked, never forgets, and a dictionary of means is not worth River's 110 MiB.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.settings import ClassSettings
from services.decider.core.explanation import PRIOR, Explanation, parted
from services.decider.core.policy import Arm, Choice, Snapshot, choose
from services.decider.core.readings import apart, place_of, present
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1


class EpsilonGreedy:
    """The arm with the best discounted mean, above a floor of uniform exploration. A `Policy`.

    `epsilon`, `discount`, `prior_strength` and `prior_fall` mean what they do for the default policy. Of the features
    it reads only which classes are there and where the weights are, for the prior.
    """

    def __init__(
        self,
        classes: Mapping[str, ClassSettings],
        centre: Arm,
        identity: Identity,
        *,
        epsilon: float = 0.05,
        discount: float = 0.995,
        prior_strength: float = 0.5,
        prior_fall: float = 0.1,
    ) -> None:
        self.identity = identity
        self.epsilon = epsilon
        self.discount = discount
        self.prior_strength = prior_strength
        self.prior_fall = prior_fall
        self._classes = classes
        self._centre = centre
        self._updates = 0
        self._counts = dict.fromkeys(identity.arms, 0.0)
        self._totals = dict.fromkeys(identity.arms, 0.0)

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The arm with the highest mean; scores are the means."""
        scores = {}
        for arm, prior in zip(arms, self._priors(features, arms), strict=True):
            total = self._totals.get(arm.name, 0.0) + self.prior_strength * prior
            scores[arm.name] = total / (self._counts.get(arm.name, 0.0) + self.prior_strength)
        return choose(scores, self.epsilon, rng)

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why: the part of each mean that its rewards made, and the prior's."""
        counts = [self._counts.get(arm.name, 0.0) for arm in arms]
        earned = [
            self._totals.get(arm.name, 0.0) / (n + self.prior_strength) for arm, n in zip(arms, counts, strict=True)
        ]
        priors = [
            self.prior_strength * prior / (n + self.prior_strength)
            for prior, n in zip(self._priors(features, arms), counts, strict=True)
        ]
        scores = [a + b for a, b in zip(earned, priors, strict=True)]
        return Explanation(
            unit="reward",
            arms=parted(arms, scores, {"rewards": (None, earned), PRIOR: (None, priors)}),
            leader=arms[max(range(len(arms)), key=scores.__getitem__)].name,
            among=tuple(arm.name for arm in arms),
            epsilon=self.epsilon,
            notes=("it does not look at the situation but for where the weights are",),
        )

    def _priors(self, features: Mapping[str, float], arms: Sequence[Arm]) -> list[float]:
        names = present(features, self._classes)
        centre = place_of(self._centre, features, names)
        return [-self.prior_fall * apart(place_of(arm, features, names), centre) ** 2 for arm in arms]

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Takes in one reward; all earlier ones weigh `discount` as much as before."""
        self._updates += 1
        for sums in (self._counts, self._totals):
            for name in sums:
                sums[name] *= self.discount
        self._counts[arm.name] = self._counts.get(arm.name, 0.0) + 1.0
        self._totals[arm.name] = self._totals.get(arm.name, 0.0) + reward

    def save(self) -> Snapshot:
        """Discounted count and total per arm. An arm that is not configured is not saved."""
        arms = self.identity.arms
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self._updates,
            numbers={
                "counts": [self._counts[name] for name in arms],
                "totals": [self._totals[name] for name in arms],
            },
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        arms = self.identity.arms
        snapshot.require(self.identity, {"counts": len(arms), "totals": len(arms)})
        if min(snapshot.numbers["counts"], default=0.0) < 0.0:
            raise SnapshotMismatch("damaged", "a count is negative")
        self._counts, self._totals = (
            dict(zip(arms, snapshot.numbers[key], strict=True)) for key in ("counts", "totals")
        )
        self._updates = snapshot.updates
