"""What every policy of the zoo must keep to, whatever it believes."""

import importlib.util
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from schemas.features import feature_names
from schemas.settings import DEFAULT_CLASSES, ClassSettings, SettingsError, Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.policy import HOLD, Arm, SnapshotMismatch
from services.decider.core.snapshot import SNAPSHOT_VERSION, decode_snapshot, encode_snapshot
from services.decider.core.zoo import POLICIES, make_policy

NEEDS_VW = pytest.mark.skipif(
    importlib.util.find_spec("vowpalwabbit") is None, reason="needs the package vowpalwabbit (extra vw)"
)


def each(*names):
    """Parameters by policy; one whose package is not installed is skipped and says so."""
    return [pytest.param(name, marks=NEEDS_VW if name == "vowpal" else ()) for name in names]


LEARNING = each("linucb", "river-linucb", "epsilon-greedy", "thompson", "vowpal")
OTHER_CLASSES = {
    "one latency class": {"web": ClassSettings(objective_p99_seconds=0.1)},
    "two latency classes": {
        "gold": ClassSettings(objective_p99_seconds=0.1),
        "silver": ClassSettings(objective_pressure_ratio=0.3, importance=0.5),
    },
    "two throughput classes": {"bulk": ClassSettings(kind="throughput"), "scrap": ClassSettings(kind="throughput")},
    "two of each": {
        "bulk": ClassSettings(kind="throughput"),
        "gold": ClassSettings(objective_p99_seconds=0.1, violation_target_ratio=0.0),
        "scrap": ClassSettings(kind="throughput"),
        "silver": ClassSettings(objective_p99_seconds=0.4, importance=0.2),
    },
}


def make(name, shared=None, **settings):
    return make_policy(DeciderConfig(policy=name, **settings), shared or Shared())


def teach(policy, features, arms, lessons=40, seed=3):
    rng = random.Random(seed)
    for _ in range(lessons):
        varied = features | {"latency-critical.load_log": rng.random()}
        policy.learn(varied, rng.choice(arms), rng.uniform(-1.0, 1.0))
    return policy


def choices(policy, features, arms, count=30):
    rng = random.Random(11)
    return [policy.decide(features | {"default.load_log": i / count}, arms, rng) for i in range(count)]


def state(policy):
    return encode_snapshot(policy.save())


@pytest.fixture(params=each(*POLICIES))
def policy(request):
    return make(request.param)


def test_zoo_has_the_default_first():
    assert POLICIES[0] == DeciderConfig().policy == make(POLICIES[0]).name
    assert set(POLICIES) == {
        "linucb",
        "river-linucb",
        "static",
        "hold",
        "step",
        "pid",
        "epsilon-greedy",
        "thompson",
        "vowpal",
    }


def test_every_policy_is_described():
    text = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()
    assert re.findall(r"^## `(.+)`$", text, re.MULTILINE) == list(POLICIES)


def test_unknown_policy_is_told_the_known_ones():
    with pytest.raises(SettingsError, match=r"'linucbb' is not known; known are linucb, river-linucb, static, hold"):
        make("linucbb")


def test_choice_is_one_of_the_arms_with_its_propensity(policy, features, arms):
    teach(policy, features, arms)
    for size in (1, 2, 5, len(arms)):
        offered = arms[-size:]
        for choice in choices(policy, features, offered):
            assert set(choice.propensities) == set(choice.scores) == {arm.name for arm in offered}
            assert choice.propensity == choice.propensities[choice.arm] > 0.0
            assert math.isclose(sum(choice.propensities.values()), 1.0, abs_tol=1e-9)
            assert all(math.isfinite(score) for score in choice.scores.values())


def test_arms_are_drawn_as_often_as_the_propensities_say(policy, features, arms):
    teach(policy, features, arms)
    rng = random.Random(8)
    drawn = [policy.decide(features, arms[3:9], rng) for _ in range(3000)]
    for arm in arms[3:9]:
        said = sum(choice.propensities[arm.name] for choice in drawn) / len(drawn)
        assert math.isclose(sum(choice.arm == arm.name for choice in drawn) / len(drawn), said, abs_tol=0.03)


