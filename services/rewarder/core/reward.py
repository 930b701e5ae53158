"""Step 9: what a cycle was worth, in [-1, 1], term by term.

Objectives come first: while one is broken throughput counts for nothing and the value lies below all that an unbroken
cycle can be worth; once all hold, the CPU share of throughput classes decides; moving costs a little.
"""

import math
from collections.abc import Mapping

import msgspec

from schemas.messages import ClassState, State
from schemas.objective import has_evidence, is_violated, objective_seconds
from schemas.settings import ClassSettings

_FULL_RANGE = math.log(100.0)
_WORST_OCTAVES = 5.0
_MOST_CPUS = 8192
"""The kernel's own limit (NR_CPUS)."""


class RewardWeights(msgspec.Struct, frozen=True):
    """Weights of the terms (services/rewarder/config.py)."""

    violation: float
    severity: float
    throughput: float
    oscillation: float


class Worth(msgspec.Struct, frozen=True):
    """The value and the terms it was made of, each before its weight."""

    value: float
    terms: dict[str, float]


def severity(seen: ClassState, spec: ClassSettings) -> float:
    """How badly a class misses its objective, 0-1, never less for a worse number: from the fraction of requests over
    it, which still tells bad from worse when the P99 is saturated, and from how many times the P99 is the objective
    (32 times is the worst). Where pressure judges: the part of the way from the ceiling to waiting all the time.
    """
    if seen.judged_by == "pressure":
        ceiling = spec.objective_pressure_ratio
        if ceiling is None or ceiling >= 1.0 or seen.waited_ratio is None:
            return 0.0
        return _unit((seen.waited_ratio - ceiling) / (1.0 - ceiling))
    latency, objective = seen.latency, objective_seconds(seen, spec)
    octaves = 0.0
    if latency.p99_seconds is not None and objective is not None and latency.p99_seconds > objective:
        octaves = min(1.0, math.log2(latency.p99_seconds / objective) / _WORST_OCTAVES)
    over = math.sqrt(_unit(latency.over_ratio)) if latency.over_ratio is not None else octaves
    return min(1.0, 0.6 * over + 0.4 * octaves)


def movement(before: State, weights: Mapping[str, int] | None) -> float:
    """Mean part of the full range (1:100) by which class weights moved, 0-1."""
    moves = [
        abs(math.log(weight) - math.log(seen.weight))
        for name, weight in (weights or {}).items()
        if weight > 0 and (seen := before.classes.get(name)) is not None and seen.weight and seen.weight > 0
    ]
    return min(1.0, sum(moves) / len(moves) / _FULL_RANGE) if moves else 0.0


def reward(
    before: State,
    after: State,
    moved_to: Mapping[str, int] | None,
    classes: Mapping[str, ClassSettings],
    weights: RewardWeights,
) -> Worth:
    """The worth of a cycle whose evidence is complete. `moved_to` are the class weights that were written, if any.

    The value is, with `penalty` the weighted violation and severity (0-1), `move` and `throughput` the terms (0-1) and
    `cost` the weight of moving: without a violation throughput weight * throughput - cost * move, which is at least
    -cost; with one -cost - (1 - 2 * cost) * penalty - cost * move, which is at most -cost and at least -1.
    """
    terms: dict[str, float] = {}
    violated = bad = total = 0.0
    throughput = 0.0
    for name, spec in classes.items():
        seen = after.classes.get(name)
        if seen is None or seen.pods == 0:
            continue
        if spec.kind == "throughput":
            throughput += _unit((seen.cpu_cores or 0.0) / max(1, min(_MOST_CPUS, after.contention.cpus)))
            continue
        if not has_evidence(seen):
            continue
        total += spec.importance
        if is_violated(seen, spec):
            violated += spec.importance
            bad += spec.importance * severity(seen, spec)
            terms[f"severity.{name}"] = -severity(seen, spec)
    terms["violation"] = -violated / total if total else 0.0
    terms["severity"] = -bad / total if total else 0.0
    terms["throughput"] = min(1.0, throughput)
    terms["oscillation"] = -movement(before, moved_to)
    cost = weights.oscillation
    value = cost * terms["oscillation"]
    if violated:
        penalty = _unit(weights.violation * violated / total + weights.severity * bad / total)
        value -= cost + (1.0 - 2.0 * cost) * penalty
    else:
        value += weights.throughput * terms["throughput"]
    return Worth(max(-1.0, min(1.0, value)), terms)


def _unit(value: float) -> float:
    return max(0.0, min(1.0, value))
