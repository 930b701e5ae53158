"""Each estimator against numbers worked out by hand, against its invariances, and against another's implementation."""

import numpy as np
import pytest

from lab.ope.estimators import (
    doubly_robust,
    ips,
    largest_possible_weight,
    logged_mean,
    replay,
    snips,
    weights,
)
from lab.ope.logged import Target
from lab.ope.reward_model import fit_rewards
from tests.support.logs import drawn_log, log_of

# Weights: .8/.5 = 1.6, .5/.25 = 2, .4/.8 = .5, .1/.2 = .5; their sum is 4.6.
LOG = log_of([0, 1, 0, 1], [1.0, 0.5, -1.0, 0.0], [[0.5, 0.5], [0.75, 0.25], [0.8, 0.2], [0.8, 0.2]])
TARGET = Target(np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6], [0.9, 0.1]]))
Q_HAT = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.5], [0.0, 0.25]])


def random_case(seed):
    rng = np.random.default_rng(seed)
    pi_b, pi_e = rng.dirichlet([1.0, 1.0, 1.0], 40), rng.dirichlet([1.0, 1.0, 1.0], 40)
    action = np.array([rng.choice(3, p=row) for row in pi_b])
    return log_of(action, rng.normal(size=40), pi_b), Target(pi_e), rng.normal(size=(40, 3))


def test_weights_by_hand():
    assert weights(LOG, TARGET) == pytest.approx([1.6, 2.0, 0.5, 0.5])


def test_ips_by_hand():
    """(1.6 * 1 + 2 * 0.5 - 0.5 * 1 + 0.5 * 0) / 4 = 2.1 / 4, as Open Bandit Pipeline defines it: mean(iw * reward)."""
    assert ips(LOG, TARGET).value == pytest.approx(0.525)


def test_snips_by_hand():
    """2.1 / 4.6, as Open Bandit Pipeline defines it: mean(reward * iw / mean(iw)); mean(iw) = 1.15, and 0.525 / 1.15."""
    assert snips(LOG, TARGET).value == pytest.approx(0.525 / 1.15)


def test_doubly_robust_by_hand():
    """Open Bandit Pipeline: mean(sum_a pi_e(a) q(a) + iw * (reward - q(action))).

    .4 + 1.6 * .5 = 1.2;  .25 + 2 * 0 = .25;  .1 + .5 * -.5 = -.15;  .025 + .5 * -.25 = -.1;  their mean is 1.2 / 4.
    """
    found = doubly_robust(LOG, TARGET, Q_HAT)
    assert found.numerator == pytest.approx([1.2, 0.25, -0.15, -0.1])
    assert found.value == pytest.approx(0.3)


def test_replay_of_a_uniform_log_is_the_mean_of_the_matches():
    """Li, Chu, Langford, Wang 2011; Open Bandit Pipeline: sum(match * reward) / sum(match) = (0.2 + 0.6 + 0.1) / 3."""
    logged = log_of([0, 1, 2, 1, 0], [0.2, 0.6, 1.0, -1.0, 0.1], np.full((5, 3), 1 / 3))
    target = Target.choosing(np.array([0, 1, 1, 2, 0]), 3)
    for seed in range(20):
        found = replay(logged, target, seed)
        assert found.denominator.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0]
        assert found.value == pytest.approx(0.3)


def test_replay_accepts_each_row_by_its_weight():
    """The largest weight that could have occurred is .6 / .2 = 3, in the third row, though arm 1 was not drawn there."""
    assert largest_possible_weight(LOG, TARGET) == pytest.approx(3.0)
    accepted = np.mean([replay(LOG, TARGET, seed).denominator for seed in range(4000)], axis=0)
    assert accepted == pytest.approx([1.6 / 3, 2.0 / 3, 0.5 / 3, 0.5 / 3], abs=0.04)


def test_replay_does_not_believe_in_mere_matches():
    """Arm 0 is logged nine times as often where it pays: matching alone would say 0.9, the truth is 0.5."""
    pi_b = [[0.9, 0.1]] * 500 + [[0.1, 0.9]] * 500
    action = [0] * 450 + [1] * 50 + [0] * 50 + [1] * 450
    logged = log_of(action, [1.0] * 500 + [0.0] * 500, pi_b)
    target = Target.choosing(np.zeros(1000, int), 2)
    assert ips(logged, target).value == pytest.approx(0.5)
    assert snips(logged, target).value == pytest.approx(0.5)
    assert np.mean([replay(logged, target, seed).value for seed in range(100)]) == pytest.approx(0.5, abs=0.03)