@pytest.mark.parametrize("classes", OTHER_CLASSES.values(), ids=OTHER_CLASSES.keys())
def test_nothing_hangs_on_the_names_or_number_of_the_classes(policy, classes):
    shared = Shared(classes=classes)
    shared.check()
    offered = build_arms(shared, {})
    rng = random.Random(5)
    seen = {name: rng.random() for name in feature_names(tuple(classes))}
    fitting = make(policy.name, shared)
    for _ in range(20):
        fitting.learn(seen, rng.choice(offered), rng.uniform(-1.0, 1.0))
    restored = make(policy.name, shared)
    restored.load(decode_snapshot(state(fitting)))
    for known in (seen, {}, dict.fromkeys(seen, 0.0)):
        choice = fitting.decide(known, offered, random.Random(2))
        assert set(choice.propensities) == {arm.name for arm in offered}
        assert restored.decide(known, offered, random.Random(2)) == choice


def test_no_arms_is_the_callers_error(policy, features):
    with pytest.raises(ValueError, match="no arm"):
        policy.decide(features, (), random.Random(1))


def test_equal_seeds_give_equal_choices(policy, features, arms):
    twin = make(policy.name)
    teach(policy, features, arms)
    teach(twin, features, arms)
    assert choices(policy, features, arms) == choices(twin, features, arms)


def test_deciding_changes_nothing_that_is_learned(policy, features, arms):
    teach(policy, features, arms)
    before = state(policy)
    choices(policy, features, arms)
    assert state(policy) == before


def test_updates_count_the_lessons(policy, features, arms):
    assert policy.updates == 0
    calm = features | {f"{name}.over_ratio": 0.0 for name in DEFAULT_CLASSES}
    assert teach(policy, calm, arms, lessons=7).updates == 7


def test_saved_policy_goes_on_as_if_never_stopped(policy, features, arms):
    teach(policy, features, arms)
    restored = make(policy.name)
    restored.load(decode_snapshot(state(policy)))
    assert restored.updates == policy.updates
    assert choices(restored, features, arms) == choices(policy, features, arms)
    teach(policy, features, arms, seed=9)
    teach(restored, features, arms, seed=9)
    assert choices(restored, features, arms) == choices(policy, features, arms)
    assert state(restored) == state(policy)


def test_arms_may_appear_and_disappear(policy, features, arms):
    teach(policy, features, arms[:4])
    newcomer = Arm("newcomer", {"latency-critical": 700, "default": 200, "batch": 100})
    for offered in (arms[4:8], (newcomer,), (arms[0], newcomer, HOLD)):
        assert {c.arm for c in choices(policy, features, offered)} <= {arm.name for arm in offered}
    policy.learn(features, newcomer, 0.5)
    assert math.isfinite(policy.decide(features, (newcomer,), random.Random(1)).scores["newcomer"])


def test_features_nobody_named_change_nothing(policy, features, arms):
    teach(policy, features, arms)
    plain = policy.decide(features, arms, random.Random(2))
    assert policy.decide(features | {"tomorrow.load_log": 1.0}, arms, random.Random(2)) == plain


# ---- RV-02: numbers that are none ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [math.nan, None, -math.inf, 1e300])
def test_rv_02_a_nan_reward_is_counted_and_changes_nothing(policy, features, arms, reward):
    teach(policy, features, arms)
    before = state(policy)
    policy.learn(features, arms[0], reward)
    assert state(policy) == before
    assert policy.rejected == {"reward": 1}
    policy.learn(features, arms[0], 1.0)
    assert choices(policy, features, arms)[0].arm in {arm.name for arm in arms}


def test_rv_02_b_infinite_reward_is_counted_and_changes_nothing(policy, features, arms):
    teach(policy, features, arms)
    before = state(policy)
    policy.learn(features, arms[1], math.inf)
    assert state(policy) == before
    assert policy.rejected == {"reward": 1}


def test_rv_02_c_nan_feature_still_gives_one_of_the_arms(policy, features, arms):
    teach(policy, features, arms)
    broken = features | {"latency-critical.load_log": math.nan, "batch.weight_log": math.inf}
    choice = policy.decide(broken, arms, random.Random(1))
    assert choice.arm in {arm.name for arm in arms}
    assert all(math.isfinite(score) for score in choice.scores.values())
    assert policy.rejected == {"decision": 1}


@pytest.mark.parametrize("value", [None, math.nan, 1e200, "0.5"])
def test_rv_02_d_lesson_with_a_broken_feature_is_counted_and_changes_nothing(policy, features, arms, value):
    teach(policy, features, arms)
    before = state(policy)
    policy.learn(features | {"latency-critical.load_log": value}, arms[0], 1.0)
    assert state(policy) == before
    assert policy.rejected == {"feature": 1}


