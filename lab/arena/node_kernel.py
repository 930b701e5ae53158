"""Owns the compiled part of the arena's node: events and shares of CPU, over arrays that lab/arena/node.py lays out.

The model is that of lab/simulator.py and lab/service_queue.py for pods that are siblings: between two events every pod
gets a constant rate of CPU by weighted max-min sharing. All compiled functions are in this file, because a cached one
is only compiled anew when its own file changes. A call may stop early for want of room; it resumes where it stopped.
"""

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., object])
Array = npt.NDArray[Any]

EXPONENTIAL: Final = 0
LOGNORMAL: Final = 1
SPINNER: Final = 2

ARRIVED, SHED, TIMED_OUT, ENDED, WAITING, IN_SERVICE = range(6)
"""Columns of `counts`; `ENDED` counts the latencies that were written."""

USED, RUNNABLE, SOME = range(3)
"""Columns of `times`, in seconds: CPU used, threads' time without a CPU, time in which some thread had none."""

START, VALUE, SLOPE = range(3)
"""Columns of `segments`: from when on, in seconds; the value there; its change per second."""

MAX_WORKERS: Final = 64

DONE: Final = 0
LINE_FULL: Final = 1
OUT_FULL: Final = 2

NODE: Final = np.dtype([("now", "f8"), ("since", "f8"), ("cores", "f8"), ("unmet", "f8"), ("pods", "i8")], align=True)
"""One node. `since` is up to when `times` are counted, `unmet` how many threads have no CPU since then."""

POD: Final = np.dtype(
    [
        # Read at every event: first, to lie together.
        ("next_event", "f8"),
        ("next_arrival", "f8"),
        ("next_timeout", "f8"),
        ("next_completion", "f8"),
        ("segment_end", "f8"),
        ("demand", "i8"),
        ("cores", "f8"),
        ("weight", "f8"),
        ("speed", "f8"),
        ("level", "f8"),
        ("level_at", "f8"),
        ("first_done", "i8"),
        ("oldest", "i8"),
        ("line_first", "i8"),
        ("line_count", "i8"),
        ("line_offset", "i8"),
        ("line_capacity", "i8"),
        ("out_offset", "i8"),
        ("out_capacity", "i8"),
        ("gap", "f8"),
        ("gap_at", "f8"),
        ("arrival_stream", "u8"),
        ("work_stream", "u8"),
        # What the pod is.
        ("kind", "i8"),
        ("workers", "i8"),
        ("max_queue", "i8"),
        ("timeout", "f8"),
        ("work_seconds", "f8"),
        ("log_mean", "f8"),
        ("spread", "f8"),
        # Its load over time: `segments` rows from `segment_first`, anew every `period` seconds if that is not 0.
        ("segment_first", "i8"),
        ("segment_count", "i8"),
        ("segment", "i8"),
        ("round", "i8"),
        ("period", "f8"),
        # Requests that were given rather than drawn: rows of `given`; -1 for drawn ones.
        ("given_first", "i8"),
        ("given_count", "i8"),
    ],
    align=True,
)
"""One pod. `level` is the CPU time that a request in service since the pod was idle would have got by `level_at`."""


