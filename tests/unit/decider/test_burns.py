"""Which arms are known to give too little, and what shares are."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.settings import DEFAULT_CLASSES, Shared
from services.decider.core.arms import build_arms
from services.decider.core.burns import LESSONS, MOST_LESSONS, Balance, Burns, Shares
from services.decider.core.policy import HOLD, Arm

LC, D, B = "latency-critical", "default", "batch"
ARMS = build_arms(Shared(), {})
BY_NAME = {arm.name: arm for arm in ARMS}


def standing(lc, d, b, **more):
    """The features of a node with these weights in force."""
    weights = {LC: lc, D: d, B: b}
    return {f"{name}.weight_log": math.log(weight / 100) / math.log(100) for name, weight in weights.items()} | more


def forbidden(burns, features):
    shares = Shares(DEFAULT_CLASSES, features)
    return set(burns.forbidden(features, ARMS, shares))


def burnt(*names):
    burns = Burns(ARMS)
    for name in names:
        burns.burn(BY_NAME[name])
    return burns


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_shares_are_of_the_classes_that_are_there():
    shares = Shares(DEFAULT_CLASSES, standing(1000, 316, 100) | {f"{D}.present": 0.0})
    assert shares.now == {LC: pytest.approx(1000 / 1100), B: pytest.approx(100 / 1100)}
    assert shares.of(BY_NAME["lc32-d10-b1"]) == {LC: 3162 / 3262, B: 100 / 3262}
    assert shares.of(HOLD) == shares.now


def test_arm_in_force_is_told_up_to_rounding():
    shares = Shares(DEFAULT_CLASSES, standing(1004, 316, 100))
    assert [name for name, arm in BY_NAME.items() if shares.are_of(arm)] == ["lc10-d3-b1", "hold"]


def test_arms_that_give_more_come_with_the_largest_last():
    shares = Shares(DEFAULT_CLASSES, standing(3162, 1000, 100))
    assert [arm.name for arm in shares.giving_more(LC, ARMS)] == ["lc32-d3-b1", "lc100-d10-b1", "lc100-d3-b1"]


# ---- burns -----------------------------------------------------------------------------------------------------------


def test_nothing_is_forbidden_before_anything_burnt():
    assert forbidden(Burns(ARMS), standing(1000, 316, 100)) == set()


def test_burnt_arm_and_all_that_give_no_more_are_forbidden():
    found = forbidden(burnt("lc10-d10-b1"), standing(10_000, 316, 100))
    assert found == {
        "lc1-d1-b1",
        "lc3-d3-b1",
        "lc10-d10-b1",
        "lc10-d32-b1",
        "lc32-d100-b1",
        "lc10-d100-b1",
        "lc1-d1-b3",
    }


def test_burnt_arm_that_took_from_two_classes_forbids_none_that_gives_more_to_either():
    assert forbidden(burnt("lc1-d1-b3"), standing(3162, 1000, 100)) == {"lc1-d1-b3"}


def test_burnt_arm_that_would_take_from_nobody_now_forbids_nothing():
    assert forbidden(burnt("lc10-d10-b1"), standing(100, 100, 100)) == set()


def test_what_a_burnt_arm_takes_from_a_lost_class_does_not_count():
    features = standing(10_000, 316, 100)
    assert forbidden(burnt("lc10-d10-b1"), features | {f"{LC}.lost": 1.0}) == set()
    assert forbidden(burnt("lc10-d10-b1"), features | {f"{D}.lost": 1.0}) != set()


def test_arm_stays_burnt_for_its_time_and_the_next_time_longer():
    burns, features = Burns(ARMS), standing(10_000, 316, 100)
    for lessons in (LESSONS, 2 * LESSONS, 4 * LESSONS, MOST_LESSONS, MOST_LESSONS):
        burns.burn(BY_NAME["lc10-d10-b1"])
        for _ in range(int(lessons) - 1):
            burns.pass_time()
        assert "lc10-d10-b1" in forbidden(burns, features)
        burns.pass_time()
        assert forbidden(burns, features) == set()


def test_answer_of_one_moment_does_not_outlive_what_burns_or_cools_meanwhile():
    burns, features = Burns(ARMS), standing(10_000, 316, 100)
    shares, arm = Shares(DEFAULT_CLASSES, features), BY_NAME["lc10-d10-b1"]
    assert not burns.forbidden(features, [arm], shares)
    burns.burn(arm)
    assert burns.forbidden(features, [arm], shares)
    saved = burns.save()
    for _ in range(int(LESSONS)):
        burns.pass_time()
    assert not burns.forbidden(features, [arm], shares)
    burns.load(saved)
    assert burns.forbidden(features, [arm], shares)


def test_hold_and_arms_of_nobody_never_burn():
    burns = Burns(ARMS)
    burns.burn(HOLD)
    burns.burn(Arm("newcomer", {LC: 100, D: 100, B: 100}))
    assert burns.save() == [0.0, LESSONS] * 15


def test_burns_survive_being_saved():
    burns = burnt("lc3-d3-b1", "lc10-d3-b1", "lc10-d3-b1")
    burns.pass_time()
    again = Burns(ARMS)
    again.load(burns.save())
    assert again.save() == burns.save()
    assert len(burns.save()) == burns.size
    assert burns.save() != Burns(ARMS).save()


weight = st.integers(100, 10_000)
arm = st.tuples(weight, weight, weight).map(lambda found: Arm("some", dict(zip((LC, D, B), found, strict=True))))


@settings(deadline=None)
@given(
    now=st.tuples(weight, weight, weight),
    names=st.sets(st.sampled_from([a.name for a in ARMS[:-1]])),
    one=arm,
    other=arm,
)
def test_who_gives_no_class_more_than_a_forbidden_arm_is_forbidden_too(now, names, one, other):
    burns, features = burnt(*names), standing(*now)
    shares = Shares(DEFAULT_CLASSES, features)
    gives_less = all(shares.of(other)[name] <= shares.of(one)[name] for name in (LC, D))
    if gives_less and burns.forbidden(features, [one], shares):
        assert burns.forbidden(features, [other], shares)


def test_a_balance_tells_the_shares_of_each_moment():
    balance = Balance(DEFAULT_CLASSES)
    moments = [standing(1000, 316, 100), standing(316, 316, 100), standing(1000, 316, 100) | {f"{B}.present": 0.0}, {}]
    for seen in (*moments, *moments):
        told, plain = balance.at(seen), Shares(DEFAULT_CLASSES, seen)
        assert told.now == plain.now
        assert [told.of(arm) for arm in ARMS] == [plain.of(arm) for arm in ARMS]


def test_shares_of_an_arm_are_those_of_its_weights_and_not_of_its_name():
    shares = Shares(DEFAULT_CLASSES, standing(1000, 316, 100))
    one, other = Arm("mine", {LC: 200, D: 100, B: 100}), Arm("mine", {LC: 100, D: 100, B: 200})
    assert shares.of(one)[LC] == 0.5
    assert shares.of(other)[LC] == 0.25


def test_what_is_forbidden_follows_who_is_lost_while_the_weights_stay():
    burns, balance, seen = burnt("lc10-d10-b1"), Balance(DEFAULT_CLASSES), standing(10_000, 1000, 100)
    lost = seen | {f"{LC}.lost": 1.0}
    assert "lc10-d10-b1" in burns.forbidden(seen, ARMS, balance.at(seen))
    assert burns.forbidden(lost, ARMS, balance.at(lost)) == []
    assert "lc10-d10-b1" in burns.forbidden(seen, ARMS, balance.at(seen))
