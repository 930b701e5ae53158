"""In which order a decision is asked, on literal beliefs."""

import math
import random

import numpy as np
import pytest

from schemas.settings import DEFAULT_CLASSES, Shared
from services.decider.core.arms import build_arms
from services.decider.core.burns import Shares
from services.decider.core.caution import Caution
from services.decider.core.order import MARGIN, Beliefs, Order

LC, D, B = "latency-critical", "default", "batch"
BY_NAME = {arm.name: arm for arm in build_arms(Shared(), {})}
HERE, UP, FAR_UP, DOWN = "lc10-d3-b1", "lc32-d3-b1", "lc100-d3-b1", "lc3-d3-b1"
"""Shares of latency-critical: 0.706, 0.884, 0.960, 0.431; of default: 0.223, 0.088, 0.030, 0.431."""
BEST_DOWN = {HERE: 0.1, UP: 0.2, FAR_UP: -0.5, DOWN: 0.9}


def features(**more):
    """A sound node with the weights of HERE; `lc_over=…` is latency-critical's feature `over_ratio`, and so on."""
    weights = {LC: 1000, D: 316, B: 100}
    found = {f"{name}.weight_log": math.log(weight / 100) / math.log(100) for name, weight in weights.items()}
    words = {"over": "over_ratio"}
    for key, value in more.items():
        cls, _, word = key.partition("_")
        found[f"{ ({'lc': LC, 'd': D}[cls]) }.{words.get(word, word)}" if word else key] = value
    return found


def decide(seen, means, *, widths=0.0, burnt=(), budget=0.0, is_paused=False, epsilon=0.4, seed=1):
    arms = [BY_NAME[name] for name in means]
    values = np.array(list(means.values()))
    return Order(DEFAULT_CLASSES).choose(
        seen,
        arms,
        Beliefs(values, np.full(len(arms), widths), values),
        Shares(DEFAULT_CLASSES, seen),
        burnt=set(burnt),
        budget=Caution(0.1, budget=budget),
        is_paused=is_paused,
        epsilon=epsilon,
        rng=random.Random(seed),
    )


def certain(choice):
    """The arm, of which the propensity must be 1 and that of all others 0."""
    assert choice.propensities == dict.fromkeys(choice.scores, 0.0) | {choice.arm: 1.0}
    assert not choice.explored
    return choice.arm


# ---- content ---------------------------------------------------------------------------------------------------------


def test_nothing_is_moved_where_all_is_well_and_nobody_could_use_more():
    seen = features() | {f"{B}.present": 0.0}
    rich = {"widths": 0.1, "budget": 100.0}
    assert certain(decide(seen, BEST_DOWN, **rich)) == HERE
    assert decide(seen | {f"{B}.present": 1.0}, BEST_DOWN, **rich).propensities[HERE] < 1.0
    assert certain(decide(seen | {f"{LC}.over_ratio": 0.01}, BEST_DOWN, **rich)) == HERE


def test_an_objective_that_is_missed_a_little_leaves_nobody_content():
    seen = features(lc_over=0.02) | {f"{B}.present": 0.0}
    assert decide(seen, BEST_DOWN, epsilon=0.0).arm == DOWN


# ---- rescue ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"moved": 1.0}])
@pytest.mark.parametrize("is_paused", [False, True])
def test_most_important_class_is_rescued_with_all_there_is_whatever_is_believed(more, is_paused):
    seen = features(lc_rescue=1.0, lc_over=0.9, **more)
    assert certain(decide(seen, BEST_DOWN, is_paused=is_paused)) == FAR_UP


def test_another_class_is_rescued_with_what_is_believed_best_of_what_gives_it_more():
    means = {HERE: 0.9, UP: 0.95, "lc10-d10-b1": 0.2, "lc10-d32-b1": 0.3, "lc10-d100-b1": 0.1}
    assert certain(decide(features(d_rescue=1.0, d_over=0.9), means)) == "lc10-d32-b1"


@pytest.mark.parametrize(("over", "arm"), [(0.51, FAR_UP), (0.5, UP)])
def test_most_important_class_is_rescued_from_less_with_what_is_believed_best_of_what_gives_it_more(over, arm):
    assert certain(decide(features(lc_rescue=1.0, lc_over=over), BEST_DOWN)) == arm


def test_what_has_burnt_rescues_nobody():
    seen = features(lc_rescue=1.0, lc_over=0.9)
    assert certain(decide(seen, BEST_DOWN, burnt={FAR_UP})) == UP
    assert certain(decide(seen | {"moved": 1.0}, BEST_DOWN, burnt={FAR_UP, UP})) == HERE


def test_where_nothing_gives_more_the_next_rule_is_asked():
    assert certain(decide(features(lc_rescue=1.0, moved=1.0), {HERE: 0.0, DOWN: 0.9})) == HERE


