"""The PI controller: which way it pushes, how far, and that it does not wind up."""

import math
import random

import msgspec
import pytest

from schemas.settings import ClassSettings, Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.pid import KI, MAX_LEAD, error
from services.decider.core.policy import HOLD, SnapshotMismatch
from services.decider.core.readings import Verdict
from services.decider.core.zoo import make_policy

PROFILES = {
    "even": {"latency-critical": 100, "default": 100, "batch": 100},
    "lc3": {"latency-critical": 316, "default": 100, "batch": 100},
    "lc10": {"latency-critical": 1000, "default": 100, "batch": 100},
    "lc32": {"latency-critical": 3162, "default": 100, "batch": 100},
    "lc10-d3": {"latency-critical": 1000, "default": 316, "batch": 100},
    "batch3": {"latency-critical": 100, "default": 100, "batch": 316},
}
ARMS = build_arms(Shared(), PROFILES)
BY_NAME = {arm.name: arm for arm in ARMS}


def make(**shared):
    return make_policy(DeciderConfig(policy="pid", profiles=PROFILES, prior_profile="lc3"), Shared(**shared))


def seen(at, lc=0.01, default=0.01):
    """A state in which the profile `at` is in force; by default all are right at their target."""
    features = {f"{name}.weight_log": math.log10(weight / 100) / 2 for name, weight in PROFILES[at].items()}
    for name, over in (("latency-critical", lc), ("default", default)):
        features |= {f"{name}.over_ratio": over, f"{name}.latency_missing": 0.0, f"{name}.latency_log": -0.1}
    return features


def chosen(policy, at, **situation):
    offered = [BY_NAME[at], *(BY_NAME[name] for name in PROFILES if name != at)]
    return policy.decide(seen(at, **situation), offered, random.Random(1)).arm


def live(policy, at, lessons, **situation):
    for _ in range(lessons):
        policy.learn(seen(at, **situation), BY_NAME[at], 0.0)


def sums(policy):
    return dict(zip(("latency-critical", "default"), policy.save().numbers["sums"], strict=True))


def test_error_counts_in_decades_of_the_target():
    assert error(Verdict(0.109, 0.01, 1.0)) == pytest.approx(1.0)
    assert error(Verdict(1.0, 0.01, 1.0)) == pytest.approx(1.9591, abs=1e-4)
    assert error(Verdict(0.0, 0.01, 1.0)) == pytest.approx(-0.1 * 1.0414, abs=1e-4)
    assert error(Verdict(1.0, 0.3, 1.0)) == pytest.approx(0.4943, abs=1e-4)
    assert error(Verdict(0.019, 0.01, 1.0)) == error(Verdict(0.006, 0.01, 1.0)) == 0.0


def test_target_of_zero_leaves_the_error_finite():
    assert error(Verdict(1.0, 0.0, 1.0)) == pytest.approx(2.959, abs=1e-3)
    assert error(Verdict(0.0, 0.0, 0.5)) < 0.0


def test_it_starts_at_the_prior_profile_and_stays_while_all_is_at_the_target():
    policy = make()
    assert chosen(policy, "even") == "lc3"
    live(policy, "lc3", 100)
    assert chosen(policy, "lc3") == "lc3"
    assert sums(policy) == {"latency-critical": 0.0, "default": 0.0}


def test_all_requests_over_the_objective_ask_for_a_grid_step_at_once():
    assert chosen(make(), "lc3", lc=1.0) == "lc10"
    assert chosen(make(), "lc3", lc=0.03) == "lc3"


def test_violation_that_lasts_is_added_up_until_it_moves():
    policy = make()
    live(policy, "lc3", 4, lc=0.109)
    assert sums(policy)["latency-critical"] == pytest.approx(4 * KI)
    assert chosen(policy, "lc3", lc=0.109) == "lc10"
    assert chosen(make(), "lc3", lc=0.109) == "lc3"


def test_loops_are_one_per_latency_class():
    policy = make()
    live(policy, "lc10", 3, default=1.0)
    assert sums(policy)["latency-critical"] == 0.0
    assert chosen(policy, "lc10", lc=0.5, default=1.0) == "lc10-d3"


def test_good_times_give_weight_back_slowly():
    policy = make()
    counts = [next(count for count in range(500) if _is_gone_after_a_good_lesson(policy, "lc3")), sums(policy)]
    assert 10 < counts[0] < 60
    assert -0.6 < counts[1]["latency-critical"] < -0.1


def _is_gone_after_a_good_lesson(policy, at):
    live(policy, at, 1, lc=0.0, default=0.0)
    return chosen(policy, at, lc=0.0, default=0.0) != at


