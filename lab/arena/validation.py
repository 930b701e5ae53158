"""Owns the simulator's validation: the same loads under the same fixed weights, on real cgroups and simulated.

`python -m lab.arena.validation --json FILE` plays a grid of loads x profiles in random order, and compares the P99 of
the latency-critical service by rank. The simulator plays what the kernel did: as many CPUs, the clients as one more pod
that comes before the others, the very moments at which requests were due, and requests of the mean size that they had
in each second, by the groups' CPU counters. A virtual machine that loses its own CPU to others counts that as use, and
no calibration at the start would be right for long.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from lab.arena.cgroup_backend import (
    FIXED_CYCLE_SECONDS,
    Fixed,
    FixedRun,
    RequestCosts,
    play_fixed,
    request_costs,
)
from lab.arena.cgroup_scene import CLIENTS
from lab.arena.node import Node, Requests
from lab.arena.scenario import BOUNDED_TIMEOUT_SECONDS, Scenario, ServicePod, SpinnerPod, constant
from lab.arena.sim_world import CycleOutcome, outcome_of
from lab.cgroup_stage import usable_cpus
from runtime.errors import TrimtabError

PROFILES: Final[dict[str, dict[str, int]]] = {
    "requests": {"api": 10, "web": 20, "batch": 157},
    "1:1:1": {"api": 100, "web": 100, "batch": 100},
    "3:1:1": {"api": 300, "web": 100, "batch": 100},
    "3:3:1": {"api": 300, "web": 300, "batch": 100},
    "10:3:1": {"api": 1000, "web": 300, "batch": 100},
    "100:10:1": {"api": 10_000, "web": 1000, "batch": 100},
}
"""Weights by pod. The first is what the kubelet makes of 250m, 500m and 4000m."""

LOADS: Final = (12.0, 30.0, 48.0, 66.0)
"""Requests to the API, a second and CPU: with 8 ms each 10 to 53 % of the CPUs. No more, since the clients and whatever
else this machine does need some, too."""

_API_WORK_SECONDS: Final = 0.008
_WEB_WORK_SECONDS: Final = 0.01
_WEB_RATE: Final = 10.0
_CYCLE_SECONDS: Final = FIXED_CYCLE_SECONDS
_SPREAD: Final = 0.5
_MOST_SLOWNESS: Final = 8.0
_SETTLING_CYCLES: Final = 3
"""Not measured: connections are made, and caches filled."""

_ENOUGH_REQUESTS: Final = 8
_FEWEST_POINTS: Final = 3
_SIMULATED_SEEDS: Final = 15
"""The simulated P99 is the median of so many runs, so that the chance of one is not taken for the model's."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Mean CPU seconds per request, in all: of the API's pod, of the web service's, and of a client."""

    api_seconds: float
    web_seconds: float
    client_seconds: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One load under one profile: P99s of latency-critical in milliseconds, and batch's part of the CPUs.

    `kernel_p99_ms` is over the `kernel_requests` that were due outside pauses of the machine (cgroup_pauses.py), of
    which there were `paused_seconds` in the run; `kernel_p99_with_pauses_ms` is over all.
    """

    rate_per_second: float
    profile: str
    kernel_p99_ms: float
    kernel_p99_with_pauses_ms: float
    simulated_p99_ms: float
    kernel_requests: int
    paused_seconds: float
    kernel_batch_share: float
    simulated_batch_share: float
    costs: Costs

    @property
    def ratio(self) -> float:
        """Kernel to simulator: 1 is the same."""
        return self.kernel_p99_ms / self.simulated_p99_ms


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison. `ratios_by_load` is the median over profiles of kernel P99 to simulated P99, by the API's
    requests a second, and `ratios_by_profile` over the loads. `rank_correlation_below_timeout` leaves out the points
    where both P99s are the clients' time-out, which agree whatever the model is worth: there were `points_at_timeout`.
    None where too few are left.
    """

    rank_correlation: float
    rank_correlation_with_pauses: float
    points: tuple[Point, ...]
    ratios_by_load: dict[str, float]
    ratios_by_profile: dict[str, float]
    cpus: int
    seconds_per_point: float
    pod_overhead_ms: float
    client_overhead_ms: float
    kernel: str
    seed: int
    rank_correlation_below_timeout: float | None = None
    points_at_timeout: int = 0