def compiled(function: F) -> F:
    """The function as machine code, kept on disk if there is a place that can be written to."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast("F", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # numba found no folder for its cache: compiled at the first call of every process
        return cast("F", numba.njit(**options)(function))


@compiled
def uniform(pod: Any, stream: int) -> float:
    """The next number in [0, 1) of the pod's stream 0 (arrivals) or 1 (work).

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014 (SplitMix64).
    """
    if stream == 0:
        state = pod.arrival_stream + np.uint64(0x9E3779B97F4A7C15)
        pod.arrival_stream = state
    else:
        state = pod.work_stream + np.uint64(0x9E3779B97F4A7C15)
        pod.work_stream = state
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float((mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0))


@compiled
def draw_gap(pod: Any) -> float:
    """The gap to the next arrival at a rate of one. Never 0, so that it stays a gap at the start of a ramp."""
    return max(-math.log(1.0 - uniform(pod, 0)), 1e-300)


@compiled
def draw_work(pod: Any) -> float:
    """CPU seconds of one request. Two draws for the lognormal (Box and Muller, 1958)."""
    if pod.kind == EXPONENTIAL:
        return float(-math.log(1.0 - uniform(pod, 1)) * pod.work_seconds)
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(pod, 1)))
    return math.exp(pod.log_mean + pod.spread * radius * math.cos(2.0 * math.pi * uniform(pod, 1)))


@compiled
def plan(pod: Any) -> None:
    """Sets when the pod needs handling next."""
    pod.next_event = min(pod.next_arrival, pod.segment_end, pod.next_timeout, pod.next_completion)


@compiled
def aim(pod: Any, segments: Array) -> None:
    """Sets the next arrival: where the rate since `gap_at` adds up to `gap`, infinite if not within this segment."""
    row = pod.segment_first + pod.segment
    slope = segments[row, SLOPE]
    rate = segments[row, VALUE] + slope * (pod.gap_at - pod.round * pod.period - segments[row, START])
    square = rate * rate + 2.0 * slope * pod.gap
    pod.next_arrival = math.inf
    if square > 0.0:
        at = pod.gap_at + 2.0 * pod.gap / (rate + math.sqrt(square))
        if at < pod.segment_end:
            pod.next_arrival = at


@compiled
def begin_segment(pod: Any, segments: Array) -> None:
    """Sets when the pod's present segment ends, and what it means: threads, or the next arrival."""
    row = pod.segment_first + pod.segment
    if pod.segment + 1 < pod.segment_count:
        pod.segment_end = pod.round * pod.period + segments[row + 1, START]
    elif pod.period > 0.0:
        pod.segment_end = (pod.round + 1) * pod.period
    else:
        pod.segment_end = math.inf
    if pod.kind == SPINNER:
        pod.demand = int(segments[row, VALUE])
    else:
        aim(pod, segments)


@compiled
def end_segment(pod: Any, segments: Array) -> None:
    """Goes on to the next segment; what the rate of this one added up to is taken off the gap."""
    now = pod.segment_end
    if pod.kind != SPINNER:
        row = pod.segment_first + pod.segment
        middle = 0.5 * (pod.gap_at + now) - pod.round * pod.period - segments[row, START]
        rate = segments[row, VALUE] + segments[row, SLOPE] * middle
        pod.gap = max(pod.gap - rate * (now - pod.gap_at), 1e-300)
        pod.gap_at = now
    pod.segment += 1
    if pod.segment == pod.segment_count:
        pod.segment = 0
        pod.round += 1
    begin_segment(pod, segments)


@compiled
def rise(pod: Any, now: float) -> None:
    """Brings the level up to now."""
    pod.level += pod.speed * (now - pod.level_at)
    pod.level_at = now


@compiled
def plan_completion(pod: Any, targets: Array) -> None:
    """Sets when the first of the requests in service is done at the present speed."""
    if pod.demand > 0 and pod.speed > 0.0:
        pod.next_completion = pod.level_at + max(0.0, targets[pod.first_done] - pod.level) / pod.speed
    else:
        pod.next_completion = math.inf


@compiled
def count(node: Any, pods: Array, times: Array, now: float) -> None:
    """Adds the time since the last count to the totals."""
    seconds = now - node.since
    node.since = now
    for p in range(node.pods):
        pod = pods[p]
        unmet = pod.demand - pod.cores
        times[p, USED] += pod.cores * seconds
        times[p, RUNNABLE] += unmet * seconds
        times[p, SOME] += min(1.0, unmet) * seconds
    times[node.pods, SOME] += min(1.0, node.unmet) * seconds


