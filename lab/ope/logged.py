"""Owns a log of decisions as arrays, and the policy that is to be judged on it; both are checked as they are made.

The names are those of the off-policy literature: context, action, reward, pscore, pi_b (behaviour), pi_e (evaluation).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE: Final = 1e-6
"""By how much the propensities of a cycle may miss 1, and pscore its entry in pi_b: they were written as decimals."""

SURE: Final = 1.0 - 1e-9
"""From this propensity on, the arm was not drawn: it was the only one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Logged:
    """n decisions that have a reward, over k arms, in the order they were made.

    `context` (n x d), `action` (n, index of the executed arm), `reward` (n), `pi_b` (n x k): the probability of every
    arm to be *executed*, so the guard's part is in it; a row of NaN is a cycle whose propensities were not recorded.
    `pscore` (n) is the propensity of what was executed, NaN where it is not known. `masked` (n x k) are arms that were
    not on offer. `cycle` (n) are cycle numbers and `run` (n) the key of the stretch of consecutive cycles that each is
    of (`runs`). `censored` counts the decisions that have no reward and are not here.

    Raises ValueError for two lengths, for what is not finite, for probabilities outside 0-1 or that do not sum to 1,
    for a masked arm with a propensity, for cycles that do not rise within a run and for a run in two pieces.
    """

    arms: tuple[str, ...]
    context: Floats
    action: Ints
    reward: Floats
    pscore: Floats
    pi_b: Floats
    masked: Bools
    cycle: Ints
    run: Ints
    censored: int = 0

    def __post_init__(self) -> None:
        n, k = len(self.action), len(self.arms)
        _need(n > 0, "a log needs at least one decision with a reward")
        _need(k > 0, "a log needs at least one arm")
        _need(self.context.ndim == 2 and len(self.context) == n, f"context must be {n} rows of features")  # noqa: PLR2004
        for name in ("action", "reward", "pscore", "cycle", "run"):
            _need(getattr(self, name).shape == (n,), f"{name} must be {n} values, one for each action")
        for name in ("pi_b", "masked"):
            _need(getattr(self, name).shape == (n, k), f"{name} must be {n} rows of {k} arms")
        _need(self.censored >= 0, "censored is a count: 0 or more")
        _rows(~np.isfinite(self.context).all(axis=1), "context must be finite; give what is missing a value and a flag")
        _rows(~np.isfinite(self.reward), "reward must be finite; leave out cycles without one and count them censored")
        _rows((self.action < 0) | (self.action >= k), f"action must be the index of one of {k} arms")
        _rows((self.pscore < 0.0) | (self.pscore > 1.0 + SUM_TOLERANCE), "pscore must be 0-1, or NaN if not known")
        unknown = np.isnan(self.pi_b).all(axis=1, keepdims=True)
        _distributions(np.where(unknown, 1.0 / k, self.pi_b), "pi_b", "; a row not recorded is all NaN")
        _rows((self.masked & (self.pi_b > 0.0)).any(axis=1), "pi_b must be 0 where an arm is masked")
        same = self.run[1:] == self.run[:-1]
        _rows(np.append(False, same & (np.diff(self.cycle) <= 0)), "cycle must rise within a run; sort the decisions")
        _need(int((~same).sum()) + 1 == len(np.unique(self.run)), "the decisions of a run must stand together")

    def __len__(self) -> int:
        return len(self.action)

    @property
    def pscore_in_pi_b(self) -> Floats:
        """What `pi_b` says of the executed arm (n)."""
        executed: Floats = self.pi_b[np.arange(len(self)), self.action]
        return executed

    @property
    def weighable(self) -> Bools:
        """Rows (n) that can be weighed: `pscore` is known, above 0, and what `pi_b` says of the executed arm."""
        with np.errstate(invalid="ignore"):
            agree = np.abs(self.pscore - self.pscore_in_pi_b) <= SUM_TOLERANCE
        return agree & (self.pscore > 0.0)

    def take(self, rows: Bools) -> "Logged":
        """The decisions where `rows` (n) is true."""
        return replace(
            self,
            context=self.context[rows],
            action=self.action[rows],
            reward=self.reward[rows],
            pscore=self.pscore[rows],
            pi_b=self.pi_b[rows],
            masked=self.masked[rows],
            cycle=self.cycle[rows],
            run=self.run[rows],
        )


@dataclass(frozen=True, eq=False)
class Target:
    """The policy to be judged: `pi_e` (n x k), the probability of every arm to be executed by it in each logged
    context.

    Raises ValueError for what is not finite or outside 0-1, and for rows that do not sum to 1.
    """

    pi_e: Floats

    def __post_init__(self) -> None:
        _need(self.pi_e.ndim == 2, "pi_e must be rows of arms")  # noqa: PLR2004
        _distributions(self.pi_e, "pi_e", "")

    @classmethod
    def choosing(cls, action: Ints, arms: int) -> "Target":
        """The policy that takes arm `action[i]` of so many in context i, without chance."""
        _rows((action < 0) | (action >= arms), f"action must be the index of one of {arms} arms")
        return cls(np.eye(arms)[action])

    def fitting(self, logged: Logged) -> Floats:
        """`pi_e`, if it has the log's shape; else ValueError."""
        _need(self.pi_e.shape == logged.pi_b.shape, f"pi_e must be {len(logged)} rows of {len(logged.arms)} arms")
        return self.pi_e


def runs(boots: Sequence[str], cycles: Ints, longest_gap_cycles: int = 1) -> Ints:
    """The run of every decision (n): a new one begins with another boot, with a cycle number that does not rise, and
    after more than `longest_gap_cycles` from one cycle to the next (1: no cycle is missing).
    """
    _need(len(boots) == len(cycles), "boots and cycles must be one for each decision")
    step = np.diff(cycles)
    other = np.array([boots[i] != boots[i + 1] for i in range(len(boots) - 1)], dtype=np.bool_)
    begins = other | (step <= 0) | (step > longest_gap_cycles)
    return np.concatenate([np.zeros(min(1, len(cycles)), np.int64), np.cumsum(begins, dtype=np.int64)])


def _need(holds: bool | np.bool_, text: str) -> None:  # noqa: FBT001 - a condition, named by its text
    if not holds:
        raise ValueError(text)


def _rows(wrong: Bools | np.bool_, text: str) -> None:
    """ValueError that names the first row where `wrong`."""
    if wrong.any():
        raise ValueError(f"{text} (row {int(np.argmax(wrong))}, {int(wrong.sum())} in all)")


def _distributions(rows: Floats, name: str, more: str) -> None:
    _rows(~np.isfinite(rows).all(axis=1), f"{name} must be finite{more}")
    _rows(((rows < 0.0) | (rows > 1.0 + SUM_TOLERANCE)).any(axis=1), f"{name} must be 0-1")
    _rows(np.abs(rows.sum(axis=1) - 1.0) > SUM_TOLERANCE, f"each row of {name} must sum to 1")