def test_sum_does_not_wind_up_where_it_cannot_move():
    stuck, moving = make(), make()
    live(stuck, "lc3", 1000, lc=1.0)  # as when the guard refuses every move
    assert MAX_LEAD <= sums(stuck)["latency-critical"] <= MAX_LEAD + 2 * KI
    live(moving, "lc32", 1000, lc=1.0)
    assert sums(moving)["latency-critical"] == pytest.approx(1.0, abs=0.01)  # what the profiles span: lc3 to lc32
    live(moving, "lc32", 1000, lc=0.0)
    assert sums(moving)["latency-critical"] >= 1.0 - MAX_LEAD - 2 * KI


def test_weight_is_counted_above_that_of_throughput():
    policy = make()
    live(policy, "batch3", 2000, lc=0.0, default=0.0)
    assert sums(policy)["latency-critical"] == pytest.approx(-1.0, abs=0.01)  # lc3 is half a decade above, batch3 below


def test_move_that_was_rolled_back_takes_the_sum_with_it():
    policy = make()
    live(policy, "lc3", 5, lc=0.109)
    policy.learn(seen("lc3", lc=0.109), BY_NAME["lc10"], -0.9)
    assert sums(policy)["latency-critical"] == pytest.approx(6 * KI)
    policy.learn(seen("lc3"), BY_NAME["lc3"], 0.0)
    assert sums(policy)["latency-critical"] == pytest.approx(0.0, abs=1e-6)


def test_rollback_is_recognised_after_a_restart():
    policy, restored = make(), make()
    live(policy, "lc3", 5, lc=0.109)
    policy.learn(seen("lc3", lc=0.109), BY_NAME["lc10"], -0.9)
    restored.load(policy.save())
    restored.learn(seen("lc3"), BY_NAME["lc3"], 0.0)
    assert sums(restored)["latency-critical"] == pytest.approx(0.0, abs=1e-6)


def test_move_that_stood_keeps_the_sum():
    policy = make()
    live(policy, "lc3", 5, lc=0.109)
    policy.learn(seen("lc3", lc=0.109), BY_NAME["lc10"], 0.1)
    policy.learn(seen("lc10"), BY_NAME["lc10"], 0.1)
    policy.learn(seen("lc3"), BY_NAME["lc3"], 0.1)  # long after, by someone else
    assert sums(policy)["latency-critical"] == pytest.approx(6 * KI)


def test_weight_of_an_absent_class_neither_moves_it_nor_looks_like_a_rollback():
    policy = make()
    gone = {"default.present": 0.0, "default.weight_log": 0.0, "default.latency_missing": 1.0}
    for _ in range(3):
        policy.learn(seen("lc10-d3", lc=0.109) | gone, BY_NAME["lc10-d3"], 0.0)
    assert sums(policy) == {"latency-critical": pytest.approx(3 * KI), "default": 0.0}


def test_arm_in_force_is_left_only_for_one_that_is_clearly_nearer():
    policy = make()
    live(policy, "lc3", 3, lc=0.109)  # the sum is now 0.3 of the 0.5 decades between the two
    assert chosen(policy, "lc3") == "lc3"
    assert chosen(policy, "lc10") == "lc10"


def test_unjudged_class_is_left_alone():
    policy = make()
    for _ in range(50):
        policy.learn({}, BY_NAME["lc3"], 0.0)
    assert sums(policy) == {"latency-critical": 0.0, "default": 0.0}


def test_two_latency_classes_alone_are_weighed_against_each_other():
    classes = {name: ClassSettings(objective_p99_seconds=0.1) for name in ("gold", "silver")}
    profiles = {"even": {}, "gold3": {"gold": 316}, "silver3": {"silver": 316}}
    policy = make_policy(DeciderConfig(policy="pid", profiles=profiles, prior_profile="even"), Shared(classes=classes))
    judged = {"gold.latency_missing": 0.0, "silver.latency_missing": 0.0, "gold.over_ratio": 0.01}
    arms = build_arms(Shared(classes=classes), profiles)
    assert policy.decide(judged | {"silver.over_ratio": 1.0}, arms[:3], random.Random(1)).arm == "silver3"


def test_it_draws_nothing():
    offered = [HOLD, *(BY_NAME[name] for name in PROFILES)]
    answers = [make().decide(seen("even", lc=0.9), offered, random.Random(seed)) for seed in range(20)]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].propensity == 1.0
    assert not answers[0].explored


def test_sums_beyond_the_profiles_are_refused():
    policy = make()
    snapshot = policy.save()
    with pytest.raises(SnapshotMismatch, match="damaged"):
        policy.load(msgspec.structs.replace(snapshot, numbers=snapshot.numbers | {"sums": [40.0, 0.0]}))
    assert policy.save() == snapshot
