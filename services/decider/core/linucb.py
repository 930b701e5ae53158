"""Owns the default policy: discounted LinUCB with one model over arm and context, on River's contextual policy base.

River's: the base class with its bookkeeping (pull and update by arm id, counts, a running reward statistic per arm,
ranking and table, parameters and clone), so that River's evaluation and metrics take this policy as one of theirs.

Ours: everything that decides. The reward of arm a in context x is believed to be m(a) + w·φ with φ = terms(a) ⊗ x and
one w for all arms: the terms (see basis) make near profiles behave alike, so that a lesson about one is a lesson about
its neighbours. m is the prior: it falls with the squared log distance from the prior profile. After n lessons, with
discount γ and ridge λ,
    V = λI + Σ γⁿ⁻ⁱ φφᵀ     W = λI + Σ γ²⁽ⁿ⁻ⁱ⁾ φφᵀ     w = V⁻¹ Σ γⁿ⁻ⁱ φ (r - m)
    score = m(a) + w·φ + min(exploration · √(φᵀ V⁻¹ W V⁻¹ φ), cap)
The score is LinUCB's (Li, Chu, Langford, Schapire, WWW 2010, algorithm 1), discount and width are D-LinUCB's (Russac,
Vernade, Cappé, NeurIPS 2019, algorithm 1), the product of an arm's and a context's kernel is that of Krause and Ong
(NIPS 2011). The width is that of the mean alone: it goes to zero as lessons come in, where a predictive spread would
stay at the noise. λ is added anew in every solve and never decays: a direction that was not seen for long returns to
the prior, not to infinity (RV-03).
"""
# ruff: noqa: RUF002 - Greek letters as in the papers

import random
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from river import bandit

from services.decider.core.basis import Basis, Floats
from services.decider.core.bookkeeping import load_counts, save_counts
from services.decider.core.context import read_context
from services.decider.core.policy import Arm, Choice, Snapshot, choose
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
BONUS_CAP: Final = 2.0
"""Largest bonus for not knowing: rewards lie in [-1, 1], and no arm can be better than another by more."""


class LinUCB(bandit.base.ContextualPolicy):
    """Discounted LinUCB over profiles of weights; a `Policy` of this project and of River.

    `exploration` multiplies the width, `discount` (0-1] weighs down a lesson with each later one, `prior_strength` is
    λ in pseudo-observations per direction, `prior_fall` the reward that the prior takes off per squared decade of
    distance from the basis's centre, `epsilon` the floor of uniform exploration.
    """

    _REQUIRES_UNIVARIATE_REWARD = True

    def __init__(
        self,
        basis: Basis,
        context_features: tuple[str, ...],
        arms: tuple[Arm, ...],
        identity: Identity,
        *,
        exploration: float = 0.3,
        discount: float = 0.995,
        prior_strength: float = 0.5,
        prior_fall: float = 0.1,
        epsilon: float = 0.05,
    ) -> None:
        super().__init__()
        self.basis = basis
        self.context_features = context_features
        self.arms = arms
        self.identity = identity
        self.exploration = exploration
        self.discount = discount
        self.prior_strength = prior_strength
        self.prior_fall = prior_fall
        self.epsilon = epsilon
        self.size = basis.size * len(read_context({}, context_features))
        self._gram: Floats = np.zeros((self.size, self.size))
        self._gram_squared: Floats = np.zeros((self.size, self.size))
        self._moment: Floats = np.zeros(self.size)
        self._solve()

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms."""
        return self._n

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The arm with the highest score, above a floor of uniform exploration."""
        bounds = self._bounds(features, arms).tolist()
        return choose({arm.name: bound for arm, bound in zip(arms, bounds, strict=True)}, self.epsilon, rng)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward; all earlier ones weigh `discount` as much as before."""
        super().update(arm.name, None, reward)  # type: ignore[no-untyped-call] # River's bookkeeping has no types
        phi = self._phi(features, [arm])[0]
        surprise = reward - float(self._prior(features, [arm])[0])
        outer = np.outer(phi, phi)
        self._gram = self.discount * self._gram + outer
        self._gram_squared = self.discount**2 * self._gram_squared + outer
        self._moment = self.discount * self._moment + phi * surprise
        self._solve()

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
        arms = [self._arm(arm_id) for arm_id in arm_ids]
        return arm_ids[int(np.argmax(self._bounds(context or {}, arms)))]

    def _arm(self, arm_id: bandit.base.ArmID) -> Arm:
        return {arm.name: arm for arm in self.arms}[str(arm_id)]

    def save(self) -> Snapshot:
        """Gram matrices and moment, and River's counts and mean rewards."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self.updates,
            numbers={
                "gram": self._gram.ravel().tolist(),
                "gram_squared": self._gram_squared.ravel().tolist(),
                "moment": self._moment.tolist(),
                "counts": save_counts(self, self.identity.arms),
            },
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        square, arms = self.size**2, self.identity.arms
        snapshot.require(
            self.identity, {"gram": square, "gram_squared": square, "moment": self.size, "counts": 2 * len(arms)}
        )
        numbers = snapshot.numbers
        gram, gram_squared = (_gram_of(numbers[name], self.size) for name in ("gram", "gram_squared"))
        self._gram, self._gram_squared = gram, gram_squared
        self._moment = np.array(numbers["moment"])
        load_counts(self, arms, snapshot.updates, numbers["counts"])
        self._solve()

    def _phi(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        context = np.array(list(read_context(features, self.context_features).values()))
        terms = self.basis.terms(arms, features)
        return cast("Floats", (terms[:, :, None] * context).reshape(len(arms), self.size))

    def _prior(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        return -self.prior_fall * self.basis.squared_decades(arms, features)

    def _believe(self, features: Mapping[str, float], arms: Sequence[Arm]) -> tuple[Floats, Floats]:
        phi = self._phi(features, arms)
        variances = np.einsum("ad,de,ae->a", phi, self._covariance, phi)
        return self._prior(features, arms) + phi @ self._w, np.sqrt(np.maximum(variances, 0.0))

    def _bounds(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        means, widths = self._believe(features, arms)
        return means + np.minimum(self.exploration * widths, BONUS_CAP)

    def _solve(self) -> None:
        """Belief from the sums. V has no eigenvalue below λ, so the inverse is bounded whatever was learned."""
        ridge = self.prior_strength * np.eye(self.size)
        inverse = np.linalg.inv(ridge + self._gram)
        self._covariance: Floats = inverse @ (ridge + self._gram_squared) @ inverse
        self._w: Floats = inverse @ self._moment


def _gram_of(values: Sequence[float], size: int) -> Floats:
    """The matrix, which must be one that sums of φφᵀ can give; another would make the solve meaningless."""
    gram = np.array(values).reshape(size, size)
    tolerance = 1e-6 * (1.0 + float(np.trace(gram)))
    if not np.allclose(gram, gram.T, atol=tolerance) or np.linalg.eigvalsh(gram).min() < -tolerance:
        raise SnapshotMismatch("damaged", "a gram matrix is not symmetric and positive")
    return gram
