"""Owns where an arm lies: class weights as coordinates, so that profiles with similar weights behave alike.

The coordinate of a class is ln(weight / weight of the base class) / ln(max_weight / min_weight), in [-1, 1], minus the
same of a centre profile. Base is the first throughput class: the one that latency classes take from. Without one, it
is the smallest weight. Terms: 1, each coordinate, its square, and for two coordinates their product: the smallest set
that can have its best point between the profiles, and a different one in each context (Box, Wilson 1951: the
second-order response surface).
"""

import math
from collections.abc import Mapping

from schemas.settings import ClassSettings, WeightSettings
from services.decider.core.policy import Arm

CROSSED = 2
"""Coordinates up to which products are terms: for more classes they would outnumber what a node can teach."""


class Basis:
    """Terms of an arm for fixed classes, limits and centre. Immutable; `size` is the number of terms."""

    def __init__(self, classes: Mapping[str, ClassSettings], limits: WeightSettings, centre: Arm) -> None:
        self.base = next((name for name, spec in classes.items() if spec.kind == "throughput"), None)
        self.axes = tuple(name for name in classes if name != self.base)
        self._min_weight = limits.min_weight
        self._span = math.log(limits.max_weight / limits.min_weight)
        self._centre = dict.fromkeys(self.axes, 0.0)
        self._centre = self.coordinates(centre, {})
        axes = len(self.axes)
        self.squares = slice(1 + axes, 1 + 2 * axes)
        self.size = 1 + 2 * axes + (axes * (axes - 1) // 2 if axes <= CROSSED else 0)

    def coordinates(self, arm: Arm, features: Mapping[str, float]) -> dict[str, float]:
        """Coordinates per class.

        `hold` lies where the weights are now, by the features `<class>.weight_log` (ln(weight / min_weight) /
        ln(max_weight / min_weight)). A class that is absent by `<class>.present` lies at the centre, since its weight
        does nothing.
        """
        logs = self._logs(arm, features)
        origin = logs.get(self.base, 0.0) if self.base else min(logs.values(), default=0.0)
        return {
            name: 0.0 if features.get(f"{name}.present", 1.0) <= 0.0 else logs[name] - origin - self._centre[name]
            for name in self.axes
        }

    def terms(self, arm: Arm, features: Mapping[str, float]) -> list[float]:
        """The `size` terms of an arm in a situation."""
        at = list(self.coordinates(arm, features).values())
        products = [a * b for i, a in enumerate(at) for b in at[:i]] if len(at) <= CROSSED else []
        return [1.0, *at, *(a * a for a in at), *products]

    def _logs(self, arm: Arm, features: Mapping[str, float]) -> dict[str, float]:
        names = (*self.axes, self.base) if self.base else self.axes
        if arm.weights is None:
            return {name: float(features.get(f"{name}.weight_log", 0.0)) for name in names}
        weights = arm.weights
        return {name: math.log(weights.get(name, self._min_weight) / self._min_weight) / self._span for name in names}
