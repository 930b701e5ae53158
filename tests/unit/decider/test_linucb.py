"""What the default policy believes and how it learns, against a node whose truth is known."""

import math
import random
from statistics import mean

import pytest
from river import bandit

from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.policy import HOLD
from services.decider.core.zoo import make_policy

LC, D, B = "latency-critical", "default", "batch"
QUIET = {"latency-critical.load_log": 0.0, "default.load_log": 0.0, "batch.present": 1.0}


def linucb(**settings):
    return make_policy(DeciderConfig(**settings), Shared()).policy


@pytest.fixture
def profile(arms):
    return {arm.name: arm for arm in arms}


# ---- before any evidence ---------------------------------------------------------------------------------------------


def test_cold_start_takes_the_prior_profile(arms):
    assert linucb(epsilon=0.0).decide(QUIET, arms, random.Random(1)).arm == "lc10-d3-b1"
    far = linucb(epsilon=0.0, prior_profile="lc1-d1-b3")
    assert far.decide(QUIET, arms, random.Random(1)).arm == "lc1-d1-b3"


@pytest.mark.parametrize("load", [-1.0, 0.0, 1.0])
def test_cold_start_believes_less_in_a_profile_the_further_it_is(arms, profile, load):
    policy = linucb(prior_fall=0.1)
    here = QUIET | {"latency-critical.load_log": load}
    assert policy.predict(here, profile["lc10-d3-b1"])[0] == pytest.approx(0.0)
    assert policy.predict(here, profile["lc10-d1-b1"])[0] == pytest.approx(-0.1 * 0.25, abs=1e-3)
    assert policy.predict(here, profile["lc1-d1-b1"])[0] == pytest.approx(-0.1 * 1.25, abs=1e-3)
    scores = policy.decide(here, arms, random.Random(1)).scores
    assert scores["lc10-d3-b1"] > scores["lc10-d1-b1"] > scores["lc1-d1-b1"] > scores["lc1-d1-b10"]


# ---- what one lesson teaches -----------------------------------------------------------------------------------------


def test_profile_between_two_known_ones_is_believed_to_lie_between(profile):
    policy = linucb()
    for _ in range(30):
        policy.learn(QUIET, profile["lc1-d1-b1"], -0.5)
        policy.learn(QUIET, profile["lc10-d1-b1"], 0.5)
    low, between, high = (policy.predict(QUIET, profile[f"lc{ratio}-d1-b1"])[0] for ratio in (1, 3, 10))
    assert low + 0.2 < between < high - 0.2


def test_neighbour_of_a_known_profile_is_known_better_than_a_far_one(profile):
    policy = linucb()
    for _ in range(30):
        policy.learn(QUIET, profile["lc32-d10-b1"], 0.5)
    widths = [policy.predict(QUIET, profile[name])[1] for name in ("lc32-d10-b1", "lc100-d10-b1", "lc1-d1-b10")]
    assert widths == sorted(widths)
    assert widths[0] < 0.3 * widths[2]


def test_hold_is_believed_to_be_the_profile_where_the_weights_stand(profile):
    policy = linucb()
    standing = QUIET | {"latency-critical.weight_log": 0.5, "default.weight_log": 0.25, "batch.weight_log": 0.0}
    for _ in range(20):
        policy.learn(standing, HOLD, 0.8)
    held, there = policy.predict(standing, HOLD), policy.predict(standing, profile["lc10-d3-b1"])
    assert held == pytest.approx(there, abs=1e-3)
    assert there[0] > 0.7


def test_weight_of_an_absent_class_makes_no_difference(profile):
    policy = linucb()
    for _ in range(20):
        policy.learn(QUIET, profile["lc10-d1-b1"], -0.9)
    alone = QUIET | {"default.present": 0.0}
    assert policy.predict(alone, profile["lc10-d1-b1"]) == policy.predict(alone, profile["lc10-d3-b1"])


def test_score_is_belief_plus_exploration_times_width(arms, profile):
    policy = linucb(exploration=0.7)
    policy.learn(QUIET, profile["lc3-d1-b1"], 0.4)
    expected, width = policy.predict(QUIET, profile["lc3-d1-b1"])
    score = policy.decide(QUIET, arms, random.Random(1)).scores["lc3-d1-b1"]
    assert score == pytest.approx(expected + 0.7 * width)


def test_bonus_for_not_knowing_is_capped(arms, profile):
    policy = linucb(exploration=10.0, prior_strength=0.01)
    expected, width = policy.predict(QUIET, profile["lc3-d1-b1"])
    assert width > 10.0
    assert policy.decide(QUIET, arms, random.Random(1)).scores["lc3-d1-b1"] == pytest.approx(expected + 2.0)


# ---- forgetting and not forgetting -----------------------------------------------------------------------------------


def test_bonus_goes_to_zero_as_lessons_come_in(profile):
    policy = linucb(discount=1.0)
    widths = []
    for lessons in (10, 90, 900):
        for _ in range(lessons):
            policy.learn(QUIET, profile["lc3-d1-b1"], 0.3)
        widths.append(policy.predict(QUIET, profile["lc3-d1-b1"])[1])
    assert widths == [pytest.approx(1.0 / math.sqrt(n), rel=0.1) for n in (10, 100, 1000)]


