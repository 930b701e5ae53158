"""Owns River's own `LinUCBDisjoint` as a policy: the yardstick that the default has to beat.

Left as River has it: one Bayesian regression per arm, score mu + sigma with the noise in sigma, so that a wide bonus
never ends. Ours around it: the short context with always the same keys (RV-04), the floor of uniform exploration,
ties by order instead of River's unsaved generator, and a snapshot. `smoothing` is not offered: it forgets the prior
with the past and ends in NaN (RV-03). `alpha` stays 1: River sets prior precision and covariance both to 1/alpha,
which fit each other only there.
"""
# ruff: noqa: SLF001 - River has no public way to its state; the snapshot is tied to River's exact version

import random
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from river import bandit, linear_model

from services.decider.core.bookkeeping import load_counts, save_counts
from services.decider.core.context import read_context
from services.decider.core.explanation import Explanation, parted
from services.decider.core.policy import Arm, Choice, Snapshot, choose
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1


class RiverLinUCB:
    """River's disjoint LinUCB over the arms' names; a `Policy`. It does not know what an arm does."""

    def __init__(self, context_features: tuple[str, ...], identity: Identity, *, epsilon: float = 0.05) -> None:
        self.context_features = context_features
        self.identity = identity
        self.epsilon = epsilon
        self.bandit = bandit.LinUCBDisjoint(alpha=1.0, beta=1.0, smoothing=None)
        self._keys = tuple(read_context({}, context_features))

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms."""
        return int(self.bandit._n)

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The arm with River's highest upper bound, above a floor of uniform exploration."""
        context = read_context(features, self.context_features)
        scores = {}
        for arm in arms:
            belief = self._model(arm.name).predict_one(context, with_dist=True)  # type: ignore[no-untyped-call] # River
            scores[arm.name] = float(belief.mu + belief.sigma)
        return choose(scores, self.epsilon, rng)

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why: each feature's part of the arm's own regression, which is linear and has no other term."""
        context = read_context(features, self.context_features)
        beliefs = [
            self._model(arm.name).predict_one(context, with_dist=True)  # type: ignore[no-untyped-call] # River
            for arm in arms
        ]
        parts: dict[str, tuple[float | None, Sequence[float]]] = {}
        for name, value in context.items():
            alone = dict.fromkeys(context, 0.0) | {name: value}
            parts[name] = value, [float(self._model(arm.name).predict_one(alone)) for arm in arms]  # type: ignore[no-untyped-call] # River
        scores = [float(belief.mu + belief.sigma) for belief in beliefs]
        return Explanation(
            unit="reward",
            arms=parted(arms, scores, parts, [float(belief.sigma) for belief in beliefs]),
            leader=arms[int(np.argmax(scores))].name,
            among=tuple(arm.name for arm in arms),
            epsilon=self.epsilon,
        )

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Updates the one arm's regression."""
        context = read_context(features, self.context_features)
        self._model(arm.name)
        self.bandit.update(arm.name, context, float(reward))  # type: ignore[no-untyped-call] # River

    def save(self) -> Snapshot:
        """Per arm its precision, covariance and natural mean, and River's count and mean reward."""
        numbers = {"counts": save_counts(self.bandit, self.identity.arms)}
        for name in self.identity.arms:
            model = self._model(name)
            numbers[f"{name}.precision"] = model._ss_arr.ravel().tolist()
            numbers[f"{name}.covariance"] = model._ss_inv_arr.ravel().tolist()
            numbers[f"{name}.eta"] = model._eta_arr.tolist()
        return Snapshot(version=SNAPSHOT_VERSION, identity=self.identity, updates=self.updates, numbers=numbers)

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        size = self._fresh_model()._cap
        shapes = {"precision": size**2, "covariance": size**2, "eta": size}
        arms = self.identity.arms
        lengths = {f"{name}.{part}": length for name in arms for part, length in shapes.items()}
        snapshot.require(self.identity, {"counts": 2 * len(arms), **lengths})
        restored = {name: self._restored(snapshot, name) for name in arms}
        self.bandit = bandit.LinUCBDisjoint(alpha=1.0, beta=1.0, smoothing=None)
        self.bandit._bayes_lin_regs.update(restored)
        load_counts(self.bandit, arms, snapshot.updates, snapshot.numbers["counts"])

    def _model(self, name: str) -> linear_model.BayesianLinearRegression:
        if name not in self.bandit._bayes_lin_regs:
            self.bandit._bayes_lin_regs[name] = self._fresh_model()
        return self.bandit._bayes_lin_regs[name]

    def _fresh_model(self) -> linear_model.BayesianLinearRegression:
        model = linear_model.BayesianLinearRegression(alpha=1.0, beta=1.0, smoothing=None)
        model._ensure_features(self._keys)
        model._m_dirty = True
        return model

    def _restored(self, snapshot: Snapshot, name: str) -> linear_model.BayesianLinearRegression:
        model = self._fresh_model()
        part = {key: np.array(snapshot.numbers[f"{name}.{key}"]) for key in ("precision", "covariance", "eta")}
        precision, covariance = (part[key].reshape(model._cap, model._cap) for key in ("precision", "covariance"))
        if not np.allclose(precision @ covariance, np.eye(model._cap), atol=1e-3):
            raise SnapshotMismatch("damaged", f"covariance of {name!r} is not the inverse of its precision")
        model._ss_arr, model._ss_inv_arr, model._eta_arr = precision, np.asfortranarray(covariance), part["eta"]
        return model
