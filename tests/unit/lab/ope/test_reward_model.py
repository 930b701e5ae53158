"""The reward model: what it recovers, what it may not see, and what it does not believe."""

import numpy as np
import pytest

from lab.ope.reward_model import fit_rewards
from tests.support.logs import log_of


def linear_log(rows=400, seed=0):
    """Rewards without noise: 0.1 + 0.2 x for arm 0, 0.3 - 0.1 x for arm 1."""
    rng = np.random.default_rng(seed)
    context, action = rng.uniform(-1.0, 1.0, (rows, 1)), rng.integers(0, 2, rows)
    reward = np.where(action == 0, 0.1 + 0.2 * context[:, 0], 0.3 - 0.1 * context[:, 0])
    return log_of(action, reward, np.full((rows, 2), 0.5), context=context)


def test_linear_rewards_are_recovered_for_every_arm():
    logged = linear_log()
    found = fit_rewards(logged, ridge=1e-6)
    x = logged.context[:, 0]
    wide = np.abs(x) < 0.9  # at the edges predictions stay within what was seen
    expected = np.column_stack([0.1 + 0.2 * x, 0.3 - 0.1 * x])
    assert found[wide] == pytest.approx(expected[wide], abs=1e-4)


def test_it_is_ridge_regression_on_the_other_folds():
    """Against the normal equations, written out row by row."""
    logged = linear_log(rows=30, seed=2)
    found = fit_rewards(logged, folds=3, ridge=2.0)
    scaled = (logged.context[:, 0] - logged.context[:, 0].mean()) / logged.context[:, 0].std()

    def terms(row, arm):
        own = np.array([1.0, float(arm == 0), float(arm == 1)])
        return np.concatenate([own, scaled[row] * own])

    others = range(10, 30)
    mean = np.mean([logged.reward[row] for row in others])
    design = np.array([terms(row, logged.action[row]) for row in others])
    theta = np.linalg.inv(design.T @ design + 2.0 * np.eye(6)) @ design.T @ (logged.reward[10:] - mean)
    low, high = logged.reward[10:].min(), logged.reward[10:].max()
    for row in range(10):
        for arm in (0, 1):
            assert found[row, arm] == pytest.approx(np.clip(mean + terms(row, arm) @ theta, low, high))


def test_a_block_is_predicted_without_its_own_rewards():
    logged = linear_log(rows=100)
    changed = logged.reward.copy()
    changed[:20] += 5.0
    other = log_of(logged.action, changed, logged.pi_b, context=logged.context)
    before, after = fit_rewards(logged, folds=5), fit_rewards(other, folds=5)
    assert after[:20] == pytest.approx(before[:20], abs=1e-12)
    assert (after[20:] > before[20:] + 0.1).all()


def test_an_arm_never_taken_is_believed_to_be_like_the_others():
    action = np.zeros(50, int)
    logged = log_of(action, np.full(50, 0.4), np.tile([0.5, 0.5], (50, 1)))
    assert fit_rewards(logged) == pytest.approx(np.full((50, 2), 0.4))


def test_predictions_stay_within_the_rewards_that_were_seen():
    logged = linear_log()
    far = logged.context.copy()
    far[0] = 1000.0
    found = fit_rewards(log_of(logged.action, logged.reward, logged.pi_b, context=far), ridge=1e-3)
    assert found.min() >= logged.reward.min()
    assert found.max() <= logged.reward.max()


def test_constant_and_missing_features_do_no_harm():
    logged = linear_log()
    padded = np.column_stack([logged.context, np.full(len(logged), 0.1), np.zeros(len(logged))])
    with_constants = fit_rewards(log_of(logged.action, logged.reward, logged.pi_b, context=padded))
    assert with_constants == pytest.approx(fit_rewards(logged))
    empty = log_of(logged.action, logged.reward, logged.pi_b, context=np.empty((len(logged), 0)))
    by_arm = fit_rewards(empty, ridge=1e-6)
    assert by_arm[:80, 0] == pytest.approx(logged.reward[80:][logged.action[80:] == 0].mean(), abs=1e-6)


def test_terms_let_arms_learn_from_each_other():
    """Three arms on a line: the middle one was never taken and is predicted between its neighbours."""
    rng = np.random.default_rng(4)
    action = rng.choice([0, 2], 300)
    logged = log_of(action, 0.1 * action, np.full((300, 3), 1 / 3), context=rng.normal(size=(300, 1)))
    found = fit_rewards(logged, ridge=1e-6, arm_terms=np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
    assert found[:, 1] == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"folds": 1}, "folds must be 2 to 30"),
        ({"folds": 31}, "folds must be 2 to 30"),
        ({"ridge": 0.0}, "ridge must be above 0"),
        ({"ridge": float("nan")}, "ridge must be above 0"),
        ({"arm_terms": np.ones((3, 1))}, "arm_terms must be 2 rows"),
        ({"arm_terms": np.array([[1.0], [np.inf]])}, "arm_terms must be 2 rows of finite"),
    ],
)
def test_what_it_cannot_fit_is_said(wrong, says):
    with pytest.raises(ValueError, match=says):
        fit_rewards(linear_log(rows=30), **wrong)
