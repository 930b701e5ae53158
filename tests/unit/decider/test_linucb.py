"""What the default policy believes and how it learns, against a node whose truth is known."""

import math
import random
from statistics import mean

import pytest
from river import bandit

from lab.arena.episode import Settings, run
from lab.arena.scenarios import named
from schemas.settings import DEFAULT_CLASSES, Shared
from services.decider.config import DeciderConfig
from services.decider.core.burns import Burns, Shares
from services.decider.core.outlook import Outlook
from services.decider.core.policy import HOLD, Arm
from services.decider.core.snapshot import decode_snapshot, encode_snapshot
from services.decider.core.zoo import make_policy

LC, D, B = "latency-critical", "default", "batch"
QUIET = {"latency-critical.need": 0.0, "default.need": 0.0, "batch.present": 1.0}


def linucb(**settings):
    return make_policy(DeciderConfig(**{"warm_start": False, **settings}), Shared()).policy


@pytest.fixture
def profile(arms):
    return {arm.name: arm for arm in arms}


# ---- before any evidence ---------------------------------------------------------------------------------------------


def test_cold_start_takes_the_prior_profile(arms):
    assert linucb(epsilon=0.0).decide(QUIET, arms, random.Random(1)).arm == "lc10-d3-b1"
    far = linucb(epsilon=0.0, prior_profile="lc1-d1-b3")
    assert far.decide(QUIET, arms, random.Random(1)).arm == "lc1-d1-b3"


@pytest.mark.parametrize("need", [0.0, 0.5, 1.0])
def test_cold_start_believes_less_in_a_profile_the_further_it_is(arms, profile, need):
    policy = linucb(prior_fall=0.1)
    here = QUIET | {"latency-critical.need": need}
    assert policy.predict(here, profile["lc10-d3-b1"])[0] == pytest.approx(0.0)
    assert policy.predict(here, profile["lc32-d3-b1"])[0] == pytest.approx(-0.1 * 0.25, abs=1e-3)
    assert policy.predict(here, profile["lc1-d1-b1"])[0] == pytest.approx(-0.1 * 1.25, abs=1e-3)
    scores = policy.decide(here, arms, random.Random(1)).scores
    assert scores["lc10-d3-b1"] > scores["lc32-d3-b1"] > scores["lc1-d1-b1"] > scores["lc1-d1-b3"]


# ---- what one lesson teaches -----------------------------------------------------------------------------------------


def test_profile_between_two_known_ones_is_believed_to_lie_between(profile):
    policy = linucb()
    for _ in range(30):
        policy.learn(QUIET, profile["lc1-d1-b1"], -0.5)
        policy.learn(QUIET, profile["lc10-d10-b1"], 0.5)
    low, between, high = (policy.predict(QUIET, profile[f"lc{ratio}-d{ratio}-b1"])[0] for ratio in (1, 3, 10))
    assert low + 0.2 < between < high - 0.2


def test_neighbour_of_a_known_profile_is_known_better_than_a_far_one(profile):
    policy = linucb()
    for _ in range(30):
        policy.learn(QUIET, profile["lc32-d10-b1"], 0.5)
    widths = [policy.predict(QUIET, profile[name])[1] for name in ("lc32-d10-b1", "lc100-d10-b1", "lc1-d1-b3")]
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
        policy.learn(QUIET, profile["lc10-d32-b1"], -0.9)
    alone = QUIET | {"default.present": 0.0}
    assert policy.predict(alone, profile["lc10-d32-b1"]) == policy.predict(alone, profile["lc10-d3-b1"])


def test_score_is_belief_plus_exploration_times_width(arms, profile):
    policy = linucb(exploration=0.7)
    policy.learn(QUIET, profile["lc3-d3-b1"], 0.4)
    expected, width = policy.predict(QUIET, profile["lc3-d3-b1"])
    score = policy.decide(QUIET, arms, random.Random(1)).scores["lc3-d3-b1"]
    assert score == pytest.approx(expected + 0.7 * width)


def test_bonus_for_not_knowing_is_capped(arms, profile):
    policy = linucb(exploration=10.0, prior_strength=0.01)
    expected, width = policy.predict(QUIET, profile["lc3-d3-b1"])
    assert width > 10.0
    assert policy.decide(QUIET, arms, random.Random(1)).scores["lc3-d3-b1"] == pytest.approx(expected + 2.0)


# ---- forgetting and not forgetting -----------------------------------------------------------------------------------


