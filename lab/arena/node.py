"""Owns the arena's simulated node: a scenario's pods on shared cores, window by window. Compiled: node_kernel.py.

The same seed means the same requests whatever the weights do to them: every pod draws its arrivals and the work of its
requests from two streams of its own. Nothing depends on how finely the caller steps.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lab.arena import node_kernel as kernel
from lab.arena.scenario import (
    BOUNDED_QUEUE,
    BOUNDED_TIMEOUT_SECONDS,
    Curve,
    Pod,
    Scenario,
    ServicePod,
    SpinnerPod,
    constant,
)
from lab.arena.window import PodWindow, ServiceWindow, Window
from lab.simnode_scenario import linear_weight
from lab.simulator import check_weight

Array = npt.NDArray[Any]
Requests = tuple[Sequence[float], Sequence[float]]
"""Moments of arrival in seconds, ascending, and the CPU seconds that each request needs."""

MAX_WAITING: Final = 1 << 22
"""Most requests that wait at one pod, four millions: at 16 bytes each, what is left to an unbounded queue."""

_FIRST_LINE: Final = 64
_FIRST_OUT: Final = 2048
_NO_GIVEN: Final[Mapping[str, Requests]] = {}


class Nodes:
    """Independent nodes that are stepped together: a window of all costs one compiled call.

    Node `n` plays `scenarios[n]` with `seeds[n]`. All share one clock, which starts at 0.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        *,
        cycle_seconds: float = 5.0,
        given: Mapping[str, Requests] = _NO_GIVEN,
    ) -> None:
        """Curves are read with cycles of `cycle_seconds`. `given` are requests by pod, of every node that has one of
        that name, in place of drawn ones. Raises ValueError for more or fewer seeds than scenarios.
        """
        if not (math.isfinite(cycle_seconds) and cycle_seconds > 0.0):
            raise ValueError("cycle_seconds must be positive")
        self._scenarios = tuple(scenarios)
        self._now = 0.0
        self._places = [{pod.name: place for place, pod in enumerate(one.pods)} for one in self._scenarios]
        self._is_service = [[isinstance(pod, ServicePod) for pod in one.pods] for one in self._scenarios]
        width = max((len(one.pods) for one in self._scenarios), default=0)
        size = len(self._scenarios)
        self._nodes = np.zeros(size, kernel.NODE)
        self._pods = np.zeros((size, width), kernel.POD)
        self._targets = np.zeros((size, width, kernel.MAX_WORKERS))
        self._came = np.zeros((size, width, kernel.MAX_WORKERS))
        self._times = np.zeros((size, width + 1, 3))
        self._counts = np.zeros((size, width + 1, 6), np.int64)
        self._ends = np.zeros(size)
        segments: list[tuple[float, float, float]] = []
        requests: list[tuple[float, float]] = []
        for node, (scenario, seed) in enumerate(zip(self._scenarios, seeds, strict=True)):
            self._nodes[node]["cores"] = scenario.cores
            self._nodes[node]["pods"] = len(scenario.pods)
            for place, pod in enumerate(scenario.pods):
                row = self._pods[node, place]
                _describe(row, pod, scenario, seed)
                _place_load(row, pod, cycle_seconds, segments)
                _place_requests(row, given.get(pod.name), requests)
        self._segments = np.array(segments, float).reshape(-1, 3)
        self._given = np.array(requests, float).reshape(-1, 2)
        self._pods["line_capacity"] = _FIRST_LINE
        self._pods["line_offset"] = np.arange(size * width).reshape(size, width) * _FIRST_LINE
        self._pods["out_capacity"] = _FIRST_OUT
        self._pods["out_offset"] = np.arange(size * width).reshape(size, width) * _FIRST_OUT
        self._lines = np.zeros((size * width * _FIRST_LINE, 2))
        self._out = np.zeros(size * width * _FIRST_OUT)
        self._lines_used, self._out_used = len(self._lines), len(self._out)
        self._out_offsets = self._pods["out_offset"].tolist()
        kernel.begin(self._nodes, self._pods, self._targets, self._segments, self._given)

    def __len__(self) -> int:
        return len(self._scenarios)

    @property
    def now_seconds(self) -> float:
        """Simulated seconds since the start."""
        return self._now

    def set_weights(self, node: int, weights: Mapping[str, int]) -> None:
        """Gives pods of a node other weights (1-10000) from now on. KeyError for no such pod, ValueError."""
        places = self._places[node]
        row = self._pods[node]["weight"]
        for name, weight in weights.items():
            check_weight(weight)
            places[name]  # all are checked before any is changed
        for name, weight in weights.items():
            row[places[name]] = weight
        kernel.reshare(self._nodes, self._pods, self._targets, node)

    def weights(self, node: int) -> dict[str, int]:
        """The weights in force, by pod."""
        row = self._pods[node]["weight"].tolist()
        return {name: int(row[place]) for name, place in self._places[node].items()}

    def advance(self, seconds: float) -> list[Window]:
        """What happened in the next `seconds`, node by node.

        Raises ValueError for a negative time, and MemoryError if more than four million requests wait at one pod; after
        that these nodes cannot go on.
        """
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError("time does not go back")
        self._now += seconds
        self._times.fill(0.0)
        self._counts.fill(0)
        self._ends.fill(self._now)
        while True:
            code = kernel.advance(
                self._nodes,
                self._pods,
                self._targets,
                self._came,
                self._times,
                self._counts,
                self._lines,
                self._out,
                self._segments,
                self._given,
                self._ends,
            )
            if code < 0:
                break
            self._make_room(*kernel.stopped_at(code, self._pods.shape[1]))
        times, counts = self._times.tolist(), self._counts.tolist()
        return [self._window(node, seconds, times[node], counts[node]) for node in range(len(self._scenarios))]

    def _window(self, node: int, seconds: float, times: list[list[float]], counts: list[list[int]]) -> Window:
        offsets = self._out_offsets[node]
        pods: dict[str, PodWindow] = {}
        for name, place in self._places[node].items():
            service = None
            if self._is_service[node][place]:
                arrived, shed, timeouts, ended, waiting, in_service = counts[place]
                first = offsets[place]
                latencies = self._out[first : first + ended].copy()
                service = ServiceWindow(arrived, shed, timeouts, latencies, waiting, in_service)
            used, runnable, some = times[place]
            pods[name] = PodWindow(used, runnable, some, service)
        return Window(seconds, self._scenarios[node].cores, times[len(pods)][kernel.SOME], pods)

    def _make_room(self, what: int, node: int, place: int) -> None:
        """Doubles the pod's line or its place for latencies: behind all others, the old place is left unused."""
        row = self._pods[node, place]
        if what == kernel.LINE_FULL:
            size, first = int(row["line_capacity"]), int(row["line_offset"])
            if size >= MAX_WAITING:
                pod = self._scenarios[node].pods[place].name
                raise MemoryError(f"{pod}: {size} requests wait; this simulation keeps no more, bound the queue")
            # A ring: turned so that its first stands first.
            kept = np.roll(self._lines[first : first + size], -int(row["line_first"]), axis=0)
            self._lines, self._lines_used, offset = _appended(self._lines, self._lines_used, kept)
            row["line_capacity"], row["line_offset"], row["line_first"] = 2 * size, offset, 0
        else:
            size, first = int(row["out_capacity"]), int(row["out_offset"])
            self._out, self._out_used, offset = _appended(self._out, self._out_used, self._out[first : first + size])
            row["out_capacity"], row["out_offset"] = 2 * size, offset
            self._out_offsets[node][place] = offset


