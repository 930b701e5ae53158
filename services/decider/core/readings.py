"""Owns what a controller reads from the vector: where arms lie between the classes, and how far each objective is.

Plain numbers without numpy, for the policies that need no matrix. A place is log10(weight) per class: decades. Only the
classes that have pods count, and only differences between them, since a weight acts relative to others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from schemas.features import LATENCY_LOG_OCTAVES, WEIGHT_LOG_BASE
from schemas.settings import ClassSettings
from services.decider.core.policy import HOLD, Arm

AMPLE_RATIO: Final = 0.8
"""Up to here of its objective a class has slack to give: PARTIES lets go above 20 % of slack."""

PROFILE_SCALE_DECADES: Final = math.log10(WEIGHT_LOG_BASE)
"""`<class>.weight_log` is log10(weight / 100) / 2: where 100 lies, and how many decades one unit has."""

SAME_DECADES: Final = 0.02
"""Places closer than this are one: weights are integers, and rounded."""

Place: TypeAlias = dict[str, float]
"""log10 of the weight by class."""


class Verdict(NamedTuple):
    """A latency class against its objective: `ratio` (0-1, of requests over it or of time waited) and its `target`.
    `used` is how much of the objective is taken: 1 at the objective, below with slack.
    """

    ratio: float
    target: float
    used: float

    @property
    def is_violated(self) -> bool:
        """More is over the objective than may be."""
        return self.ratio > self.target

    @property
    def has_slack(self) -> bool:
        """Held, and with room to spare."""
        return not self.is_violated and self.used <= AMPLE_RATIO


def verdicts(features: Mapping[str, float], classes: Mapping[str, ClassSettings]) -> dict[str, Verdict]:
    """Each latency class that has pods and a signal that judges it, as `schemas.objective` has it.

    Summaries know a P99 but no fraction of requests over it; the fraction is then 0 in the vector, and a P99 above the
    objective stands in for it: the target, as many times as the P99 is the objective.
    """
    found = {}
    for name in present(features, classes):
        spec = classes[name]
        if spec.kind != "latency":
            continue
        if features.get(f"{name}.latency_missing", 1.0) <= 0.0:
            used = 2.0 ** (LATENCY_LOG_OCTAVES * features.get(f"{name}.latency_log", 0.0))
            over = _ratio(features, f"{name}.over_ratio")
            if over == 0.0 and used > 1.0:
                over = min(1.0, spec.violation_target_ratio * used)
            found[name] = Verdict(over, spec.violation_target_ratio, used)
        elif spec.objective_pressure_ratio and features.get(f"{name}.waited_missing", 1.0) <= 0.0:
            waited, ceiling = _ratio(features, f"{name}.waited_ratio"), spec.objective_pressure_ratio
            found[name] = Verdict(waited, ceiling, waited / ceiling)
    return found


def present(features: Mapping[str, float], classes: Mapping[str, ClassSettings]) -> list[str]:
    """The classes that have pods, in the order of the configuration."""
    return [name for name in classes if features.get(f"{name}.present", 1.0) > 0.0]


def staying(arms: Sequence[Arm]) -> Arm:
    """The arm that changes nothing: `hold` or, where that is not offered, the first, which is the one in force."""
    return next((arm for arm in arms if arm.weights is None), arms[0])


def place_of(arm: Arm, features: Mapping[str, float], names: Sequence[str]) -> Place:
    """Where an arm lies; `hold` where the weights are now. A class that a profile does not name lies at its lowest."""
    if arm.weights is None:
        return {name: PROFILE_SCALE_DECADES * (1.0 + features.get(f"{name}.weight_log", 0.0)) for name in names}
    lowest = min(arm.weights.values())
    return {name: math.log10(arm.weights.get(name, lowest)) for name in names}


def place_now(features: Mapping[str, float], names: Sequence[str]) -> Place:
    """Where the weights are now; empty if the vector does not say."""
    known = any(f"{name}.weight_log" in features for name in names)
    return place_of(HOLD, features, names) if known else {}


def apart(a: Place, b: Place) -> float:
    """Distance in decades over the classes that both name, whatever factor all weights have in common."""
    gaps = [a[name] - b[name] for name in a if name in b]
    middle = sum(gaps) / len(gaps) if gaps else 0.0
    return math.sqrt(sum((gap - middle) ** 2 for gap in gaps))


def is_same(a: Place, b: Place) -> bool:
    """The same ratios between the same classes, up to rounding."""
    return a.keys() == b.keys() and apart(a, b) <= SAME_DECADES


def save_place(place: Place | None, names: Iterable[str]) -> list[float]:
    """The saved form: for each class 1 and its decades, or two zeros if it is not there."""
    return [number for name in names for number in ((1.0, place[name]) if place and name in place else (0.0, 0.0))]


def load_place(flat: Sequence[float], names: Iterable[str]) -> Place | None:
    """The inverse of `save_place`."""
    return {name: decades for name, known, decades in zip(names, flat[::2], flat[1::2], strict=True) if known} or None


def share_of(names: Sequence[str], place: Place) -> float:
    """The part (0-1) of the weights that these classes have together."""
    weights = {name: 10.0**decades for name, decades in place.items()}
    return sum(weights.get(name, 0.0) for name in names) / sum(weights.values()) if weights else 0.0


def _ratio(features: Mapping[str, float], name: str) -> float:
    return min(max(features.get(name, 0.0), 0.0), 1.0)