def grid_scenario(rate_per_second: float, cpus: int) -> Scenario:
    """The API at that rate, a web service that needs 10 % of the CPUs, and two batch processes per CPU."""
    return Scenario(
        name="validation",
        text="Steady load under fixed weights.",
        cores=cpus,
        queue="bounded",
        pods=(
            ServicePod(
                name="api",
                cls="latency-critical",
                request_millicpu=250,
                rate=constant(rate_per_second),
                work_seconds=_API_WORK_SECONDS,
            ),
            ServicePod(
                name="web",
                cls="default",
                request_millicpu=500,
                rate=constant(_WEB_RATE * cpus),
                work_seconds=_WEB_WORK_SECONDS,
            ),
            SpinnerPod(name="batch", cls="batch", request_millicpu=4000, processes=constant(2.0 * cpus)),
        ),
    )


def costs_of(run: Fixed, nominal: RequestCosts) -> Costs:
    """What requests came to in a run; a pod of which too few were answered to tell costs what it should. Who gave up
    waiting has cost the client as much as another, and the pod next to nothing: no work is done for those.
    """

    def per_request(pod: str, count: int, otherwise: float) -> float:
        used = sum(cycle[pod] for cycle in run.cpu_seconds)
        return used / count if count >= _ENOUGH_REQUESTS else otherwise

    api, web = (sum(answered[pod] for answered in run.answered) for pod in ("api", "web"))
    return Costs(
        api_seconds=per_request("api", api, _API_WORK_SECONDS),
        web_seconds=per_request("web", web, _WEB_WORK_SECONDS),
        client_seconds=per_request(CLIENTS, sum(map(_ended, run.outcomes)), nominal.client_seconds),
    )


def _ended(outcome: CycleOutcome) -> int:
    return outcome.ended["latency-critical"] + outcome.ended["default"]


def slowness(run: Fixed, costs: Costs) -> list[float]:
    """How dear requests were in each cycle, against their mean over the run: above 1 where the machine was slow. By
    CPU counters and counts of requests alone; 1 where too few were answered to tell.
    """
    found = []
    for outcome, answered, used in zip(run.outcomes, run.answered, run.cpu_seconds, strict=True):
        api, web = answered["api"], answered["web"]
        expected = api * costs.api_seconds + web * costs.web_seconds + _ended(outcome) * costs.client_seconds
        ratio = (used["api"] + used["web"] + used[CLIENTS]) / expected if api + web >= _ENOUGH_REQUESTS else 1.0
        found.append(min(_MOST_SLOWNESS, max(1.0 / _MOST_SLOWNESS, ratio)))
    return found


def with_clients(scenario: Scenario) -> Scenario:
    """The scenario with the clients as a pod of their own, before all others."""
    clients = ServicePod(
        name=CLIENTS, cls="default", request_millicpu=262_144, rate=constant(0.0), work_seconds=0.001, workers=1
    )
    return replace(scenario, pods=(*scenario.pods, clients))


def requests_of(run: Fixed, costs: Costs, seed: int) -> dict[str, Requests]:
    """What the kernel was asked: requests when they were due, each with work drawn about what it cost there and then;
    a client works on each as it is sent.
    """
    rng = np.random.default_rng(seed)
    slow = slowness(run, costs)
    due = {**run.due_seconds, CLIENTS: sorted(at for every in run.due_seconds.values() for at in every)}
    mean = {"api": costs.api_seconds, "web": costs.web_seconds, CLIENTS: costs.client_seconds}
    return {
        name: (
            moments,
            [
                mean[name] * slow[min(int(at / _CYCLE_SECONDS), len(slow) - 1)] * factor
                for at, factor in zip(moments, rng.lognormal(-(_SPREAD**2) / 2.0, _SPREAD, len(moments)), strict=True)
            ],
        )
        for name, moments in due.items()
    }


