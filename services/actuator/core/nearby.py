"""Whole weights that come nearer to an order than rounding does: some units more here, some fewer there.

Rounding each pod's wish for itself can leave a small class far from its order: one unit of a parent's sum may be twice
what it should have. Looked at are the sums that each class has in each family. One of them at a time is changed, in the
way that brings the two classes that are furthest apart nearest to each other, as long as that helps. A family's sum
never grows beyond what is settled, so nobody who is not steered has less for it; where it falls they have more, which
must bring the classes nearer by more than it costs them.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from schemas.settings import KERNEL_MAX_WEIGHT
from services.actuator.core import integers
from services.actuator.core.families import Family, Tree

_CLOSE: Final = 0.02
"""Log of the ratio of two classes' deviations with which the search ends: what can be had within 2 % can be had."""
_ROUNDS: Final = 12
_LEAST_GAIN: Final = 1e-9

Sums: TypeAlias = dict[str, dict[str, int]]
"""Sums of weights, by family and class."""


class Nearby:
    """One tree with one order. `bounds` are the families' largest sums, `own` the originals."""

    def __init__(
        self, tree: Tree, wanted: Mapping[str, int], own: Mapping[str, int], bounds: Mapping[str, int]
    ) -> None:
        self._tree, self._wanted, self._bounds = tree, wanted, bounds
        self._cells: dict[str, dict[str, dict[str, int]]] = {}  # originals by family, class and group
        self._ranges: dict[tuple[str, str], tuple[int, int]] = {}
        for path, family in tree.families.items():
            cells: dict[str, dict[str, int]] = defaultdict(dict)
            for pod in family.pods:
                cells[pod.cls or ""][pod.group] = own[pod.group]
            if cells:
                self._cells[path] = dict(sorted(cells.items()))
            for name, weights in cells.items():
                most = KERNEL_MAX_WEIGHT * sum(weights.values()) // max(weights.values())
                self._ranges[path, name] = len(weights), most

    def spread(self, weight_of: Mapping[str, int]) -> float:
        """The log of the ratio of the class that has most of what it should to the one that has least."""
        return self._spread(self._shares(self._sums(weight_of)))

    def improved(self, weight_of: Mapping[str, int]) -> dict[str, int]:
        """Weights nearer to the order than these, if some are found, else these."""
        sums = self._sums(weight_of)
        had = self._shares(sums)
        if self._spread(had) <= _CLOSE:
            return dict(weight_of)
        best, least = dict(weight_of), self._cost(had, had)
        nearer = self._descend(sums, had)
        for found in (self._by_class(nearer), self._by_family(nearer)):
            if found is not None and (cost := self._cost(self._shares(self._sums(found)), had)) < least - _LEAST_GAIN:
                best, least = found, cost
        return best

    def _sums(self, weight_of: Mapping[str, int]) -> Sums:
        return {
            path: {name: sum(weight_of[group] for group in weights) for name, weights in cells.items()}
            for path, cells in self._cells.items()
        }

    def _units(self, sums: Sums) -> dict[str, float]:
        """The share of one unit of weight, by family."""
        above, units = {"": 1.0}, {}
        for path, family in self._tree.families.items():
            units[path] = unit = above[path] / max(1, sum(sums[path].values() if path in sums else ()) + family.rest)
            for group, weight in family.below.items():
                above[group] = unit * weight
        return units

    def _shares(self, sums: Sums) -> dict[str, float]:
        units, found = self._units(sums), dict.fromkeys(self._wanted, 0.0)
        for path, cells in sums.items():
            for name, weight in cells.items():
                found[name] += units[path] * weight
        return found

    def _spread(self, shares: Mapping[str, float]) -> float:
        ratios = [share / self._wanted[name] for name, share in shares.items()]
        return math.log(max(ratios) / min(ratios))

    def _cost(self, shares: Mapping[str, float], had: Mapping[str, float]) -> float:
        """The spread, and the log of how much less all classes have together than they `had`."""
        return self._spread(shares) + max(0.0, math.log(sum(had.values()) / sum(shares.values())))

    # ---- the search ----

    def _descend(self, sums: Sums, had: Mapping[str, float]) -> Sums:
        shares, cost = had, self._cost(had, had)
        for _ in range(_ROUNDS):
            if self._spread(shares) <= _CLOSE:
                break
            nearest = None
            for changed in self._steps(sums, shares):
                found = self._shares(changed)
                if (its_cost := self._cost(found, had)) < cost - _LEAST_GAIN:
                    nearest, shares_then, cost = changed, found, its_cost
            if nearest is None:
                break
            sums, shares = nearest, shares_then
        return sums

    def _steps(self, sums: Sums, shares: Mapping[str, float]) -> Iterator[Sums]:
        """Less for the class that has too much, or more for the one that has too little, and the reverse elsewhere."""
        ratios = {name: share / self._wanted[name] for name, share in shares.items()}
        rich, poor = max(ratios, key=lambda name: ratios[name]), min(ratios, key=lambda name: ratios[name])
        mean, units = sum(shares.values()) / sum(self._wanted.values()), self._units(sums)
        for path, cells in sums.items():
            family = self._tree.families[path]
            for name in (rich, poor):
                if name not in cells:
                    continue
                sign = 1 if name == poor else -1
                others = [None, *(other for other in cells if other != name)]
                for other in others:  # to the mean, which another class pays or gets; or, alone, to the other end
                    aim = mean if other is not None else ratios[poor] if name == rich else ratios[rich]
                    wish = abs(shares[name] - aim * self._wanted[name]) / units[path]
                    for amount in {1: 0, max(1, math.floor(wish)): 0, math.ceil(wish): 0}:
                        changed = {**cells, name: cells[name] + sign * amount}
                        if other is not None:
                            changed[other] -= sign * amount
                        if self._is_allowed(path, family, changed):
                            yield {**sums, path: changed}

    def _is_allowed(self, path: str, family: Family, cells: Mapping[str, int]) -> bool:
        if family.rest and sum(cells.values()) > self._bounds[path]:
            return False
        ranges = ((self._ranges[path, name], weight) for name, weight in cells.items())
        return all(least <= weight <= most for (least, most), weight in ranges)

    # ---- from sums to pods ----

    def _wishes(self, sums: Sums, path: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, weights in self._cells[path].items():
            ratio = sums[path][name] / sum(weights.values())
            found |= {group: weight * ratio for group, weight in weights.items()}
        return found

    def _by_class(self, sums: Sums) -> dict[str, int] | None:
        """Each class's sums exactly; None where a pod that should weigh more than another one would weigh less."""
        found: dict[str, int] = {}
        for path, cells in self._cells.items():
            for name, weights in cells.items():
                found |= integers.bound(weights, sums[path][name])
            wishes = self._wishes(sums, path)
            in_order = sorted(wishes, key=lambda group: (wishes[group], found[group]))
            if any(found[one] > found[other] for one, other in itertools.pairwise(in_order)):
                return None
        return found

    def _by_family(self, sums: Sums) -> dict[str, int]:
        """Each family's sum exactly, and in order."""
        found: dict[str, int] = {}
        for path in self._cells:
            found |= integers.bound(self._wishes(sums, path), sum(sums[path].values()))
        return found
