"""Owns what it means that a class misses its objective: one answer for the mask before and the reward after."""

from schemas.messages import ClassState
from schemas.settings import ClassSettings


def has_latency(seen: ClassState) -> bool:
    """Whether the class's latency can be judged: by a P99, or by the fraction of requests over the objective."""
    return seen.latency.p99_seconds is not None or seen.latency.over_ratio is not None


def is_violated(seen: ClassState, spec: ClassSettings) -> bool:
    """Whether a latency class is known to miss its objective.

    The fraction of requests over it decides alone where it is known, since it counts every request; else a P99 above
    the objective does, or one beyond the last bucket of its histogram. A throughput class has no objective, and a class
    without pods or without evidence is not known to miss one.
    """
    if spec.kind != "latency" or seen.pods <= 0:
        return False
    latency, objective_seconds = seen.latency, spec.objective_p99_seconds
    if latency.over_ratio is not None:
        return latency.over_ratio > spec.violation_target_ratio
    if latency.p99_seconds is None:
        return False
    return "p99" in latency.saturated or (objective_seconds is not None and latency.p99_seconds > objective_seconds)
