"""Names and order of the feature vector, which the collector fills and the decider reads (docs/features.md).

The set is fixed by the configured classes alone, so that a model learned yesterday fits today's state. Every value is
finite and within [-1, 1]; what is unknown has a defined neutral value and a `…_missing` flag of 1.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

LATENCY_LOG_OCTAVES: Final = 8.0
"""Doublings of the latency in one unit of `<class>.latency_log`, which is log2(P99 / objective) / 8."""

WEIGHT_LOG_BASE: Final = 100.0
"""`<class>.weight_log` is the logarithm of weight / 100 to this base: one unit is two decades."""

NODE_FEATURES: Final = (
    "bias",
    "node.contended",
    "node.busy_ratio",
    "node.pressure_ratio",
    "node.pressure_missing",
    "node.run_queue",
    "node.run_queue_missing",
    "node.previous_applied",
)
CLASS_FEATURES: Final = (
    "present",
    "weight_log",
    "share",
    "cpu_ratio",
    "pressure_ratio",
    "pressure_missing",
    "throttled_ratio",
    "waited_ratio",
    "waited_missing",
    "latency_log",
    "latency_missing",
    "over_ratio",
    "load_log",
)


def feature_names(classes: Sequence[str]) -> tuple[str, ...]:
    """All feature names for these classes, in order: the node's first, then `<class>.<feature>` class by class."""
    return NODE_FEATURES + tuple(f"{name}.{feature}" for name in classes for feature in CLASS_FEATURES)


def features_schema(classes: Sequence[str]) -> str:
    """A short id of the names and their order: a model fits a state only if theirs are equal."""
    return "f2-" + hashlib.sha256("\n".join(feature_names(classes)).encode()).hexdigest()[:12]
