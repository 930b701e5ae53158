"""Owns scenarios made from a seed: other nodes, loads and troubles than the named ones, for training and for trial.

What is drawn: one or two services per latency class (now and then a class is absent), batch that is absent, steady or
comes and goes, requests that do or do not follow priority, and one trouble out of several. The demand of the services
goes from idle to past the capacity.
"""

import math

import numpy as np

from lab.arena.scenario import Cls, Curve, Pod, Points, Queue, Scenario, ServicePod, SpinnerPod, constant

PREFIX = "gen:"
CORES = 2
_LATENCY: tuple[Cls, ...] = ("latency-critical", "default")
_MILLICPU = (50, 100, 250, 500, 1000, 2000, 4000)
_PERIODS = (40, 60, 80, 100, 200)
_KINDS = ("constant", "step", "ramp", "wave", "flood")
_KIND_CHANCES = (0.3, 0.25, 0.15, 0.15, 0.15)
_ABSENT_CHANCE = 0.1
_SECOND_POD_CHANCE = 0.3
_WILD_CHANCE = 0.12
_P99_SIGMAS = 2.326


def generated(seed: int, queue: Queue = "bounded") -> Scenario:
    """The scenario `gen:SEED`, always the same for a seed. Raises ValueError for a seed below 0."""
    if seed < 0:
        raise ValueError(f"scenario {PREFIX}{seed}: the seed must be 0 or more")
    rng = np.random.default_rng([seed, 0x617265])
    period = float(rng.choice(_PERIODS))
    turn = float(round(period * rng.uniform(0.3, 0.7)))
    pods: list[Pod] = []
    objectives: dict[Cls, float] = {}
    total = float(rng.beta(1.2, 1.2)) * 1.1 * CORES
    """CPUs that the services need together before trouble: from none to a tenth more than there are, rather evenly."""
    classes = _present(rng)
    parts = rng.dirichlet([2.0] * len(classes))
    for cls, part in zip(classes, parts, strict=True):
        services = _services(rng, cls, total * float(part), period, turn)
        pods.extend(services)
        slowest = max(_alone_p99(pod) for pod in services)
        objectives[cls] = round(float(np.clip(slowest * rng.uniform(3.0, 6.0), 0.02, 1.0)), 3)
    if rng.random() < _WILD_CHANCE:
        pods.append(_wild(rng, str(rng.choice(classes)), period, turn))
    pods.extend(_batch(rng, period, turn))
    return Scenario(
        name=f"{PREFIX}{seed}",
        text=f"Made from seed {seed}: what changes does so at cycle {turn:g} of every {period:g}.",
        pods=tuple(pods),
        cores=CORES,
        queue=queue,
        phases=(("first", 0.0), ("second", turn)),
        phase_period=period,
        objectives=objectives,
    )


def _present(rng: np.random.Generator) -> tuple[Cls, ...]:
    if rng.random() < _ABSENT_CHANCE:
        return (_LATENCY[int(rng.integers(2))],)
    return _LATENCY


def _services(rng: np.random.Generator, cls: Cls, cpus: float, period: float, turn: float) -> list[ServicePod]:
    count = 2 if rng.random() < _SECOND_POD_CHANCE else 1
    stem = "api" if cls == "latency-critical" else "web"
    pods = []
    for number, part in enumerate(rng.dirichlet([3.0] * count), 1):
        work_seconds = round(float(rng.uniform(0.002, 0.010)), 4)
        rate = max(0.5, cpus * float(part) / work_seconds)
        is_exponential = rng.random() < 0.3  # noqa: PLR2004 - the smaller part
        pods.append(
            ServicePod(
                name=f"{stem}-{number}",
                cls=cls,
                request_millicpu=int(rng.choice(_MILLICPU)),
                rate=_rate(rng, rate, work_seconds, period, turn),
                work_seconds=work_seconds,
                distribution="exponential" if is_exponential else "lognormal",
                spread=round(float(rng.uniform(0.2, 1.0)), 2),
                workers=int(rng.choice((2, 4, 8, 16))),
            )
        )
    return pods


def _rate(rng: np.random.Generator, rate: float, work_seconds: float, period: float, turn: float) -> Curve:
    kind = str(rng.choice(_KINDS, p=_KIND_CHANCES))
    rate = round(rate, 1)
    other = round(rate * float(np.exp(rng.uniform(math.log(0.2), math.log(2.5)))), 1)
    if kind == "step":
        return Curve(((0.0, rate), (turn, other)), period=period)
    if kind == "ramp":
        return Curve(((0.0, rate), (turn, other)), "linear", period)
    if kind == "wave":
        points: Points = tuple(
            (period * n / 16, round(rate * (1.0 - 0.8 * math.cos(2.0 * math.pi * n / 16)), 1)) for n in range(16)
        )
        return Curve(points, "linear", period)
    if kind == "flood":
        flooded = round(float(rng.uniform(1.1, 1.8)) * CORES / work_seconds, 1)
        return Curve(((0.0, rate), (turn, flooded)), period=period)
    return constant(rate)


def _alone_p99(pod: ServicePod) -> float:
    """About what the pod's P99 is with the node to itself, in seconds, while it is not flooded: one request's own time
    and half as much again for those before it.
    """
    if pod.distribution == "exponential":
        own = pod.work_seconds * math.log(100.0)
    else:
        own = pod.work_seconds * math.exp(pod.spread * _P99_SIGMAS - pod.spread**2 / 2.0)
    return 1.5 * own


def _wild(rng: np.random.Generator, cls: str, period: float, turn: float) -> SpinnerPod:
    return SpinnerPod(
        name="wild",
        cls="latency-critical" if cls == "latency-critical" else "default",
        request_millicpu=int(rng.choice(_MILLICPU[:4])),
        processes=Curve(((0.0, 0.0), (turn, float(rng.integers(1, 5)))), period=period),
    )


def _batch(rng: np.random.Generator, period: float, turn: float) -> list[SpinnerPod]:
    if rng.random() < _ABSENT_CHANCE:
        return []
    count = 2 if rng.random() < _SECOND_POD_CHANCE else 1
    pods = []
    for number in range(1, count + 1):
        threads = float(rng.integers(1, 7))
        kind = str(rng.choice(("steady", "comes", "leaves"), p=(0.6, 0.2, 0.2)))
        curve = {
            "steady": constant(threads),
            "comes": Curve(((0.0, 0.0), (turn, threads)), period=period),
            "leaves": Curve(((0.0, threads), (turn, 0.0)), period=period),
        }[kind]
        millicpu = int(rng.choice(_MILLICPU[2:])) if rng.random() < 0.5 else 4000  # noqa: PLR2004 - as often as not
        pods.append(SpinnerPod(name=f"batch-{number}", cls="batch", request_millicpu=millicpu, processes=curve))
    return pods