def test_bonus_goes_to_zero_as_lessons_come_in(profile):
    policy = linucb(discount=1.0)
    widths = []
    for lessons in (10, 90, 900):
        for _ in range(lessons):
            policy.learn(QUIET, profile["lc3-d3-b1"], 0.3)
        widths.append(policy.predict(QUIET, profile["lc3-d3-b1"])[1])
    assert widths == [pytest.approx(1.0 / math.sqrt(n), rel=0.1) for n in (10, 100, 1000)]


def test_what_was_long_not_seen_returns_to_the_prior(profile):
    context = ("latency-critical.load_log",)
    policy, fresh = (linucb(discount=0.9, context_features=context) for _ in range(2))
    loaded, idle = {"latency-critical.load_log": 1.0}, {"latency-critical.load_log": -1.0}
    for _ in range(50):
        policy.learn(loaded, profile["lc100-d10-b1"], 0.9)
    learned = policy.predict(loaded, profile["lc100-d10-b1"])
    for _ in range(300):
        policy.learn(idle, profile["lc1-d1-b3"], 0.0)
    forgotten, prior = policy.predict(loaded, profile["lc100-d10-b1"]), fresh.predict(loaded, profile["lc100-d10-b1"])
    assert learned == (pytest.approx(0.9, abs=0.1), pytest.approx(0.2, abs=0.1))
    assert forgotten == pytest.approx(prior, abs=0.05)


def test_rv_03_c_direction_without_evidence_keeps_the_variance_of_the_prior(profile):
    policy = linucb(discount=0.9, prior_strength=10.0, context_features=("latency-critical.load_log",))
    up, down = {"latency-critical.load_log": 1.0}, {"latency-critical.load_log": -1.0}
    before = policy.predict(down, profile["lc3-d3-b1"])[1] ** 2
    policy.learn(up, profile["lc3-d3-b1"], 1.0)
    assert before == pytest.approx(4.0 / 10.0, rel=1e-4)
    assert policy.predict(down, profile["lc3-d3-b1"])[1] ** 2 == pytest.approx(before)


# ---- a node with a known truth ---------------------------------------------------------------------------------------

LOADS = (0.0, 0.2, 0.3, 0.5)


def lacking(arm, load):
    """How much less of the weights the latency classes have than they need."""
    total = sum(arm.weights.values())
    return max(0.0, 0.25 + load - arm.weights[LC] / total), max(0.0, 0.08 - arm.weights[D] / total)


def truth(arm, load):
    """What a profile gives: a latency class that gets less CPU than its load asks for misses its objective, by the more
    the less it gets; else batch's part counts."""
    lc, d = lacking(arm, load)
    part = arm.weights[B] / sum(arm.weights.values())
    return max(-1.0, -0.1 - 3.0 * lc - 4.0 * d) if lc + d > 0.0 else 0.2 + 0.8 * min(1.0, part / 0.35)


def seen(arm, load):
    """The state while an arm is in force: where the weights stand, what is needed, and who misses its objective."""
    lc, d = lacking(arm, load)
    return {
        **{f"{name}.weight_log": math.log(arm.weights[name] / 100) / math.log(100) for name in (LC, D, B)},
        **{f"{name}.over_ratio": min(1.0, 3.0 * part) for name, part in ((LC, lc), (D, d))},
        "latency-critical.cpu_ratio": 0.25 + load,
        "default.cpu_ratio": 0.08,
        **{f"{name}.present": 1.0 for name in (LC, D, B)},
        **{f"{name}.latency_missing": 0.0 for name in (LC, D)},
    }


def live(policy, profiles, loads, seed, *, shows_need=True):
    """Mean rewards that the policy earned, cycle by cycle, from noisy lessons."""
    rng, noise = random.Random(seed), random.Random(seed + 1000)
    outlook = Outlook(DEFAULT_CLASSES, profiles)
    by_name = {arm.name: arm for arm in profiles}
    here, earned = profiles[0], []
    for load in loads:
        features = seen(here, load) | outlook.see(seen(here, load)) | ({} if shows_need else QUIET)
        offered = [here, *(arm for arm in profiles if arm is not here)]
        here = by_name[policy.decide(features, offered, rng).arm]
        worth = truth(here, load)
        policy.learn(features, here, max(-1.0, min(1.0, worth + noise.gauss(0.0, 0.15))))
        earned.append(worth)
    return earned


