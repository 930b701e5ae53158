"""One simulated service: its Poisson arrivals, its requests in service, its waiting line. Pure: time is an argument."""

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Status: TypeAlias = Literal["ok", "timeout", "shed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A pod that answers requests: open-loop Poisson arrivals, a waiting line, `workers` threads at most.

    `work_seconds` is the mean CPU time of a request and `spread` the sigma of its logarithm if `lognormal`.
    Requests in service share the pod's CPU equally and use at most one core each. One that has not finished
    `timeout_seconds` after its arrival is given up; one that finds `max_queue` waiting is shed.
    """

    name: str
    rate_per_second: float
    work_seconds: float
    distribution: Literal["exponential", "lognormal"] = "exponential"
    spread: float = 0.5
    workers: int = 4
    max_queue: int = 512
    timeout_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_per_second) and self.rate_per_second >= 0.0):
            raise ValueError(f"{self.name}: rate_per_second must be finite and not negative")
        if not (self.work_seconds > 0.0 and self.timeout_seconds > 0.0 and self.spread >= 0.0):
            raise ValueError(f"{self.name}: work_seconds and timeout_seconds must be positive, spread not negative")
        if self.workers < 1 or self.max_queue < 0:
            raise ValueError(f"{self.name}: needs at least one worker, and max_queue must not be negative")


class Completion(NamedTuple):
    """The end of one request. Times are in simulated seconds; latency counts from the arrival and is 0 if shed."""

    name: str
    arrived_seconds: float
    latency_seconds: float
    status: Status


class _Request:
    __slots__ = ("arrived_at", "ended", "number", "work_seconds")

    def __init__(self, number: int, arrived_at: float, work_seconds: float) -> None:
        self.number = number
        self.arrived_at = arrived_at
        self.work_seconds = work_seconds
        self.ended = False


class ServiceQueue:
    """One service at work. `busy` is the number of its runnable threads, `next_event_at` when it needs handling.

    Requests in service are under processor sharing, each at the speed that was last set, in cores.

    `_level` is the CPU time that a request in service since the last idle moment would have received, so a request is
    finished when the level has risen by its work, and a change of speed touches no request.
    """

    def __init__(self, spec: Service, leaf: int, rng: random.Random) -> None:
        self.leaf = leaf
        self.busy = 0
        self.next_event_at = math.inf
        self._spec = spec
        self._rng = rng
        self._log_mean = math.log(spec.work_seconds) - spec.spread**2 / 2
        self._rate = spec.rate_per_second
        self._gap = rng.expovariate(1.0)
        self._next_arrival_at = self._gap / self._rate if self._rate > 0.0 else math.inf
        self._speed = 0.0
        self._level = 0.0
        self._level_at = 0.0
        self._arrivals = 0
        self._serving: list[tuple[float, int, _Request]] = []
        self._by_age: deque[_Request] = deque()
        self._line: deque[_Request] = deque()
        self._plan()

    def set_rate(self, now: float, rate_per_second: float) -> None:
        """Stretches the gap to the next arrival: the same draws give the same arrivals, only closer or farther."""
        if self._rate > 0.0:
            self._gap = (self._next_arrival_at - now) * self._rate
        self._rate = rate_per_second
        self._next_arrival_at = now + self._gap / rate_per_second if rate_per_second > 0.0 else math.inf
        self._plan()

    def set_speed(self, now: float, cores_per_request: float) -> None:
        """Every request in service runs at `cores_per_request` (0-1) from now on."""
        if cores_per_request != self._speed:
            self._rise(now)
            self._speed = cores_per_request
            self._plan()

    def handle(self, now: float, ended: list[Completion]) -> bool:
        """Handles the event that is due; true if the number of runnable threads has changed."""
        busy_before = self.busy
        if self._next_arrival_at <= now:
            self._arrive(now, ended)
        elif self._by_age and self._timeout_at() <= now:
            self._give_up(now, ended)
        else:
            self._complete(now, ended)
        self._plan()
        return self.busy != busy_before

    def _arrive(self, now: float, ended: list[Completion]) -> None:
        spec, rng = self._spec, self._rng
        # Work is drawn at the arrival, so that one seed means the same requests whatever the weights do to them.
        if spec.distribution == "exponential":
            work = rng.expovariate(1.0 / spec.work_seconds)
        else:
            work = rng.lognormvariate(self._log_mean, spec.spread)
        self._gap = rng.expovariate(1.0)
        self._next_arrival_at = now + self._gap / self._rate
        self._arrivals += 1
        if self.busy < spec.workers:
            self._start(now, _Request(self._arrivals, now, work))
        elif len(self._line) < spec.max_queue:
            self._line.append(_Request(self._arrivals, now, work))
        else:
            ended.append(Completion(spec.name, now, 0.0, "shed"))

    def _give_up(self, now: float, ended: list[Completion]) -> None:
        # The oldest is always in service: the line is first come, first served, and all have the same patience.
        request = self._by_age[0]
        self._serving = [item for item in self._serving if item[2] is not request]
        heapq.heapify(self._serving)
        ended.append(Completion(self._spec.name, request.arrived_at, self._spec.timeout_seconds, "timeout"))
        self._leave(now, request)

    def _complete(self, now: float, ended: list[Completion]) -> None:
        request = heapq.heappop(self._serving)[2]
        ended.append(Completion(self._spec.name, request.arrived_at, now - request.arrived_at, "ok"))
        self._leave(now, request)

    def _start(self, now: float, request: _Request) -> None:
        self._rise(now)
        heapq.heappush(self._serving, (self._level + request.work_seconds, request.number, request))
        self._by_age.append(request)
        self.busy += 1

    def _leave(self, now: float, request: _Request) -> None:
        request.ended = True
        self.busy -= 1
        while self._by_age and self._by_age[0].ended:
            self._by_age.popleft()
        if self._line:
            self._start(now, self._line.popleft())
        elif not self.busy:
            self._level = 0.0
            self._level_at = now

    def _rise(self, now: float) -> None:
        self._level += self._speed * (now - self._level_at)
        self._level_at = now

    def _timeout_at(self) -> float:
        return self._by_age[0].arrived_at + self._spec.timeout_seconds

    def _plan(self) -> None:
        at = self._next_arrival_at
        if self.busy:
            at = min(at, self._timeout_at())
            if self._speed > 0.0:
                at = min(at, self._level_at + max(0.0, self._serving[0][0] - self._level) / self._speed)
        self.next_event_at = at