def test_replay_is_drawn_from_its_seed_alone():
    logged, target, _ = random_case(3)
    assert replay(logged, target, 5).denominator.tolist() == replay(logged, target, 5).denominator.tolist()
    assert any(
        replay(logged, target, 5).denominator.tolist() != replay(logged, target, seed).denominator.tolist()
        for seed in range(6, 12)
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_logging_policy_is_worth_what_it_earned(seed):
    logged, _, q_hat = random_case(seed)
    target = Target(logged.pi_b)
    mean = float(logged.reward.mean())
    assert logged_mean(logged).value == pytest.approx(mean)
    for found in (ips(logged, target), snips(logged, target), replay(logged, target, seed)):
        assert found.value == pytest.approx(mean, abs=1e-12)
    assert doubly_robust(logged, target, np.full_like(q_hat, 0.7)).value == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_doubly_robust_lies_between_weighing_and_the_model(seed):
    logged, target, q_hat = random_case(seed)
    assert doubly_robust(logged, target, np.zeros_like(q_hat)).value == pytest.approx(ips(logged, target).value)
    perfect = q_hat.copy()
    perfect[np.arange(40), logged.action] = logged.reward
    modelled = float((target.pi_e * perfect).sum(axis=1).mean())
    assert doubly_robust(logged, target, perfect).value == pytest.approx(modelled)


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_added_to_all_rewards(seed):
    logged, target, _ = random_case(seed)
    raised = log_of(logged.action, logged.reward + 10.0, logged.pi_b)
    assert snips(raised, target).value == pytest.approx(snips(logged, target).value + 10.0)
    mean_weight = float(weights(logged, target).mean())
    assert ips(raised, target).value == pytest.approx(ips(logged, target).value + 10.0 * mean_weight)


@pytest.mark.parametrize("seed", range(3))
def test_influence_is_the_pull_of_a_row(seed):
    """Against the change when a row counts a little more."""
    logged, target, q_hat = random_case(seed)
    for found in (snips(logged, target), ips(logged, target), doubly_robust(logged, target, q_hat)):
        assert found.influence.sum() == pytest.approx(0.0, abs=1e-9)
        more = np.ones(40)
        more[7] += 1e-6
        pulled = (more @ found.numerator) / (more @ found.denominator) - found.value
        assert pulled * 40 / 1e-6 == pytest.approx(found.influence[7], rel=1e-3)


def test_nothing_accepted_has_no_value():
    logged = log_of([0, 0], [1.0, 1.0], [[0.5, 0.5]] * 2)
    assert np.isnan(snips(logged, Target.choosing(np.array([1, 1]), 2)).value)


def test_known_arms_have_their_known_value():
    """Arms worth 0, 0.1 and 0.2, drawn with 0.6, 0.3 and 0.1; the target takes them with 0.2, 0.3 and 0.5: 0.13."""
    logged = drawn_log(20_000, [0.6, 0.3, 0.1], seed=1)
    target = Target(np.tile([0.2, 0.3, 0.5], (20_000, 1)))
    for found in (
        ips(logged, target),
        snips(logged, target),
        doubly_robust(logged, target, fit_rewards(logged)),
        replay(logged, target, 1),
    ):
        assert found.value == pytest.approx(0.13, abs=0.008)


def test_values_are_those_of_vw_estimators():
    reason = "needs the package vw-estimators (no extra of ours: a second opinion only)"
    other_ips = pytest.importorskip("estimators.bandits.ips", reason=reason).Estimator()
    other_snips = pytest.importorskip("estimators.bandits.snips", reason=reason).Estimator()
    logged, target, _ = random_case(11)
    for row in range(len(logged)):
        for other in (other_ips, other_snips):
            other.add_example(logged.pscore[row], logged.reward[row], target.pi_e[row, logged.action[row]])
    assert ips(logged, target).value == pytest.approx(other_ips.get(), rel=1e-12)
    assert snips(logged, target).value == pytest.approx(other_snips.get(), rel=1e-12)