# ---- RV-03, RV-04: numbers that grow, features that appear -----------------------------------------------------------


@pytest.mark.parametrize("name", LEARNING)
def test_rv_03_a_four_thousand_lessons_of_one_arm_stay_finite(name, features, arms):
    learner = make(name)
    rng = random.Random(1)
    names = ("latency-critical.load_log", "default.load_log", "batch.present", "node.busy_ratio", "batch.share")
    for _ in range(4000):
        learner.learn(features | {n: rng.random() for n in names}, arms[0], rng.uniform(-1.0, 1.0))
    choice = learner.decide(features, arms, random.Random(1))
    assert all(abs(score) < 10.0 for score in choice.scores.values())


@pytest.mark.parametrize("name", LEARNING)
def test_rv_03_b_direction_never_seen_keeps_the_width_of_the_prior(name, features, arms):
    learner = make(name)
    rng = random.Random(1)
    for _ in range(200):
        lesson = {"latency-critical.load_log": rng.random(), "default.load_log": 0.0, "batch.present": 1.0}
        learner.learn(lesson, arms[0], 0.5)
    fresh = make(name)
    unseen = {"latency-critical.load_log": 0.5, "default.load_log": 1.0, "batch.present": 0.0}
    score = learner.decide(unseen, arms[:1], random.Random(1)).scores[arms[0].name]
    prior = fresh.decide(unseen, arms[:1], random.Random(1)).scores[arms[0].name]
    assert abs(score) < abs(prior) + 1.0


@pytest.mark.parametrize("name", LEARNING)
def test_rv_04_class_that_shows_up_late_enters_like_one_known_from_the_start(name, arms):
    late, known = make(name), make(name)
    rng = random.Random(4)
    for _ in range(50):
        load, arm, reward = rng.random(), rng.choice(arms), rng.uniform(-1, 1)
        late.learn({"latency-critical.load_log": load}, arm, reward)
        known.learn({"latency-critical.load_log": load, "default.load_log": 0.0, "batch.present": 1.0}, arm, reward)
    arrived = {"latency-critical.load_log": 0.3, "default.load_log": 0.8, "batch.present": 1.0}
    assert late.decide(arrived, arms, random.Random(1)) == known.decide(arrived, arms, random.Random(1))


# ---- RV-05: snapshots of another time --------------------------------------------------------------------------------


def changed(snapshot, **identity):
    return msgspec.structs.replace(snapshot, identity=msgspec.structs.replace(snapshot.identity, **identity))


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("policy", {"policy": "other"}),
        ("policy_version", {"policy_version": 99}),
        ("features", {"features_schema": "f1-000000000000"}),
        ("arms", {"arms": ("keep", "up", "down")}),
        ("model", {"model": "000000000000"}),
        ("river", {"river": "0.21.2"}),
    ],
)
def test_rv_05_header_of_another_time_is_refused_with_the_reason(policy, features, arms, reason, change):
    teach(policy, features, arms)
    before = state(policy)
    with pytest.raises(SnapshotMismatch) as caught:
        policy.load(changed(policy.save(), **change))
    assert caught.value.reason == reason
    assert state(policy) == before


def test_rv_05_format_of_another_version_is_refused(policy):
    with pytest.raises(SnapshotMismatch) as caught:
        policy.load(msgspec.structs.replace(policy.save(), version=SNAPSHOT_VERSION + 1))
    assert caught.value.reason == "version"


def test_rv_05_missing_and_extra_numbers_are_refused(policy, features, arms):
    teach(policy, features, arms)
    snapshot = policy.save()
    before = state(policy)
    for numbers in (
        {name: values[:-1] for name, values in snapshot.numbers.items()} or {"gram": [1.0]},
        snapshot.numbers | {"extra": [1.0]},
    ):
        with pytest.raises(SnapshotMismatch) as caught:
            policy.load(msgspec.structs.replace(snapshot, numbers=numbers))
        assert caught.value.reason == "shape"
    assert state(policy) == before


