"""Owns the set of arms: profiles of class weights on a logarithmic grid, and `hold`.

A weight acts only relative to others, so every profile is in profile scale: its smallest weight is
`weights.min_weight`. A name says the ratios: `lc10-d3-b1` is latency-critical 10 : default 3 : batch 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.profile import on_profile_scale, within_bounds
from schemas.settings import ClassSettings, SettingsError, Shared, WeightSettings
from services.decider.core.policy import HOLD, Arm

HALF_DECADE: Final = math.sqrt(10.0)
LEVELS: Final = 5
"""Grid levels, 1:1 to 100:1 in half decades. More than 100:1 starves without helping the other side."""

MAX_PROFILES: Final = 20
"""Most profiles. Each arm costs exploration; the grid makes 12 for the default classes."""


def distance(a: Mapping[str, int], b: Mapping[str, int], limits: WeightSettings) -> float:
    """The largest |ln ratio| between the profile scales over the classes that both name; 0 if there is none."""
    common = [name for name in a if name in b]
    left = on_profile_scale({name: a[name] for name in common}, limits)
    right = on_profile_scale({name: b[name] for name in common}, limits)
    return max((abs(math.log(left[name] / right[name])) for name in common), default=0.0)


def nearest_profile(weights: Mapping[str, int], arms: Sequence[Arm], limits: WeightSettings) -> Arm:
    """The arm whose profile is nearest to `weights` by `distance`, the first of equals; HOLD if there is no profile."""
    profiles = [(arm, arm.weights) for arm in arms if arm.weights is not None]
    if not profiles:
        return HOLD
    return min(profiles, key=lambda pair: distance(pair[1], weights, limits))[0]


def build_arms(shared: Shared, profiles: Mapping[str, Mapping[str, int]]) -> tuple[Arm, ...]:
    """The configured profiles, or the grid for these classes if none is; then `hold`. Raises SettingsError.

    A class that a configured profile does not name gets the weight of the class `default`, or `min_weight` if that is
    not named either.
    """
    if len(profiles) > MAX_PROFILES:
        raise SettingsError(f"decider.profiles: {len(profiles)} are too many to learn; keep at most {MAX_PROFILES}")
    arms = [_configured(name, weights, shared) for name, weights in profiles.items()] or _grid(shared)
    for index, arm in enumerate(arms):
        for other in arms[:index]:
            if arm.weights == other.weights:
                raise SettingsError(
                    f"decider.profiles.{arm.name}: has the same ratios as profile {other.name!r}; drop one of them"
                )
    _require_paths(arms, shared.weights)
    return (*arms, HOLD)


def default_profile(arms: Sequence[Arm], shared: Shared) -> Arm:
    """The profile to believe in before any evidence: the one nearest to 10 : … : 1, latency classes by importance."""
    exponents = _graded(shared.classes, 2)
    ideal = {name: round(shared.weights.min_weight * HALF_DECADE**exponent) for name, exponent in exponents.items()}
    return nearest_profile(ideal, arms, shared.weights)


def _configured(name: str, weights: Mapping[str, int], shared: Shared) -> Arm:
    where = f"decider.profiles.{name}"
    limits = shared.weights
    if not name or name == HOLD.name:
        raise SettingsError(f"{where}: the name {name!r} is reserved; choose another")
    for cls, weight in weights.items():
        if cls not in shared.classes:
            raise SettingsError(f"{where}: no class {cls!r} is configured; known are {', '.join(shared.classes)}")
        if not limits.min_weight <= weight <= limits.max_weight:
            raise SettingsError(
                f"{where}.{cls}: {weight} is outside weights.min_weight {limits.min_weight} "
                f"to weights.max_weight {limits.max_weight}"
            )
    other = weights.get("default", limits.min_weight)
    return Arm(name, within_bounds({cls: weights.get(cls, other) for cls in shared.classes}, limits))


def _require_paths(arms: Sequence[Arm], limits: WeightSettings) -> None:
    """Every profile must be reachable from the first by allowed steps (which are symmetric), or it would never be."""
    step = math.log(limits.max_step_ratio) + 1e-9
    reached, frontier = {arms[0].name}, [arms[0]]
    while frontier:
        here = frontier.pop()
        for arm in arms:
            if arm.name not in reached and distance(here.weights or {}, arm.weights or {}, limits) <= step:
                reached.add(arm.name)
                frontier.append(arm)
    for arm in arms:
        if arm.name not in reached:
            raise SettingsError(
                f"decider.profiles.{arm.name}: no chain of steps within weights.max_step_ratio {limits.max_step_ratio} "
                f"leads there from {arms[0].name!r}; add a profile between or raise the ratio"
            )


def _grid(shared: Shared) -> list[Arm]:
    """Profiles on the grid for any set of classes.

    All equal; the latency classes raised together, by importance, with the leaders ahead of the others or behind them
    (each in turn ahead if all are equally important); the throughput classes raised.
    """
    classes = shared.classes
    latency = {name: spec for name, spec in classes.items() if spec.kind == "latency"}
    throughput = [name for name in classes if name not in latency]
    highest = max((spec.importance for spec in latency.values()), default=1.0)
    leaders = [name for name, spec in latency.items() if spec.importance == highest]

    others = [name for name in latency if name not in leaders]
    patterns: list[dict[str, int]] = [{}]
    patterns += [dict.fromkeys(latency, level) for level in (1, 2, 3, 4)]
    patterns += [_graded(classes, level) for level in (2, 3, 4)]
    if others:
        patterns += [dict.fromkeys(latency, 3) | dict.fromkeys(leaders, 4)]
        patterns += [dict.fromkeys(leaders, level) | dict.fromkeys(others, 1) for level in (3, 4)]
        patterns += [
            dict.fromkeys(leaders, low) | dict.fromkeys(others, high) for low, high in ((2, 3), (3, 4), (2, 4))
        ]
    else:
        patterns += [dict.fromkeys(latency, level - 1) | {name: level} for name in leaders[:4] for level in (2, 3)]
    if latency:
        patterns += [dict.fromkeys(throughput, 1)]
    else:
        patterns += [{name: level} for name in throughput[:6] for level in (1, 2)]

    levels = _levels(shared.weights)
    arms: dict[str, Arm] = {}
    for pattern in patterns:
        lowest = min(pattern.get(name, 0) for name in classes)
        weights = {name: levels[min(pattern.get(name, 0) - lowest, len(levels) - 1)] for name in classes}
        name = _profile_name(weights)
        arms.setdefault(name, Arm(name, weights))
    return list(arms.values())


def _graded(classes: Mapping[str, ClassSettings], level: int) -> dict[str, int]:
    """Half decades above the throughput classes: `level` for the most important latency class, less for the others."""
    latency = {name: spec.importance for name, spec in classes.items() if spec.kind == "latency"}
    highest = max(latency.values(), default=1.0)
    graded = {name: round(level * importance / highest) for name, importance in latency.items()}
    return dict.fromkeys(classes, 0) | graded


def _levels(limits: WeightSettings) -> list[int]:
    """Weights of the grid, ascending by half decades, or by the largest allowed step if that is smaller."""
    levels = [limits.min_weight]
    for exponent in range(1, LEVELS):
        level = min(round(limits.min_weight * HALF_DECADE**exponent), math.floor(levels[-1] * limits.max_step_ratio))
        if not levels[-1] < level <= limits.max_weight:
            break
        levels.append(level)
    if len(levels) == 1:  # bounds closer than one grid step still leave two ends to choose between
        levels.append(limits.max_weight)
    return levels


def _profile_name(weights: Mapping[str, int]) -> str:
    short = {name: "".join(word[:1] for word in name.split("-")) for name in weights}
    if len(set(short.values())) < len(short):
        short = {name: name for name in weights}
    lowest = min(weights.values())
    return "-".join(f"{short[name]}{_ratio_name(weight / lowest)}" for name, weight in weights.items())


def _ratio_name(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 2.5 else f"{ratio:.2g}"  # noqa: PLR2004 - below it, rounding would hide the ratio