def simulated(
    scenario: Scenario, weights: Mapping[str, int], requests: Mapping[str, Requests], cycles: int
) -> list[CycleOutcome]:
    """The same requests on the simulator."""
    node = Node.replay(with_clients(scenario), requests, cycle_seconds=_CYCLE_SECONDS)
    node.set_weights(dict(weights))
    return [outcome_of(scenario, [node.advance(_CYCLE_SECONDS)]) for _ in range(cycles)]


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            found[place] = (start + end) / 2.0 + 1.0
        start = end + 1
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: Pearson's of the ranks. Raises ValueError where one of them is the same everywhere."""
    return statistics.correlation(ranks(one), ranks(other))


def below_timeout(points: Sequence[Point]) -> list[Point]:
    """The points where kernel or simulator had a P99 below the time-out."""
    limit_ms = BOUNDED_TIMEOUT_SECONDS * 1000.0
    return [point for point in points if min(point.kernel_p99_ms, point.simulated_p99_ms) < limit_ms]


def rank_correlation_below_timeout(points: Sequence[Point]) -> float | None:
    """Of those points; None for fewer than three, or all alike."""
    kernel, model = (
        [getattr(p, name) for p in below_timeout(points)] for name in ("kernel_p99_ms", "simulated_p99_ms")
    )
    if len(kernel) < _FEWEST_POINTS or len(set(kernel)) == 1 or len(set(model)) == 1:
        return None
    return rank_correlation(kernel, model)


def ratios_by(points: Sequence[Point], key: str) -> dict[str, float]:
    """The median of kernel to simulated P99 for each value of a field of the points."""
    groups: dict[str, list[float]] = {}
    for point in points:
        value = getattr(point, key)
        groups.setdefault(value if isinstance(value, str) else f"{value:g}", []).append(point.ratio)
    return {name: round(statistics.median(found), 3) for name, found in groups.items()}


def table(found: Validation) -> str:
    """What a person reads."""
    lines = ["requests/s  profile    P99 kernel  simulated  ratio  batch kernel  simulated"]
    lines += [
        f"{p.rate_per_second:10g}  {p.profile:9}  {p.kernel_p99_ms:7.1f} ms {p.simulated_p99_ms:7.1f} ms"
        f" {p.ratio:6.2f} {p.kernel_batch_share:13.2f} {p.simulated_batch_share:10.2f}"
        for p in sorted(found.points, key=lambda p: (p.rate_per_second, list(PROFILES).index(p.profile)))
    ]
    lines.append(f"rank correlation of P99 over {len(found.points)} points: {found.rank_correlation:.3f}")
    if found.rank_correlation_below_timeout is not None:
        lines.append(
            f"without the {found.points_at_timeout} points at the time-out on both:"
            f" {found.rank_correlation_below_timeout:.3f}"
        )
    paused_seconds = sum(point.paused_seconds for point in found.points)
    lines.append(
        f"with what was due while the machine itself stood still ({paused_seconds:.0f} s in all):"
        f" {found.rank_correlation_with_pauses:.3f}"
    )
    by_load = ", ".join(f"{load}/s: {ratio:.2f}" for load, ratio in found.ratios_by_load.items())
    by_profile = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in found.ratios_by_profile.items())
    lines.append(f"kernel / simulated P99, median by load: {by_load}")
    lines.append(f"kernel / simulated P99, median by profile: {by_profile}")
    lines.append(
        f"{found.cpus} CPU(s), Linux {found.kernel}; a request costs its pod {found.pod_overhead_ms:.2f} ms and its"
        f" client {found.client_overhead_ms:.2f} ms beside its work"
    )
    return "\n".join(lines)


def point_of(rate: float, name: str, real: Fixed, nominal: RequestCosts, seed: int) -> Point:
    """A run on the kernel beside as many simulated ones as it takes to know what the model says."""
    cycles, cpus = len(real.outcomes), len(usable_cpus())
    scenario = grid_scenario(rate, cpus)
    costs = costs_of(real, nominal)
    model = [
        simulated(scenario, PROFILES[name], requests_of(real, costs, 1000 * seed + n), cycles)
        for n in range(_SIMULATED_SEEDS)
    ]
    return Point(
        rate_per_second=rate,
        profile=name,
        kernel_p99_ms=_p99_ms(real.unpaused[_SETTLING_CYCLES:]),
        kernel_p99_with_pauses_ms=_p99_ms(real.outcomes[_SETTLING_CYCLES:]),
        simulated_p99_ms=statistics.median(_p99_ms(run[_SETTLING_CYCLES:]) for run in model),
        kernel_requests=sum(outcome.ended["latency-critical"] for outcome in real.unpaused[_SETTLING_CYCLES:]),
        paused_seconds=real.paused_seconds,
        kernel_batch_share=statistics.fmean(outcome.batch_share for outcome in real.outcomes),
        simulated_batch_share=statistics.fmean(outcome.batch_share for run in model for outcome in run),
        costs=costs,
    )


