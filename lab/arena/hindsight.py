"""Owns the search for the best static profile in hindsight: the profiles that are tried, and when one cannot win. Pure.

Every profile is judged by the whole run. One is given up before its end only when not even the best score that a cycle
can have, in every cycle that is left, would make it the best of the run or of a phase: that changes no result.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from lab.arena.score import BATCH_WEIGHT
from schemas.profile import on_profile_scale
from schemas.settings import Shared
from services.decider.core.arms import build_arms

LEVELS: Final = (100, 316, 1000, 3162, 10_000)
"""Between any classes: 1:1 to 100:1 in half decades, as the policies' own profiles (arms.py)."""

HALF_STEPS: Final = (200, 500, 2000, 5000)
"""Between classes of which two are alike: a profile like 5:5:1 lies between the levels."""

BEST_SCORE: Final = BATCH_WEIGHT
"""Of a cycle: nobody late, and batch has every CPU."""

_ROUNDING: Final = 1e-9
_GRID_CLASSES: Final = 3
"""With more the grid would be hundreds of profiles."""

Profile = dict[str, int]


def static_profiles(shared: Shared, present: Collection[str] | None = None) -> list[Profile]:
    """Every profile that the policies may choose; for three classes also every combination of LEVELS, and of HALF_STEPS
    where two are alike. Each ratio once. With `present`, each ratio between these classes once: what the others weigh
    makes no difference.
    """
    limits = shared.weights
    names = tuple(shared.classes)
    kept = tuple(name for name in names if present is None or name in present) or names
    found: dict[tuple[int, ...], Profile] = {}
    for weights in (*_arms(shared), *(_grid(names) if len(names) == _GRID_CLASSES else ())):
        scaled = on_profile_scale(weights, limits)
        ratios = on_profile_scale({name: scaled[name] for name in kept}, limits)
        found.setdefault(tuple(ratios.values()), scaled)
    return list(found.values())


def _arms(shared: Shared) -> Iterator[Profile]:
    return (dict(arm.weights) for arm in build_arms(shared, {}) if arm.weights is not None)


def _grid(names: Sequence[str]) -> Iterator[Profile]:
    """The lowest of the classes is always at the lowest level: other combinations are the same ratios."""
    low = LEVELS[0]
    lattices = (LEVELS, *((low, step) for step in HALF_STEPS))
    for lattice in lattices:
        for weights in product(lattice, repeat=len(names)):
            if min(weights) == low:
                yield dict(zip(names, weights, strict=True))


class Search:
    """What is best so far, overall and in each phase; `phases` names that of every cycle."""

    def __init__(self, phases: Sequence[str]) -> None:
        self._phases = tuple(phases)
        self._lengths = Counter(self._phases)
        self.best: tuple[Profile, float] | None = None
        self.best_in: dict[str, tuple[Profile, float]] = {}
        self.tried = 0

    def look(self, profile: Mapping[str, int], scores: Iterable[float]) -> None:
        """Judges a profile by the scores of its cycles, which are asked for one by one and only while it can win."""
        self.tried += 1
        sums = dict.fromkeys(self._lengths, 0.0)
        left = Counter(self._lengths)
        total = 0.0
        for phase, score in zip(self._phases, scores, strict=False):
            sums[phase] += score
            total += score
            left[phase] -= 1
            if not self._can_win(sums, left):
                return
        cycles = max(1, len(self._phases))
        if self.best is None or total / cycles > self.best[1]:
            self.best = dict(profile), total / cycles
        for phase, length in self._lengths.items():
            if phase not in self.best_in or sums[phase] / length > self.best_in[phase][1]:
                self.best_in[phase] = dict(profile), sums[phase] / length

    def _can_win(self, sums: Mapping[str, float], left: Mapping[str, int]) -> bool:
        if self.best is None:
            return True
        ends = {phase: total + left[phase] * BEST_SCORE + _ROUNDING for phase, total in sums.items()}
        return sum(ends.values()) > self.best[1] * len(self._phases) or any(
            end > self.best_in[phase][1] * self._lengths[phase] for phase, end in ends.items()
        )

    def per_phase_score(self) -> float:
        """The mean score of a cycle if each phase had its best profile."""
        total = sum(self.best_in[phase][1] * length for phase, length in self._lengths.items())
        return total / max(1, len(self._phases))
