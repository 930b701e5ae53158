"""Builders of logs for off-policy evaluation."""

import numpy as np

from lab.ope.logged import Logged


def log_of(action, reward, behaviour, /, **other) -> Logged:
    """A log with what the propensities say of the actions, one run, and a context of one feature."""
    action = np.asarray(action, int)
    pi_b = np.asarray(behaviour, float)
    rows, arms = pi_b.shape
    parts = {
        "arms": tuple(f"arm{i}" for i in range(arms)),
        "context": np.linspace(0.0, 1.0, rows)[:, None],
        "action": action,
        "reward": np.asarray(reward, float),
        "pscore": pi_b[np.arange(rows), np.clip(action, 0, arms - 1)],
        "pi_b": pi_b,
        "masked": np.zeros(pi_b.shape, bool),
        "cycle": np.arange(rows),
        "run": np.zeros(rows, int),
    }
    return Logged(**(parts | other))


def drawn_log(rows, pi_b, seed, deviation=0.1, means=None) -> Logged:
    """A log drawn from one distribution over arms; the reward of arm i is i / 10 (or `means[i]`) with noise."""
    rng = np.random.default_rng(seed)
    arms = len(pi_b)
    action = rng.choice(arms, size=rows, p=pi_b)
    reward = np.asarray(means if means is not None else np.arange(arms) / 10.0)[action]
    return log_of(action, reward + rng.normal(0.0, deviation, rows), np.tile(pi_b, (rows, 1)))
