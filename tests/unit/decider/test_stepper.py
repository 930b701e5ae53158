"""The step controller: whom it helps, when it steps back, and what it makes of a step back that hurt."""

import math
import random

import msgspec
import pytest

from schemas.settings import ClassSettings, Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.policy import HOLD, Arm, SnapshotMismatch
from services.decider.core.snapshot import decode_snapshot, encode_snapshot
from services.decider.core.stepper import MOST_PATIENCE, PATIENCE
from services.decider.core.zoo import make_policy

PROFILES = {
    "even": {"latency-critical": 100, "default": 100, "batch": 100},
    "lc3": {"latency-critical": 300, "default": 100, "batch": 100},
    "both3": {"latency-critical": 300, "default": 300, "batch": 100},
    "lc10": {"latency-critical": 1000, "default": 300, "batch": 100},
    "d10": {"latency-critical": 300, "default": 1000, "batch": 100},
    "batch3": {"latency-critical": 100, "default": 100, "batch": 300},
}
ARMS = build_arms(Shared(), PROFILES)
BY_NAME = {arm.name: arm for arm in ARMS}


def make(**shared):
    return make_policy(DeciderConfig(policy="step", profiles=PROFILES), Shared(**shared))


def seen(at, lc=0.0, default=0.0, *, lc_used=0.5, default_used=0.5):
    """A state in which the profile `at` is in force: fractions over the objective, and P99s as parts of it."""
    weights = PROFILES[at] if isinstance(at, str) else at
    features = {f"{name}.weight_log": math.log10(weight / 100) / 2 for name, weight in weights.items()}
    for name, over, used in (("latency-critical", lc, lc_used), ("default", default, default_used)):
        features |= {f"{name}.over_ratio": over, f"{name}.latency_log": math.log2(used) / 8}
        features |= {f"{name}.latency_missing": 0.0}
    return features


def offered(stay, names=tuple(PROFILES)):
    """The arms as the mask gives them: what is in force first, and no `hold` beside it."""
    return [BY_NAME[stay], *(BY_NAME[name] for name in names if name != stay)]


def chosen(policy, at, names=tuple(PROFILES), **situation):
    return policy.decide(seen(at, **situation), offered(at, names), random.Random(1)).arm


def live(policy, at, lessons, **situation):
    """So many lessons with a profile in force and kept."""
    for _ in range(lessons):
        policy.learn(seen(at, **situation), BY_NAME[at], 0.1)


def stepped_back(policy):
    """Patient from both3 on, the policy has just been seen to step back to lc3."""
    live(policy, "both3", PATIENCE)
    policy.learn(seen("both3"), BY_NAME["lc3"], 0.1)
    return policy


def lessons_until_it_moves(policy, at):
    for count in range(1000):
        if chosen(policy, at) != at:
            return count
        live(policy, at, 1)
    raise AssertionError("it never moves")


def test_violated_class_gets_the_nearest_profile_with_a_larger_share():
    assert chosen(make(), "even", lc=0.3) == "lc3"
    assert chosen(make(), "both3", lc=0.3) == "lc3"
    assert chosen(make(), "both3", default=0.3) == "d10"


def test_worst_violation_weighted_by_importance_is_helped_first():
    assert chosen(make(), "both3", lc=0.2, default=0.3) == "lc3"
    assert chosen(make(), "both3", lc=0.1, default=0.3) == "d10"


def test_a_tenth_over_where_a_tenth_may_be_over_is_no_violation():
    classes = {
        "latency-critical": ClassSettings(objective_p99_seconds=0.1, violation_target_ratio=0.1),
        "default": ClassSettings(objective_p99_seconds=0.5),
        "batch": ClassSettings(kind="throughput"),
    }
    assert chosen(make(), "even", lc=0.1) == "lc3"
    assert chosen(make(classes=classes), "even", lc=0.1) == "even"
    assert chosen(make(classes=classes), "even", lc=0.11) == "lc3"


def test_class_without_latency_is_judged_by_its_wait():
    silent = seen("even") | {"latency-critical.latency_missing": 1.0, "latency-critical.waited_missing": 0.0}
    for waited, arm in ((0.25, "even"), (0.35, "lc3")):
        known = silent | {"latency-critical.waited_ratio": waited}
        assert make().decide(known, offered("even"), random.Random(1)).arm == arm


def test_p99_above_the_objective_is_a_violation_where_no_fraction_is_known():
    assert chosen(make(), "even", lc_used=0.99) == "even"
    assert chosen(make(), "even", lc_used=1.01) == "lc3"


def test_between_profiles_the_weights_in_force_are_where_it_starts():
    here = {"latency-critical": 1000, "default": 100, "batch": 100}
    state = seen(here, default=0.5)
    assert make().decide(state, [HOLD, *(BY_NAME[name] for name in PROFILES)], random.Random(1)).arm == "lc10"
    assert make().decide(seen(here), [HOLD, BY_NAME["even"]], random.Random(1)).arm == "hold"


def test_violation_that_nothing_on_offer_can_help_changes_nothing():
    assert chosen(make(), "lc10", lc=0.5, names=("even", "both3")) == "lc10"


def test_step_back_comes_only_after_lasting_slack():
    policy = make()
    assert lessons_until_it_moves(policy, "both3") == PATIENCE
    live(policy, "both3", 1, lc_used=0.9)
    assert lessons_until_it_moves(policy, "both3") == PATIENCE