class Node:
    """One simulated node. First weights follow from the pods' requests by the kubelet's linear formula."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        cycle_seconds: float = 5.0,
        given: Mapping[str, Requests] = _NO_GIVEN,
    ) -> None:
        """Curves are read with cycles of `cycle_seconds`. `given` are requests by pod, in place of drawn ones."""
        self._all = Nodes((scenario,), (seed,), cycle_seconds=cycle_seconds, given=given)

    @classmethod
    def replay(cls, scenario: Scenario, requests: Mapping[str, Requests], *, cycle_seconds: float = 5.0) -> "Node":
        """A node where nothing is drawn: its services get exactly these requests, and those without any get none."""
        names = [pod.name for pod in scenario.pods if isinstance(pod, ServicePod)]
        given = {name: requests.get(name, ((), ())) for name in names}
        return cls(scenario, 0, cycle_seconds=cycle_seconds, given=given)

    @property
    def now_seconds(self) -> float:
        """Simulated seconds since the start."""
        return self._all.now_seconds

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Gives pods other weights (1-10000) from now on. KeyError for no such pod, ValueError."""
        self._all.set_weights(0, weights)

    def weights(self) -> dict[str, int]:
        """The weights in force, by pod."""
        return self._all.weights(0)

    def advance(self, seconds: float) -> Window:
        """What happened in the next `seconds`. Raises as `Nodes.advance` does."""
        return self._all.advance(seconds)[0]


