"""What an order comes to, in words: which class has what instead of what, and for which weights of the kubelet's."""

from collections.abc import Mapping
from typing import Final

from schemas.tree import parent_of
from services.actuator.core.families import Settled, Tree

REACHED_RATIO: Final = 0.02
"""A class that can have within 2 % of what was ordered can have it."""
_COARSE_SHARE: Final = 0.01
"""Part of what the steered pods have together that is worth a word where whole numbers take it from a class."""
_NAMED: Final = 3


def coarseness(reached: Mapping[str, float], should: Mapping[str, float]) -> str | None:
    """What whole numbers made of an order that the tree allows, by class; None if that is no other one."""
    least = _COARSE_SHARE * sum(should.values())
    off = {name: abs(reached[name] - share) for name, share in should.items()}
    said = [
        f"{name}: {reached[name]:.3g} of the pods' CPU instead of {should[name]:.3g}"
        for name, difference in off.items()
        if difference > max(least, REACHED_RATIO * should[name])
    ]
    return f"weights are whole numbers: {'; '.join(said)}" if said else None


def denial(  # noqa: PLR0917 - a pure core takes all it needs
    name: str, reached: float, should: float, places: frozenset[str], tree: Tree, settled: Settled
) -> str:
    """What a class has instead of what was ordered and, where that is less, which weights above its pods are why."""
    said = f"{name}: {reached:.3g} of the pods' CPU instead of {should:.3g}"
    if reached >= should:
        return said
    reasons = []
    for path in sorted(places)[:_NAMED]:
        family = tree.families[parent_of(path) if path else ""]
        beside = {group: weight for group, weight in family.below.items() if group != path}
        named = [f"{_name(group)}'s {weight}" for group, weight in list(beside.items())[:_NAMED]]
        if len(beside) > _NAMED:
            named.append("others")
        if path:
            pods = int(settled.sums.get(family.path, 0))
            named += [f"its pods' {pods}"] if pods and not named else []
            reasons.append(f"{_name(path)} has weight {family.below[path]}" + _beside(named))
        else:
            reasons.append(f"pods at the top have {int(settled.sums[path])} in sum" + _beside(named))
    return f"{said} ({', '.join(reasons)})"


def _beside(named: list[str]) -> str:
    return f" beside {' and '.join(named)}" if named else ""


def _name(path: str) -> str:
    return path.rpartition("/")[2]