async def validate(cycles: int, seed: int, run_dir: Path) -> Validation:
    """Plays the whole grid. Raises HostError where there are no real cgroups."""
    cpus = len(usable_cpus())
    nominal = await request_costs(run_dir / "probe")
    grid = [(rate * cpus, name) for rate in LOADS for name in PROFILES]
    random.Random(seed).shuffle(grid)  # noqa: S311 - an order, no secret
    points: list[Point] = []

    def heard(place: int, real: Fixed) -> None:
        rate, name = grid[place]
        point = point_of(rate, name, real, nominal, seed)
        points.append(point)
        sys.stderr.write(
            f"{place + 1}/{len(grid)}: {rate:g}/s under {name}: {point.kernel_p99_ms:.1f} ms"
            f" ({point.kernel_p99_with_pauses_ms:.1f} ms with pauses of {point.paused_seconds:.1f} s),"
            f" simulated {point.simulated_p99_ms:.1f} ms with {1000.0 * point.costs.api_seconds:.1f} ms each\n"
        )
        sys.stderr.flush()

    runs = [FixedRun(grid_scenario(rate, cpus), PROFILES[name]) for rate, name in grid]
    await play_fixed(runs, heard, seed=seed, cycles=cycles, run_dir=run_dir)
    points.sort(key=lambda p: (p.rate_per_second, list(PROFILES).index(p.profile)))
    model = [point.simulated_p99_ms for point in points]
    return Validation(
        rank_correlation=rank_correlation([point.kernel_p99_ms for point in points], model),
        rank_correlation_with_pauses=rank_correlation([p.kernel_p99_with_pauses_ms for p in points], model),
        points=tuple(points),
        ratios_by_load=ratios_by(points, "rate_per_second"),
        ratios_by_profile=ratios_by(points, "profile"),
        cpus=cpus,
        seconds_per_point=cycles * _CYCLE_SECONDS,
        pod_overhead_ms=nominal.pod_seconds * 1000.0,
        client_overhead_ms=nominal.client_seconds * 1000.0,
        kernel=os.uname().release,
        seed=seed,
        rank_correlation_below_timeout=rank_correlation_below_timeout(points),
        points_at_timeout=len(points) - len(below_timeout(points)),
    )


def _p99_ms(outcomes: Sequence[CycleOutcome]) -> float:
    """Of all requests that ended; where none did, the whole run: nothing was faster."""
    latencies = np.concatenate([outcome.latencies["latency-critical"] for outcome in outcomes])
    if not len(latencies):
        return len(outcomes) * _CYCLE_SECONDS * 1000.0
    return float(np.quantile(latencies, 0.99)) * 1000.0


def main(argv: Sequence[str] | None = None) -> int:
    """Parses flags and runs. The exit code: 0, or 1 where it cannot be done."""
    parser = argparse.ArgumentParser("python -m lab.arena.validation", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument("--seconds", type=int, default=18, help="per point, the first 3 not measured (default: 18)")
    parser.add_argument("--seed", type=int, default=1, help="of the order and of the requests (default: 1)")
    parser.add_argument("--run-dir", type=Path, help="where logs and records are kept (default: nowhere)")
    flags = parser.parse_args(argv)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-validation-") as scratch:
            found = asyncio.run(
                validate(max(_SETTLING_CYCLES + 1, flags.seconds), flags.seed, flags.run_dir or Path(scratch))
            )
    except TrimtabError as error:
        sys.stderr.write(f"validation: {error}\n")
        return 1
    if flags.json is not None:
        flags.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    sys.stdout.write(table(found) + "\n")
    sys.stderr.write(f"took {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
