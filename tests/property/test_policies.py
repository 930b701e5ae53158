"""Rules of the decider's core that hold for all inputs: the mask, the floor of exploration, canonical weights."""

import importlib.util
import math
import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.messages import ClassState, Latency
from schemas.objective import is_violated
from schemas.profile import on_profile_scale, within_bounds
from schemas.settings import DEFAULT_CLASSES, ClassSettings, Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms, distance, nearest_profile
from services.decider.core.basis import Basis
from services.decider.core.checked import are_usable
from services.decider.core.draw import draw
from services.decider.core.mask import ROUNDING_RATIO, mask
from services.decider.core.policy import HOLD, Arm, choose
from services.decider.core.snapshot import Identity, Snapshot, decode_snapshot, encode_snapshot
from services.decider.core.zoo import POLICIES, make_policy

INSTALLED = [name for name in POLICIES if name != "vowpal" or importlib.util.find_spec("vowpalwabbit")]

untimed = settings(deadline=None)

LIMITS = WeightSettings()
NAMES = ("latency-critical", "default", "batch")
GRID = build_arms(Shared(), {})
SLACK = 1.0 - 2.0 * ROUNDING_RATIO

weight = st.integers(100, 10_000)
profile = st.fixed_dictionaries(dict.fromkeys(NAMES, weight)).map(lambda weights: on_profile_scale(weights, LIMITS))
some_arms = st.one_of(
    st.just(GRID),
    st.lists(profile, max_size=8).map(lambda found: (*(Arm(f"p{i}", w) for i, w in enumerate(found)), HOLD)),
)
latency = st.builds(
    Latency,
    over_ratio=st.none() | st.floats(0.0, 1.0),
    p99_seconds=st.none() | st.floats(0.001, 10.0),
    saturated=st.sampled_from([(), ("p99",), ("p95", "p99")]),
)
seen = st.builds(ClassState, pods=st.integers(0, 3), latency=latency) | st.builds(
    ClassState,
    pods=st.integers(0, 3),
    waited_ratio=st.none() | st.floats(0.0, 1.0),
    judged_by=st.just("pressure"),
)
classes = st.dictionaries(st.sampled_from(NAMES), seen)
importance = st.sampled_from([0.1, 0.5, 1.0])
class_settings = st.fixed_dictionaries(
    {
        name: st.builds(
            ClassSettings,
            objective_p99_seconds=st.just(objective),
            objective_pressure_ratio=st.just(objective),
            importance=importance,
        )
        for name, objective in (("latency-critical", 0.1), ("default", 0.5))
    }
    | {"batch": st.just(ClassSettings(kind="throughput"))}
)
current = st.none() | st.dictionaries(st.sampled_from(NAMES), weight) | st.sampled_from([a.weights for a in GRID[:-1]])


class Case(NamedTuple):
    arms: tuple
    current: dict | None
    states: dict
    specs: dict
    left: int | None
    mode: str

    def masked(self):
        more = {"settings": self.specs, "limits": LIMITS, "changes_left": self.left, "mode": self.mode}
        return mask(self.arms, self.current, self.states, **more)


modes = st.sampled_from(["shadow", "canary", "active", "frozen"])
cases = st.builds(Case, some_arms, current, classes, class_settings, st.none() | st.integers(0, 3), modes)


def known_present(current, states):
    return [name for name in NAMES if states.get(name, ClassState()).pods > 0 and name in (current or {})]


def over(weights, names):
    return on_profile_scale({name: weights[name] for name in names}, LIMITS)


def on_the_way(start, end):
    """Weights at the end, and at equal parts of the logarithm before it, where a clamp may stop."""
    return [{name: start[name] * (end[name] / start[name]) ** (part / 8) for name in start} for part in range(9)]


@untimed
@given(case=cases)
def test_mask_always_leaves_something_and_its_first_arm_changes_nothing(case):
    result = case.masked()
    stay = result.allowed[0]
    if stay.weights is not None:
        names = known_present(case.current, case.states)
        assert distance(over(stay.weights, names), over(case.current, names), LIMITS) <= 0.02


@untimed
@given(case=cases)
def test_mask_gives_each_arm_either_leave_or_a_reason(case):
    result = case.masked()
    names = [arm.name for arm in result.allowed]
    assert len(set(names)) == len(names)
    assert not set(names) & set(result.reasons)
    assert set(names) | set(result.reasons) == {arm.name for arm in case.arms}
    assert set(result.reasons.values()) <= {"stay", "frozen", "rate", "same", "step", "no_harm"}


@untimed
@given(case=cases)
def test_mask_offers_no_change_without_a_budget_or_when_frozen(case):
    for barred in (case._replace(left=0), case._replace(mode="frozen")):
        assert len(barred.masked().allowed) == 1


