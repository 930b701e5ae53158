"""Owns what it means that a class misses its objective: one answer for the mask before and the reward after."""

from typing import Final

from schemas.messages import ClassState, JudgedBy, Latency
from schemas.settings import ClassSettings

NO_LATENCY: Final = frozenset(
    {
        "no_source",
        "no_target",
        "shared_target",
        "no_metric",
        "no_buckets",
        "no_count",
        "no_quantiles",
        "unit_unknown",
        "unit_suspect",
    }
)
"""Reasons of a latency that is unknown by the pods' nature, and will be in the next window too."""


def judged_by(latency: Latency, spec: ClassSettings) -> JudgedBy | None:
    """The signal that judges a class with pods: its latency, or its pressure ceiling where it brings no latency. A
    latency that is only unknown for now (idle, not answering) is still the one that judges.
    """
    if spec.kind != "latency":
        return None
    lacks_latency = spec.objective_p99_seconds is None or latency.reason in NO_LATENCY
    return "pressure" if lacks_latency and spec.objective_pressure_ratio is not None else "latency"


def objective_seconds(seen: ClassState, spec: ClassSettings) -> float | None:
    """The P99 that a class goes by: its pods' own, which the state shows, else the class's setting."""
    return spec.objective_p99_seconds if seen.objective_seconds is None else seen.objective_seconds


def has_evidence(seen: ClassState) -> bool:
    """Whether the signal that judges the class is known: a P99 or the fraction of requests over the objective; the
    wait for CPU where pressure judges. A lower bound of the P99 that lies below the objective tells nothing.
    """
    if seen.judged_by == "pressure":
        return seen.waited_ratio is not None
    latency, objective = seen.latency, seen.objective_seconds
    if latency.over_ratio is not None:
        return True
    if latency.p99_seconds is None:
        return False
    return "p99" not in latency.saturated or (objective is not None and latency.p99_seconds >= objective)


def is_violated(seen: ClassState, spec: ClassSettings) -> bool:
    """Whether a latency class is known to miss its objective.

    The fraction of requests over it decides alone where it is known, since it counts every request; else a P99 above
    the objective does, or a lower bound at it. Where pressure judges, it is a wait above the ceiling. A throughput
    class has no objective, and a class without pods or without evidence is not known to miss one.
    """
    if spec.kind != "latency" or seen.pods <= 0 or not has_evidence(seen):
        return False
    if seen.judged_by == "pressure":
        ceiling = spec.objective_pressure_ratio
        return ceiling is not None and seen.waited_ratio is not None and seen.waited_ratio > ceiling
    latency, objective = seen.latency, objective_seconds(seen, spec)
    if latency.over_ratio is not None:
        return latency.over_ratio > spec.violation_target_ratio
    if latency.p99_seconds is None or objective is None:
        return False
    is_at_least = "p99" in latency.saturated and latency.p99_seconds == objective
    return is_at_least or latency.p99_seconds > objective
