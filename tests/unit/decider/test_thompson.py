"""Thompson sampling: that an arm is taken as often as it is believed to be the best."""

import random
from statistics import NormalDist

import msgspec
import numpy as np
import pytest

from schemas.settings import Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.policy import SnapshotMismatch
from services.decider.core.thompson import SAMPLES
from services.decider.core.zoo import make_policy

PROFILES = {
    "even": {"latency-critical": 100, "default": 100, "batch": 100},
    "lc10": {"latency-critical": 1000, "default": 100, "batch": 100},
    "lc100": {"latency-critical": 10_000, "default": 100, "batch": 100},
    "d10": {"latency-critical": 100, "default": 1000, "batch": 100},
}
SHARED = Shared(weights=WeightSettings(max_step_ratio=10.0))
ARMS = build_arms(SHARED, PROFILES)
MOVES = ARMS[:-1]
QUIET, BUSY = {"latency-critical.load_log": 0.0}, {"latency-critical.load_log": 1.0}


def make(**settings):
    settings = {"epsilon": 0.0, "context_features": ("latency-critical.load_log",)} | settings
    return make_policy(DeciderConfig(policy="thompson", profiles=PROFILES, **settings), SHARED)


def mean_propensities(policy, features, arms, decisions=400):
    rng = random.Random(3)
    told = [policy.decide(features, arms, rng).propensities for _ in range(decisions)]
    return {arm.name: sum(one[arm.name] for one in told) / decisions for arm in arms}


def taught(policy, lessons=60, seed=1):
    """lc10 is worth 0.5 while the service is busy, even is while it is quiet; all else is worth nothing."""
    rng = random.Random(seed)
    for _ in range(lessons):
        features, arm = rng.choice([QUIET, BUSY]), rng.choice(MOVES)
        good = "lc10" if features is BUSY else "even"
        policy.learn(features, arm, (0.5 if arm.name == good else 0.0) + rng.gauss(0.0, 0.05))
    return policy


def test_of_two_arms_each_wins_as_often_as_the_belief_says():
    policy = taught(make(exploration=0.6), lessons=12)
    inner = policy.policy
    gram = np.array(policy.save().numbers["gram"]).reshape(inner.size, inner.size)
    covariance = 0.6**2 * np.linalg.inv(gram + inner.prior_strength * np.eye(inner.size))
    pair = [ARMS[0], ARMS[3]]
    terms = inner.basis.terms(pair, BUSY)
    context = np.array([1.0, 1.0])
    gap = np.kron(terms[0], context) - np.kron(terms[1], context)
    scores = policy.decide(BUSY, pair, random.Random(1)).scores
    spread = float(np.sqrt(gap @ covariance @ gap))
    wins = NormalDist().cdf((scores["even"] - scores["d10"]) / spread)
    assert 0.05 < wins < 0.95
    assert mean_propensities(policy, BUSY, pair)["even"] == pytest.approx(wins, abs=0.015)


def test_scores_are_what_is_expected():
    policy = taught(make(exploration=5.0), lessons=400)
    busy = policy.decide(BUSY, MOVES, random.Random(1)).scores
    quiet = policy.decide(QUIET, MOVES, random.Random(1)).scores
    assert max(busy, key=busy.get) == "lc10"
    assert max(quiet, key=quiet.get) == "even"
    assert busy["lc10"] == pytest.approx(0.5, abs=0.15)


def test_the_more_is_known_the_less_is_tried():
    policy = make()
    before = mean_propensities(policy, BUSY, MOVES)
    assert all(0.05 < propensity < 0.7 for propensity in before.values())
    taught(policy, lessons=400)
    assert mean_propensities(policy, BUSY, MOVES)["lc10"] > 0.97
    assert mean_propensities(policy, QUIET, MOVES)["even"] > 0.97


def test_without_spread_the_best_is_taken_for_certain():
    policy = taught(make(exploration=0.0), lessons=200)
    assert mean_propensities(policy, BUSY, MOVES, decisions=5) == {"even": 0.0, "lc10": 1.0, "lc100": 0.0, "d10": 0.0}


def test_propensities_are_frequencies_of_the_samples_above_the_floor():
    policy = taught(make(epsilon=0.2), lessons=10)
    for seed in range(20):
        for propensity in policy.decide(BUSY, ARMS, random.Random(seed)).propensities.values():
            wins = (propensity - 0.2 / len(ARMS)) / 0.8 * SAMPLES
            assert wins == pytest.approx(round(wins), abs=1e-6)
            assert wins >= -1e-6


def test_reward_that_was_believed_changes_no_score():
    policy = make(prior_fall=0.3, prior_profile="even")
    before = policy.decide(BUSY, MOVES, random.Random(1)).scores
    policy.learn(BUSY, ARMS[1], before["lc10"])
    assert before["lc10"] < -0.1
    assert policy.decide(BUSY, MOVES, random.Random(1)).scores == pytest.approx(before)


def test_what_was_long_not_seen_returns_to_the_prior():
    policy, fresh = make(discount=0.9), make(discount=0.9)
    for _ in range(30):
        policy.learn(BUSY, ARMS[3], 0.9)
    for _ in range(300):
        policy.learn(QUIET, ARMS[2], 0.0)
    old, new = (one.decide(BUSY, [ARMS[3]], random.Random(1)).scores["d10"] for one in (policy, fresh))
    assert old == pytest.approx(new, abs=0.05)


def test_gram_matrix_that_is_none_is_refused():
    policy = taught(make())
    snapshot = policy.save()
    gram = list(snapshot.numbers["gram"])
    gram[1] += 5.0
    with pytest.raises(SnapshotMismatch, match="damaged"):
        policy.load(msgspec.structs.replace(snapshot, numbers=snapshot.numbers | {"gram": gram}))
    assert policy.save() == snapshot
