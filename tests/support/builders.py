"""Messages with sensible defaults: a contended node with three classes, halfway through an ordinary cycle.

Every builder takes the fields of its message as keywords and fills in the rest.
"""

from typing import Any

import msgspec

from schemas.features import features_schema
from schemas.messages import (
    Action,
    Actuation,
    ClassState,
    Command,
    Contention,
    Heartbeat,
    Latency,
    PodState,
    PodWrite,
    Reward,
    State,
    Verdict,
)
from schemas.settings import DEFAULT_CLASSES

NODE = "node-1"
BOOT = "boot1"
START_NS = 1_700_000_000_000_000_000
"""Where a `ManualClock` starts: a message built with this `at` is of age 0 then."""

CRITICAL, DEFAULT, BATCH = "latency-critical", "default", "batch"
WEIGHTS = {CRITICAL: 1000, BATCH: 100}
"""The class weights in force in `state()`."""
PROPOSED = {CRITICAL: 2000, BATCH: 100}
"""The class weights of `action()`: one step of two from there."""

EXAMPLE_FEATURES = {"bias": 1.0, "node.contended": 1.0}


def _ids(fields: dict[str, Any]) -> dict[str, Any]:
    return {"node": NODE, "boot": BOOT, "cycle": 1, "at": START_NS, **fields}


def latency(p99_seconds: float | None = 0.05, requests: int = 500, **fields: Any) -> Latency:
    """Latency of a busy class well within an objective of 0.1 s."""
    defaults: dict[str, Any] = {"window_seconds": 5.0, "requests_per_second": requests / 5.0}
    if p99_seconds is not None:
        defaults |= {"p50_seconds": p99_seconds / 5, "p95_seconds": p99_seconds / 2, "over_ratio": 0.0}
    return Latency(**{**defaults, "p99_seconds": p99_seconds, "requests": requests, **fields})


def class_state(**fields: Any) -> ClassState:
    """A latency class: one pod, weight 1000, objective 0.1 s."""
    defaults: dict[str, Any] = {
        "pods": 1,
        "weight": 1000,
        "pods_weight": 1000,
        "share": 0.9,
        "cpu_cores": 0.8,
        "pressure_ratio": 0.2,
        "objective_seconds": 0.1,
        "latency": latency(),
        "judged_by": "latency",
    }
    return ClassState(**{**defaults, **fields})


def waiting(waited_ratio: float | None = 0.05, ceiling: float = 0.1, **fields: Any) -> ClassState:
    """A latency class without any latency metric, judged by how long it waits: well within its ceiling of 0.1."""
    defaults: dict[str, Any] = {
        "latency": Latency(reason="no_source"),
        "pressure_ratio": waited_ratio,
        "waited_ratio": waited_ratio,
        "waited_source": None if waited_ratio is None else "pressure",
        "objective_pressure_ratio": ceiling,
        "judged_by": "pressure",
    }
    return class_state(**{**defaults, **fields})


def batch_state(**fields: Any) -> ClassState:
    """A throughput class: one pod, weight 100, no objective."""
    defaults: dict[str, Any] = {
        "weight": 100,
        "pods_weight": 100,
        "share": 0.1,
        "cpu_cores": 1.0,
        "objective_seconds": None,
        "latency": Latency(reason="no_source"),
        "judged_by": None,
    }
    return class_state(**{**defaults, **fields})


def pod(name: str, cls: str | None = CRITICAL, weight: int | None = 1000, **fields: Any) -> PodState:
    """A pod whose uid and group follow from its name."""
    return PodState(
        **{"uid": f"uid-{name}", "name": name, "group": f"pod-{name}", "cls": cls, "weight": weight} | fields
    )


