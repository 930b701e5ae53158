"""Owns a world in which every policy's value is known: simulated logs to try the estimators and their intervals on.

A node has one of LEVELS levels of load; the arm in force moves the level (carry-over), the reward depends on level and
arm, and its noise has memory. Levels and arms are few, so that stationary distributions, and with them values, are
exact.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from lab.ope.logged import Bools, Floats, Ints, Logged, Target

LEVELS: Final = 8
ARMS: Final = 5
NOISE_DEVIATION: Final = 0.25
NOISE_MEMORY: Final = 0.9
"""Autocorrelation of the reward's noise from one cycle to the next: a backlog takes some ten cycles to go."""

EXPLORATION: Final = 0.25
"""The logging policy draws uniformly this often."""


@dataclass(frozen=True, eq=False)
class World:
    """`reward` (levels x arms) is the expected one; `up` and `down` (levels x arms) are the chances of the level to
    move; `pi_b` and `masked` (levels x arms) are the logging policy's.
    """

    reward: Floats
    up: Floats
    down: Floats
    pi_b: Floats
    masked: Bools

    def stationary(self, policy: Floats) -> Floats:
        """How often each level occurs (levels) while `policy` (levels x arms) acts for good."""
        rows = np.arange(LEVELS)
        moves = np.zeros((LEVELS, LEVELS))
        moves[rows[:-1], rows[1:]] = (policy * self.up).sum(axis=1)[:-1]
        moves[rows[1:], rows[:-1]] = (policy * self.down).sum(axis=1)[1:]
        moves[rows, rows] = 1.0 - moves.sum(axis=1)
        system = np.vstack([moves.T - np.eye(LEVELS), np.ones(LEVELS)])
        found: Floats = np.linalg.lstsq(system, np.append(np.zeros(LEVELS), 1.0))[0]
        return found

    def value(self, policy: Floats) -> float:
        """The mean reward of `policy` (levels x arms), acting once in each context that the logging policy sees: what
        the estimators estimate.
        """
        return float(self.stationary(self.pi_b) @ (policy * self.reward).sum(axis=1))

    def lasting_value(self, policy: Floats) -> float:
        """The mean reward of `policy` when it acts for good, and so makes its own contexts: what they do not
        estimate.
        """
        return float(self.stationary(policy) @ (policy * self.reward).sum(axis=1))


def make_world() -> World:
    """The world of the coverage study: the best arm depends on the level, and not linearly; at the top one is
    masked.
    """
    load = np.arange(LEVELS)[:, None] / (LEVELS - 1)
    push = np.arange(ARMS)[None, :] / (ARMS - 1)
    reward = 0.3 - 0.9 * (push - (1.0 - load**2)) ** 2 - 0.5 * load**3
    masked = (load >= 1.0) & (push >= 1.0)
    return World(
        reward=reward,
        up=0.1 + 0.1 * push + 0.0 * load,
        down=0.12 + 0.1 * load + 0.0 * push,
        pi_b=softened(-((push - (1.0 - load)) ** 2), masked, heat=0.15, exploration=EXPLORATION),
        masked=masked,
    )


def softened(score: Floats, masked: Bools, heat: float, exploration: float) -> Floats:
    """A policy (levels x arms): the softmax of `score` / `heat` over what is not masked, with uniform exploration."""
    weight = np.where(masked, 0.0, np.exp((score - score.max(axis=1, keepdims=True)) / heat))
    uniform = ~masked / (~masked).sum(axis=1, keepdims=True)
    policy: Floats = (1.0 - exploration) * weight / weight.sum(axis=1, keepdims=True) + exploration * uniform
    return policy


def near_policy(world: World) -> Floats:
    """A policy (levels x arms) like the logging one, that heeds the reward a little: weights stay near 1."""
    tilted = world.pi_b * np.exp(world.reward)
    policy: Floats = tilted / tilted.sum(axis=1, keepdims=True)
    return policy


def best_policy(world: World) -> Floats:
    """The policy (levels x arms) that takes the best arm on offer, without chance: far from the logging one."""
    best = np.where(world.masked, -np.inf, world.reward).argmax(axis=1)
    policy: Floats = np.eye(ARMS)[best]
    return policy


def simulate(world: World, rows: int, logs: int, seed: int) -> list[tuple[Logged, Ints]]:
    """So many independent `logs` of so many `rows`, each with the level of every row (rows), which gives a policy's
    `Target` by `target_on`. The context is the load and a number that means nothing.
    """
    rng = np.random.default_rng(seed)
    reach = np.cumsum(world.pi_b, axis=1)[:, :-1]
    level = rng.choice(LEVELS, size=logs, p=world.stationary(world.pi_b))
    noise = rng.normal(0.0, NOISE_DEVIATION, logs)
    fresh = NOISE_DEVIATION * np.sqrt(1.0 - NOISE_MEMORY**2)
    levels, actions = np.empty((rows, logs), np.int8), np.empty((rows, logs), np.int8)
    noises = np.empty((rows, logs))
    for row in range(rows):
        action = (rng.random(logs)[:, None] >= reach[level]).sum(axis=1)
        levels[row], actions[row], noises[row] = level, action, noise
        chance = rng.random(logs)
        rises = (chance < world.up[level, action]) & (level < LEVELS - 1)
        falls = (chance > 1.0 - world.down[level, action]) & (level > 0)
        level = level + rises - falls
        noise = NOISE_MEMORY * noise + fresh * rng.standard_normal(logs)
    return [
        _logged(world, levels[:, i].astype(np.int64), actions[:, i].astype(np.int64), noises[:, i], rng)
        for i in range(logs)
    ]


def target_on(policy: Floats, levels: Ints) -> Target:
    """`policy` (levels x arms) on the rows of a log."""
    return Target(policy[levels])


def _logged(world: World, levels: Ints, action: Ints, noise: Floats, rng: np.random.Generator) -> tuple[Logged, Ints]:
    rows = len(levels)
    logged = Logged(
        arms=tuple(f"arm{i}" for i in range(ARMS)),
        context=np.column_stack([levels / (LEVELS - 1), rng.standard_normal(rows)]),
        action=action,
        reward=world.reward[levels, action] + noise,
        pscore=world.pi_b[levels, action],
        pi_b=world.pi_b[levels],
        masked=world.masked[levels],
        cycle=np.arange(rows),
        run=np.zeros(rows, np.int64),
    )
    return logged, levels
