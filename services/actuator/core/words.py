"""What an order comes to, in words: which class has what instead of what, and for which weights of the kubelet's."""

from collections.abc import Mapping
from typing import Final

from schemas.tree import parent_of
from services.actuator.core.families import Settled, Tree

REACHED_RATIO: Final = 0.02
"""A class that can have within 2 % of what was ordered can have it."""
_COARSE_SHARE: Final = 0.01
"""Part of what the steered pods have together that is worth a word where whole numbers take it from a class."""
_COARSE_RATIO: Final = 1.05
"""How far two classes may be from the ratio that was ordered without a word; then all are named that are off by 2 %."""
_NAMED: Final = 3


def coarseness(reached: Mapping[str, float], should: Mapping[str, float]) -> str | None:
    """What whole numbers made of an order that the tree allows, by class; None if that is no other one."""
    least = _COARSE_SHARE * sum(should.values())
    ratios = {name: reached[name] / share for name, share in should.items()}
    is_off = max(ratios.values()) > _COARSE_RATIO * min(ratios.values())
    said = [
        f"{name}: {reached[name]:.3g} of the pods' CPU instead of {share:.3g}"
        for name, share in should.items()
        if abs(reached[name] - share) > max(0.0 if is_off else least, REACHED_RATIO * share)
    ]
    return f"weights are whole numbers: {'; '.join(said)}" if said else None


def denial(  # noqa: PLR0917 - a pure core takes all it needs
    name: str, reached: float, should: float, at_best: float, places: frozenset[str], tree: Tree, settled: Settled
) -> str:
    """What a class has instead of what was ordered and, where that is less, what it has at best if the other classes
    are driven out of its families for it, where that is more; and which weights above its pods are why.
    """
    said = f"{name}: {reached:.3g} of the pods' CPU instead of {should:.3g}"
    if reached >= should:
        return said
    if at_best > reached * (1 + REACHED_RATIO):
        said += f", at best {at_best:.3g}"
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
