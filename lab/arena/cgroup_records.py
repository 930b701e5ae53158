"""Owns what a run on real cgroups showed, cycle by cycle: from clients' records, CPU counters and messages. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from lab.arena.scenario import Scenario, ServicePod
from lab.arena.window import PodWindow, ServiceWindow, Window
from lab.latency_records import RequestRecord
from schemas.messages import Actuation, AnyMessage

AS_STARTED: Final = "request-derived"
_GONE: Final = "cut"
_WORDS: Final = ("rolled_back", "restored", "failed", "applied", "held", "skipped")
"""Outcomes by rank: where a cycle has several, the first of these is told."""


def windows_of(
    scenario: Scenario,
    records: Mapping[str, Sequence[RequestRecord]],
    edges: Sequence[float],
    cpu_seconds: Sequence[Mapping[str, float]],
) -> list[Window]:
    """One window between each two edges (Unix seconds, ascending), as the simulator shows them.

    `records` are the clients', by pod; `cpu_seconds` what each pod had used by each edge. A request belongs to the
    window in which it ended. Refused, never sent and broken ones count as shed; who had waited longer than the client
    would counts as timed out. The kernel's waiting times are not measured here and are 0.
    """
    services = {pod.name: _service_windows(records.get(pod.name, ()), edges) for pod in scenario.pods}
    found = []
    for number, (start, end) in enumerate(pairwise(edges)):
        before, after = cpu_seconds[number], cpu_seconds[number + 1]
        pods = {
            pod.name: PodWindow(
                cpu_seconds=max(0.0, after.get(pod.name, 0.0) - before.get(pod.name, 0.0)),
                waiting_seconds=0.0,
                some_seconds=0.0,
                service=services[pod.name][number] if isinstance(pod, ServicePod) else None,
            )
            for pod in scenario.pods
        }
        found.append(Window(seconds=end - start, cores=scenario.cores, some_seconds=0.0, pods=pods))
    return found


def _service_windows(records: Sequence[RequestRecord], edges: Sequence[float]) -> list[ServiceWindow]:
    count = len(edges) - 1
    latencies: list[list[float]] = [[] for _ in range(count)]
    arrivals, shed, timeouts = [0] * count, [0] * count, [0] * count
    begun, ended = [0] * (count + 1), [0] * (count + 1)
    for record in records:
        due = bisect_right(edges, record.scheduled_unix_seconds) - 1
        if 0 <= due < count:
            arrivals[due] += 1
        begun[max(0, min(count, due))] += 1
        # A request that was never sent has the time-out as its latency, and was turned away when it was due.
        latency = 0.0 if record.status == "shed" else record.latency_seconds
        end = bisect_right(edges, record.scheduled_unix_seconds + latency) - 1
        if record.status == _GONE or end >= count:
            continue
        ended[max(0, end)] += 1
        if end < 0:
            continue
        if record.is_ok or record.status == "timeout":
            latencies[end].append(record.latency_seconds)
            timeouts[end] += record.status == "timeout"
        else:
            shed[end] += 1
    there = np.cumsum(begun)[:count] - np.cumsum(ended)[:count]
    return [
        ServiceWindow(
            arrivals=arrivals[number],
            shed=shed[number],
            timeouts=timeouts[number],
            latencies_seconds=np.array(latencies[number], dtype=np.float64),
            waiting=int(there[number]),
        )
        for number in range(count)
    ]


def settled_share(
    name: str, edges: Sequence[float], cpu_seconds: Sequence[Mapping[str, float]], cpus: int
) -> float | None:
    """What part of all CPUs a group used in the second half of the cycles, by its counter at each edge (Unix seconds);
    None where that was not read.
    """
    first = (len(edges) - 1) // 2
    start, end = cpu_seconds[first].get(name), cpu_seconds[-1].get(name)
    seconds = edges[-1] - edges[first]
    return None if start is None or end is None or seconds <= 0.0 else max(0.0, end - start) / (seconds * cpus)


@dataclass(frozen=True)
class Told:
    """What the agent did: the arm in force and the outcome of each cycle, how often weights changed and went back."""

    arms: tuple[str, ...]
    outcomes: tuple[str, ...]
    changes: int
    rollbacks: int


def told_of(messages: Iterable[AnyMessage], edges: Sequence[float]) -> Told:
    """What the actuations among the messages came to, between each two edges (Unix seconds). A cycle of the clock here
    is as long as one of the agent's, and not the same one: each may hold none or two of the other's.
    """
    count = len(edges) - 1
    per_cycle: list[list[Actuation]] = [[] for _ in range(count)]
    for message in messages:
        if isinstance(message, Actuation):
            number = bisect_right(edges, message.at / 1e9) - 1
            if 0 <= number < count:
                per_cycle[number].append(message)
    arm, arms, outcomes, changes, rollbacks = AS_STARTED, [], [], 0, 0
    for actuations in per_cycle:
        for actuation in actuations:
            changes += any(write.before != write.after for write in actuation.writes)
            rollbacks += actuation.outcome == "rolled_back"
            if actuation.outcome == "restored":
                arm = AS_STARTED
            elif actuation.outcome in {"applied", "rolled_back"}:
                arm = actuation.arm or _ratios(actuation.weights) or arm
        seen = {actuation.outcome for actuation in actuations}
        arms.append(arm)
        outcomes.append(next((word for word in _WORDS if word in seen), "none"))
    return Told(tuple(arms), tuple(outcomes), changes, rollbacks)


def _ratios(weights: Mapping[str, int] | None) -> str:
    lowest = max(1, min((weights or {}).values(), default=1))
    return "-".join(f"{name[:1]}{weight / lowest:.3g}" for name, weight in (weights or {}).items())
