"""From class weights to pod weights, over the whole tree below the pods root (docs/adr/0013-solver-over-the-tree.md).

A class's weight is its part of the CPU that all steered pods have together when everybody wants more. Weights act among
siblings only, and the groups above the pods are the kubelet's, so what each parent's pods have together is given, but
for the one sum that may move (families.py); which class has how much of it where is chosen (flows.py); inside a parent
a class's pods share in proportion to their originals, so a big pod stays big.

Nobody who is not steered has less than under the originals, inside the pods root; outside it nothing changes at all,
since the root's own weight is never written.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from schemas.messages import PodState
from schemas.settings import KERNEL_MAX_WEIGHT, KERNEL_MIN_WEIGHT
from schemas.tree import parent_of, structural_shares
from services.actuator.core import integers
from services.actuator.core.apart import solve_apart, without_common_parent
from services.actuator.core.families import Settled, Tree, tree_of
from services.actuator.core.flows import Line, best_setting, flows, natural_flows, nearest_setting, totals
from services.actuator.core.nearby import Nearby
from services.actuator.core.target import Target
from services.actuator.core.words import REACHED_RATIO, coarseness, denial

__all__ = ["Solution", "Target", "solution", "solve"]

_MORE_SUMS: Final = 2
"""How far beside the best sum of pods beside QoS groups others are tried where whole numbers miss the order."""


@dataclass(frozen=True)
class Solution:
    """Targets in order of their groups. `unreachable` says which classes the tree denies what was ordered, what they
    have instead, and why; None if it denies none. `coarse` says what whole numbers made of an order that it allows,
    where that is another one.
    """

    targets: list[Target]
    unreachable: str | None = None
    coarse: str | None = None


def solve(
    pods: Iterable[PodState],
    weights: Mapping[str, int],
    originals: Mapping[str, int],
    parents: Mapping[str, int] | None = None,
) -> list[Target]:
    """The targets of `solution`."""
    return solution(pods, weights, originals, parents or {}).targets


def solution(
    pods: Iterable[PodState], weights: Mapping[str, int], originals: Mapping[str, int], parents: Mapping[str, int]
) -> Solution:
    """Targets for the pods of the classes in `weights`, and what they come to.

    `originals` maps groups to their weights before Trimtab; a pod that is not in it has the weight it shows. `parents`
    are the weights of the groups above the pods; where they are not all known each parent is solved by itself. Pods
    with a `skip` reason, without a weight or of another class get no target and count as neighbours. Weights outside
    1..10000 count as the nearest bound. Every target is an integer in 1..10000; equal inputs give equal targets,
    whatever the steered pods' weights are now.
    """
    by_group = {pod.group: pod for pod in pods if pod.weight is not None and pod.weight > 0}
    own = {group: _bounded(originals.get(group) or pod.weight or 1) for group, pod in sorted(by_group.items())}
    wanted = {name: _bounded(weight) for name, weight in sorted(weights.items())}
    steered = [pod for group in own if (pod := by_group[group]).cls in wanted and pod.skip is None]
    is_steered = {pod.group for pod in steered}
    others = [by_group[group] for group in own if group not in is_steered]
    wanted = {name: weight for name, weight in wanted.items() if any(pod.cls == name for pod in steered)}
    if not steered:
        return Solution([])
    tree = tree_of(steered, others, own, parents)
    if tree is not None:
        return _over_the_tree(tree, wanted, own, steered, others, parents)
    lonely = without_common_parent(steered)
    said = f"no common parent group with another class: {', '.join(lonely)}" if lonely else None
    targets = solve_apart(steered, others, wanted, own)
    return Solution(sorted(targets, key=lambda target: target.group), said)


def _over_the_tree(  # noqa: PLR0917 - a pure core takes all it needs
    tree: Tree,
    wanted: Mapping[str, int],
    own: Mapping[str, int],
    steered: list[PodState],
    others: list[PodState],
    parents: Mapping[str, int],
) -> Solution:
    seeds: dict[str, dict[str, float]] = {name: defaultdict(float) for name in wanted}
    for pod in steered:
        seeds[pod.cls or ""][parent_of(pod.group)] += own[pod.group]
    places = {name: frozenset(seed) for name, seed in seeds.items()}
    natural = natural_flows(_floats(tree.settle(None, whole=False).shares), wanted, seeds)
    possible, nearest, free_sums = _set_free_sum(tree, wanted, places, natural)
    can_have = {name: sum(flow.values()) for name, flow in flows(possible, wanted, seeds, natural).items()}
    available = sum(can_have.values())
    asked = sum(wanted.values())
    denied = [
        name
        for name, weight in wanted.items()
        if abs(can_have[name] * asked / (weight * available) - 1) > REACHED_RATIO
    ]
    settled, weight_of = _in_whole_numbers(tree, wanted, own, seeds, natural, free_sums, is_possible=not denied)
    targets = [Target(pod.uid, pod.name, pod.group, weight_of[pod.group]) for pod in steered]
    now = [replace(pod, weight=weight_of.get(pod.group, own[pod.group])) for pod in (*steered, *others)]
    shares = structural_shares(now, parents)
    reached = {name: sum(shares[pod.group] for pod in steered if pod.cls == name) for name in wanted}
    should = {name: weight / asked * sum(reached.values()) for name, weight in wanted.items()}
    at_best = {name: part * sum(reached.values()) for name, part in _parts(nearest, wanted, places).items()}
    said = "; ".join(
        denial(name, reached[name], should[name], at_best[name], places[name], tree, settled) for name in denied
    )
    return Solution(targets, said or None, None if denied else coarseness(reached, should))


def _in_whole_numbers(  # noqa: PLR0917 - a pure core takes all it needs
    tree: Tree,
    wanted: Mapping[str, int],
    own: Mapping[str, int],
    seeds: Mapping[str, Mapping[str, float]],
    natural: Mapping[str, Mapping[str, float]],
    free_sums: Iterable[int | None],
    *,
    is_possible: bool,
) -> tuple[Settled, dict[str, int]]:
    """Weights, with the first of the free family's sums by which all classes come as near as is worth a word, else
    with the one by which they come nearest. What is not possible anyway is as near as rounding makes it.
    """
    best: tuple[float, Settled, dict[str, int]] | None = None
    for free_sum in free_sums:
        settled = tree.settle(free_sum, whole=True)
        weight_of = _rounded(tree, wanted, own, seeds, flows(_floats(settled.shares), wanted, seeds, natural), settled)
        if not is_possible:
            return settled, weight_of
        nearby = Nearby(tree, wanted, own, {path: int(total) for path, total in settled.sums.items()})
        weight_of = nearby.improved(weight_of)
        spread = nearby.spread(weight_of)
        if best is None or spread < best[0]:
            best = spread, settled, weight_of
        if spread <= REACHED_RATIO:
            break
    assert best is not None
    return best[1:]


def _rounded(  # noqa: PLR0917 - a pure core takes all it needs
    tree: Tree,
    wanted: Mapping[str, int],
    own: Mapping[str, int],
    seeds: Mapping[str, Mapping[str, float]],
    found: Mapping[str, Mapping[str, float]],
    settled: Settled,
) -> dict[str, int]:
    weight_of: dict[str, int] = {}
    for path, family in tree.families.items():
        if not family.pods:
            continue
        wishes = {
            pod.group: found[pod.cls or ""][path] * own[pod.group] / seeds[pod.cls or ""][path] for pod in family.pods
        }
        if family.rest:
            weight_of |= integers.bound(wishes, int(settled.sums[path]))
        else:  # only their ratios count: as the class weights are, or, where that means nothing, with the sum they had
            scale = sum(wanted.values()) if len(settled.sums) == 1 else family.own
            factor = scale / sum(wishes.values())
            weight_of |= integers.free({group: wish * factor for group, wish in wishes.items()})
    return weight_of


def _set_free_sum(
    tree: Tree,
    wanted: Mapping[str, int],
    places: Mapping[str, frozenset[str]],
    natural: Mapping[str, Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float], list[int | None]]:
    """The families' shares for the free family's best sum, those for the sum that is nearest to the order whatever it
    costs, and whole numbers near the best one, the best first; None if there is none.
    """
    family = tree.free
    if family is None:
        shares = _floats(tree.settle(None, whole=False).shares)
        return shares, shares, [None]
    low, high = tree.sum_range
    at_low, at_high = (_floats(tree.settle(total, whole=False).shares) for total in (low, high))
    lines = {path: Line(at_low[path], at_high[path] - at_low[path]) for path in at_low}
    wishes = {path: sum(flow.get(path, 0.0) for flow in natural.values()) for path in lines}
    z = best_setting(lines, wanted, places, wishes)
    # Shares are linear in 1 / (sum of all weights in the family).
    inverse = [1 / (total + family.rest) for total in (low, high)]
    wish = 1 / (inverse[0] + z * (inverse[1] - inverse[0])) - family.rest
    nearest = sorted((math.floor(wish), math.ceil(wish)), key=lambda whole: abs(whole - wish))
    in_range = [total for total in (*nearest, family.own) if low <= total <= high]
    # Sums below it are rounded, too: of the nearest, and of what was, the one that keeps most of what is possible.
    offs = {total: _off(_floats(tree.settle(total, whole=True).shares), wanted, places) for total in in_range}
    at_best = _off(possible := {path: line(z) for path, line in lines.items()}, wanted, places)
    first = next(total for total in in_range if offs[total] <= max(at_best, min(offs.values())) + REACHED_RATIO / 2)
    steps = range(1, _MORE_SUMS + 1) if first * REACHED_RATIO < 1 else ()  # of a large sum one unit is no matter
    further = [total for step in steps for total in (nearest[0] - step, nearest[0] + step)]
    others = dict.fromkeys(total for total in further if low <= total <= high and total != first)
    top = nearest_setting(lines, wanted, places)
    return possible, {path: line(top) for path, line in lines.items()}, [first, *others]


def _off(shares: Mapping[str, float], wanted: Mapping[str, int], places: Mapping[str, frozenset[str]]) -> float:
    """How far some class must be from what it should have, as a logarithm."""
    asked = sum(wanted.values())
    parts = _parts(shares, wanted, places)
    return max(abs(math.log(part * asked / wanted[name])) for name, part in parts.items())


def _parts(
    shares: Mapping[str, float], wanted: Mapping[str, int], places: Mapping[str, frozenset[str]]
) -> dict[str, float]:
    """Each class's part of all, as near to the order as the families' shares allow."""
    available = sum(shares.values())
    found = (part for _, part in totals(shares, wanted, places))
    return {name: total / available for part in found for name, total in part.items()}


def _floats(shares: Mapping[str, Fraction]) -> dict[str, float]:
    return {path: float(share) for path, share in shares.items()}


def _bounded(weight: int) -> int:
    return max(KERNEL_MIN_WEIGHT, min(KERNEL_MAX_WEIGHT, weight))
