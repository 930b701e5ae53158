"""Owns where an arm lies, and which arms behave alike.

An arm's place is log10(weight / weight of the base class) per other class: decades. Base is the first throughput class,
the one that latency classes take from; without one it is the smallest weight. The belief about two arms is correlated
by a squared-exponential kernel of their distance, exp(-d² / 2s²) with s in decades, so that one reward teaches about
its neighbours, and the less the further. A polynomial would share as well but cannot follow the edge beyond which an
objective is suddenly missed.

Terms make the kernel linear: 1, and L⁻¹ k(profiles, place) with K = LLᵀ over the profiles. Exact for the profiles; for
a place between them (`hold`) it is their Nyström approximation (Williams, Seeger, NIPS 2000).

Terms are worked out once for each set of absent classes, which is where profiles lie, and for each other place.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from schemas.features import WEIGHT_LOG_BASE
from schemas.settings import ClassSettings, WeightSettings
from services.decider.core.policy import Arm

JITTER: Final = 1e-6
"""Added to K's diagonal (of 1): profiles that lie close would make its factor singular."""

WEIGHT_LOG_DECADES: Final = math.log10(WEIGHT_LOG_BASE)
"""Decades of weight in one unit of the feature `<class>.weight_log`, which is log10(weight / 100) / 2."""

MOST_KEPT: Final = 256
"""Sets of absent classes, and places of other arms, whose terms are kept, and sets of arms whose rows are: weights move
seldom, classes come and go seldomer."""

Floats: TypeAlias = npt.NDArray[np.float64]


class _Rows(NamedTuple):
    """The rows of some arms in the tables, -1 for those that are no profile: `others`, each with where it stands."""

    arms: tuple[Arm, ...]
    numbers: npt.NDArray[np.intp]
    others: list[tuple[Arm, list[int]]]


