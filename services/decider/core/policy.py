"""Owns the protocol between the decider and its policies: arms in, a choice with all its propensities out."""

import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from services.decider.core.snapshot import Snapshot, SnapshotMismatch

__all__ = ["HOLD", "Arm", "Choice", "Policy", "Snapshot", "SnapshotMismatch", "choose"]


class Arm(msgspec.Struct, frozen=True):
    """One thing that can be done: go to a profile of class weights, or, with `weights` None, leave all as it is."""

    name: str
    weights: Mapping[str, int] | None = None


HOLD: Final = Arm("hold")
"""The arm that leaves all weights as they are. Its name is reserved."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's answer.

    `propensities` holds the exact probability, before the draw, of every arm that was offered; they sum to 1.
    `scores` holds what each offered arm was ranked by. `explored` is true if chance led away from the best score.
    """

    arm: str
    propensity: float
    propensities: dict[str, float]
    scores: dict[str, float]
    explored: bool


class Policy(Protocol):
    """What every policy does. `learn` and `load` change its state, nothing else does: `decide` draws only on `rng`."""

    @property
    def name(self) -> str:
        """The policy's name in the configuration and in messages."""

    @property
    def updates(self) -> int:
        """How many rewards it has learned from."""

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """One of `arms` (never empty, names unique). Equal state, arguments and `rng` give an equal choice."""

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in that `arm`, executed in the situation of `features`, was worth `reward` (in [-1, 1])."""

    def save(self) -> Snapshot:
        """The learned state as plain values."""

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""


def choose(
    scores: Mapping[str, float],
    epsilon: float,
    rng: random.Random,
    among: Sequence[str] | None = None,
    best: str | None = None,
) -> Choice:
    """The best-scored arm, or with probability `epsilon` any arm uniformly: 1-ε+ε/k for the best, ε/k for each other.

    The floor gives every offered arm a known, positive propensity, which off-policy estimators need. `among` leaves
    the draw to some of the offered arms: the others have propensity 0. `best` is taken in place of the best-scored one.
    Ties go to the arm that comes first in `scores`. Takes one or two draws from `rng`.
    """
    names = [name for name in scores if among is None or name in among]
    leader = max(names, key=scores.__getitem__) if best is None else best
    picked = leader
    if rng.random() < epsilon:
        picked = names[rng.randrange(len(names))]
    floor = epsilon / len(names)
    propensities = dict.fromkeys(scores, 0.0)
    for name in names:
        propensities[name] = 1.0 - epsilon + floor if name == leader else floor
    return Choice(
        arm=picked,
        propensity=propensities[picked],
        propensities=propensities,
        scores=dict(scores),
        explored=picked != leader,
    )