@compiled
def share(node: Any, pods: Array, targets: Array, now: float) -> None:  # noqa: C901 - calls cost in a hot loop
    """Gives every pod its cores (lab/fair_share.py), and the requests of services their speed."""
    wanted = 0.0
    weight = 0.0
    for p in range(node.pods):
        pod = pods[p]
        pod.cores = float(pod.demand)
        wanted += pod.cores
        if pod.demand > 0:
            weight += pod.weight
    node.unmet = max(0.0, wanted - node.cores)
    if wanted > node.cores:
        for p in range(node.pods):
            pods[p].cores = -1.0 if pods[p].demand > 0 else 0.0
        left = node.cores
        filled = True
        while filled:  # whoever needs no more than its part is filled; what it leaves makes the others' parts larger
            filled = False
            part = left / weight
            for p in range(node.pods):
                pod = pods[p]
                if pod.cores < 0.0 and pod.demand <= part * pod.weight:
                    pod.cores = float(pod.demand)
                    left -= pod.cores
                    weight -= pod.weight
                    filled = True
        for p in range(node.pods):
            if pods[p].cores < 0.0:
                pods[p].cores = part * pods[p].weight
    for p in range(node.pods):
        pod = pods[p]
        if pod.kind != SPINNER:
            speed = pod.cores / pod.demand if pod.demand > 0 else 0.0
            if speed != pod.speed:
                rise(pod, now)
                pod.speed = speed
                plan_completion(pod, targets[p])
                plan(pod)


@compiled
def start(pod: Any, targets: Array, came: Array, slot: int, now: float, arrived: float, work: float) -> None:  # noqa: PLR0917
    """Puts a request into service in a free slot."""
    rise(pod, now)
    targets[slot] = pod.level + work
    came[slot] = arrived


@compiled
def survey(pod: Any, targets: Array, came: Array) -> None:
    """Finds the request that will be done first, and the oldest."""
    first, oldest = 0, 0
    for slot in range(1, pod.demand):
        if targets[slot] < targets[first] or (targets[slot] == targets[first] and came[slot] < came[first]):
            first = slot
        if came[slot] < came[oldest]:
            oldest = slot
    pod.first_done = first
    pod.oldest = oldest
    pod.next_timeout = came[oldest] + pod.timeout if pod.demand > 0 else math.inf
    plan_completion(pod, targets)


@compiled
def arrive(pod: Any, targets: Array, came: Array, lines: Array, counts: Array, segments: Array, given: Array) -> None:  # noqa: PLR0917
    """One request comes, at `next_arrival`: into service, into the line, or it is turned away."""
    now = pod.next_arrival
    counts[ARRIVED] += 1
    if pod.given_first >= 0:
        work = given[pod.given_first, 1]
        pod.given_first += 1
        pod.given_count -= 1
        pod.next_arrival = given[pod.given_first, 0] if pod.given_count > 0 else math.inf
    else:
        work = draw_work(pod)
        pod.gap = draw_gap(pod)
        pod.gap_at = now
        aim(pod, segments)
    if pod.demand < pod.workers:
        slot = pod.demand
        start(pod, targets, came, slot, now, now, work)
        pod.demand += 1
        if slot == 0:
            pod.first_done = 0
            pod.oldest = 0
            pod.next_timeout = now + pod.timeout
        elif targets[slot] < targets[pod.first_done]:
            pod.first_done = slot
        plan_completion(pod, targets)
    elif pod.line_count < pod.max_queue:
        place = pod.line_offset + (pod.line_first + pod.line_count) % pod.line_capacity
        lines[place, 0] = now
        lines[place, 1] = work
        pod.line_count += 1
    else:
        counts[SHED] += 1


@compiled
def leave(pod: Any, targets: Array, came: Array, lines: Array, slot: int, now: float) -> None:  # noqa: PLR0917
    """The request in `slot` is gone; the first in the line takes its place."""
    if pod.line_count > 0:
        place = pod.line_offset + pod.line_first
        start(pod, targets, came, slot, now, lines[place, 0], lines[place, 1])
        pod.line_first = (pod.line_first + 1) % pod.line_capacity
        pod.line_count -= 1
    else:
        pod.demand -= 1
        targets[slot] = targets[pod.demand]
        came[slot] = came[pod.demand]
        if pod.demand == 0:
            pod.level = 0.0
            pod.level_at = now
    survey(pod, targets, came)