def test_what_was_long_not_seen_returns_to_the_prior(profile):
    policy, fresh = linucb(discount=0.9), linucb(discount=0.9)
    loaded, idle = QUIET | {"latency-critical.load_log": 1.0}, QUIET | {"latency-critical.load_log": -1.0}
    for _ in range(50):
        policy.learn(loaded, profile["lc100-d10-b1"], 0.9)
    learned = policy.predict(loaded, profile["lc100-d10-b1"])
    for _ in range(300):
        policy.learn(idle, profile["lc1-d1-b10"], 0.0)
    forgotten, prior = policy.predict(loaded, profile["lc100-d10-b1"]), fresh.predict(loaded, profile["lc100-d10-b1"])
    assert learned == (pytest.approx(0.9, abs=0.1), pytest.approx(0.2, abs=0.1))
    assert forgotten == pytest.approx(prior, abs=0.05)


def test_rv_03_c_direction_without_evidence_keeps_the_variance_of_the_prior(profile):
    policy = linucb(discount=0.9, prior_strength=10.0, context_features=("latency-critical.load_log",))
    up, down = {"latency-critical.load_log": 1.0}, {"latency-critical.load_log": -1.0}
    before = policy.predict(down, profile["lc3-d1-b1"])[1] ** 2
    policy.learn(up, profile["lc3-d1-b1"], 1.0)
    assert before == pytest.approx(4.0 / 10.0, rel=1e-4)
    assert policy.predict(down, profile["lc3-d1-b1"])[1] ** 2 == pytest.approx(before)


# ---- a node with a known truth ---------------------------------------------------------------------------------------


def truth(arm, load, demand=0.3):
    """The mean reward of a profile: a latency class that gets too little CPU for its load misses its objective, by the
    more the less it gets; else batch's part counts. `demand` is the share that latency-critical needs when idle."""
    total = sum(arm.weights.values())
    lc, d, b = (arm.weights[name] / total for name in (LC, D, B))
    missing = 3.0 * max(0.0, demand + 0.5 * max(0.0, load) - lc) + 4.0 * max(0.0, 0.08 - d)
    return max(-1.0, -0.1 - missing) if missing > 0.0 else 0.2 + 0.8 * min(1.0, b / 0.35)


def live(policy, profiles, demands, seed):
    """Mean rewards that the policy earned, cycle by cycle, from noisy lessons."""
    rng, world = random.Random(seed), random.Random(seed + 1000)
    by_name = {arm.name: arm for arm in profiles}
    earned = []
    for demand in demands:
        load = world.choice((-0.5, 0.0, 0.5, 0.9))
        features = QUIET | {"latency-critical.load_log": load}
        arm = by_name[policy.decide(features, profiles, rng).arm]
        worth = truth(arm, load, demand)
        policy.learn(features, arm, max(-1.0, min(1.0, worth + world.gauss(0.0, 0.15))))
        earned.append(worth)
    return earned


def best_static(profiles):
    return max(mean(truth(arm, load) for load in (-0.5, 0.0, 0.5, 0.9)) for arm in profiles)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_learned_policy_beats_the_best_profile_that_never_changes(arms, seed):
    profiles = arms[:-1]
    earned = live(linucb(), profiles, [0.3] * 700, seed)
    best = best_static(profiles)
    assert mean(earned[400:]) > best + 0.08
    assert mean(earned[400:]) > mean(earned[:60]) + 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_node_is_learned_anew_thanks_to_the_discount(arms, seed):
    profiles = arms[:-1]
    demands = [0.05] * 500 + [0.5] * 500
    forgetting, keeping = (live(linucb(discount=discount), profiles, demands, seed) for discount in (0.995, 1.0))
    assert mean(forgetting[500:550]) < mean(forgetting[400:500]) - 0.3
    assert mean(forgetting[800:]) > mean(forgetting[500:550]) + 0.4
    assert mean(forgetting[800:]) > mean(keeping[800:]) + 0.1


# ---- as a policy of River's ------------------------------------------------------------------------------------------


def test_river_can_pull_update_rank_and_clone_it(arms):
    policy = linucb(prior_profile="lc3-d1-b1")
    assert isinstance(policy, bandit.base.ContextualPolicy)
    names = [arm.name for arm in arms]
    assert policy.pull(names, context=QUIET) == "lc3-d1-b1"
    for _ in range(20):
        policy.update("lc32-d3-b1", QUIET, 0.9)
        policy.update("lc3-d1-b1", QUIET, -0.2)
    assert policy.pull(names, context=QUIET) != "lc3-d1-b1"
    assert policy.ranking == ["lc32-d3-b1", "lc3-d1-b1"]
    assert "50.00%" in repr(policy)
    clone = policy.clone()
    assert (clone.updates, policy.updates) == (0, 40)
    assert clone.pull(names, context=QUIET) == "lc3-d1-b1"