def state(**fields: Any) -> State:
    """A state `before`: a latency-critical and a batch class with one pod each, contended, on two CPUs."""
    defaults: dict[str, Any] = {
        "phase": "before",
        "window_seconds": 5.0,
        "classes": {CRITICAL: class_state(), BATCH: batch_state()},
        "pods": (pod("api"), pod("job", BATCH, 100)),
        "contention": Contention(contended=True, cpus=2, busy_ratio=1.0, pressure_ratio=0.3),
        "features": EXAMPLE_FEATURES,
        "features_schema": features_schema(tuple(DEFAULT_CLASSES)),
    }
    return State(**_ids({**defaults, **fields}))


def after(before: State, **fields: Any) -> State:
    """The state `after` of the same cycle: as before, but for the given fields. Pods are as `PROPOSED` made them."""
    pods = (pod("api", weight=2000), pod("job", BATCH, 100))
    return msgspec.structs.replace(before, **{"phase": "after", "pods": pods, **fields})


def with_wait(of: State, waited_ratio: float | None, name: str = CRITICAL, **fields: Any) -> State:
    """The state with one class judged by how long it waited; `fields` are those of the class."""
    return msgspec.structs.replace(of, classes={**of.classes, name: waiting(waited_ratio, **fields)})


def with_p99(of: State, p99_seconds: float | None, name: str = CRITICAL, **fields: Any) -> State:
    """The state with another P99 of one class; `fields` are those of its latency."""
    seen = msgspec.structs.replace(of.classes[name], latency=latency(p99_seconds, **fields))
    return msgspec.structs.replace(of, classes={**of.classes, name: seen})


def action(**fields: Any) -> Action:
    """A proposal that the guard allows on `state()`."""
    defaults: dict[str, Any] = {"policy": "test", "arm": "favour", "weights": PROPOSED, "propensity": 0.5}
    return Action(**_ids({**defaults, **fields}))


def hold(**fields: Any) -> Action:
    """A proposal to hold."""
    return action(**{"arm": "hold", "weights": None, **fields})


def verdict(**fields: Any) -> Verdict:
    """The verdict that allows `action()`, good for 0.6 s from START_NS."""
    defaults: dict[str, Any] = {
        "outcome": "allow",
        "execute": True,
        "mode": "active",
        "arm": "favour",
        "weights": PROPOSED,
        "propensity": 0.5,
        "deadline": START_NS + 600_000_000,
        "changes_left": 7,
        "previous_weights": WEIGHTS,
    }
    return Verdict(**_ids({**defaults, **fields}))


def write(name: str = "api", before: int = 1000, after: int = 2000, **fields: Any) -> PodWrite:
    """One applied write to the pod `name`."""
    defaults: dict[str, Any] = {"uid": f"uid-{name}", "group": f"pod-{name}", "name": name}
    return PodWrite(**{**defaults, "before": before, "wanted": after, "after": after, **fields})


def actuation(**fields: Any) -> Actuation:
    """The actuation that carried `verdict()` out."""
    defaults: dict[str, Any] = {"outcome": "applied", "arm": "favour", "weights": PROPOSED, "writes": (write(),)}
    return Actuation(**_ids({**defaults, **fields}))


def reward(**fields: Any) -> Reward:
    """A reward that can be learned from."""
    defaults: dict[str, Any] = {
        "outcome": "joined",
        "value": 0.5,
        "arm": "favour",
        "propensity": 0.5,
        "policy": "test",
        "features": EXAMPLE_FEATURES,
        "features_schema": features_schema(tuple(DEFAULT_CLASSES)),
        "verdict": "allow",
        "actuation": "applied",
        "weights": PROPOSED,
    }
    return Reward(**_ids({**defaults, **fields}))


def command(**fields: Any) -> Command:
    """An operator's order to return to the originals."""
    return Command(**_ids({"verb": "restore", "by": "operator", "reason": "because", "id": "c1", **fields}))


def heartbeat(**fields: Any) -> Heartbeat:
    """The guard is alive."""
    return Heartbeat(**_ids({"service": "guard", **fields}))