def test_step_back_is_taken_from_the_class_with_most_slack_for_throughput():
    for used, arm in (({"lc_used": 0.7, "default_used": 0.1}, "lc3"), ({"lc_used": 0.1, "default_used": 0.7}, "even")):
        policy = make()
        live(policy, "both3", PATIENCE, **used)
        assert chosen(policy, "both3", **used) == arm


@pytest.mark.parametrize("situation", [{"lc_used": 0.9}, {"default_used": 0.85}, {"default": 0.02}])
def test_without_slack_in_every_class_there_is_no_step_back(situation):
    policy = make()
    live(policy, "both3", 50, **situation)
    assert chosen(policy, "both3", default_used=0.9) == "both3"


def test_without_throughput_pods_there_is_nobody_to_step_back_for():
    policy = make()
    for _ in range(50):
        policy.learn(seen("both3") | {"batch.present": 0.0}, BY_NAME["both3"], 0.1)
    state = seen("both3") | {"batch.present": 0.0}
    assert policy.decide(state, offered("both3"), random.Random(1)).arm == "both3"


def test_step_back_that_hurts_is_undone_whoever_was_hurt():
    assert chosen(stepped_back(make()), "lc3", lc=0.1) == "both3"
    assert chosen(stepped_back(make()), "lc3", default=0.1) == "both3"
    assert chosen(make(), "lc3", lc=0.1) == "lc10"


def test_after_a_step_back_that_hurt_the_next_one_waits_twice_as_long():
    policy = make()
    waits = []
    for _ in range(6):
        waits.append(lessons_until_it_moves(policy, "both3"))
        policy.learn(seen("both3"), BY_NAME["lc3"], 0.1)
        policy.learn(seen("lc3", default=0.2), BY_NAME["both3"], -0.5)
    assert waits == [PATIENCE, 2 * PATIENCE, 4 * PATIENCE, 8 * PATIENCE, 16 * PATIENCE, 16 * PATIENCE]
    assert waits[-1] == MOST_PATIENCE


def test_step_back_that_the_guard_undid_is_one_that_hurt():
    policy = stepped_back(make())
    assert lessons_until_it_moves(policy, "both3") == 2 * PATIENCE


def test_step_back_that_held_makes_it_bolder_again():
    policy = stepped_back(make())
    policy.learn(seen("lc3", default=0.2), BY_NAME["both3"], -0.5)
    live(policy, "both3", 2 * PATIENCE)
    policy.learn(seen("both3"), BY_NAME["lc3"], 0.1)
    live(policy, "lc3", PATIENCE)
    assert chosen(policy, "lc3") == "even"
    assert chosen(policy, "lc3", lc=0.2) == "lc10"  # a step by the rules, and no longer the undoing of one
    policy.learn(seen("lc3", lc=0.2), BY_NAME["lc10"], 0.1)
    assert lessons_until_it_moves(policy, "lc10") == PATIENCE


def test_it_draws_nothing():
    policy = make()
    answers = [policy.decide(seen("even", lc=0.3), offered("even"), random.Random(seed)) for seed in range(20)]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].propensities == {name: float(name == "lc3") for name in PROFILES}
    assert not answers[0].explored


def test_class_left_alone_on_the_node_is_no_sign_that_the_guard_undid_anything():
    policy = stepped_back(make())
    alone = {"default.present": 0.0, "batch.present": 0.0}
    for _ in range(PATIENCE):
        policy.learn(seen("lc3") | alone, BY_NAME["lc3"], 0.1)
    assert lessons_until_it_moves(policy, "lc3") == 0


def test_where_an_arm_is_what_is_in_force_it_holds():
    assert make().decide(seen("even"), [BY_NAME["even"], HOLD], random.Random(1)).arm == "hold"


def test_weight_of_an_absent_class_makes_no_difference():
    gone = seen("lc3", lc=0.3) | {"default.present": 0.0, "default.weight_log": 0.0}
    assert make().decide(gone, offered("lc3", ("both3", "lc10")), random.Random(1)).arm == "lc10"


def test_of_a_state_without_features_nothing_is_concluded():
    policy = make()
    for _ in range(50):
        policy.learn({}, BY_NAME["both3"], 0.1)
    assert policy.decide({}, offered("both3"), random.Random(1)).arm == "both3"
    assert chosen(policy, "both3") == "both3"  # such states were no slack that lasted
    policy.learn(seen("both3", lc=0.1), BY_NAME["both3"], -0.1)
    assert lessons_until_it_moves(policy, "both3") == PATIENCE  # and no step back that could have hurt


def test_step_back_on_trial_survives_a_restart():
    restored = make()
    restored.load(decode_snapshot(encode_snapshot(stepped_back(make()).save())))
    assert chosen(restored, "lc3", lc=0.1) == "both3"


@pytest.mark.parametrize("counters", [[-1.0, 6.0, 0.0], [0.0, 5.0, 0.0], [0.0, 1e6, 0.0], [0.0, 6.0, 7.0]])
def test_counters_that_no_learning_can_give_are_refused(counters):
    policy = stepped_back(make())
    snapshot = policy.save()
    with pytest.raises(SnapshotMismatch, match="damaged"):
        policy.load(msgspec.structs.replace(snapshot, numbers=snapshot.numbers | {"counters": counters}))
    assert policy.save() == snapshot


def test_arm_that_is_no_profile_is_placed_by_its_weights():
    far = Arm("far", {"latency-critical": 10_000, "default": 100, "batch": 100})
    near = Arm("near", {"latency-critical": 150, "default": 100, "batch": 100})
    assert make().decide(seen("even", lc=0.5), [BY_NAME["even"], far, near], random.Random(1)).arm == "near"
