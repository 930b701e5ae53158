"""The feature vector: every name of `schemas.features`, always, finite and within [-1, 1]."""

import math
from collections.abc import Mapping

from schemas.features import LATENCY_LOG_OCTAVES, WEIGHT_LOG_BASE, feature_names
from schemas.messages import ClassState, Contention, Previous
from schemas.objective import objective_seconds
from schemas.settings import ClassSettings

_QUEUE_SCALE = 8.0
_LOAD_SCALE = 4.0
_WEIGHT_OCTAVES = math.log2(WEIGHT_LOG_BASE)
_LEAST_OCTAVE = math.log2(5e-324)


def features(
    classes: Mapping[str, ClassState],
    contention: Contention,
    previous: Previous | None,
    specs: Mapping[str, ClassSettings],
) -> dict[str, float]:
    """The vector for one state (docs/features.md has meaning, unit, scaling and missing value of each)."""
    found: dict[str, float] = {
        "bias": 1.0,
        "node.contended": float(contention.contended),
        "node.busy_ratio": contention.busy_ratio or 0.0,
        "node.pressure_ratio": contention.pressure_ratio or 0.0,
        "node.pressure_missing": float(contention.pressure_ratio is None),
        "node.run_queue": (contention.run_queue or 0.0) / _QUEUE_SCALE,
        "node.run_queue_missing": float(contention.run_queue is None),
        "node.previous_applied": float(previous is not None and previous.outcome == "applied"),
    }
    for name, spec in specs.items():
        seen = classes.get(name, ClassState())
        for key, value in _class_features(seen, spec, contention.cpus).items():
            found[f"{name}.{key}"] = value
    return {name: _bounded(found[name]) for name in feature_names(tuple(specs))}


def _class_features(seen: ClassState, spec: ClassSettings, cpus: int) -> dict[str, float]:
    latency = seen.latency
    return {
        "present": float(seen.pods > 0),
        "weight_log": _log2(seen.weight, 100.0) / _WEIGHT_OCTAVES,
        "share": seen.share or 0.0,
        "cpu_ratio": (seen.cpu_cores or 0.0) / max(1, cpus),
        "pressure_ratio": seen.pressure_ratio or 0.0,
        "pressure_missing": float(seen.pressure_ratio is None),
        "throttled_ratio": seen.throttled_ratio or 0.0,
        "waited_ratio": seen.waited_ratio or 0.0,
        "waited_missing": float(seen.waited_ratio is None),
        "latency_log": _log2(latency.p99_seconds, objective_seconds(seen, spec)) / LATENCY_LOG_OCTAVES,
        "latency_missing": float(latency.p99_seconds is None),
        "over_ratio": latency.over_ratio or 0.0,
        "load_log": math.log10(1.0 + max(0.0, latency.requests_per_second or 0.0)) / _LOAD_SCALE,
    }


def _log2(value: float | None, unit: float | None) -> float:
    """How many octaves a value is above its unit; 0 where there is no such number, and for a value of 0 the least."""
    ratio = value / unit if value is not None and unit else math.nan
    return math.log2(ratio) if ratio > 0 else _LEAST_OCTAVE if ratio == 0 else 0.0


def _bounded(value: float) -> float:
    return max(-1.0, min(1.0, value)) if math.isfinite(value) else 0.0
