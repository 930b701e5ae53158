"""Owns the policies that do not learn: always one profile, and never move. They import neither River nor numpy."""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.settings import WeightSettings
from services.decider.core.arms import distance
from services.decider.core.policy import HOLD, Arm, Choice, Snapshot
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity

POLICY_VERSION: Final = 1


class Static:
    """Goes to one profile and stays there: a hand-tuned node, run through the same code. A `Policy`.

    While the profile itself is masked (too far for one step), it takes the offered profile that lies nearest to it.
    """

    def __init__(self, target: Arm, limits: WeightSettings, identity: Identity) -> None:
        self.target = target
        self.identity = identity
        self._limits = limits
        self._updates = 0

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards seen; nothing was learned from them."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:  # noqa: ARG002 - the protocol's signature
        """The target with certainty; scores are minus the distance (max |ln ratio|) from it."""
        profiles = {arm.name: self._score(arm) for arm in arms if arm.weights is not None}
        worst = min(profiles.values(), default=0.0) - 1.0
        return _certain({arm.name: profiles.get(arm.name, worst) for arm in arms})

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Counts the reward."""
        self._updates += 1

    def save(self) -> Snapshot:
        """A header and the count."""
        return Snapshot(version=SNAPSHOT_VERSION, identity=self.identity, updates=self._updates, numbers={})

    def load(self, snapshot: Snapshot) -> None:
        """Takes over the count. Raises SnapshotMismatch for another policy's snapshot."""
        snapshot.require(self.identity, {})
        self._updates = snapshot.updates

    def _score(self, arm: Arm) -> float:
        return 0.0 - distance(arm.weights or {}, self.target.weights or {}, self._limits)


class Hold(Static):
    """Never moves: takes `hold` or, where that is not offered, the first arm, which by the mask is the one in force."""

    def __init__(self, limits: WeightSettings, identity: Identity) -> None:
        super().__init__(HOLD, limits, identity)

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:  # noqa: ARG002 - the protocol's signature
        """The arm that changes nothing, with certainty."""
        names = [arm.name for arm in arms]
        stay = HOLD.name if HOLD.name in names else names[0]
        return _certain({name: float(name == stay) for name in names})


def _certain(scores: Mapping[str, float]) -> Choice:
    best = max(scores, key=scores.__getitem__)
    return Choice(
        arm=best,
        propensity=1.0,
        propensities={name: float(name == best) for name in scores},
        scores=dict(scores),
        explored=False,
    )
