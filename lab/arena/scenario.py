"""Owns what a scenario is: pods with their loads over time, as data, and what is no scenario. Pure values.

Time is counted in cycles of the loop (`cycle_seconds` each), so that one scenario means the same at every tick. What is
made or read is checked at once: ValueError says which field, what is wrong with it and what is allowed.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from schemas.settings import DEFAULT_CLASSES

Cls: TypeAlias = Literal["latency-critical", "default", "batch"]
Points: TypeAlias = tuple[tuple[float, float], ...]
"""(cycle, value), by ascending cycle, the first at cycle 0."""

Queue: TypeAlias = Literal["bounded", "unbounded"]
QUEUES: Final[tuple[Queue, ...]] = get_args(Queue)

BOUNDED_QUEUE = 60
BOUNDED_TIMEOUT_SECONDS = 1.0

MAX_PODS: Final = 16
MAX_POINTS: Final = 1000
MAX_CYCLE: Final = 1_000_000.0
"""Of a point, a period or a phase: ten times the longest bench."""

LEAST_PERIOD: Final = 0.1
"""In cycles. A curve that begins anew more often costs the simulator more than its requests do."""

LEAST_STEP: Final = 0.001
"""In cycles, between two points."""

MAX_REQUESTS_PER_SECOND: Final = 20_000.0
"""Of all pods at their busiest: what a run keeps of 400 cycles then is 320 MB."""

MAX_PROCESSES: Final = 256
"""Of all pods at their busiest: on real cgroups each is one."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
_PHASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
_POD: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MAX_TEXT: Final = 2000


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value over cycles: `steps` holds each point until the next, `linear` goes straight from one to the next. With
    `period` (in cycles) the curve begins anew; without it the last value stays.
    """

    points: Points
    shape: Literal["steps", "linear"] = "steps"
    period: float | None = None

    def __post_init__(self) -> None:
        _check_choice("shape", self.shape, ("steps", "linear"))
        for cycle, value in self.points:
            _check_number("points: a cycle", cycle, 0.0, MAX_CYCLE)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"points: the value at cycle {cycle:g} is {value:g}; give a number of at least 0")
        _check_starts("points", [cycle for cycle, _ in self.points])
        _check_period("period", self.period)
        last = self.points[-1][0]
        if self.period is not None and last > self.period:
            raise ValueError(f"points: the one at cycle {last:g} is beyond the period of {self.period:g}")

    @property
    def peak(self) -> float:
        """The largest value that it ever takes."""
        return max(value for _, value in self.points)

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
    request_millicpu: int
    rate: Curve
    work_seconds: float
    distribution: Literal["exponential", "lognormal"] = "lognormal"
    spread: float = 0.5
    workers: int = 8

    def __post_init__(self) -> None:
        _check_pod(self.name, self.cls, self.request_millicpu)
        _check_curve("rate", self.rate, MAX_REQUESTS_PER_SECOND)
        _check_number("work_seconds", self.work_seconds, 1e-6, 60.0)
        _check_choice("distribution", self.distribution, ("exponential", "lognormal"))
        _check_number("spread", self.spread, 0.0, 3.0)
        _check_whole("workers", self.workers, 1, 64)


class SpinnerPod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="spinner"):
    """A pod with `processes` threads that always want to run, as many as the curve says (rounded): a batch job, or a
    service that went wild.
    """

    name: str
    cls: Cls
    request_millicpu: int
    processes: Curve

    def __post_init__(self) -> None:
        _check_pod(self.name, self.cls, self.request_millicpu)
        _check_curve("processes", self.processes, MAX_PROCESSES)


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
    cores: int = 2
    queue: Queue = "bounded"
    phases: tuple[tuple[str, float], ...] = (("all", 0.0),)
    phase_period: float | None = None
    objectives: dict[Cls, float] = msgspec.field(default_factory=lambda: {"latency-critical": 0.05, "default": 0.2})
    matters: bool = True

    def __post_init__(self) -> None:
        _check_name("name", self.name, _NAME)
        if len(self.text) > _MAX_TEXT:
            raise ValueError(f"text: {len(self.text)} characters; give at most {_MAX_TEXT}")
        _check_whole("cores", self.cores, 1, 64)
        _check_choice("queue", self.queue, QUEUES)
        self._check_pods()
        self._check_phases()
        self._check_objectives()

    def _check_pods(self) -> None:
        if not 1 <= len(self.pods) <= MAX_PODS:
            raise ValueError(f"pods: {len(self.pods)} of them; give at least one and at most {MAX_PODS} pods")
        _check_unique("pods", [pod.name for pod in self.pods])
        requests = sum(pod.rate.peak for pod in self.pods if isinstance(pod, ServicePod))
        processes = sum(pod.processes.peak for pod in self.pods if isinstance(pod, SpinnerPod))
        if requests > MAX_REQUESTS_PER_SECOND:
            raise ValueError(
                f"pods: the rates add up to {requests:g} requests a second; give at most {MAX_REQUESTS_PER_SECOND:g}"
            )
        if processes > MAX_PROCESSES:
            raise ValueError(f"pods: {processes:g} processes in all; give at most {MAX_PROCESSES}")

    def _check_phases(self) -> None:
        names, starts = [name for name, _ in self.phases], [start for _, start in self.phases]
        for name in names:
            _check_name("phases", name, _PHASE)
        _check_unique("phases", names)
        for start in starts:
            _check_number("phases: a start", start, 0.0, MAX_CYCLE)
        _check_starts("phases", starts)
        _check_room("phases", starts)
        _check_period("phase_period", self.phase_period)
        name, last = self.phases[-1]
        if self.phase_period is not None and last >= self.phase_period:
            raise ValueError(
                f"phases: {name!r} begins at cycle {last:g}, which the phase_period of {self.phase_period:g} never"
                " reaches; give an earlier start or a longer period"
            )

    def _check_objectives(self) -> None:
        latency = [name for name, spec in DEFAULT_CLASSES.items() if spec.kind == "latency"]
        for name, seconds in self.objectives.items():
            if name not in latency:
                raise ValueError(f"objectives: {name!r} is no latency class; known: {', '.join(latency)}")
            _check_number(f"objectives: {name} (seconds)", seconds, 0.0001, 600.0)
        for pod in self.pods:
            if isinstance(pod, ServicePod) and pod.cls in latency and pod.cls not in self.objectives:
                raise ValueError(
                    f"objectives: {pod.name} is of class {pod.cls}, which has none; give its P99 in seconds"
                )

    def phase_at(self, cycle: float) -> str:
        """The name of the phase that a cycle belongs to."""
        here = cycle % self.phase_period if self.phase_period is not None else cycle
        return [name for name, start in self.phases if start <= here][-1]


def _check_number(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # NaN is in no range
        raise ValueError(f"{field}: {value:g} is out of range; give {least:g} to {most:g}")


def _check_whole(field: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{field}: {value!r:.40} is out of range; give a whole number from {least} to {most}")


def _check_choice(field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{field}: {value!r} is not known; known: {', '.join(known)}")


def _check_name(field: str, name: str, pattern: re.Pattern[str]) -> None:
    if pattern.fullmatch(name) is None:
        raise ValueError(
            f"{field}: {name[:80]!r} is no name; begin with a letter or digit, then letters, digits, '.', '_' and '-',"
            " at most 63 in all"
        )


def _check_unique(field: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{field}: two are called {name!r}; give each a name of its own")
        seen.add(name)


def _check_period(field: str, period: float | None) -> None:
    if period is not None:
        _check_number(f"{field} (cycles)", period, LEAST_PERIOD, MAX_CYCLE)


def _check_starts(field: str, starts: Sequence[float]) -> None:
    """At least one, the first at 0, each later than the one before."""
    if not starts:
        raise ValueError(f"{field}: none; give at least one, at cycle 0")
    if starts[0] != 0.0:
        raise ValueError(f"{field}: the first must be at cycle 0, and is at {starts[0]:g}")
    for before, after in pairwise(starts):
        if after <= before:
            raise ValueError(
                f"{field}: cycle {after:g} comes after cycle {before:g}; each must be later than the one before"
            )


def _check_room(field: str, starts: Sequence[float]) -> None:
    """Not too many, not too close."""
    if len(starts) > MAX_POINTS:
        raise ValueError(f"{field}: {len(starts)} of them; give at most {MAX_POINTS}")
    if any(after - before < LEAST_STEP for before, after in pairwise(starts)):
        raise ValueError(f"{field}: two are less than {LEAST_STEP:g} cycles apart; leave one out")


def _check_pod(name: str, cls: str, request_millicpu: int) -> None:
    if _POD.fullmatch(name) is None:
        raise ValueError(
            f"name: {name[:80]!r} is no name of a pod; give small letters, digits, '.' and '-', at most 63"
        )
    _check_choice("cls", cls, get_args(Cls))
    _check_whole("request_millicpu", request_millicpu, 0, 1_000_000)


def _check_curve(field: str, curve: Curve, most: float) -> None:
    if curve.peak > most:
        raise ValueError(f"{field}: {curve.peak:g} is too much; give at most {most:g}")
    _check_room(f"{field}: points", [cycle for cycle, _ in curve.points])
