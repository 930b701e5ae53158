"""Owns what is known to give too little: arms that did harm when a sound node moved to them, and all that give less.

Latency falls with the share of CPU, never the other way: where an arm gave a class too little, every arm that gives it
no more will do the same, and no model is needed to know it. It is forgotten after a while, since loads change; each
time that an arm burns again, later.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.settings import ClassSettings
from services.decider.core.policy import Arm

LESSONS: Final = 60.0
MOST_LESSONS: Final = 480.0
"""For how many lessons an arm stays burnt: five minutes of contention at the 5 s tick, and eight times that at most."""

_CLEARLY: Final = 1.02
_ROUNDING: Final = 0.02


class Shares:
    """What part of the class weights a class has, among those with pods."""

    def __init__(self, classes: Mapping[str, ClassSettings]) -> None:
        self._classes = classes
        self.latency = tuple(name for name, spec in classes.items() if spec.kind == "latency")

    def now(self, features: Mapping[str, float]) -> dict[str, float]:
        """In force, by the features `<class>.weight_log`, for the classes that are `present`."""
        present = [name for name in self._classes if features.get(f"{name}.present", 1.0) > 0.0]
        weights = {name: 100.0 ** features.get(f"{name}.weight_log", 0.0) for name in present}
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def of(self, arm: Arm, features: Mapping[str, float]) -> dict[str, float]:
        """At an arm's weights, for the same classes; what is in force for `hold`."""
        now = self.now(features)
        if arm.weights is None:
            return now
        total = sum(arm.weights.get(name, 0) for name in now) or 1
        return {name: arm.weights.get(name, 0) / total for name in now}

    def are_in_force(self, arm: Arm, features: Mapping[str, float]) -> bool:
        """Whether an arm's weights are those in force, up to rounding."""
        now, then = self.now(features), self.of(arm, features)
        return all(abs(then[name] - part) <= _ROUNDING * part for name, part in now.items())

    def giving_more(self, name: str, features: Mapping[str, float], arms: Sequence[Arm]) -> list[Arm]:
        """The arms that give a class a clearly larger part than it has, the largest last."""
        now = self.now(features).get(name, 1.0)
        parts = [(self.of(arm, features).get(name, 0.0), arm) for arm in arms]
        return [arm for part, arm in sorted(parts, key=lambda pair: pair[0]) if part > now * _CLEARLY]


class Burns:
    """How long each arm stays burnt, in lessons, and for how long it will the next time."""

    def __init__(self, arms: Sequence[Arm]) -> None:
        self._arms = {arm.name: arm for arm in arms if arm.weights is not None}
        self._left = dict.fromkeys(self._arms, 0.0)
        self._next = dict.fromkeys(self._arms, LESSONS)
        self.size = 2 * len(self._arms)

    def burn(self, arm: Arm) -> None:
        """The arm has done harm."""
        if arm.name in self._left:
            self._left[arm.name] = self._next[arm.name]
            self._next[arm.name] = min(MOST_LESSONS, 2.0 * self._next[arm.name])

    def pass_time(self) -> None:
        """One lesson has passed."""
        self._left = {name: max(0.0, left - 1.0) for name, left in self._left.items()}

    def forbid(self, features: Mapping[str, float], arm: Arm, shares: Shares) -> bool:
        """Whether an arm that burnt would have taken from latency classes, and this one gives none of them more."""
        now, own = shares.now(features), shares.of(arm, features)
        for name, left in self._left.items():
            if left <= 0.0:
                continue
            burnt = shares.of(self._arms[name], features)
            taken_from = [
                cls
                for cls in shares.latency
                if cls in now and burnt[cls] * _CLEARLY < now[cls] and features.get(f"{cls}.lost", 0.0) <= 0.0
            ]
            if taken_from and all(own[cls] <= burnt[cls] * _CLEARLY for cls in taken_from):
                return True
        return False

    def save(self) -> list[float]:
        """Left and next of each arm, flat in the arms' order."""
        return [value for name in self._arms for value in (self._left[name], self._next[name])]

    def load(self, numbers: Sequence[float]) -> None:
        """The inverse of `save`."""
        for name, left, following in zip(self._arms, numbers[::2], numbers[1::2], strict=True):
            self._left[name], self._next[name] = left, following