def best_static(profiles):
    return max(mean(truth(arm, load) for load in LOADS) for arm in profiles)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_policy_that_knows_nothing_comes_within_three_hundredths_of_the_best_profile_that_never_changes(arms, seed):
    profiles, world = arms[:-1], random.Random(seed)
    loads = [load for _ in range(60) for load in [world.choice(LOADS)] * 10]
    earned = live(linucb(), profiles, loads, seed)
    assert mean(earned[200:]) > best_static(profiles) - 0.03


@pytest.mark.parametrize("seed", [1, 2])
def test_node_that_changes_costs_ten_cycles_and_is_then_known_anew(arms, seed):
    loads = [0.0] * 400 + [0.5] * 150
    earned = live(linucb(), arms[:-1], loads, seed, shows_need=False)
    assert mean(earned[400:410]) < mean(earned[300:400]) - 0.3
    assert mean(earned[410:]) > mean(earned[400:410]) + 0.3


# ---- what a move did -------------------------------------------------------------------------------------------------


def standing(arm, **more):
    """The features while an arm is in force, and others."""
    return {f"{name}.weight_log": math.log(arm.weights[name] / 100) / math.log(100) for name in (LC, D, B)} | more


MISSED = {"latency-critical.over_ratio": 0.3}


def test_move_out_of_trouble_teaches_nothing_and_the_cycle_after_it_does(profile):
    policy, fresh = linucb(), linucb()
    low, high = profile["lc3-d3-b1"], profile["lc32-d10-b1"]
    policy.learn(standing(low, **MISSED), high, -0.9)
    assert policy.updates == 0
    assert policy.predict(QUIET, high) == fresh.predict(QUIET, high)
    policy.learn(standing(high, **MISSED), high, -0.9)
    assert policy.updates == 1
    assert policy.predict(QUIET, high)[0] < fresh.predict(QUIET, high)[0] - 0.3


def test_move_out_of_a_sound_state_and_staying_in_trouble_teach(profile):
    policy = linucb()
    policy.learn(standing(profile["lc3-d3-b1"]), profile["lc10-d10-b1"], 0.2)
    policy.learn(standing(profile["lc10-d10-b1"], **MISSED), HOLD, -0.2)
    assert policy.updates == 2


def test_sound_node_that_a_move_harmed_is_left_alone_for_a_while_and_the_arm_is_burnt(arms, profile):
    policy = linucb()
    here, harmful = profile["lc10-d3-b1"], profile["lc3-d3-b1"]
    sound = standing(here)
    offered = [here, harmful, profile["lc1-d1-b1"], profile["lc32-d3-b1"]]
    policy.learn(sound, harmful, -0.4)
    assert policy.burns.forbidden(sound, [harmful], Shares(DEFAULT_CLASSES, sound))
    assert policy.decide(sound, offered, random.Random(1)).propensities == {
        "lc10-d3-b1": 1.0,
        "lc3-d3-b1": 0.0,
        "lc1-d1-b1": 0.0,
        "lc32-d3-b1": 0.0,
    }
    for lesson in range(24):
        assert policy.pause == 24 - lesson
        policy.learn(sound, here, 0.5)
    assert policy.pause == 0.0


@pytest.mark.parametrize(
    ("more", "reward"),
    [({}, -0.05), (MISSED, -0.9), ({"latency-critical.over_ratio": 0.005}, 0.1)],
    ids=["no worse than noise", "out of trouble", "kept"],
)
def test_move_that_did_no_harm_burns_nothing(profile, more, reward):
    policy = linucb()
    policy.learn(standing(profile["lc10-d3-b1"], **more), profile["lc3-d3-b1"], reward)
    assert (policy.pause, policy.burns.save()) == (0.0, Burns(policy.arms).save())


def test_move_that_somebody_took_back_did_harm_whatever_it_was_worth(profile):
    policy = linucb()
    here, moved_to = profile["lc10-d3-b1"], profile["lc3-d3-b1"]
    policy.learn(standing(here), moved_to, 0.3)
    assert policy.moved_to == moved_to
    policy.learn(standing(moved_to), moved_to, 0.3)
    assert (policy.moved_to, policy.pause) == (None, 0.0)
    policy.learn(standing(here), moved_to, 0.3)
    policy.learn(standing(here), here, 0.3)
    assert policy.pause == 23.0
    assert policy.burns.forbidden(standing(here), [moved_to], Shares(DEFAULT_CLASSES, standing(here)))


