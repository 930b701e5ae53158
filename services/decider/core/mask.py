"""Owns which arms may be offered to a policy now. The guard would refuse the others, or they would hurt.

Weights act among the classes that have pods, so everything here compares weights over those classes only, on the
profile scale. Reasons, in the order in which they are tried:

- `stay`: `hold`, when the weights in force are an arm already: holding and staying would be two names for one thing.
- `frozen`: the mode allows no change. `rate`: the change budget of this minute is spent.
- `same`: an arm that differs from another only in classes without pods.
- `no_harm`: a latency class misses its objective and would get a smaller share of the weights than now. This keeps
  exploration from building a queue. If two such classes leave no way to move, the less important one yields (and of
  equals the one configured later), until there is a way or only the most important is left. A class that no weights
  can save (`lost`, see outlook) yields to all.
- `step`: a class weight would change by more than `max_step_ratio`. If no other arm that is left is within a step,
  none is masked by it: the guard then clamps the way towards the target, and the next cycle goes on from there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from schemas.messages import ClassState, Mode
from schemas.objective import is_violated
from schemas.profile import scaled
from schemas.settings import ClassSettings, WeightSettings
from services.decider.core.policy import HOLD, Arm

ROUNDING_RATIO: Final = 0.01
"""Weights are integers of at least 100 in the default scale: two of them closer than 1 % are one weight, rounded."""

_MOST_KEPT: Final = 256
"""Answers that are kept: each is a tuple of arms and a few words."""

_Meaning: TypeAlias = tuple[int, ...]
"""Weights of certain classes in turn."""


class Masked(msgspec.Struct, frozen=True, kw_only=True):
    """The arms that may be chosen, and for each other arm the reason why not.

    `allowed` is never empty, and its first arm changes nothing: it is `hold` or the arm in force. The rest keep their
    order.
    """

    allowed: tuple[Arm, ...]
    reasons: dict[str, str]

    def why_alone(self) -> str | None:
        """The reasons that leave only the first arm, in words; None if there is a choice."""
        if len(self.allowed) > 1:
            return None
        words = dict.fromkeys(reason for name, reason in self.reasons.items() if name != HOLD.name)
        return f"all else is masked: {', '.join(words)}" if words else "there is nothing else"


def mask(
    arms: Sequence[Arm],
    current_weights: Mapping[str, int] | None,
    classes: Mapping[str, ClassState],
    *,
    settings: Mapping[str, ClassSettings],
    limits: WeightSettings,
    changes_left: int | None = None,
    mode: Mode = "active",
    lost: Collection[str] = (),
) -> Masked:
    """What is allowed from here. `None` for weights or budget means unknown: what cannot be judged is not masked.

    `arms` holds profiles over all classes and may lack `hold`, which is then added if nothing else would stay.
    """
    return Masks(arms, settings, limits).at(current_weights, classes, changes_left=changes_left, mode=mode, lost=lost)


class _Situation(NamedTuple):
    """All that a mask depends on: the weights by class, the classes that have pods, those of them that miss their
    objective and can be saved, and whether nothing may change, by the mode or the change budget.
    """

    weights: tuple[tuple[str, int], ...]
    present: tuple[str, ...]
    violated: tuple[str, ...]
    is_frozen: bool
    is_spent: bool


class Masks:
    """`mask` for fixed arms, classes and limits, which keeps its newest answers: weights move between few places, and
    classes come and go seldom. An answer is given again as it is, so nobody may change one.
    """

    def __init__(self, arms: Sequence[Arm], settings: Mapping[str, ClassSettings], limits: WeightSettings) -> None:
        self._arms = arms
        self._settings = settings
        self._limits = limits
        self._kept: dict[_Situation, Masked] = {}

    def at(
        self,
        current_weights: Mapping[str, int] | None,
        classes: Mapping[str, ClassState],
        *,
        changes_left: int | None = None,
        mode: Mode = "active",
        lost: Collection[str] = (),
    ) -> Masked:
        """What is allowed from here (see `mask`)."""
        settings, weights = self._settings, current_weights or {}
        present = [name for name in settings if name in classes and classes[name].pods > 0]
        violated = [
            name
            for name in present
            if name in weights and name not in lost and is_violated(classes[name], settings[name])
        ]
        is_spent = changes_left is not None and changes_left <= 0
        here = _Situation(tuple(weights.items()), tuple(present), tuple(violated), mode == "frozen", is_spent)
        if here not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[here] = self._masked(here)
        return self._kept[here]

    def _masked(self, here: _Situation) -> Masked:
        weights, present = dict(here.weights), here.present
        current = _over(weights, present)
        moves = [arm for arm in self._arms if arm.weights is not None]
        in_force = _arm_in_force(moves, weights, present)
        stay = in_force or HOLD
        moves = [arm for arm in moves if arm is not stay]
        reasons = {HOLD.name: "stay"} if in_force else {}

        def drop(reason: str, dropped: Iterable[Arm]) -> None:
            nonlocal moves
            gone = {arm.name: reason for arm in dropped}
            if gone:
                reasons.update(gone)
                moves = [arm for arm in moves if arm.name not in gone]

        if here.is_frozen:
            drop("frozen", moves)
        if here.is_spent:
            drop("rate", moves)
        drop("same", _duplicates(moves, in_force, present))
        drop("no_harm", _harmful(moves, current, here.violated, self._settings))
        far = _far(moves, current, self._limits)
        if len(far) < len(moves):
            drop("step", far)
        return Masked(allowed=(stay, *moves), reasons=reasons)


def _over(weights: Mapping[str, int] | None, names: Iterable[str]) -> dict[str, int]:
    return {name: weights[name] for name in names if name in weights} if weights else {}


def _meaning(weights: Mapping[str, int] | None, names: Sequence[str]) -> _Meaning:
    """The weights of these classes in turn, 0 for one that is not among them."""
    return tuple(map(weights.get, names, repeat(0))) if weights else (0,) * len(names)


def _meanings(arms: Sequence[Arm], names: Sequence[str]) -> tuple[_Meaning, ...]:
    """The same of several arms, fast: most name every class."""
    if len(names) > 1:
        take = itemgetter(*names)
        try:
            return tuple([take(arm.weights or {}) for arm in arms])
        except KeyError:  # of a class that one does not name
            pass
    return tuple([_meaning(arm.weights, names) for arm in arms])


def _is_same(a: _Meaning, b: _Meaning) -> bool:
    """Equal ratios between the same classes, up to rounding."""
    lowest_a, lowest_b = min(filter(None, a), default=1), min(filter(None, b), default=1)
    for of_a, of_b in zip(a, b, strict=True):
        if of_a and of_b:
            if abs(of_a * lowest_b / (of_b * lowest_a) - 1.0) > ROUNDING_RATIO:
                return False
        elif of_a or of_b:
            return False
    return True


def _arm_in_force(arms: Sequence[Arm], weights: Mapping[str, int], present: Sequence[str]) -> Arm | None:
    """The arm whose weights are in force for the present classes; of several the one that fits the absent too."""
    if not weights or not all(name in weights for name in present):
        return None
    fits = _are_same(_meaning(weights, present), _meanings(arms, present))
    fitting = [arm for arm, is_fit in zip(arms, fits, strict=True) if is_fit]
    everywhere, now = tuple(weights), tuple(weights.values())
    exact = (arm for arm in fitting if _is_same(_meaning(arm.weights, everywhere), now))
    return next(exact, fitting[0] if fitting else None)


@lru_cache(maxsize=64)  # weights move seldom, and between few places
def _are_same(now: _Meaning, meanings: tuple[_Meaning, ...]) -> tuple[bool, ...]:
    return tuple([_is_same(meaning, now) for meaning in meanings])


def _duplicates(arms: Sequence[Arm], in_force: Arm | None, present: Sequence[str]) -> list[Arm]:
    """All but one of the arms that mean the same to the present classes, and all that mean what is in force."""
    stay = _meaning((in_force or HOLD).weights, present)
    repeats = _repeats(stay, _meanings(arms, present))
    return [arm for arm, is_repeat in zip(arms, repeats, strict=True) if is_repeat]


@lru_cache(maxsize=64)  # arms are the same every cycle, and classes come and go seldom
def _repeats(stay: _Meaning, meanings: tuple[_Meaning, ...]) -> tuple[bool, ...]:
    """For each meaning whether it is that of staying or of one before it that is no repeat itself."""
    kept, found = [stay], []
    for meaning in meanings:
        found.append(any(_is_same(meaning, other) for other in kept))
        if not found[-1]:
            kept.append(meaning)
    return tuple(found)


def _far(arms: Sequence[Arm], current: Mapping[str, int], limits: WeightSettings) -> list[Arm]:
    """The arms that are more than a step away."""
    names = tuple(current)
    near = _are_near(
        tuple(current.values()),
        tuple([_meaning(arm.weights, names) for arm in arms]),
        limits.min_weight,
        limits.max_step_ratio,
    )
    return [arm for arm, is_near in zip(arms, near, strict=True) if not is_near]


@lru_cache(maxsize=64)  # weights move seldom, and between few places
def _are_near(
    now: _Meaning, meanings: tuple[_Meaning, ...], min_weight: int, max_step_ratio: float
) -> tuple[bool, ...]:
    here, most = scaled(now, min_weight), max_step_ratio * (1.0 + 1e-9)
    return tuple([_widest_step(here, scaled(meaning, min_weight)) <= most for meaning in meanings])


def _widest_step(here: _Meaning, there: _Meaning) -> float:
    return max((max(b / a, a / b) for a, b in zip(here, there, strict=True) if a and b), default=1.0)


def _takes_from(name: str, arm: Arm, current: Mapping[str, int]) -> bool:
    """True if the class would have a smaller share at the arm's weights.

    If not, it has none smaller on the way either: along a way that is straight in the logarithms of the weights, as the
    guard's clamp is, the logarithm of a share is concave.
    """
    then = _over(arm.weights, current)
    share_now, share_then = current[name] / sum(current.values()), then[name] / sum(then.values())
    return share_then < share_now * (1.0 - ROUNDING_RATIO)


def _harmful(
    arms: Sequence[Arm],
    current: Mapping[str, int],
    violated: Sequence[str],
    settings: Mapping[str, ClassSettings],
) -> list[Arm]:
    """The arms that would take from a violated class, most important class first (see the module's text)."""
    if not violated:
        return []
    harmless = list(arms)
    for rank, name in enumerate(sorted(violated, key=lambda name: -settings[name].importance)):
        left = [arm for arm in harmless if not _takes_from(name, arm, current)]
        if left or rank == 0:
            harmless = left
    kept = {arm.name for arm in harmless}
    return [arm for arm in arms if arm.name not in kept]
