"""Owns the default policy: discounted, cautious LinUCB with one model over arm and context, on River's policy base.

River's: the base class with its bookkeeping (pull and update by arm id, counts, a running reward statistic per arm,
ranking and table, parameters and clone), so that River's evaluation and metrics take this policy as one of theirs; and
the detector of change.

Ours: everything that decides. The reward of arm a in context x is believed to be m(a) + w.x(a) with x(a) = terms(a) ⊗ x
and one w for all arms: the terms (see basis) make near profiles behave alike, so that a lesson about one is a lesson
about its neighbours. m is the prior: it falls with the squared log distance from the prior profile. A warm start brings
a belief about w from the simulator (see warm). The score is the mean plus exploration times its width (LinUCB: Li, Chu,
Langford, Schapire, WWW 2010, algorithm 1); the product of an arm's and a context's kernel is that of Krause and Ong
(NIPS 2011).

What exploring and queues demand (docs/adr/0016-a-policy-that-earns-its-place.md), in the order in which it is asked:
- rescue: while most requests of a class are late (outlook), only arms that give it more are considered.
- hold: the cycle after a move takes the same arm once more, unless an objective is missed that weights can help: what
  is seen right after a move is still the work of the weights before. For the same reason that cycle teaches nothing.
- caution: with every objective kept, only what the budget pays for is tried (see caution); else the best known arm is
  taken, and the one in force is left only for one that is better by a margin.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from river import bandit

from schemas.settings import ClassSettings
from services.decider.core.basis import Basis, Floats
from services.decider.core.belief import Belief
from services.decider.core.bookkeeping import load_counts, save_counts
from services.decider.core.burns import Burns, Shares
from services.decider.core.caution import Caution
from services.decider.core.change import ChangeDetector
from services.decider.core.context import read_context
from services.decider.core.policy import HOLD, Arm, Choice, Snapshot, choose
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch
from services.decider.core.warm import WarmStart

POLICY_VERSION: Final = 2
BONUS_CAP: Final = 2.0
"""Largest bonus for not knowing: rewards lie in [-1, 1], and no arm can be better than another by more."""

MARGIN: Final = 0.02
"""How much better another arm must be believed to be to leave the one in force: a quarter of what full movement costs."""

IN_NEED_RATIO: Final = 0.1
"""Part of a class's requests over the objective from which on caution is no virtue. A tenth: what a burst of arrivals
does in two seconds is a few per cent."""

HARM: Final = 0.1
"""How much less than expected, and less than nothing, a move out of a sound state must give to have done harm: a
violated objective gives at least that."""

PAUSE_LESSONS: Final = 24.0
"""For how many lessons nothing is tried after harm was done: two minutes at the 5 s tick. Three rollbacks in two minutes
open the guard's breaker, and that is worse than any arm."""

KEPT_AFTER_CHANGE: Final = 0.2
"""How much earlier lessons still count once a change was detected."""


