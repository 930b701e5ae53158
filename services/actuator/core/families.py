"""The tree as the solver sees it: families of siblings, what of each may move, and what must not lose by it.

Everything outside the pods root keeps its share whatever is written here: the root's own weight is never written. A
group inside that is not steered must keep the share that it has under the originals. Where steered pods lie beside
groups that hold others, such as Guaranteed pods beside the QoS groups, their sum may move as long as whoever is not
steered inside those groups can be made up for it by the steered pods beside him.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from schemas.messages import PodState
from schemas.settings import KERNEL_MAX_WEIGHT, KERNEL_MIN_WEIGHT
from schemas.tree import groups_above, parent_of


@dataclass
class Family:
    """The groups in one parent. `pods` are steered, `own` and `largest` the sum and the largest of their originals;
    `loose` is the sum of the weights of all that holds nothing steered; `below` are the weights of the groups that do,
    by path.
    """

    path: str
    pods: list[PodState] = field(default_factory=list)
    own: int = 0
    largest: int = 1
    loose: int = 0
    below: dict[str, int] = field(default_factory=dict)

    @property
    def rest(self) -> int:
        """What the steered pods are weighed against."""
        return self.loose + sum(self.below.values())

    @property
    def before(self) -> int:
        """The sum of all weights under the originals."""
        return self.own + self.rest


@dataclass(frozen=True)
class Settled:
    """One way to set the steered sums: by family, the sum of its steered pods and their share of all pods' CPU."""

    sums: dict[str, Fraction]
    shares: dict[str, Fraction]


class Tree:
    """All families on the way to a steered pod, parents before children."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self.families = dict(sorted(families.items(), key=lambda item: (item[0].count("/") + bool(item[0]), item[0])))

    @cached_property
    def free(self) -> Family | None:
        """The topmost family in which steered pods lie beside groups with steered pods: its sum may move."""
        return next((family for family in self.families.values() if family.pods and family.below), None)

    @cached_property
    def sum_range(self) -> tuple[int, int]:
        """Least and largest sum of the free family's pods."""
        family = self.free
        assert family is not None
        need = self._need_below(family)
        highest = max(KERNEL_MAX_WEIGHT, family.own)
        if need > 0:
            highest = min(highest, int(family.before / need) - family.rest)
        takes = min((self._takes(group) for group in family.below), default=None, key=_or_endless)
        lowest = len(family.pods) if takes is None else math.ceil(family.before / takes) - family.rest
        return max(len(family.pods), lowest), highest

    def settle(self, free_sum: int | None, *, whole: bool) -> Settled:
        """The sums and shares that follow from the free family's sum. `whole`: sums are whole numbers, rounded so that
        nobody who is not steered loses.
        """
        above, kept = {"": Fraction(1)}, {"": Fraction(1)}
        settled = Settled({}, {})
        for path, family in self.families.items():
            total = self._sum(family, kept[path], free_sum, whole=whole)
            per_weight = above[path] / (total + family.rest)
            for group, weight in family.below.items():
                above[group] = per_weight * weight
                kept[group] = kept[path] * family.before / (total + family.rest)
            if family.pods:
                settled.sums[path], settled.shares[path] = total, per_weight * total
        return settled

    def _sum(self, family: Family, kept: Fraction, free_sum: int | None, *, whole: bool) -> Fraction:
        """`kept` is the family's share now as a part of that under the originals: what it has less the steered pods do
        without, so that the others there have what they had.
        """
        if not family.pods or not family.rest:
            return Fraction(family.own)
        if family is self.free and free_sum is not None:
            return Fraction(free_sum)
        total = family.before * kept - family.rest
        return max(Fraction(len(family.pods)), Fraction(int(total)) if whole else total)

    def _need(self, path: str) -> Fraction:
        """Least part of its share that the family must keep, for the others in it to have what they had."""
        family = self.families[path]
        if family.pods:
            return Fraction(len(family.pods) + family.rest, family.before) if family.rest else Fraction(0)
        return self._need_below(family)

    def _takes(self, path: str) -> Fraction | None:
        """How many times its share the family can take, for its pods' weights to stay in range; None: any number."""
        family = self.families[path]
        if family.pods:
            most = Fraction(KERNEL_MAX_WEIGHT * family.own, family.largest)
            return (most + family.rest) / family.before if family.rest else None
        return min((self._takes(group) for group in family.below), default=None, key=_or_endless)

    def _need_below(self, family: Family) -> Fraction:
        return Fraction(1) if family.loose else max((self._need(group) for group in family.below), default=Fraction(0))


def _or_endless(times: Fraction | None) -> float:
    return math.inf if times is None else float(times)


def tree_of(
    steered: Iterable[PodState], others: Iterable[PodState], own: Mapping[str, int], parents: Mapping[str, int]
) -> Tree | None:
    """The families; None where the weights above some pod are not known. `own` are originals by group."""
    steered, others = list(steered), list(others)
    above = {group for pod in steered for group in groups_above(pod.group)}
    known = {group: min(KERNEL_MAX_WEIGHT, weight) for group, weight in parents.items() if weight >= KERNEL_MIN_WEIGHT}
    everything = [*steered, *others]
    ways = {group for pod in everything for group in groups_above(pod.group)}
    if not ways <= known.keys() or not ways.isdisjoint(pod.group for pod in everything):
        return None
    families = {path: Family(path) for path in {"", *above}}
    for pod in steered:
        family = families[parent_of(pod.group)]
        family.pods.append(pod)
        family.own += own[pod.group]
        family.largest = max(family.largest, own[pod.group])
    for group, weight in _leaves(others, own, known.keys() - above, known):
        if (found := families.get(parent_of(group))) is not None:
            found.loose += weight
    for group in sorted(above):
        families[parent_of(group)].below[group] = known[group]
    return Tree(families)


def _leaves(
    others: Iterable[PodState], own: Mapping[str, int], unsteered: Iterable[str], known: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Groups that hold nothing steered, with their weights: by path, each once."""
    leaves = {pod.group: own[pod.group] for pod in others if pod.group in own}
    leaves |= {group: known[group] for group in unsteered}
    yield from leaves.items()