def test_rv_05_truncated_file_is_refused_at_every_length(policy, features, arms):
    raw = state(teach(policy, features, arms))
    for length in {0, 1, 20, 100, len(raw) // 2, len(raw) - 1}:
        with pytest.raises(SnapshotMismatch) as caught:
            decode_snapshot(raw[: min(length, len(raw) - 1)])
        assert caught.value.reason == "damaged"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"river": "0.21.2", "agent_schema": 3, "features": ["a","b","c","d","e","f","g","h","i"]}',
        b"\x80\x04\x95\x10\x00\x00\x00",
        b"[]",
        b"null",
    ],
)
def test_rv_05_foreign_bytes_are_refused(raw):
    with pytest.raises(SnapshotMismatch) as caught:
        decode_snapshot(raw)
    assert caught.value.reason == "damaged"


@pytest.mark.parametrize(
    ("name", "key"),
    [("linucb", "gram"), ("river-linucb", "lc1-d1-b1.precision"), ("thompson", "gram"), ("epsilon-greedy", "counts")],
)
def test_rv_05_numbers_that_no_learning_can_give_are_refused(name, key, features, arms):
    learner = teach(make(name), features, arms)
    snapshot = learner.save()
    before = state(learner)
    flipped = [-value for value in snapshot.numbers[key]]
    with pytest.raises(SnapshotMismatch) as caught:
        learner.load(msgspec.structs.replace(snapshot, numbers=snapshot.numbers | {key: flipped}))
    assert caught.value.reason == "damaged"
    assert state(learner) == before


@pytest.mark.parametrize("name", LEARNING)
def test_rv_05_model_of_other_classes_or_profiles_does_not_fit(name):
    snapshot = make(name).save()
    classes = DEFAULT_CLASSES | {"ml": ClassSettings(kind="throughput")}
    for other in (
        make(name, Shared(classes=classes)),
        make(name, profiles={"p": {"batch": 100}, "q": {"latency-critical": 300}}),
        *([make(name, context_features=("node.busy_ratio",))] if name != "epsilon-greedy" else []),
    ):
        with pytest.raises(SnapshotMismatch):
            other.load(snapshot)


@pytest.mark.parametrize("name", ["step", "pid"])
def test_rv_05_controller_of_other_classes_does_not_fit(name):
    snapshot = make(name).save()
    kinds = DEFAULT_CLASSES | {"default": ClassSettings(kind="throughput")}
    for classes in (DEFAULT_CLASSES | {"ml": ClassSettings(kind="throughput")}, kinds):
        with pytest.raises(SnapshotMismatch):
            make(name, Shared(classes=classes)).load(snapshot)


# ---- what a policy costs ---------------------------------------------------------------------------------------------


def test_policies_without_matrices_import_neither_river_nor_numpy():
    code = (
        "import sys; from schemas.settings import Shared; from services.decider.config import DeciderConfig as C;"
        "from services.decider.core.zoo import make_policy;"
        "[make_policy(C(policy=name), Shared()) for name in ('static', 'hold', 'step', 'pid', 'epsilon-greedy')];"
        "sys.exit(bool({'river', 'numpy', 'vowpalwabbit'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("name", each("thompson", "vowpal"))
def test_policies_on_no_base_of_rivers_do_not_import_it(name):
    code = (
        "import sys; from schemas.settings import Shared; from services.decider.config import DeciderConfig as C;"
        f"from services.decider.core.zoo import make_policy; make_policy(C(policy={name!r}), Shared());"
        "sys.exit('river' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---- the policies that do not learn ----------------------------------------------------------------------------------


def test_hold_never_moves(features, arms):
    policy = make("hold")
    assert policy.decide(features, arms, random.Random(1)).arm == "hold"
    assert policy.decide(features, arms[2:5], random.Random(1)).arm == arms[2].name


def test_static_takes_its_profile_and_else_the_nearest(features, arms):
    policy = make("static", static_profile="lc32-d10-b1")
    by_name = {arm.name: arm for arm in arms}
    assert policy.decide(features, arms, random.Random(1)).arm == "lc32-d10-b1"
    offered = [by_name[name] for name in ("lc1-d1-b1", "lc3-d3-b1", "lc1-d1-b3", "hold")]
    assert policy.decide(features, offered, random.Random(1)).arm == "lc3-d3-b1"
    assert policy.decide(features, [HOLD], random.Random(1)).arm == "hold"


def test_static_profile_defaults_to_ten_to_three_to_one(features, arms):
    assert make("static").decide(features, arms, random.Random(1)).arm == "lc10-d3-b1"