class LinUCB(bandit.base.ContextualPolicy):
    """Discounted LinUCB over profiles of weights; a `Policy` of this project and of River.

    `exploration` multiplies the width, `discount` (0-1] weighs down a lesson with each later one, `prior_strength` is
    λ in pseudo-observations per direction, `prior_fall` the reward that the prior takes off per squared decade of
    distance from the basis's centre, `epsilon` the floor of uniform exploration, `caution` the part of what is earned
    that exploring may lose.
    """

    _REQUIRES_UNIVARIATE_REWARD = True

    def __init__(
        self,
        basis: Basis,
        context_features: tuple[str, ...],
        arms: tuple[Arm, ...],
        classes: Mapping[str, ClassSettings],
        identity: Identity,
        *,
        exploration: float = 0.3,
        discount: float = 0.995,
        prior_strength: float = 0.5,
        prior_fall: float = 0.1,
        epsilon: float = 0.05,
        caution: float = 0.1,
        warm: WarmStart | None = None,
    ) -> None:
        super().__init__()
        self.basis = basis
        self.context_features = context_features
        self.arms = arms
        self.classes = classes
        self.identity = identity
        self.exploration = exploration
        self.discount = discount
        self.prior_strength = prior_strength
        self.prior_fall = prior_fall
        self.epsilon = epsilon
        self.caution = caution
        self.warm = warm
        self.size = basis.size * len(read_context({}, context_features))
        ridge = prior_strength * np.eye(self.size)
        if warm is None:
            self.belief = Belief(ridge, np.zeros(self.size), discount)
        else:
            self.belief = Belief(ridge + warm.precision(), warm.weights(), discount)
        self.budget = Caution(caution)
        self.burns = Burns(arms)
        self.pause = 0.0
        self.moved_to: Arm | None = None
        self.shares = Shares(classes)
        self.first = max(self.shares.latency, key=lambda name: classes[name].importance, default=None)
        self.change = ChangeDetector()

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms."""
        return self._n

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The arm with the highest score among those that caution allows, above a floor of uniform exploration."""
        means, widths = self._believe(features, arms)
        scores = means + np.minimum(self.exploration * widths, BONUS_CAP)
        scored = {arm.name: score for arm, score in zip(arms, scores.tolist(), strict=True)}
        burnt = {arm.name for arm in arms[1:] if self.burns.forbid(features, arm, self.shares)}
        rescued = next((name for name in self.shares.latency if features.get(f"{name}.rescue", 0.0) > 0.0), None)
        better = self.shares.giving_more(rescued, features, arms) if rescued is not None else []
        if unburnt := [arm.name for arm in better if arm.name not in burnt]:
            # Nobody stands above the most important class; whoever else is rescued shall not cost more than it gains.
            best = unburnt[-1] if rescued == self.first else max(unburnt, key=lambda name: scored[name])
            return choose(scored, 0.0, rng, best=best)
        if features.get("moved", 0.0) > 0.0:
            return choose(scored, 0.0, rng, [arms[0].name])
        leader = int(np.argmax(means))
        if means[leader] <= means[0] + MARGIN or arms[leader].name in burnt:
            leader = 0
        if self._misses_any(features, but_lost=True, by=IN_NEED_RATIO):
            starving = {arm.name for arm in arms[1:] if self._starves(features, arm)}
            able = {arm.name: scored[arm.name] for arm in arms if arm.name not in burnt | starving}
            return choose(scored, 0.0, rng, best=max(able, key=able.__getitem__))
        if self.pause > 0.0:
            return choose(scored, 0.0, rng, best=arms[0].name)
        affordable = [
            index
            for index in self.budget.affordable(means, widths, leader)
            if index == leader or arms[index].name not in burnt
        ]
        leader = max(affordable, key=lambda index: (scores[index] - MARGIN * (index != leader), index == leader))
        return choose(scored, self.epsilon, rng, [arms[index].name for index in affordable], best=arms[leader].name)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward; all earlier ones weigh `discount` as much as before. A move out of trouble teaches nothing:
        what is seen right after it is still the work of the weights before.
        """
        means, _ = self._believe(features, [HOLD, *self.arms])
        own = float(self._believe(features, [arm])[0][0])
        is_move, is_well = not self.shares.are_in_force(arm, features), not self._misses_any(features, but_lost=True)
        if own >= means.max() - MARGIN:
            self.budget.earn(reward)
        elif is_well:
            self.budget.pay(float(means.max()), reward)
        if self.moved_to is not None and not self.shares.are_in_force(self.moved_to, features):
            self.burns.burn(self.moved_to)  # it was taken back
            self.pause = PAUSE_LESSONS
        self.moved_to = arm if is_move else None
        self.burns.pass_time()
        self.pause = max(0.0, self.pause - 1.0)
        if is_move and is_well and reward < min(0.0, float(means[0])) - HARM:
            self.burns.burn(arm)
            self.pause = PAUSE_LESSONS
        if not self.teaches(features, arm):
            return
        super().update(arm.name, None, reward)  # type: ignore[no-untyped-call] # River's bookkeeping has no types
        if self.change.see(reward - own):
            self.belief.forget(KEPT_AFTER_CHANGE)
        self.belief.learn(*self.lesson(features, arm, reward))

    def teaches(self, features: Mapping[str, float], arm: Arm) -> bool:
        """Whether what was seen after an arm was taken is the arm's own work: not after a move out of trouble."""
        return not (not self.shares.are_in_force(arm, features) and self._misses_any(features))

    def lesson(self, features: Mapping[str, float], arm: Arm, reward: float) -> tuple[Floats, float]:
        """A reward as the model sees it: the vector of `size` numbers, and the reward beyond the prior."""
        return self._phi(features, [arm])[0], reward - float(self._prior(features, [arm])[0])

    def predict(self, features: Mapping[str, float], arm: Arm) -> tuple[float, float]:
        """What is believed of one arm: its expected reward, and the width of that belief.

        The width is one standard error if the noise of a reward were 1; it is never more than |φ|/√λ.
        """
        means, widths = self._believe(features, [arm])
        return float(means[0]), float(widths[0])

    def update(self, arm_id: bandit.base.ArmID, context: Mapping[str, float], *reward_args: float) -> None:
        """River's way to `learn`, for the arms given at construction."""
        self.learn(context, self._arm(arm_id), *reward_args)

    def _pull(self, arm_ids: list[bandit.base.ArmID], context: Mapping[str, float]) -> bandit.base.ArmID:  # type: ignore[override] # any mapping will do
        means, widths = self._believe(context or {}, [self._arm(arm_id) for arm_id in arm_ids])
        return arm_ids[int(np.argmax(means + np.minimum(self.exploration * widths, BONUS_CAP)))]

    def _arm(self, arm_id: bandit.base.ArmID) -> Arm:
        return {arm.name: arm for arm in self.arms}[str(arm_id)]

    def save(self) -> Snapshot:
        """Gram matrices and moment, budget and detector, and River's counts and mean rewards."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self.updates,
            numbers={
                "gram": self.belief.gram.ravel().tolist(),
                "gram_squared": self.belief.gram_squared.ravel().tolist(),
                "moment": self.belief.moment.tolist(),
                "budget": [self.budget.budget, self.pause, self._moved_number()],
                "burns": self.burns.save(),
                "change": self.change.save(),
                "counts": save_counts(self, self.identity.arms),
            },
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        square, arms = self.size**2, self.identity.arms
        snapshot.require(
            self.identity,
            {
                "gram": square,
                "gram_squared": square,
                "moment": self.size,
                "budget": 3,
                "burns": self.burns.size,
                "change": self.change.size,
                "counts": 2 * len(arms),
            },
        )
        numbers = snapshot.numbers
        gram, gram_squared = (_gram_of(numbers[name], self.size) for name in ("gram", "gram_squared"))
        self.change.load(numbers["change"])
        self.belief.replace(gram, gram_squared, np.array(numbers["moment"]))
        self.budget.budget, self.pause, moved = numbers["budget"]
        self.moved_to = self.arms[int(moved)] if 0.0 <= moved < len(self.arms) else None
        self.burns.load(numbers["burns"])
        load_counts(self, arms, snapshot.updates, numbers["counts"])

    def _moved_number(self) -> float:
        return -1.0 if self.moved_to is None else float(self.arms.index(self.moved_to))

    def _misses_any(self, features: Mapping[str, float], *, but_lost: bool = False, by: float = 0.0) -> bool:
        """Whether a latency class misses its objective; `but_lost`: one that weights can help; `by` more than so much."""
        return any(
            features.get(f"{name}.over_ratio", 0.0) > max(by, spec.violation_target_ratio)
            and not (but_lost and features.get(f"{name}.lost", 0.0) > 0.0)
            for name, spec in self.classes.items()
            if spec.kind == "latency"
        )

    def _starves(self, features: Mapping[str, float], arm: Arm) -> bool:
        """Whether an arm takes from a class that keeps its objective, and leaves it less than it needs."""
        now, then = self.shares.now(features), self.shares.of(arm, features)
        return any(
            then[name] < min(now[name], features.get(f"{name}.need", 0.0))
            for name in self.shares.latency
            if name in now and features.get(f"{name}.over_ratio", 0.0) <= self.classes[name].violation_target_ratio
        )

    def _phi(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        context = np.array(list(read_context(features, self.context_features).values()))
        terms = self.basis.terms(arms, features)
        return cast("Floats", (terms[:, :, None] * context).reshape(len(arms), self.size))

    def _prior(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        return -self.prior_fall * self.basis.squared_decades(arms, features)

    def _believe(self, features: Mapping[str, float], arms: Sequence[Arm]) -> tuple[Floats, Floats]:
        means, widths = self.belief.about(self._phi(features, arms))
        return self._prior(features, arms) + means, widths


def _gram_of(values: Sequence[float], size: int) -> Floats:
    """The matrix, which must be one that sums of φφᵀ can give; another would make the solve meaningless."""
    gram = np.array(values).reshape(size, size)
    tolerance = 1e-6 * (1.0 + float(np.trace(gram)))
    if not np.allclose(gram, gram.T, atol=tolerance) or np.linalg.eigvalsh(gram).min() < -tolerance:
        raise SnapshotMismatch("damaged", "a gram matrix is not symmetric and positive")
    return gram
