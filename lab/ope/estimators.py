"""Owns the estimators: replay, IPS, self-normalised IPS, doubly robust. Each is a ratio of two sums over the rows.

All take a log whose every row is weighable (`Logged.weighable`), and answer the same question: the mean reward, had
the target acted once in each recorded context. Rows where the target leaves the log's support are for support.py.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from lab.ope.logged import Floats, Logged, Target

REPLAY: Final = "replay"
IPS: Final = "ips"
SNIPS: Final = "snips"
DR: Final = "dr"
ESTIMATORS: Final = (REPLAY, IPS, SNIPS, DR)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value as sum(`numerator`) / sum(`denominator`), with what each row (n) contributed to both sums."""

    numerator: Floats
    denominator: Floats

    @property
    def value(self) -> float:
        """The estimate; NaN where no row counts."""
        below = float(self.denominator.sum())
        return float(self.numerator.sum()) / below if below else float("nan")

    @property
    def influence(self) -> Floats:
        """By how much each row (n) pulls the value from what it is, times n; sums to 0.

        Source: Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982, chapter 6.
        """
        scaled: Floats = (self.numerator - self.value * self.denominator) / self.denominator.mean()
        return scaled


def weights(logged: Logged, target: Target) -> Floats:
    """pi_e / pscore of what was executed (n): its mean is 1 where the log supports the target."""
    taken: Floats = target.fitting(logged)[np.arange(len(logged)), logged.action]
    return taken / logged.pscore


def logged_mean(logged: Logged) -> Estimate:
    """What the log itself earned: the mean reward of its rows."""
    return Estimate(logged.reward, np.ones(len(logged)))


def ips(logged: Logged, target: Target) -> Estimate:
    """Inverse propensity score: mean of w r (Horvitz, Thompson, JASA 1952). Unbiased where the log supports the target;
    what it does not support counts as reward 0.
    """
    return Estimate(weights(logged, target) * logged.reward, np.ones(len(logged)))


def snips(logged: Logged, target: Target) -> Estimate:
    """Self-normalised: sum of w r by sum of w (Swaminathan, Joachims, NIPS 2015). Moves with the rewards when a
    constant is added to them, which IPS does not; biased by O(1/n).
    """
    weight = weights(logged, target)
    return Estimate(weight * logged.reward, weight)


def doubly_robust(logged: Logged, target: Target, q_hat: Floats) -> Estimate:
    """Mean of sum_a pi_e(a) q(a) + w (r - q(action)), `q_hat` (n x k) being rewards as predicted by a model that has
    not seen the row (Dudik, Langford, Li, ICML 2011). Unbiased whatever the model where the log supports the target;
    where it does not, the model alone speaks.
    """
    pi_e = target.fitting(logged)
    factual = q_hat[np.arange(len(logged)), logged.action]
    value = (pi_e * q_hat).sum(axis=1) + weights(logged, target) * (logged.reward - factual)
    return Estimate(value, np.ones(len(logged)))


def replay(logged: Logged, target: Target, seed: int) -> Estimate:
    """Mean reward of the rows that rejection sampling accepts, each with chance w / M, M the largest weight that could
    have occurred in these contexts; one draw a row, from `seed` alone, so two targets meet the same luck.

    Against a log drawn uniformly and a target without chance this accepts every row in which both took the same arm:
    the replay of Li, Chu, Langford, Wang (WSDM 2011). Other logs need the thinning (Dudik, Erhan, Langford, Li, UAI
    2012): mere matching would count contexts by how likely the log was to agree with the target in them.
    """
    weight = weights(logged, target)
    highest = largest_possible_weight(logged, target)
    drawn = np.random.default_rng(seed).random(len(logged))
    accepted = (drawn * highest < weight).astype(np.float64)
    return Estimate(accepted * logged.reward, accepted)


def largest_possible_weight(logged: Logged, target: Target) -> float:
    """The largest pi_e / pi_b over all rows and all arms that the log could have drawn."""
    possible = logged.pi_b > 0.0
    ratio = np.divide(target.fitting(logged), logged.pi_b, out=np.zeros_like(logged.pi_b), where=possible)
    return max(float(ratio.max()), float(weights(logged, target).max()))