# ---- hold after a move -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [0.0, 0.9])
def test_cycle_after_a_move_takes_the_same_arm_once_more(over):
    assert certain(decide(features(moved=1.0, lc_over=over), BEST_DOWN, budget=1.0)) == HERE


# ---- need ------------------------------------------------------------------------------------------------------------


def test_clear_miss_takes_the_best_score_without_margin_budget_or_chance():
    means = {HERE: 0.1, UP: 0.1 + MARGIN / 2, FAR_UP: -0.5}
    assert certain(decide(features(lc_over=0.11), means, is_paused=True, epsilon=1.0)) == UP


def test_miss_of_a_tenth_or_less_is_no_need():
    assert certain(decide(features(lc_over=0.1), BEST_DOWN, is_paused=True)) == HERE


def test_miss_of_a_lost_class_is_no_need():
    assert certain(decide(features(lc_over=0.9, lc_lost=1.0), BEST_DOWN, is_paused=True)) == HERE


def test_need_of_one_class_starves_no_other_that_is_well():
    means = {HERE: 0.1, UP: 0.5, FAR_UP: 0.9}
    assert certain(decide(features(lc_over=0.3), means)) == FAR_UP
    assert certain(decide(features(lc_over=0.3, d_need=0.05), means)) == UP
    assert certain(decide(features(lc_over=0.3, d_need=0.3), means)) == HERE
    assert certain(decide(features(lc_over=0.3, d_need=0.3, d_over=0.02), means)) == FAR_UP


def test_arm_that_gives_a_class_more_starves_it_not_though_it_needs_more_still():
    means = {HERE: 0.1, "lc10-d10-b1": 0.9}
    assert certain(decide(features(lc_over=0.3, d_need=0.6), means)) == "lc10-d10-b1"


def test_what_has_burnt_is_no_help_in_need():
    assert certain(decide(features(lc_over=0.3), {HERE: 0.1, UP: 0.5, FAR_UP: 0.9}, burnt={FAR_UP})) == UP


# ---- pause and caution -----------------------------------------------------------------------------------------------


def test_nothing_is_tried_in_a_pause_however_good():
    assert certain(decide(features(), BEST_DOWN, budget=1.0, is_paused=True)) == HERE


def test_arm_in_force_is_left_only_for_one_that_is_better_by_the_margin():
    assert certain(decide(features(), {HERE: 0.1, UP: 0.1 + 0.9 * MARGIN}, epsilon=0.0)) == HERE
    assert certain(decide(features(), {HERE: 0.1, UP: 0.1 + 1.1 * MARGIN}, epsilon=0.0)) == UP


def test_without_a_budget_only_the_best_known_arm_is_taken():
    drawn = {certain(decide(features(), BEST_DOWN, seed=seed)) for seed in range(30)}
    assert drawn == {DOWN}


def test_budget_opens_the_arms_that_it_pays_for_and_chance_draws_among_them():
    means = {HERE: 0.5, UP: 0.4, FAR_UP: 0.0, DOWN: 0.45}
    choices = [decide(features(), means, budget=0.11, seed=seed) for seed in range(60)]
    propensities = {HERE: 1.0 - 0.4 + 0.4 / 3, UP: 0.4 / 3, FAR_UP: 0.0, DOWN: 0.4 / 3}
    assert all(choice.propensities == pytest.approx(propensities) for choice in choices)
    assert {choice.arm for choice in choices} == {HERE, UP, DOWN}
    assert {choice.explored for choice in choices if choice.arm == HERE} == {False}


def test_bonus_wins_where_the_budget_pays_for_it():
    arms = [BY_NAME[name] for name in (HERE, UP)]
    beliefs = Beliefs(np.array([0.5, 0.4]), np.array([0.0, 0.3]), np.array([0.5, 0.8]))
    taken = [
        Order(DEFAULT_CLASSES).choose(
            features(),
            arms,
            beliefs,
            Shares(DEFAULT_CLASSES, features()),
            burnt=set(),
            budget=Caution(0.1, budget=budget),
            is_paused=False,
            epsilon=0.0,
            rng=random.Random(1),
        )
        for budget in (0.39, 0.41)
    ]
    assert [choice.arm for choice in taken] == [HERE, UP]


def test_what_has_burnt_is_neither_best_known_nor_tried():
    choices = [decide(features(), BEST_DOWN, burnt={DOWN}, budget=1.0, seed=seed) for seed in range(40)]
    assert {choice.propensities[DOWN] for choice in choices} == {0.0}
    assert DOWN not in {choice.arm for choice in choices}
    assert certain(decide(features(), BEST_DOWN, burnt={DOWN, UP})) == HERE
