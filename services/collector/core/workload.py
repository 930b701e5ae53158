"""What a source of workloads says of one pod, and which class that makes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.settings import ClassSettings


@dataclass(frozen=True)
class Workload:
    """One pod. `group` is its pod-level cgroup below the pods root.

    `metrics_url`, `latency_metric` and `latency_unit` are what somebody wrote out; else `annotations` say it, with the
    pod's `address` (its IP) and the `ports` that its containers declare (core/targets.py). `skip` says why it is looked
    at and never steered, whatever its files say. `objective_p99_seconds` is the pod's own objective.
    """

    uid: str
    name: str
    group: str
    labels: Mapping[str, str] = field(default_factory=dict)
    metrics_url: str | None = None
    latency_metric: str | None = None
    latency_unit: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    ports: tuple[int, ...] = ()
    namespace: str = ""
    skip: str | None = None
    objective_p99_seconds: float | None = None


def classify(labels: Mapping[str, str], keys: Sequence[str], classes: Mapping[str, ClassSettings]) -> str | None:
    """The class that the first present label key names, by exact value; None for no label or an unknown value."""
    for key in keys:
        if key in labels:
            return next((name for name, spec in classes.items() if labels[key] in (spec.label_values or (name,))), None)
    return None
