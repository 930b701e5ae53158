"""What a policy tells of a decision is what it decided by, whatever it has learned and whatever it sees."""

import importlib.util
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.features import feature_names
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.explanation import PRIOR, Explains, explain
from services.decider.core.outlook import outlook_names
from services.decider.core.policy import HOLD
from services.decider.core.zoo import POLICIES, make_policy

SHARED = Shared()
ARMS = build_arms(SHARED, {})
NAMES = (*feature_names(tuple(SHARED.classes)), *outlook_names(SHARED.classes))
INSTALLED = [name for name in POLICIES if name != "vowpal" or importlib.util.find_spec("vowpalwabbit")]
TELLING = [name for name in INSTALLED if isinstance(make_policy(DeciderConfig(policy=name), SHARED).policy, Explains)]

untimed = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32)


def situation(rng):
    """Features of any kind: nothing special, a class in need, one to rescue, just moved."""
    found = {name: rng.uniform(-1.0, 1.0) for name in NAMES}
    for name in SHARED.classes:
        found[f"{name}.present"] = float(rng.random() < 0.9)
        found[f"{name}.over_ratio"] = rng.choice([0.0, 0.0, 0.05, 0.5])
        found[f"{name}.lost"] = found[f"{name}.rescue"] = 0.0
        found[f"{name}.latency_missing"] = 0.0
    found["latency-critical.rescue"] = float(rng.random() < 0.2)
    found["moved"] = float(rng.random() < 0.2)
    return found


def taught(name, rng):
    policy = make_policy(DeciderConfig(policy=name), SHARED)
    for _ in range(rng.randrange(30)):
        policy.learn(situation(rng), rng.choice(ARMS), rng.uniform(-1.0, 1.0))
    return policy


def test_who_tells():
    assert {"linucb", "thompson", "epsilon-greedy", "pid", "step", "river-linucb"} <= set(TELLING)


def test_who_cannot_tell_is_asked_nothing():
    assert explain(make_policy(DeciderConfig(policy="hold"), SHARED), {}, ARMS) is None


@pytest.mark.parametrize("name", TELLING)
@untimed
@given(seed=seeds)
def test_contributions_sum_to_what_the_arms_were_ranked_by(name, seed):
    rng = random.Random(seed)
    policy, features = taught(name, rng), situation(rng)
    offered = (HOLD, *rng.sample([arm for arm in ARMS if arm is not HOLD], 6))
    told = explain(policy, features, offered)
    choice = policy.decide(features, offered, random.Random(seed))
    assert [arm.arm for arm in told.arms] == [arm.name for arm in offered]
    for arm in told.arms:
        assert sum(part.amount for part in arm.contributions) == pytest.approx(arm.mean, abs=1e-9)
        assert arm.score == pytest.approx(choice.scores[arm.arm], abs=1e-9)
    assert set(told.among) >= {arm for arm, propensity in choice.propensities.items() if propensity > 0.0}
    if not choice.explored:
        assert told.leader == choice.arm


@untimed
@given(seed=seeds)
def test_the_default_policys_means_and_widths_are_its_beliefs(seed):
    rng = random.Random(seed)
    policy, features = taught("linucb", rng), situation(rng)
    for arm, told in zip(ARMS, explain(policy, features, ARMS).arms, strict=True):
        mean, width = policy.policy.predict(features, arm)
        assert told.mean == pytest.approx(mean, abs=1e-9)
        assert told.width == pytest.approx(width, abs=1e-9)
        assert told.contributions[-1].feature == PRIOR
        assert [part.value for part in told.contributions if part.feature.endswith(".need")] == [
            features[f"{name}.need"] for name in ("latency-critical", "default")
        ]


@untimed
@given(seed=seeds)
def test_the_question_that_decides_is_the_last_one_and_fits_the_draw(seed):
    rng = random.Random(seed)
    policy, features = taught("linucb", rng), situation(rng)
    told = explain(policy, features, ARMS)
    choice = policy.decide(features, ARMS, random.Random(seed))
    assert [answer.decides for answer in told.questions] == [False] * (len(told.questions) - 1) + [True]
    if told.questions[-1].question != "caution":
        assert choice.propensities[told.leader] == 1.0
    else:
        floor = told.epsilon / len(told.among)
        expected = dict.fromkeys(told.among, floor) | {told.leader: 1.0 - told.epsilon + floor}
        assert {arm: p for arm, p in choice.propensities.items() if p > 0.0} == pytest.approx(expected)


@pytest.mark.parametrize("name", TELLING)
def test_asking_changes_nothing(name):
    rng = random.Random(7)
    policy, features = taught(name, rng), situation(rng)
    before = policy.save()
    explain(policy, features, ARMS)
    assert policy.save() == before


def test_a_broken_number_is_not_told_of():
    policy = make_policy(DeciderConfig(), SHARED)
    told = explain(policy, {"latency-critical.need": float("nan")}, ARMS)
    assert {part.value for part in told.arms[0].contributions if part.feature == "latency-critical.need"} == {0.0}
