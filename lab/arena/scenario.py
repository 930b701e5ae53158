"""Owns what a scenario is: pods with their loads over time, as data. Pure values.

Time is counted in cycles of the loop (`cycle_seconds` each), so that one scenario means the same at every tick.
"""

from bisect import bisect_right
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from schemas.settings import DEFAULT_CLASSES

Cls: TypeAlias = Literal["latency-critical", "default", "batch"]
Points: TypeAlias = tuple[tuple[Annotated[float, Meta(ge=0.0)], Annotated[float, Meta(ge=0.0)]], ...]
"""(cycle, value), by ascending cycle, the first at cycle 0."""

Queue: TypeAlias = Literal["bounded", "unbounded"]

BOUNDED_QUEUE = 60
BOUNDED_TIMEOUT_SECONDS = 1.0


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value over cycles: `steps` holds each point until the next, `linear` goes straight from one to the next. With
    `period` (in cycles) the curve begins anew; without it the last value stays.
    """

    points: Points
    shape: Literal["steps", "linear"] = "steps"
    period: Annotated[float, Meta(gt=0.0)] | None = None

    def __post_init__(self) -> None:
        cycles = [cycle for cycle, _ in self.points]
        if not cycles or cycles[0] != 0.0 or sorted(set(cycles)) != cycles:
            raise ValueError("points: the first must be at cycle 0, and each later than the one before")
        if self.period is not None and cycles[-1] > self.period:
            raise ValueError(f"points: the one at cycle {cycles[-1]:g} is beyond the period of {self.period:g}")

    def at(self, cycle: float) -> float:
        """The value at a moment, in cycles since the start (fractions count)."""
        here = cycle % self.period if self.period is not None else cycle
        index = bisect_right(self.points, here, key=lambda point: point[0]) - 1
        start, value = self.points[index]
        if self.shape == "steps":
            return value
        if index + 1 < len(self.points):
            end, target = self.points[index + 1]
        elif self.period is not None and self.period > start:
            end, target = self.period, self.points[0][1]
        else:
            return value
        return value + (target - value) * (here - start) / (end - start)


def constant(value: float) -> Curve:
    """The same value for ever."""
    return Curve(((0.0, value),))


class ServicePod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="service"):
    """A pod that answers open-loop Poisson requests: `rate` requests a second over cycles, `work_seconds` mean CPU time
    of one, exponential or lognormal (`spread` is the sigma of its logarithm), `workers` threads.
    """

    name: str
    cls: Cls
    request_millicpu: Annotated[int, Meta(ge=0)]
    rate: Curve
    work_seconds: Annotated[float, Meta(gt=0.0)]
    distribution: Literal["exponential", "lognormal"] = "lognormal"
    spread: Annotated[float, Meta(ge=0.0, le=3.0)] = 0.5
    workers: Annotated[int, Meta(ge=1, le=64)] = 8


class SpinnerPod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="spinner"):
    """A pod with `processes` threads that always want to run, as many as the curve says (rounded): a batch job, or a
    service that went wild.
    """

    name: str
    cls: Cls
    request_millicpu: Annotated[int, Meta(ge=0)]
    processes: Curve


Pod: TypeAlias = ServicePod | SpinnerPod


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node and what happens on it. All pods are Burstable siblings; their first weights come from their requests by
    the kubelet's linear formula.

    `queue`: `bounded` sheds a request that finds 60 waiting and gives up one that is a second old; `unbounded` keeps
    all, for ever. `phases` names stretches of the time (from which cycle on) in which one profile may be the best; with
    `phase_period` they begin anew. `objectives` are P99s in seconds by class. `matters` says whether weights make a
    difference here at all.
    """

    name: str
    pods: tuple[Pod, ...]
    text: str
    cores: Annotated[int, Meta(ge=1, le=64)] = 2
    queue: Queue = "bounded"
    phases: tuple[tuple[str, float], ...] = (("all", 0.0),)
    phase_period: Annotated[float, Meta(gt=0.0)] | None = None
    objectives: dict[Cls, float] = msgspec.field(default_factory=lambda: {"latency-critical": 0.05, "default": 0.2})
    matters: bool = True

    def __post_init__(self) -> None:
        names = [pod.name for pod in self.pods]
        if not names or len(set(names)) < len(names):
            raise ValueError("pods: at least one, with names of their own")
        latency = {name for name, spec in DEFAULT_CLASSES.items() if spec.kind == "latency"}
        unknown = sorted(set(self.objectives) - latency)
        if unknown:
            raise ValueError(f"objectives: {unknown[0]!r} is no latency class")

    def phase_at(self, cycle: float) -> str:
        """The name of the phase that a cycle belongs to."""
        here = cycle % self.phase_period if self.phase_period is not None else cycle
        return [name for name, start in self.phases if start <= here][-1]