def _describe(row: Any, pod: Pod, scenario: Scenario, seed: int) -> None:
    """What stays: the pod's kind, limits and streams; and its first weight."""
    row["weight"] = linear_weight(pod.request_millicpu)
    row["arrival_stream"] = _stream(seed, pod.name, "arrivals")
    row["work_stream"] = _stream(seed, pod.name, "work")
    bounded = scenario.queue == "bounded"
    row["max_queue"] = BOUNDED_QUEUE if bounded else np.iinfo(np.int64).max
    row["timeout"] = BOUNDED_TIMEOUT_SECONDS if bounded else math.inf
    if isinstance(pod, SpinnerPod):
        row["kind"] = kernel.SPINNER
        return
    row["kind"] = kernel.EXPONENTIAL if pod.distribution == "exponential" else kernel.LOGNORMAL
    row["workers"] = pod.workers
    row["work_seconds"] = pod.work_seconds
    row["log_mean"] = math.log(pod.work_seconds) - pod.spread**2 / 2
    row["spread"] = pod.spread


def _place_load(row: Any, pod: Pod, cycle_seconds: float, segments: list[tuple[float, float, float]]) -> None:
    """Appends the pod's load as straight lines over seconds."""
    curve = whole_steps(pod.processes) if isinstance(pod, SpinnerPod) else pod.rate
    lines = straight_lines(curve)
    row["segment_first"] = len(segments)
    row["segment_count"] = len(lines)
    is_flat = len(lines) == 1 and not lines[0][2]
    row["period"] = 0.0 if curve.period is None or is_flat else curve.period * cycle_seconds
    segments += [(start * cycle_seconds, value, slope / cycle_seconds) for start, value, slope in lines]


def _place_requests(row: Any, requests: Requests | None, all_requests: list[tuple[float, float]]) -> None:
    row["given_first"] = -1
    if requests is not None:
        row["given_first"] = len(all_requests)
        row["given_count"] = len(requests[0])
        # One more than there are: the kernel looks at the next before it counts.
        all_requests += [*zip(*requests, strict=True), (math.inf, 0.0)]


def _appended(room: Array, used: int, kept: Array) -> tuple[Array, int, int]:
    """The room with a place of twice the length of `kept` behind what is used, which holds `kept`; how much is used
    then, and where the place begins.
    """
    end = used + 2 * len(kept)
    if end > len(room):
        larger = np.zeros((max(end, 2 * len(room)), *room.shape[1:]))
        larger[:used] = room[:used]
        room = larger
    room[used : used + len(kept)] = kept
    return room, end, used


def _stream(seed: int, pod: str, purpose: str) -> int:
    """The first state of a stream that no other pod, purpose or seed shares."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {purpose} {pod}".encode(), digest_size=8).digest(), "little")


def straight_lines(curve: Curve) -> list[tuple[float, float, float]]:
    """The curve as (cycle, value there, change per cycle), by ascending cycle, within one period."""
    lines: list[tuple[float, float, float]] = []
    points = list(curve.points)
    if curve.period is not None:
        points = [point for point in points if point[0] < curve.period]
    last = curve.points[-1]
    after = (curve.period, curve.points[0][1]) if curve.period is not None else None
    for index, (start, value) in enumerate(points):
        if curve.shape == "steps":
            lines.append((start, value, 0.0))
            continue
        following = curve.points[index + 1] if (start, value) != last else after
        slope = 0.0 if following is None else (following[1] - value) / (following[0] - start)
        lines.append((start, value, slope))
    return lines


def whole_steps(curve: Curve) -> Curve:
    """The curve rounded, as steps: a straight line passes from one whole number to the next where it crosses a half."""
    if curve.shape == "steps":
        return Curve(tuple((cycle, float(round(value))) for cycle, value in curve.points), "steps", curve.period)
    lines = straight_lines(curve)
    steps: list[tuple[float, float]] = []
    for index, (start, value, slope) in enumerate(lines):
        end = lines[index + 1][0] if index + 1 < len(lines) else curve.period
        steps.append((start, float(round(value))))
        if slope and end is not None:
            target = value + slope * (end - start)
            low, high = sorted((value, target))
            halves = [half + 0.5 for half in range(math.floor(low - 0.5), math.ceil(high)) if low < half + 0.5 < high]
            ordered = halves if slope > 0.0 else halves[::-1]
            steps += [(start + (half - value) / slope, half + math.copysign(0.5, slope)) for half in ordered]
    changes = [step for index, step in enumerate(steps) if not index or step[1] != steps[index - 1][1]]
    return Curve(tuple(changes), "steps", curve.period) if len(changes) > 1 else constant(changes[0][1])
