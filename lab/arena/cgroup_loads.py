"""Owns what a scenario means for real processes: rates for the CPUs that there are, schedules, counts. Pure."""

import math
from itertools import groupby

from msgspec.structs import replace

from lab.arena.scenario import Curve, Pod, Scenario, ServicePod, SpinnerPod


def scaled(scenario: Scenario, cpus: int) -> Scenario:
    """The same scenario for a node of `cpus` CPUs: rates are multiplied by `cpus / cores`, so that the services need
    the same part of the node, and so are spinning processes, rounded up, so that none is lost. Works, workers and
    requests stay. On half the CPUs the same part of the node queues twice as long, so objectives grow by
    `cores / cpus`: they still are the same multiple of what a service has alone. On more CPUs they stay, since a
    request's own work gets no shorter. Compare policies with each other on one machine, not with another one's figures.
    """
    if cpus == scenario.cores:
        return scenario
    ratio = cpus / scenario.cores
    objectives = {name: seconds * max(1.0, 1.0 / ratio) for name, seconds in scenario.objectives.items()}
    pods = tuple(_with_fewer_processes(_with_rates(pod, ratio), ratio) for pod in scenario.pods)
    return replace(scenario, cores=cpus, pods=pods, objectives=objectives)


def beside_clients(scenario: Scenario, client_seconds: float, cycles: int) -> Scenario:
    """The same scenario on the CPUs that its clients leave, who stand for other machines: with fewer requests, so that
    the services need the same part of what is left, on average over the cycles. `client_seconds` is what a request
    costs its client.
    """
    curves = [pod.rate for pod in scenario.pods if isinstance(pod, ServicePod)]
    rate = sum(curve.at(cycle + 0.5) for curve in curves for cycle in range(cycles)) / max(1, cycles)
    ratio = scenario.cores / (scenario.cores + rate * client_seconds)
    return replace(scenario, pods=tuple(_with_rates(pod, ratio) for pod in scenario.pods))


def lighter(scenario: Scenario, load_ratio: float) -> Scenario:
    """The same scenario with only this part of its requests (0-1]: for machines on which a system call costs so much
    that the full load would saturate the node without any batch.
    """
    return replace(scenario, pods=tuple(_with_rates(pod, load_ratio) for pod in scenario.pods))


def _with_rates(pod: Pod, ratio: float) -> Pod:
    if isinstance(pod, SpinnerPod):
        return pod
    points = tuple((cycle, round(value * ratio, 3)) for cycle, value in pod.rate.points)
    return replace(pod, rate=replace(pod.rate, points=points))


def _with_fewer_processes(pod: Pod, ratio: float) -> Pod:
    if isinstance(pod, ServicePod):
        return pod
    points = tuple((cycle, float(math.ceil(round(value) * ratio))) for cycle, value in pod.processes.points)
    return replace(pod, processes=replace(pod.processes, points=points))


def schedule_text(curve: Curve, cycles: int, cycle_seconds: float) -> str:
    """The curve for `loadgen --schedule`: one rate a cycle, that of its middle; equal neighbours are one step."""
    rates = [(cycle, f"{curve.at(cycle + 0.5):.3f}") for cycle in range(max(1, cycles))]
    firsts = (next(steps) for _, steps in groupby(rates, key=lambda step: step[1]))
    return ",".join(f"{cycle * cycle_seconds:g}:{rate}" for cycle, rate in firsts)


def count_at(curve: Curve, cycle: int) -> int:
    """How many processes spin in a cycle: the curve in its middle, rounded."""
    return round(curve.at(cycle + 0.5))


def most_at_once(curve: Curve, cycles: int) -> int:
    """The most processes that spin in any of the cycles."""
    return max((count_at(curve, cycle) for cycle in range(cycles)), default=0)


def own_work_ms(work_seconds: float, overhead_seconds: float) -> float:
    """What one request's work must be so that it costs the pod `work_seconds` of CPU in all, in ms. At least a fifth is
    work, however dear the rest: else nothing of the distribution would be left.
    """
    return max(0.2 * work_seconds, work_seconds - overhead_seconds) * 1000.0