class Basis:
    """Places and terms of arms for fixed classes, limits and profiles. Its answers never change; `size` is the number
    of terms.
    """

    def __init__(
        self,
        classes: Mapping[str, ClassSettings],
        limits: WeightSettings,
        profiles: Sequence[Arm],
        centre: Arm,
        *,
        likeness_decades: float,
    ) -> None:
        self.base = next((name for name, spec in classes.items() if spec.kind == "throughput"), None)
        self.axes = tuple(name for name in classes if name != self.base)
        self._min_weight = limits.min_weight
        self._likeness = likeness_decades
        self._centre = np.array(self._place(centre, {}))
        self._profiles = np.array([self._place(arm, {}) for arm in profiles if arm.weights is not None])
        gram = self._kernel(self._profiles) + JITTER * np.eye(len(self._profiles))
        self._whiten = np.linalg.inv(np.linalg.cholesky(gram))
        self.size = 1 + len(self._profiles)
        self._known = [arm for arm in profiles if arm.weights is not None]
        self._rows = {arm.name: (row, arm.weights) for row, arm in enumerate(self._known)}
        self._rows_kept: dict[tuple[str, ...], _Rows] = {}
        self._presence = tuple(f"{name}.present" for name in self.axes)
        self._weight_logs = tuple(f"{name}.weight_log" for name in classes)
        self._tables: dict[tuple[bool, ...], tuple[Floats, Floats]] = {}
        self._elsewhere: dict[tuple[float, ...], tuple[Floats, float]] = {}

    def terms(self, arms: Sequence[Arm], features: Mapping[str, float]) -> Floats:
        """One row of `size` terms per arm; the squared norm of a row is 2 at a profile and less between them."""
        return self.describe(arms, features)[0]

    def squared_decades(self, arms: Sequence[Arm], features: Mapping[str, float]) -> Floats:
        """Squared distance of each arm from the centre, in decades²."""
        return self.describe(arms, features)[1]

    def describe(self, arms: Sequence[Arm], features: Mapping[str, float]) -> tuple[Floats, Floats]:
        """Both of these at once."""
        absent = self._absent(features)
        known, of_known = self._table(absent)
        rows = self._rows_of(tuple(arms))
        terms, squared = known.take(rows.numbers, axis=0), of_known.take(rows.numbers)
        for arm, indices in rows.others:
            term, distance = self._other(arm, features, absent)
            for index in indices:
                terms[index], squared[index] = term, distance
        return terms, squared

    def places(self, arms: Sequence[Arm], features: Mapping[str, float]) -> Floats:
        """One row per arm, one column per axis, in decades above the base.

        `hold` lies where the weights are now, by the features `<class>.weight_log`. A class that is absent by
        `<class>.present` lies at the centre, since its weight does nothing.
        """
        return self._places(arms, features, self._absent(features))

    def _places(self, arms: Sequence[Arm], features: Mapping[str, float], absent: tuple[bool, ...]) -> Floats:
        return np.where(absent, self._centre, np.array([self._place(arm, features) for arm in arms]))

    def _described(self, places: Floats) -> tuple[Floats, Floats]:
        terms = np.ones((len(places), self.size))
        terms[:, 1:] = (self._whiten @ self._kernel(places)).T
        return terms, cast("Floats", np.square(places - self._centre).sum(axis=1))

    def _table(self, absent: tuple[bool, ...]) -> tuple[Floats, Floats]:
        """What `describe` says of the profiles."""
        if absent not in self._tables:
            if len(self._tables) >= MOST_KEPT:
                self._tables.clear()
            self._tables[absent] = self._described(self._places(self._known, {}, absent))
        return self._tables[absent]

    def _other(self, arm: Arm, features: Mapping[str, float], absent: tuple[bool, ...]) -> tuple[Floats, float]:
        """What `describe` says of an arm that is no profile."""
        if arm.weights is None:
            lies = tuple([features.get(name, 0.0) for name in self._weight_logs])
        else:
            lies = tuple(self._place(arm, features))
        key = (arm.weights is None, *lies, *absent)
        if key not in self._elsewhere:
            if len(self._elsewhere) >= MOST_KEPT:
                self._elsewhere.clear()
            terms, squared = self._described(self._places([arm], features, absent))
            self._elsewhere[key] = terms[0], float(squared[0])
        return self._elsewhere[key]

    def _rows_of(self, arms: tuple[Arm, ...]) -> _Rows:
        names = tuple([arm.name for arm in arms])
        kept = self._rows_kept.get(names)
        if kept is None or kept.arms != arms:
            if len(self._rows_kept) >= MOST_KEPT:
                self._rows_kept.clear()
            rows = [self._row(arm) for arm in arms]
            others: list[tuple[Arm, list[int]]] = []
            for arm in (arm for arm, row in zip(arms, rows, strict=True) if row < 0):
                if all(arm != other for other, _ in others):
                    others.append((arm, [index for index, one in enumerate(arms) if one == arm]))
            kept = self._rows_kept[names] = _Rows(arms, np.array(rows, dtype=np.intp), others)
        return kept

    def _row(self, arm: Arm) -> int:
        """The profile's row in the tables, -1 for any other arm."""
        row, weights = self._rows.get(arm.name, (-1, None))
        return row if weights is arm.weights or weights == arm.weights else -1

    def _absent(self, features: Mapping[str, float]) -> tuple[bool, ...]:
        return tuple([features.get(name, 1.0) <= 0.0 for name in self._presence])

    def _place(self, arm: Arm, features: Mapping[str, float]) -> list[float]:
        logs = {name: self._log10(name, arm, features) for name in (*self.axes, *([self.base] if self.base else []))}
        origin = logs[self.base] if self.base else min(logs.values())
        return [logs[name] - origin for name in self.axes]

    def _log10(self, name: str, arm: Arm, features: Mapping[str, float]) -> float:
        if arm.weights is None:
            return WEIGHT_LOG_DECADES * float(features.get(f"{name}.weight_log", 0.0))
        return math.log10(arm.weights.get(name, self._min_weight) / self._min_weight)

    def _kernel(self, places: Floats) -> Floats:
        squared = np.square(self._profiles[:, None, :] - places[None, :, :]).sum(axis=2)
        return cast("Floats", np.exp(squared / (-2.0 * self._likeness**2)))
