"""Owns the default policy: discounted LinUCB with one model over arm and context, on River's contextual policy base.

River's: the base class with its bookkeeping (pull and update by arm id, counts, a running reward statistic per arm,
ranking and table, parameters and clone), so that River's evaluation and metrics take this policy as one of theirs.

Ours: everything that decides. The reward of arm a in context x is θ·φ with φ = terms(a) ⊗ context(x), one θ for all
arms, so that a lesson about one profile is a lesson about its neighbours. After n lessons and discount γ,
    V = λI + Σ γⁿ⁻ⁱ φφᵀ     W = λI + Σ γ²⁽ⁿ⁻ⁱ⁾ φφᵀ     θ = θ₀ + V⁻¹ Σ γⁿ⁻ⁱ φ (r - φ·θ₀)
    score = φ·θ + exploration · min(√(φᵀ V⁻¹ W V⁻¹ φ), cap)
The score is LinUCB's (Li, Chu, Langford, Schapire, WWW 2010, algorithm 1), discount and width are D-LinUCB's (Russac,
Vernade, Cappé, NeurIPS 2019, algorithm 1). The width is that of the mean alone: it goes to zero as lessons come in,
where a predictive spread would stay at the noise. The prior θ₀, λ is added anew in every solve and never decays: a
direction that was not seen for long returns to the prior, not to infinity (RV-03).
"""
# ruff: noqa: RUF002 - Greek letters as in the papers

import random
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
import numpy.typing as npt
from river import bandit

from services.decider.core.basis import Basis
from services.decider.core.bookkeeping import load_counts, save_counts
from services.decider.core.context import read_context
from services.decider.core.policy import Arm, Choice, Snapshot, choose
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
WIDTH_CAP: Final = 2.0
"""Rewards lie in [-1, 1]: not knowing more than that range is not knowing anything."""

Floats = npt.NDArray[np.float64]


class LinUCB(bandit.base.ContextualPolicy):
    """Discounted LinUCB over profiles of weights; a `Policy` of this project and of River.

    `exploration` multiplies the width, `discount` (0-1] weighs down a lesson with each later one, `prior_strength` is
    λ in pseudo-observations per direction, `prior_fall` the reward that the prior takes off per squared unit of
    distance from the basis's centre (one unit: min_weight to max_weight), `epsilon` the floor of uniform exploration.
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
        prior_strength: float = 1.0,
        prior_fall: float = 0.5,
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
        width = len(read_context({}, context_features))
        self.size = basis.size * width
        prior = np.zeros((basis.size, width))
        prior[basis.squares, 0] = -prior_fall
        self._prior: Floats = prior.ravel()
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
        means, widths = self._believe(features, arms)
        bounds = means + self.exploration * widths
        return choose({arm.name: float(bound) for arm, bound in zip(arms, bounds, strict=True)}, self.epsilon, rng)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward; all earlier ones weigh `discount` as much as before."""
        super().update(arm.name, None, reward)  # type: ignore[no-untyped-call] # River's bookkeeping has no types
        phi = self._phi(features, [arm])[0]
        outer = np.outer(phi, phi)
        self._gram = self.discount * self._gram + outer
        self._gram_squared = self.discount**2 * self._gram_squared + outer
        self._moment = self.discount * self._moment + phi * (reward - phi @ self._prior)
        self._solve()

    def predict(self, features: Mapping[str, float], arm: Arm) -> tuple[float, float]:
        """What is believed of one arm: its expected reward, and the width of that belief.

        The width is one standard error if the noise of a reward were 1, and at most WIDTH_CAP.
        """
        means, widths = self._believe(features, [arm])
        return float(means[0]), float(widths[0])

    def update(self, arm_id: bandit.base.ArmID, context: Mapping[str, float], *reward_args: float) -> None:
        """River's way to `learn`, for the arms given at construction."""
        self.learn(context, self._arm(arm_id), *reward_args)

    def _pull(self, arm_ids: list[bandit.base.ArmID], context: Mapping[str, float]) -> bandit.base.ArmID:  # type: ignore[override] # any mapping will do
        arms = [self._arm(arm_id) for arm_id in arm_ids]
        means, widths = self._believe(context or {}, arms)
        return arm_ids[int(np.argmax(means + self.exploration * widths))]

    def _arm(self, arm_id: bandit.base.ArmID) -> Arm:
        return next(arm for arm in self.arms if arm.name == arm_id)

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
        terms = np.array([self.basis.terms(arm, features) for arm in arms])
        return cast("Floats", (terms[:, :, None] * context).reshape(len(arms), self.size))

    def _believe(self, features: Mapping[str, float], arms: Sequence[Arm]) -> tuple[Floats, Floats]:
        phi = self._phi(features, arms)
        variances = np.einsum("ad,de,ae->a", phi, self._covariance, phi)
        return phi @ self._theta, np.sqrt(np.clip(variances, 0.0, WIDTH_CAP**2))

    def _solve(self) -> None:
        """Belief from the sums. V has no eigenvalue below λ, so the inverse is bounded whatever was learned."""
        ridge = self.prior_strength * np.eye(self.size)
        inverse = np.linalg.inv(ridge + self._gram)
        self._covariance: Floats = inverse @ (ridge + self._gram_squared) @ inverse
        self._theta: Floats = self._prior + inverse @ self._moment


def _gram_of(values: Sequence[float], size: int) -> Floats:
    """The matrix, which must be one that sums of φφᵀ can give; another would make the solve meaningless."""
    gram = np.array(values).reshape(size, size)
    tolerance = 1e-6 * (1.0 + float(np.trace(gram)))
    if not np.allclose(gram, gram.T, atol=tolerance) or np.linalg.eigvalsh(gram).min() < -tolerance:
        raise SnapshotMismatch("damaged", "a gram matrix is not symmetric and positive")
    return gram
