"""What exploration may cost."""

import numpy as np
import pytest

from services.decider.core.caution import LEAST_EARNED, Caution


def test_a_tenth_of_what_is_earned_may_be_lost():
    caution = Caution(0.1)
    caution.earn(0.8)
    caution.earn(-0.4)
    assert caution.budget == pytest.approx(0.1 * 0.8 + 0.1 * 0.4)


def test_rewards_near_zero_earn_as_much_as_the_least():
    caution = Caution(0.1)
    caution.earn(0.0)
    assert caution.budget == pytest.approx(0.1 * LEAST_EARNED)


def test_budget_is_bounded_on_both_sides():
    caution = Caution(1.0)
    for _ in range(10):
        caution.earn(1.0)
    assert caution.budget == 1.0
    for _ in range(10):
        caution.pay(1.0, -1.0)
    assert caution.budget == -1.0


def test_what_an_arm_gave_less_than_the_best_is_paid_and_what_it_gave_more_is_not_earned():
    caution = Caution(0.1, budget=0.5)
    caution.pay(0.4, 0.1)
    assert caution.budget == pytest.approx(0.2)
    caution.pay(0.4, 0.9)
    assert caution.budget == pytest.approx(0.2)


def test_only_arms_whose_worst_fits_the_budget_can_be_tried():
    means, widths = np.array([0.5, 0.4, 0.5, 0.45]), np.array([0.3, 0.1, 0.3, 0.1])
    tried = [Caution(0.1, budget=budget).affordable(means, widths, 0) for budget in (0.0, 0.16, 0.21, 0.31)]
    assert tried == [[0], [0, 3], [0, 1, 3], [0, 1, 2, 3]]


def test_best_known_arm_is_always_affordable():
    assert Caution(0.1, budget=-1.0).affordable(np.array([0.1, 0.9]), np.array([1.0, 1.0]), 1) == [1]


def test_no_width_counts_for_more_than_a_reward_can_differ():
    means, widths = np.array([0.0, 0.0]), np.array([0.1, 50.0])
    assert Caution(1.0, budget=1.0).affordable(means, widths, 0) == [0, 1]