def test_best_known_arm_earns_what_may_be_tried_and_others_pay_for_it_while_all_is_well(profile):
    policy = linucb()
    best, other = profile["lc10-d3-b1"], profile["lc1-d1-b3"]
    policy.learn(standing(best), best, 0.8)
    assert policy.budget.budget == pytest.approx(0.08)
    policy.learn(standing(other, **MISSED), other, -0.9)
    assert policy.budget.budget == pytest.approx(0.08)
    expected = policy.predict(standing(other), best)[0]
    policy.learn(standing(other), other, expected - 0.5)
    assert policy.budget.budget < 0.08 - 0.49


def test_reward_that_parted_from_the_belief_for_long_makes_it_forget(profile):
    policy, arm = linucb(discount=1.0), profile["lc10-d3-b1"]
    for _ in range(60):
        policy.learn(standing(arm), arm, 0.8)
    for _ in range(15):
        policy.learn(standing(arm), arm, -0.8)
    assert policy.predict(standing(arm), arm)[0] < 0.0  # 75 lessons that all count alike would say 0.48


# ---- saved and restored ----------------------------------------------------------------------------------------------


def test_what_a_snapshot_holds_beside_the_model_comes_back(profile):
    policy = linucb()
    here = profile["lc10-d3-b1"]
    for reward in (0.8, 0.4):
        policy.learn(standing(here), here, reward)
    policy.learn(standing(here), profile["lc3-d3-b1"], -0.4)
    again = linucb()
    again.load(decode_snapshot(encode_snapshot(policy.save())))
    assert again.moved_to == policy.moved_to == profile["lc3-d3-b1"]
    assert (again.pause, again.budget.budget) == (policy.pause, policy.budget.budget)
    assert again.pause == 24.0
    assert again.budget.budget != 0.0
    assert again.burns.save() == policy.burns.save() != Burns(policy.arms).save()
    assert encode_snapshot(again.save()) == encode_snapshot(policy.save())


def test_move_to_an_arm_that_nobody_named_is_heeded_and_can_be_saved(profile):
    policy = linucb()
    policy.learn(standing(profile["lc10-d3-b1"]), Arm("newcomer", {LC: 700, D: 200, B: 100}), -0.4)
    assert policy.pause == 24.0
    again = linucb()
    again.load(policy.save())
    assert again.moved_to is None


class _Reborn:
    """A policy that is saved to bytes and made anew from them at one decision."""

    def __init__(self, make, at):
        self._make, self._at, self._inner = make, at, make()
        self.choices = []

    name = property(lambda self: self._inner.name)
    updates = property(lambda self: self._inner.updates)

    def decide(self, features, arms, rng):
        if len(self.choices) == self._at:
            raw = encode_snapshot(self._inner.save())
            self._inner = self._make()
            self._inner.load(decode_snapshot(raw))
        self.choices.append(self._inner.decide(features, arms, rng))
        return self.choices[-1]

    def learn(self, features, arm, reward):
        self._inner.learn(features, arm, reward)


@pytest.mark.parametrize("warm_start", [True, False])
def test_decisions_after_a_restart_in_the_middle_of_a_run_are_bit_for_bit_those_without(warm_start):
    made = []

    def play(at):
        def make(config, shared):
            made.append(_Reborn(lambda: make_policy(config, shared), at))
            return made[-1]

        settings = Settings(DeciderConfig(warm_start=warm_start))
        return run(named("flood"), "reborn", settings, seed=3, cycles=60, make=make)

    kept, reborn = play(None), play(30)
    assert made[0].choices == made[1].choices
    assert made[0].updates == made[1].updates > 20
    assert kept.scores == reborn.scores
    assert len({choice.arm for choice in made[0].choices}) > 2


# ---- as a policy of River's ------------------------------------------------------------------------------------------


def test_river_can_pull_update_rank_and_clone_it(arms):
    policy = linucb(prior_profile="lc3-d3-b1")
    assert isinstance(policy, bandit.base.ContextualPolicy)
    names = [arm.name for arm in arms]
    assert policy.pull(names, context=QUIET) == "lc3-d3-b1"
    for _ in range(20):
        policy.update("lc32-d3-b1", QUIET, 0.9)
        policy.update("lc3-d3-b1", QUIET, -0.2)
    assert policy.pull(names, context=QUIET) != "lc3-d3-b1"
    assert policy.ranking == ["lc32-d3-b1", "lc3-d3-b1"]
    assert "50.00%" in repr(policy)
    clone = policy.clone()
    assert (clone.updates, policy.updates) == (0, 40)
    assert clone.pull(names, context=QUIET) == "lc3-d3-b1"
