"""The sliding window of changes."""

import pytest

from services.guard.core.change_budget import ChangeBudget


def test_it_counts_down_and_never_below_nothing():
    budget = ChangeBudget(2.0)
    left = []
    for at in (0.0, 1.0, 2.0):
        left.append(budget.left(at))
        budget.spend(at)
    assert [*left, budget.left(3.0)] == [2, 1, 0, 0]


def test_a_change_is_forgotten_after_a_minute():
    budget = ChangeBudget(1.0)
    budget.spend(10.0)
    assert (budget.left(69.99), budget.left(70.0)) == (0, 1)


def test_a_rate_is_never_rounded_up():
    assert ChangeBudget(2.9).left(0.0) == 2


@pytest.mark.parametrize(("per_minute", "seconds"), [(0.5, 120.0), (0.1, 600.0)])
def test_a_rate_below_one_a_minute_means_fewer_changes_not_none(per_minute, seconds):
    budget = ChangeBudget(per_minute)
    assert budget.left(0.0) == 1
    budget.spend(0.0)
    assert (budget.left(seconds - 0.1), budget.left(seconds)) == (0, 1)
