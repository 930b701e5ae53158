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

What exploring and queues demand beyond a score, and in which order it is asked, is in `order`.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from river import bandit

from schemas.settings import ClassSettings
from services.decider.core.basis import Basis, Floats
from services.decider.core.belief import Belief
from services.decider.core.bookkeeping import load_counts, save_counts
from services.decider.core.burns import Balance, Burns, Shares
from services.decider.core.caution import Caution
from services.decider.core.change import ChangeDetector
from services.decider.core.context import read_context
from services.decider.core.explanation import PRIOR, Explanation, parted
from services.decider.core.order import MARGIN, Beliefs, Order
from services.decider.core.order_words import answers
from services.decider.core.policy import HOLD, Arm, Choice, Snapshot
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch
from services.decider.core.warm import WarmStart

POLICY_VERSION: Final = 2
BONUS_CAP: Final = 2.0
"""Largest bonus for not knowing: rewards lie in [-1, 1], and no arm can be better than another by more."""

HARM: Final = 0.1
"""How much less than expected, and less than nothing, a move out of a sound state must give to have done harm: a
violated objective gives at least that."""

PAUSE_LESSONS: Final = 24.0
"""For how many lessons nothing is tried after harm was done: two minutes at the 5 s tick. Three rollbacks in two
minutes open the guard's breaker, and that is worse than any arm."""

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
        self.order = Order(classes)
        self.budget = Caution(caution)
        self.burns = Burns(arms)
        self._balance = Balance(classes)
        self.pause = 0.0
        self.moved_to: Arm | None = None
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
        """What the order of a decision makes of the scores. The first of `arms` is the one that changes nothing."""
        beliefs, shares = self._believe(features, arms), self._balance.at(features)
        return self.order.choose(
            features,
            arms,
            beliefs,
            shares,
            burnt=set(self.burns.forbidden(features, arms[1:], shares)),
            budget=self.budget,
            is_paused=self.pause > 0.0,
            epsilon=self.epsilon,
            rng=rng,
        )

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why `decide` leads where it does. In a mean each feature of the context has a part of its own, since the mean
        is linear in the context; the rest is the prior's.
        """
        beliefs, shares = self._believe(features, arms), self._balance.at(features)
        burnt = self.burns.forbidden(features, arms[1:], shares)
        ruling = self.order.rule(
            features,
            arms,
            beliefs,
            shares,
            burnt=set(burnt),
            budget=self.budget,
            is_paused=self.pause > 0.0,
            epsilon=self.epsilon,
        )
        terms, squared = self.basis.describe(arms, features)
        context = read_context(features, self.context_features)
        alone = np.diag(list(context.values()))
        parts: dict[str, tuple[float | None, Sequence[float]]] = {
            name: (value, self.belief.expect(terms, row).tolist())
            for (name, value), row in zip(context.items(), alone, strict=True)
        }
        parts[PRIOR] = (None, (0.0 - self.prior_fall * squared).tolist())
        return Explanation(
            unit="reward",
            arms=parted(arms, beliefs.scores.tolist(), parts, beliefs.widths.tolist()),
            leader=ruling.best,
            among=ruling.among or tuple(arm.name for arm in arms),
            epsilon=ruling.epsilon,
            questions=answers(ruling, pause_lessons=self.pause, budget=self.budget.budget, burnt=burnt),
            notes=(
                "begins with what the simulator taught" if self.warm is not None else "begins with the prior alone",
            ),
        )

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward; all earlier ones weigh `discount` as much as before. A move out of trouble teaches the
        model nothing (see `teaches`), and is then not one of `updates`.
        """
        context, shares = self._context(features), self._balance.at(features)
        terms, squared = self.basis.describe((HOLD, arm, *self.arms), features)
        held, own, *others = (self.belief.expect(terms, context) - self.prior_fall * squared).tolist()
        is_move = not shares.are_of(arm)
        self._heed(features, arm, reward, shares, is_move=is_move, own=own, held=held, best=max(held, *others))
        if is_move and self.order.misses_any(features):
            return
        super().update(arm.name, None, reward)  # type: ignore[no-untyped-call] # River's bookkeeping has no types
        if self.change.see(reward - own):
            self.belief.forget(KEPT_AFTER_CHANGE)
        self.belief.learn(*self._lesson(terms[1], float(squared[1]), context, reward))

    def _heed(
        self,
        features: Mapping[str, float],
        arm: Arm,
        reward: float,
        shares: Shares,
        *,
        is_move: bool,
        own: float,
        held: float,
        best: float,
    ) -> None:
        """What a reward says of caution, where `own` was expected of the arm, `held` of holding, `best` of the best."""
        is_well = not self.order.misses_any(features, but_lost=True)
        if own >= best - MARGIN:
            self.budget.earn(reward)
        elif is_well:
            self.budget.pay(best, reward)
        if self.moved_to is not None and not shares.are_of(self.moved_to):
            self.burns.burn(self.moved_to)  # it was taken back
            self.pause = PAUSE_LESSONS
        self.moved_to = arm if is_move and arm in self.arms else None
        self.burns.pass_time()
        self.pause = max(0.0, self.pause - 1.0)
        if is_move and is_well and reward < min(0.0, held) - HARM:
            self.burns.burn(arm)
            self.pause = PAUSE_LESSONS

    def teaches(self, features: Mapping[str, float], arm: Arm) -> bool:
        """Whether a lesson is for the model: what is seen after a move out of trouble is the work of the weights
        before.
        """
        return not (self.order.misses_any(features) and not self._balance.at(features).are_of(arm))

    def lesson(self, features: Mapping[str, float], arm: Arm, reward: float) -> tuple[Floats, float]:
        """A reward as the model sees it: the vector of `size` numbers, and the reward beyond the prior."""
        terms, squared = self.basis.describe([arm], features)
        return self._lesson(terms[0], float(squared[0]), self._context(features), reward)

    def _lesson(self, terms: Floats, squared: float, context: Floats, reward: float) -> tuple[Floats, float]:
        return (terms[:, None] * context).ravel(), reward + self.prior_fall * squared

    def predict(self, features: Mapping[str, float], arm: Arm) -> tuple[float, float]:
        """What is believed of one arm: its expected reward, and the width of that belief.

        The width is one standard error if the noise of a reward were 1; it is never more than |x|/√λ.
        """
        beliefs = self._believe(features, [arm])
        return float(beliefs.means[0]), float(beliefs.widths[0])

    def update(self, arm_id: bandit.base.ArmID, context: Mapping[str, float], *reward_args: float) -> None:
        """River's way to `learn`, for the arms given at construction."""
        self.learn(context, self._arm(arm_id), *reward_args)

    def _pull(self, arm_ids: list[bandit.base.ArmID], context: Mapping[str, float]) -> bandit.base.ArmID:  # type: ignore[override] # any mapping will do
        beliefs = self._believe(context or {}, [self._arm(arm_id) for arm_id in arm_ids])
        return arm_ids[int(np.argmax(beliefs.scores))]

    def _arm(self, arm_id: bandit.base.ArmID) -> Arm:
        return {arm.name: arm for arm in self.arms}[str(arm_id)]

    def save(self) -> Snapshot:
        """Gram matrices and moment, budget and burns, detector, and River's counts and mean rewards."""
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

    def _context(self, features: Mapping[str, float]) -> Floats:
        return np.array([*read_context(features, self.context_features).values()])

    def _believe(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Beliefs:
        terms, squared = self.basis.describe(arms, features)
        expected, widths = self.belief.about(terms, self._context(features))
        means = expected - self.prior_fall * squared
        return Beliefs(means, widths, means + np.minimum(self.exploration * widths, BONUS_CAP))


def _gram_of(values: Sequence[float], size: int) -> Floats:
    """The matrix, which must be one that sums of φφᵀ can give; another would make the solve meaningless."""
    gram = np.array(values).reshape(size, size)
    tolerance = 1e-6 * (1.0 + float(np.trace(gram)))
    if not np.allclose(gram, gram.T, atol=tolerance) or np.linalg.eigvalsh(gram).min() < -tolerance:
        raise SnapshotMismatch("damaged", "a gram matrix is not symmetric and positive")
    return gram