@untimed
@given(case=cases)
def test_mask_never_lets_the_share_of_the_most_important_violated_class_fall(case):
    result = case.masked()
    names = known_present(case.current, case.states)
    violated = [name for name in case.specs if name in names and is_violated(case.states[name], case.specs[name])]
    violated.sort(key=lambda name: -case.specs[name].importance)
    for first in violated[:1]:
        here = over(case.current, names)
        floor = SLACK * here[first] / sum(here.values())
        for arm in result.allowed[1:]:
            for weights in on_the_way(here, over(arm.weights, names)):
                assert weights[first] / sum(weights.values()) >= floor


@untimed
@given(case=cases)
def test_mask_takes_from_a_less_important_violated_class_only_if_every_allowed_move_does(case):
    result = case.masked()
    names = known_present(case.current, case.states)
    for name in names:
        if is_violated(case.states[name], case.specs[name]):
            floor = (1.0 - ROUNDING_RATIO) * case.current[name] / sum(case.current[other] for other in names)
            ends = [{other: arm.weights[other] for other in names} for arm in result.allowed[1:]]
            takes = [end[name] / sum(end.values()) < floor for end in ends]
            assert all(takes) or not any(takes)


@untimed
@given(case=cases)
def test_mask_offers_what_is_beyond_a_step_only_where_nothing_is_within(case):
    result = case.masked()
    names = known_present(case.current, case.states)
    here = over(case.current or {}, names)
    limit = math.log(LIMITS.max_step_ratio) + 1e-6
    beyond = [arm for arm in result.allowed[1:] if distance(over(arm.weights, names), here, LIMITS) > limit]
    if beyond:
        assert beyond == list(result.allowed[1:])  # what would harm is no way, however near
        assert "step" not in result.reasons.values()
    for arm in case.arms:
        if result.reasons.get(arm.name) == "step":
            assert distance(over(arm.weights, names), here, LIMITS) > limit - 2e-6


def same_by_names(a, b):
    """Equal ratios between the same classes, as it is written down plainly."""
    if a.keys() != b.keys():
        return False
    lowest_a, lowest_b = min(a.values(), default=1), min(b.values(), default=1)
    return all(abs(a[name] * lowest_b / (b[name] * lowest_a) - 1.0) <= ROUNDING_RATIO for name in a)


def same_arms_by_names(case):
    """Which arm is in force, and which arms repeat it or another, by plain comparison of each with each."""
    present = [name for name in case.specs if case.states.get(name, ClassState()).pods > 0]
    weights = case.current or {}
    moves = [arm for arm in case.arms if arm.weights is not None]
    in_force = None
    if weights and all(name in weights for name in present):
        fits = [arm for arm in moves if same_by_names(over_names(arm, present), {n: weights[n] for n in present})]
        exact = [arm for arm in fits if same_by_names(over_names(arm, weights), weights)]
        in_force = next(iter(exact or fits), None)
    kept, repeats = [over_names(in_force or HOLD, present)], []
    for arm in (arm for arm in moves if arm is not in_force):
        meaning = over_names(arm, present)
        if any(same_by_names(meaning, other) for other in kept):
            repeats.append(arm.name)
        else:
            kept.append(meaning)
    return in_force, repeats


def over_names(arm, names):
    return {name: arm.weights[name] for name in names if name in arm.weights} if arm.weights else {}


near = st.tuples(*[st.sampled_from([100, 101, 102, 200, 202, 204, 1000, 1009, 1010, 1011])] * 3)
alike = st.lists(near, min_size=1, max_size=8).map(
    lambda found: (*(Arm(f"p{i}", dict(zip(NAMES, w, strict=True))) for i, w in enumerate(found)), HOLD)
)


@untimed
@given(case=cases, near_arms=alike, here=near, is_near=st.booleans())
def test_mask_finds_the_arm_in_force_and_repeats_as_plain_comparison_does(case, near_arms, here, is_near):
    case = case._replace(left=None, mode="active")
    if is_near:
        case = case._replace(arms=near_arms, current=dict(zip(NAMES, here, strict=True)))
    in_force, repeats = same_arms_by_names(case)
    result = case.masked()
    assert result.allowed[0] is (in_force or HOLD)
    assert [name for name, reason in result.reasons.items() if reason == "same"] == repeats


