"""Vowpal Wabbit as a policy: what it learns, what it forgets, and what is said where it is not installed."""

import random
import sys

import msgspec
import pytest

from schemas.settings import SettingsError, Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core import vowpal
from services.decider.core.arms import build_arms
from services.decider.core.policy import SnapshotMismatch
from services.decider.core.zoo import make_policy

PROFILES = {
    "even": {"latency-critical": 100, "default": 100, "batch": 100},
    "lc10": {"latency-critical": 1000, "default": 100, "batch": 100},
    "lc100": {"latency-critical": 10_000, "default": 100, "batch": 100},
}
SHARED = Shared(weights=WeightSettings(max_step_ratio=10.0))
ARMS = build_arms(SHARED, PROFILES)
MOVES = ARMS[:-1]
QUIET, BUSY = {"latency-critical.load_log": 0.0}, {"latency-critical.load_log": 1.0}


@pytest.fixture
def policy():
    pytest.importorskip("vowpalwabbit", reason="needs the package vowpalwabbit (extra vw)")
    return make()


def make(**settings):
    settings = {"context_features": ("latency-critical.load_log",)} | settings
    return make_policy(DeciderConfig(policy="vowpal", profiles=PROFILES, **settings), SHARED)


def teach(policy, lessons, seed=1):
    """lc10 is worth 0.5 while the service is busy, even is while it is quiet; all else is worth nothing."""
    rng = random.Random(seed)
    for _ in range(lessons):
        features, arm = rng.choice([QUIET, BUSY]), rng.choice(MOVES)
        good = "lc10" if features is BUSY else "even"
        policy.learn(features, arm, 0.5 if arm.name == good else 0.0)


def propensities(policy, features):
    return policy.decide(features, MOVES, random.Random(1)).propensities


def test_without_the_package_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    with pytest.raises(SettingsError, match=r"needs the package vowpalwabbit; install trimtab\[vw\] or choose another"):
        make()


def test_before_evidence_all_arms_are_alike(policy):
    assert propensities(policy, BUSY) == pytest.approx(dict.fromkeys(PROFILES, 1.0 / 3.0), abs=1e-6)


def test_it_learns_which_arm_is_best_in_which_situation(policy):
    teach(policy, 800)
    assert propensities(policy, BUSY)["lc10"] > 0.7
    assert propensities(policy, QUIET)["even"] > 0.7


@pytest.mark.parametrize("reward", [1e-40, -9.5e-141, 5e-324])
def test_numbers_too_small_for_single_precision_count_as_zero(policy, reward):
    zero = make()
    policy.learn(BUSY | {"latency-critical.load_log": reward}, ARMS[0], reward)
    zero.learn(QUIET, ARMS[0], 0.0)
    assert propensities(policy, BUSY) == propensities(zero, BUSY)


@pytest.mark.usefixtures("policy")
def test_every_arm_keeps_the_floor():
    policy = make(epsilon=0.9)
    teach(policy, 800)
    assert min(propensities(policy, BUSY).values()) >= 0.3
    assert sum(propensities(policy, BUSY).values()) == pytest.approx(1.0, abs=1e-12)


def test_asking_teaches_it_nothing(policy):
    asked, unasked = policy, make()
    for lesson in range(40):
        teach(asked, 1, seed=lesson)
        teach(unasked, 1, seed=lesson)
        for _ in range(5):
            propensities(asked, BUSY)
    assert propensities(asked, BUSY) == propensities(unasked, BUSY)


def test_at_twice_the_lessons_kept_the_older_half_is_forgotten(policy, monkeypatch):
    monkeypatch.setattr(vowpal, "KEPT", 20)
    fresh = make()
    teach(policy, 20, seed=1)
    teach(policy, 20, seed=2)
    teach(fresh, 20, seed=2)
    assert policy.updates == 40
    assert policy.save().numbers == fresh.save().numbers
    assert propensities(policy, BUSY) == propensities(fresh, BUSY)
    teach(policy, 500)
    assert len(policy.save().numbers["lessons"]) < 40 * len(fresh.save().numbers["lessons"]) / 20


def test_restored_at_any_length_it_goes_on_alike(policy, monkeypatch):
    monkeypatch.setattr(vowpal, "KEPT", 10)
    for lesson in range(35):
        restored = make()
        restored.load(policy.save())
        assert propensities(restored, BUSY) == propensities(policy, BUSY)
        teach(policy, 1, seed=lesson)
        teach(restored, 1, seed=lesson)
        assert propensities(restored, BUSY) == propensities(policy, BUSY)
        assert restored.save() == policy.save()


def test_weights_beyond_all_measure_are_cut(policy):
    state = {"latency-critical.weight_log": 10.0, "default.weight_log": 0.0, "batch.weight_log": -10.0}
    policy.learn(state, ARMS[-1], 1.0)
    assert policy.save().numbers["lessons"][-4:] == [4.0, 4.0, 0.0, 1.0]


def test_more_lessons_than_were_learned_are_refused(policy):
    teach(policy, 5)
    snapshot = policy.save()
    with pytest.raises(SnapshotMismatch, match="damaged"):
        policy.load(msgspec.structs.replace(snapshot, updates=3))
    assert policy.save() == snapshot
