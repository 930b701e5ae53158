"""Owns what is known to give too little: arms that did harm when a sound node moved to them, and all that give less.

Latency falls with the share of CPU, never the other way: where an arm gave a class too little, every arm that gives it
no more will do the same, and no model is needed to know it. It is forgotten after a while, since loads change; each
time that an arm burns again, later.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from schemas.features import WEIGHT_LOG_BASE
from schemas.settings import ClassSettings
from services.decider.core.policy import Arm

LESSONS: Final = 60.0
MOST_LESSONS: Final = 480.0
"""For how many lessons an arm stays burnt: five minutes of contention at the 5 s tick, and eight times that at most."""

_CLEARLY: Final = 1.02
_ROUNDING: Final = 0.02
_MOST_KEPT: Final = 64
"""Moments whose shares are kept, by the weights and the classes that are there: weights move seldom."""


class Shares:
    """What part (0-1) of the class weights each class has, now and at an arm, by one moment's features: among the
    classes that are `present`.

    `now` is what is in force, `latency` are all latency classes. Arms are few: what was said of one is kept.
    """

    def __init__(self, classes: Mapping[str, ClassSettings], features: Mapping[str, float]) -> None:
        self.latency = tuple(name for name, spec in classes.items() if spec.kind == "latency")
        present = [name for name in classes if features.get(f"{name}.present", 1.0) > 0.0]
        weights = {name: WEIGHT_LOG_BASE ** features.get(f"{name}.weight_log", 0.0) for name in present}
        total = sum(weights.values())
        self.now: dict[str, float] = {name: weight / total for name, weight in weights.items()}
        self._kept: dict[str, tuple[Arm, dict[str, float]]] = {}

    def of(self, arm: Arm) -> dict[str, float]:
        """At an arm's weights, for the same classes; what is in force for `hold`."""
        if arm.weights is None:
            return self.now
        kept = self._kept.get(arm.name)
        if kept is None or (kept[0] is not arm and kept[0] != arm):
            weights = [arm.weights.get(name, 0) for name in self.now]
            total = sum(weights) or 1
            parts = {name: weight / total for name, weight in zip(self.now, weights, strict=True)}
            kept = self._kept[arm.name] = arm, parts
        return kept[1]

    def are_of(self, arm: Arm) -> bool:
        """Whether an arm's weights are those in force, up to rounding."""
        then = self.of(arm)
        return all(abs(then[name] - part) <= _ROUNDING * part for name, part in self.now.items())

    def giving_more(self, name: str, arms: Sequence[Arm]) -> list[Arm]:
        """The arms that give a class a clearly larger part than it has, the largest last."""
        now = self.now.get(name, 1.0)
        parts = sorted(((self.of(arm).get(name, 0.0), arm) for arm in arms), key=lambda pair: pair[0])
        return [arm for part, arm in parts if part > now * _CLEARLY]


class Balance:
    """The `Shares` of one moment after the other, for fixed classes. The newest are kept."""

    def __init__(self, classes: Mapping[str, ClassSettings]) -> None:
        self._classes = classes
        self._presence = tuple(f"{name}.present" for name in classes)
        self._weight_logs = tuple(f"{name}.weight_log" for name in classes)
        self._kept: dict[tuple[float, ...], Shares] = {}

    def at(self, features: Mapping[str, float]) -> Shares:
        """The shares by these features."""
        here = (
            *[features.get(name, 1.0) for name in self._presence],
            *[features.get(name, 0.0) for name in self._weight_logs],
        )
        if here not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[here] = Shares(self._classes, features)
        return self._kept[here]


class Burns:
    """How long each arm stays burnt, in lessons, and for how long it will the next time."""

    def __init__(self, arms: Sequence[Arm]) -> None:
        self._arms = {arm.name: arm for arm in arms if arm.weights is not None}
        self._left = dict.fromkeys(self._arms, 0.0)
        self._next = dict.fromkeys(self._arms, LESSONS)
        self.size = 2 * len(self._arms)

    def burn(self, arm: Arm) -> None:
        """The arm has done harm. Nothing is kept of an arm that was not given at construction."""
        if arm.name in self._left:
            self._left[arm.name] = self._next[arm.name]
            self._next[arm.name] = min(MOST_LESSONS, 2.0 * self._next[arm.name])

    def pass_time(self) -> None:
        """One lesson has passed."""
        self._left = {name: left - 1.0 if left > 1.0 else 0.0 for name, left in self._left.items()}

    def forbidden(self, features: Mapping[str, float], arms: Sequence[Arm], shares: Shares) -> list[str]:
        """The names of those of `arms` that do no better than a burnt one: where that would now take from latency
        classes that are not lost, they give none of them more.
        """
        burnt = self._limits_at(features, shares)
        return [arm.name for arm in arms if _is_within(shares.of(arm), burnt)]

    def _limits_at(self, features: Mapping[str, float], shares: Shares) -> list[tuple[tuple[str, float], ...]]:
        """For each burnt arm that would take from classes now: what one must give more than, to at least one."""
        found = []
        for name in (name for name, left in self._left.items() if left > 0.0):
            burnt = shares.of(self._arms[name])
            limits = tuple(
                (cls, burnt[cls] * _CLEARLY)
                for cls in shares.latency
                if cls in burnt and burnt[cls] * _CLEARLY < shares.now[cls] and features.get(f"{cls}.lost", 0.0) <= 0.0
            )
            if limits:
                found.append(limits)
        return found

    def save(self) -> list[float]:
        """Left and next of each arm, flat in the arms' order."""
        return [value for name in self._arms for value in (self._left[name], self._next[name])]

    def load(self, numbers: Sequence[float]) -> None:
        """The inverse of `save`."""
        for name, left, following in zip(self._arms, numbers[::2], numbers[1::2], strict=True):
            self._left[name], self._next[name] = left, following


def _is_within(parts: Mapping[str, float], burnt: Iterable[tuple[tuple[str, float], ...]]) -> bool:
    """Whether an arm that gives these parts gives no more than one of the burnt, to none of its classes."""
    for limits in burnt:
        for name, most in limits:
            if parts[name] > most:
                break
        else:
            return True
    return False