@untimed
@given(
    scores=st.dictionaries(st.text(min_size=1, max_size=4), st.floats(-5, 5), min_size=1, max_size=15),
    epsilon=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_floor_gives_exact_propensities(scores, epsilon, seed):
    choice = choose(scores, epsilon, random.Random(seed))
    assert math.isclose(math.fsum(choice.propensities.values()), 1.0, abs_tol=1e-12)
    assert min(choice.propensities.values()) >= epsilon / len(scores) * (1.0 - 1e-9)
    assert choice.propensity == choice.propensities[choice.arm]
    best = max(scores.values())
    assert choice.explored or scores[choice.arm] == best
    if epsilon == 0.0:
        assert choice.arm == next(name for name, score in scores.items() if score == best)


def test_floor_draws_as_often_as_it_says():
    scores = {"a": 0.1, "b": 0.9, "c": 0.9, "d": 0.0}
    rng = random.Random(6)
    drawn = [choose(scores, 0.2, rng) for _ in range(20_000)]
    for name, propensity in drawn[0].propensities.items():
        assert math.isclose(sum(c.arm == name for c in drawn) / len(drawn), propensity, abs_tol=0.01)
    assert drawn[0].propensities == {"a": 0.05, "b": 1.0 - 0.2 + 0.05, "c": 0.05, "d": 0.05}
    assert math.isclose(sum(c.explored for c in drawn) / len(drawn), 0.15, abs_tol=0.01)


@untimed
@given(
    likelihoods=st.dictionaries(st.text(min_size=1, max_size=4), st.floats(0.001, 5) | st.just(0.0), min_size=1).filter(
        lambda found: any(found.values())
    ),
    epsilon=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_draw_gives_exact_propensities(likelihoods, epsilon, seed):
    choice = draw(likelihoods, likelihoods, epsilon, random.Random(seed))
    assert math.isclose(math.fsum(choice.propensities.values()), 1.0, abs_tol=1e-12)
    assert min(choice.propensities.values()) >= epsilon / len(likelihoods) * (1.0 - 1e-9)
    assert choice.propensity == choice.propensities[choice.arm] > 0.0
    best = max(likelihoods, key=likelihoods.__getitem__)
    assert choice.explored == (choice.arm != best)


def test_draw_is_as_frequent_as_it_says():
    rng = random.Random(6)
    drawn = [draw({"a": 0.1, "b": 0.9, "c": 0.5}, {"a": 0.0, "b": 3.0, "c": 1.0}, 0.3, rng) for _ in range(20_000)]
    assert drawn[0].propensities == pytest.approx({"a": 0.1, "b": 0.625, "c": 0.275})
    for name, propensity in drawn[0].propensities.items():
        assert math.isclose(sum(c.arm == name for c in drawn) / len(drawn), propensity, abs_tol=0.01)
    assert math.isclose(sum(c.explored for c in drawn) / len(drawn), 0.375, abs_tol=0.01)


@untimed
@given(weights=st.dictionaries(st.text(min_size=1), st.integers(1, 10_000), min_size=1))
def test_canonical_weights_are_within_bounds_and_a_fixed_point(weights):
    once = within_bounds(weights, LIMITS)
    assert min(once.values()) == LIMITS.min_weight
    assert max(once.values()) <= LIMITS.max_weight
    assert within_bounds(once, LIMITS) == once


@untimed
@given(weights=profile)
def test_nearest_profile_has_no_nearer_one(weights):
    nearest = nearest_profile(weights, GRID, LIMITS)
    gap = distance(nearest.weights, weights, LIMITS)
    assert all(gap <= distance(arm.weights, weights, LIMITS) for arm in GRID[:-1])


number = st.one_of(st.floats(), st.none(), st.just(1e308), st.floats(-1.0, 1.0))
feature = st.sampled_from(
    [
        "latency-critical.load_log",
        "default.load_log",
        "batch.present",
        "default.weight_log",
        "default.present",
        "latency-critical.over_ratio",
        "latency-critical.latency_log",
        "latency-critical.latency_missing",
        "default.over_ratio",
        "default.latency_missing",
        "default.waited_ratio",
        "default.waited_missing",
    ]
)
offered_arms = st.sets(st.sampled_from(range(len(GRID))), min_size=1).map(lambda few: [GRID[i] for i in sorted(few)])


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(INSTALLED),
    lessons=st.lists(
        st.tuples(st.dictionaries(feature, number), st.sampled_from(GRID), number), min_size=1, max_size=15
    ),
    asked=st.dictionaries(feature, number),
    offered=offered_arms,
)
def test_no_number_whatever_breaks_a_policy(name, lessons, asked, offered):
    policy = make_policy(DeciderConfig(policy=name), Shared())
    unfit = 0  # the default policy heeds a move out of trouble, and learns no model from it
    for features, arm, reward in lessons:
        refused = policy.rejected.total()
        policy.learn(features, arm, reward)
        if name == "linucb" and policy.rejected.total() == refused:
            unfit += not policy.policy.teaches(features, arm)
    assert policy.updates + policy.rejected.total() + unfit == len(lessons)
    choice = policy.decide(asked, offered, random.Random(1))
    assert all(math.isfinite(score) for score in choice.scores.values())
    assert set(choice.propensities) == set(choice.scores) == {arm.name for arm in offered}
    assert math.isclose(math.fsum(choice.propensities.values()), 1.0, abs_tol=1e-9)
    assert choice.propensity == choice.propensities[choice.arm] > 0.0
    policy.load(decode_snapshot(encode_snapshot(policy.save())))
    asked = {name: value for name, value in asked.items() if value is not None}
    assert policy.decide(asked, offered, random.Random(1)) == choice


any_value = st.one_of(
    number, st.integers(), st.booleans(), st.text(max_size=2), st.sampled_from([10**400, 10.0, -10.0, 10.000001, "5"])
)


@given(values=st.lists(any_value, max_size=6))
def test_a_vector_is_usable_if_each_of_its_numbers_is(values):
    assert are_usable(values) == all(
        isinstance(value, int | float) and (value == value and -10 <= value <= 10)  # noqa: PLR0124 - not for NaN
        for value in values
    )


@untimed
@given(
    situation=st.dictionaries(
        st.sampled_from([f"{name}.{word}" for name in NAMES for word in ("present", "weight_log")]),
        st.sampled_from([0.0, 0.25, 1.0]),
    ),
    order=st.permutations(range(len(GRID))),
)
def test_an_arm_lies_where_its_weights_do_whatever_it_is_called(situation, order):
    basis = Basis(DEFAULT_CLASSES, LIMITS, GRID, GRID[3], likeness_decades=0.5)
    arms = [GRID[index] for index in order]
    strangers = [Arm(f"not-{arm.name}", arm.weights) for arm in arms]
    impostors = [Arm(arm.name, other.weights) for arm, other in zip(arms, reversed(arms), strict=True)]
    for asked, plain in ((arms, strangers), (impostors, list(reversed(strangers)))):
        terms, squared = basis.describe(asked, situation)
        plain_terms, plain_squared = basis.describe(plain, situation)
        np.testing.assert_allclose(terms, plain_terms, rtol=0, atol=1e-12)
        np.testing.assert_allclose(squared, plain_squared, rtol=0, atol=1e-12)


outlook_feature = st.sampled_from(
    [
        "moved",
        *(f"{name}.{word}" for name in ("latency-critical", "default") for word in ("need", "lost", "rescue")),
        "latency-critical.over_ratio",
        "default.over_ratio",
        "latency-critical.weight_log",
        "default.present",
    ]
)
situation = st.dictionaries(outlook_feature, st.sampled_from([0.0, 0.05, 0.3, 1.0]))


@settings(max_examples=300, deadline=None)
@given(
    case=cases,
    asked=situation,
    lessons=st.lists(st.tuples(situation, st.sampled_from(GRID), st.floats(-1.0, 1.0)), max_size=8),
    is_warm=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_whatever_is_seen_the_default_policy_takes_from_no_class_that_the_mask_protects(
    case, asked, lessons, is_warm, seed
):
    policy = make_policy(DeciderConfig(warm_start=is_warm, epsilon=0.3, caution=0.5), Shared())
    for features, arm, reward in lessons:
        policy.learn(features, arm, reward)
    lost = {name for name in NAMES if asked.get(f"{name}.lost", 0.0) > 0.0}
    more = {"settings": case.specs, "limits": LIMITS, "changes_left": case.left, "mode": case.mode, "lost": lost}
    offered = mask(case.arms, case.current, case.states, **more).allowed
    choice = policy.decide(asked, offered, random.Random(seed))
    assert set(choice.propensities) == {arm.name for arm in offered}
    assert math.isclose(math.fsum(choice.propensities.values()), 1.0, abs_tol=1e-9)
    assert choice.propensity == choice.propensities[choice.arm] > 0.0
    names = known_present(case.current, case.states)
    violated = [name for name in case.specs if name in names and name not in lost]
    violated = [name for name in violated if is_violated(case.states[name], case.specs[name])]
    violated.sort(key=lambda name: -case.specs[name].importance)
    taken = next(arm for arm in offered if arm.name == choice.arm)
    if violated and taken is not offered[0]:
        first = violated[0]
        floor = (1.0 - ROUNDING_RATIO) * case.current[first] / sum(case.current[name] for name in names)
        assert taken.weights[first] / sum(taken.weights[name] for name in names) >= floor


@untimed
@given(
    numbers=st.dictionaries(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False))),
    updates=st.integers(0, 2**53),
)
def test_snapshot_survives_its_bytes_bit_for_bit(numbers, updates):
    identity = Identity(policy="p", policy_version=1, features_schema="f1-0", arms=("a",), model="m")
    snapshot = Snapshot(version=1, identity=identity, updates=updates, numbers=numbers)
    again = decode_snapshot(encode_snapshot(snapshot))
    assert again == snapshot
    for name, values in numbers.items():
        assert [math.copysign(1.0, value) for value in values] == [
            math.copysign(1.0, value) for value in again.numbers[name]
        ]
