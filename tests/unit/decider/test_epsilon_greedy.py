"""ε-greedy: the means, how they fade, and what is believed of an arm that was never tried."""

import random

import msgspec
import pytest

from schemas.settings import Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.policy import HOLD, Arm, SnapshotMismatch
from services.decider.core.zoo import make_policy

PROFILES = {
    "even": {"latency-critical": 100, "default": 100, "batch": 100},
    "lc10": {"latency-critical": 1000, "default": 100, "batch": 100},
    "lc100": {"latency-critical": 10_000, "default": 100, "batch": 100},
}
SHARED = Shared(weights=WeightSettings(max_step_ratio=10.0))
ARMS = build_arms(SHARED, PROFILES)
EVEN, LC10, LC100, _ = ARMS


def make(**settings):
    settings = {"prior_profile": "lc10", "prior_fall": 0.0, "epsilon": 0.1} | settings
    return make_policy(DeciderConfig(policy="epsilon-greedy", profiles=PROFILES, **settings), SHARED)


def scores(policy, features=None, arms=ARMS):
    return policy.decide(features or {}, arms, random.Random(1)).scores


def test_score_is_the_mean_reward_drawn_towards_the_prior():
    policy = make(discount=1.0, prior_strength=1.0)
    for reward in (0.5, 0.7, 0.6):
        policy.learn({}, LC10, reward)
    policy.learn({}, EVEN, -0.4)
    assert scores(policy) == pytest.approx({"even": -0.2, "lc10": 0.45, "lc100": 0.0, "hold": 0.0})


def test_every_lesson_fades_with_each_later_one_of_any_arm():
    policy = make(discount=0.5, prior_strength=1.0)
    policy.learn({}, LC10, 0.8)
    assert scores(policy)["lc10"] == pytest.approx(0.4)
    policy.learn({}, EVEN, 0.0)
    assert scores(policy)["lc10"] == pytest.approx(0.4 / 1.5)
    for _ in range(60):
        policy.learn({}, EVEN, -0.9)
    assert scores(policy)["lc10"] == pytest.approx(0.0, abs=1e-9)


def test_best_mean_is_taken_and_every_other_arm_with_its_part_of_epsilon():
    policy = make()
    for _ in range(20):
        policy.learn({}, LC100, 0.9)
    choice = policy.decide({}, ARMS, random.Random(1))
    assert choice.propensities == pytest.approx({"lc100": 0.925, "even": 0.025, "lc10": 0.025, "hold": 0.025})


def test_what_the_situation_is_makes_no_difference():
    policy = make()
    policy.learn({"latency-critical.load_log": 1.0}, LC10, 0.9)
    for load in (-1.0, 0.0, 1.0):
        assert scores(policy, {"latency-critical.load_log": load}) == scores(policy)


def test_before_evidence_an_arm_is_worth_less_the_further_it_is_from_the_prior_profile():
    believed = scores(make(prior_fall=0.3))
    assert believed["lc10"] == 0.0
    assert believed["even"] == pytest.approx(-0.3 * 2.0 / 3.0)
    assert believed["lc100"] == pytest.approx(-0.3 * 2.0 / 3.0)
    near = Arm("near", {"latency-critical": 800, "default": 100, "batch": 100})
    assert -0.01 < scores(make(prior_fall=0.3), arms=[near])["near"] < 0.0


def test_hold_lies_where_the_weights_are():
    at_lc10 = {"latency-critical.weight_log": 0.5, "default.weight_log": 0.0, "batch.weight_log": 0.0}
    assert scores(make(prior_fall=0.3), at_lc10, [HOLD])["hold"] == pytest.approx(0.0)
    at_lc100 = at_lc10 | {"latency-critical.weight_log": 1.0}
    assert scores(make(prior_fall=0.3), at_lc100, [HOLD])["hold"] == pytest.approx(-0.2)


def test_negative_counts_are_refused():
    policy = make()
    policy.learn({}, LC10, 0.5)
    snapshot = policy.save()
    with pytest.raises(SnapshotMismatch, match="damaged"):
        policy.load(msgspec.structs.replace(snapshot, numbers=snapshot.numbers | {"counts": [1.0, -1.0, 0.0, 0.0]}))
    assert policy.save() == snapshot
