"""What a log takes and what it refuses, with the row named."""

import numpy as np
import pytest

from lab.ope.logged import Target, runs
from tests.support.logs import log_of

NAN = float("nan")
PI_B = [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reward": np.array([0.0, NAN, 0.0])}, r"reward must be finite.*censored \(row 1, 1 in all\)"),
        ({"reward": np.zeros(2)}, "reward must be 3 values"),
        ({"action": np.array([0, 1, 2])}, r"action must be the index of one of 2 arms \(row 2"),
        ({"action": np.array([-1, 1, 0])}, r"action must be .* \(row 0"),
        ({"context": np.array([[0.0], [np.inf], [0.0]])}, r"context must be finite.* \(row 1"),
        ({"context": np.zeros((2, 1))}, "context must be 3 rows"),
        ({"pscore": np.array([0.5, 1.5, 1.0])}, r"pscore must be 0-1, or NaN.* \(row 1"),
        ({"pscore": np.array([-0.1, 0.5, 1.0])}, r"pscore must be .* \(row 0"),
        ({"pi_b": np.array([[0.5, 0.5], [0.5, 0.4], [1.0, 0.0]])}, r"each row of pi_b must sum to 1 \(row 1"),
        ({"pi_b": np.array([[0.5, 0.5], [1.5, -0.5], [1.0, 0.0]])}, r"pi_b must be 0-1 \(row 1"),
        ({"pi_b": np.array([[0.5, 0.5], [NAN, 0.5], [1.0, 0.0]])}, r"pi_b must be finite.* \(row 1"),
        ({"pi_b": np.full((3, 3), 1 / 3)}, "pi_b must be 3 rows of 2 arms"),
        ({"masked": np.array([[False, False], [False, True], [False, True]])}, r"0 where an arm is masked \(row 1"),
        ({"cycle": np.array([4, 5, 5])}, r"cycle must rise within a run.* \(row 2"),
        ({"run": np.array([0, 1, 0])}, "the decisions of a run must stand together"),
        ({"censored": -1}, "censored is a count"),
        ({"arms": ()}, "at least one arm"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(wrong, says):
    with pytest.raises(ValueError, match=says):
        log_of([0, 1, 0], [0.0, 0.0, 0.0], PI_B, **wrong)


def test_a_log_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one decision"):
        log_of([], [], np.empty((0, 2)))


def test_cycles_may_start_again_in_another_run():
    logged = log_of([0, 1, 0], [0.0, 0.0, 0.0], PI_B, cycle=np.array([8, 1, 2]), run=np.array([3, 7, 7]))
    assert len(logged) == 3


def test_a_row_is_weighed_only_by_a_propensity_that_fits():
    logged = log_of(
        [0, 1, 0, 1, 0, 1],
        [0.0] * 6,
        [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0], [1.0, 0.0], [NAN, NAN], [0.2, 0.8]],
        pscore=np.array([0.5, 0.7, NAN, 0.0, 0.4, 0.8 + 5e-7]),
    )
    assert logged.weighable.tolist() == [True, False, False, False, False, True]


def test_rows_are_taken_with_all_they_have():
    logged = log_of([0, 1, 0], [0.1, 0.2, 0.3], PI_B, censored=5, run=np.array([0, 0, 1]))
    kept = logged.take(np.array([True, False, True]))
    assert kept.reward.tolist() == [0.1, 0.3]
    assert kept.pi_b.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert kept.context.tolist() == [[0.0], [1.0]]
    assert (kept.cycle.tolist(), kept.run.tolist(), kept.censored) == ([0, 2], [0, 1], 5)


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.2, -0.2], [NAN, 1.0], [np.inf, 0.0]])
def test_a_target_must_be_a_distribution(row):
    with pytest.raises(ValueError, match="row 1"):
        Target(np.array([[0.5, 0.5], row]))


def test_a_target_without_chance_is_its_choices():
    assert Target.choosing(np.array([1, 0]), 3).pi_e.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match="index of one of 3 arms"):
        Target.choosing(np.array([3]), 3)


def test_a_target_must_fit_the_log():
    logged = log_of([0, 1, 0], [0.0, 0.0, 0.0], PI_B)
    with pytest.raises(ValueError, match="3 rows of 2 arms"):
        Target(np.array([[0.5, 0.5]])).fitting(logged)


def test_a_run_ends_with_the_boot_with_a_restart_and_with_a_gap():
    boots = ["a", "a", "a", "b", "b", "b", "b"]
    cycles = np.array([1, 2, 4, 5, 6, 6, 7])
    assert runs(boots, cycles).tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert runs(boots, cycles, longest_gap_cycles=2).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert runs([], np.array([], int)).tolist() == []
    with pytest.raises(ValueError):
        runs(["a"], np.array([1, 2]))