@compiled
def run(  # noqa: C901, PLR0912, PLR0917 - the event loop in one piece; the compiler takes arrays by position
    node: Any,
    pods: Array,
    targets: Array,
    came: Array,
    times: Array,
    counts: Array,
    lines: Array,
    out: Array,
    segments: Array,
    given: Array,
    end: float,
) -> int:
    """Takes one node to `end`: DONE, or what was full times the number of pods, and the pod."""
    while True:
        at = end
        due = -1
        for p in range(node.pods):
            if pods[p].next_event < at:
                at = pods[p].next_event
                due = p
        if due < 0:
            count(node, pods, times, end)
            node.now = end
            return DONE
        pod = pods[due]
        before = pod.demand
        if pod.segment_end <= at:
            if pod.kind == SPINNER:
                count(node, pods, times, at)
            end_segment(pod, segments)
            if pod.kind == SPINNER:
                plan(pod)
                share(node, pods, targets, at)
                continue
        elif pod.next_arrival <= at:
            full = pod.demand == pod.workers and pod.line_count == pod.line_capacity
            if full and pod.line_count < pod.max_queue:
                return int(LINE_FULL * pods.shape[0] + due)
            if before < pod.workers:
                count(node, pods, times, at)
            arrive(pod, targets[due], came[due], lines, counts[due], segments, given)
        else:
            ended = counts[due, ENDED]
            if ended == pod.out_capacity:
                return int(OUT_FULL * pods.shape[0] + due)
            if pod.line_count == 0:
                count(node, pods, times, at)
            if pod.next_timeout <= at:
                slot = pod.oldest
                out[pod.out_offset + ended] = pod.timeout
                counts[due, TIMED_OUT] += 1
            else:
                slot = pod.first_done
                out[pod.out_offset + ended] = at - came[due, slot]
            counts[due, ENDED] = ended + 1
            leave(pod, targets[due], came[due], lines, slot, at)
        plan(pod)
        if pod.demand != before:
            share(node, pods, targets, at)


@compiled
def begin(nodes: Array, pods: Array, targets: Array, segments: Array, given: Array) -> None:
    """Sets every node to its first moment."""
    for n in range(nodes.shape[0]):
        for p in range(nodes[n].pods):
            pod = pods[n, p]
            pod.next_timeout = math.inf
            pod.next_completion = math.inf
            pod.next_arrival = math.inf
            if pod.given_first >= 0:
                pod.segment_end = math.inf
                if pod.given_count > 0:
                    pod.next_arrival = given[pod.given_first, 0]
            else:
                if pod.kind != SPINNER:
                    pod.gap = draw_gap(pod)
                begin_segment(pod, segments)
            plan(pod)
        share(nodes[n], pods[n], targets[n], 0.0)


@compiled
def reshare(nodes: Array, pods: Array, targets: Array, n: int) -> None:
    """Shares node `n`'s CPU anew: weights have changed. Its totals are counted up to now already."""
    share(nodes[n], pods[n], targets[n], nodes[n].now)


@compiled
def advance(  # noqa: PLR0917
    nodes: Array,
    pods: Array,
    targets: Array,
    came: Array,
    times: Array,
    counts: Array,
    lines: Array,
    out: Array,
    segments: Array,
    given: Array,
    ends: Array,
) -> int:
    """Takes every node n to `ends[n]`; -1, or where it stopped for want of room (`stopped_at`) and is to resume."""
    width = pods.shape[1]
    for n in range(nodes.shape[0]):
        code = run(nodes[n], pods[n], targets[n], came[n], times[n], counts[n], lines, out, segments, given, ends[n])
        if code != DONE:
            return int(n * 3 * width + code)
        for p in range(nodes[n].pods):
            if pods[n, p].kind != SPINNER:
                counts[n, p, WAITING] = pods[n, p].line_count
                counts[n, p, IN_SERVICE] = pods[n, p].demand
    return -1


def stopped_at(code: int, width: int) -> tuple[int, int, int]:
    """What was full (LINE_FULL or OUT_FULL), of which node, of which pod."""
    node, rest = divmod(code, 3 * width)
    what, pod = divmod(rest, width)
    return what, node, pod
