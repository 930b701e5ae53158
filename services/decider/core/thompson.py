"""Owns Thompson sampling: the default policy's model, but an arm is taken as often as it is believed to be the best.

The belief is linear and Gaussian over φ = terms(a) ⊗ x, one w for all arms (Agrawal, Goyal, ICML 2013, algorithm 1):
    V = λI + Σ γⁿ⁻ⁱ φφᵀ     w = V⁻¹ Σ γⁿ⁻ⁱ φ (r - m)     a sample of w is drawn from N(w, v² V⁻¹)
with the default policy's prior m, discount γ, ridge λ and kernel terms (see linucb, basis). One w over kernel terms and
not one model per arm: a dozen disjoint models would each have to be taught the same, and only so is the comparison with
the default one of how to explore and of nothing else. v is its `exploration`: the noise of one reward.

How often an arm is the best has no closed form, but the protocol wants it before the draw. So SAMPLES of w are drawn
first, from the given generator; the frequencies with which each arm wins, with the floor of uniform exploration mixed
in, are the distribution that the arm is then drawn from. The propensities are exact for that draw, given the samples.
"""
# ruff: noqa: RUF002 - Greek letters as in the papers

import random
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from services.decider.core.basis import Basis, Floats
from services.decider.core.context import read_context
from services.decider.core.draw import draw
from services.decider.core.explanation import PRIOR, Explanation, parted
from services.decider.core.policy import Arm, Choice, Snapshot
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
SAMPLES: Final = 128
"""Samples of the belief per decision: the frequencies are then off by 0.044 at most (one standard error)."""


class Thompson:
    """Linear Thompson sampling over profiles of weights, with exact propensities. A `Policy`.

    `exploration` is v, `discount` (0-1] weighs down a lesson with each later one, `prior_strength` is λ in
    pseudo-observations per direction, `prior_fall` the reward that the prior takes off per squared decade of distance
    from the basis's centre, `epsilon` the floor of uniform exploration: without it an arm that no sample favoured has
    a propensity of 0.
    """

    def __init__(
        self,
        basis: Basis,
        context_features: tuple[str, ...],
        identity: Identity,
        *,
        exploration: float = 0.3,
        discount: float = 0.995,
        prior_strength: float = 0.5,
        prior_fall: float = 0.1,
        epsilon: float = 0.05,
    ) -> None:
        self.basis = basis
        self.context_features = context_features
        self.identity = identity
        self.exploration = exploration
        self.discount = discount
        self.prior_strength = prior_strength
        self.prior_fall = prior_fall
        self.epsilon = epsilon
        self.size = basis.size * len(read_context({}, context_features))
        self._gram: Floats = np.zeros((self.size, self.size))
        self._moment: Floats = np.zeros(self.size)
        self._updates = 0
        self._solve()

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """An arm as often as it is believed to be the best; scores are the expected rewards."""
        names = [arm.name for arm in arms]
        phi = self._phi(features, arms)
        means = self._prior(features, arms) + phi @ self._w
        normal = np.random.default_rng(rng.getrandbits(64)).standard_normal((self.size, SAMPLES))
        samples = means[:, None] + self.exploration * (phi @ self._root) @ normal
        wins = np.bincount(samples.argmax(axis=0), minlength=len(names))
        scores, frequencies = (dict(zip(names, row.tolist(), strict=True)) for row in (means, wins / SAMPLES))
        return draw(scores, frequencies, self.epsilon, rng)

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why: each feature's part of the expected rewards, and how unsure each is. The draw is by samples."""
        context, terms = read_context(features, self.context_features), self.basis.terms(arms, features)
        by_feature = terms @ self._w.reshape(-1, len(context)) * list(context.values())
        parts: dict[str, tuple[float | None, Sequence[float]]] = {
            name: (value, by_feature[:, index].tolist()) for index, (name, value) in enumerate(context.items())
        }
        prior = self._prior(features, arms)
        phi = self._phi(features, arms)
        means = prior + phi @ self._w
        parts[PRIOR] = (None, prior.tolist())
        widths = np.sqrt(np.square(phi @ self._root).sum(axis=1))
        return Explanation(
            unit="reward",
            arms=parted(arms, means.tolist(), parts, widths.tolist()),
            leader=arms[int(np.argmax(means))].name,
            among=tuple(arm.name for arm in arms),
            epsilon=1.0,
            notes=(f"each arm is drawn as often as it won among {SAMPLES} samples of the belief",),
        )

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward; all earlier ones weigh `discount` as much as before."""
        phi = self._phi(features, [arm])[0]
        surprise = reward - float(self._prior(features, [arm])[0])
        self._gram = self.discount * self._gram + np.outer(phi, phi)
        self._moment = self.discount * self._moment + phi * surprise
        self._updates += 1
        self._solve()

    def save(self) -> Snapshot:
        """Gram matrix and moment."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self._updates,
            numbers={"gram": self._gram.ravel().tolist(), "moment": self._moment.tolist()},
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        snapshot.require(self.identity, {"gram": self.size**2, "moment": self.size})
        gram = np.array(snapshot.numbers["gram"]).reshape(self.size, self.size)
        tolerance = 1e-6 * (1.0 + float(np.trace(gram)))
        if not np.allclose(gram, gram.T, atol=tolerance) or np.linalg.eigvalsh(gram).min() < -tolerance:
            raise SnapshotMismatch("damaged", "the gram matrix is not symmetric and positive")
        self._gram, self._moment, self._updates = gram, np.array(snapshot.numbers["moment"]), snapshot.updates
        self._solve()

    def _phi(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        context = np.array(list(read_context(features, self.context_features).values()))
        terms = self.basis.terms(arms, features)
        return cast("Floats", (terms[:, :, None] * context).reshape(len(arms), self.size))

    def _prior(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Floats:
        return -self.prior_fall * self.basis.squared_decades(arms, features)

    def _solve(self) -> None:
        """Belief from the sums. With V = LLᵀ the root of V⁻¹ is L⁻ᵀ; V has no eigenvalue below λ."""
        root = np.linalg.inv(np.linalg.cholesky(self.prior_strength * np.eye(self.size) + self._gram)).T
        self._root: Floats = root
        self._w: Floats = root @ (root.T @ self._moment)
