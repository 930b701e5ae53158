"""Owns the named scenarios: nine nodes as data, and how a person's words name them.

All have two cores, and requests of 2 to 10 ms of CPU. Unless its text says otherwise a scenario has one pod per class,
the services need 40 to 85 % of the node together, batch would take all the rest, and the requests contradict priority
the usual way: batch asks for 4000m, the default service for 500m, the latency-critical one for 250m. Objectives are
three to six times the P99 that the service has alone on the node. What happens repeats, so that a run of 100 cycles
sees most of it and one of 400 sees it several times; in `flood` and `diurnal` one round takes 200.
"""

import math

from msgspec import structs

from lab.arena.generated import PREFIX, generated
from lab.arena.scenario import QUEUES, Cls, Curve, Points, Queue, Scenario, ServicePod, SpinnerPod, constant
from lab.arena.scenario_file import is_file_name, read_scenario

_BATCH_MILLICPU = 4000
_API_MILLICPU = 250
_WEB_MILLICPU = 500


def _api(rate: Curve, work_ms: float = 5.0, millicpu: int = _API_MILLICPU, spread: float = 0.5) -> ServicePod:
    return ServicePod(
        name="api",
        cls="latency-critical",
        request_millicpu=millicpu,
        rate=rate,
        work_seconds=work_ms / 1000.0,
        spread=spread,
    )


def _web(rate: Curve, work_ms: float = 10.0, millicpu: int = _WEB_MILLICPU, spread: float = 0.5) -> ServicePod:
    return ServicePod(
        name="web",
        cls="default",
        request_millicpu=millicpu,
        rate=rate,
        work_seconds=work_ms / 1000.0,
        spread=spread,
    )


def _batch(processes: Curve, millicpu: int = _BATCH_MILLICPU) -> SpinnerPod:
    return SpinnerPod(name="batch", cls="batch", request_millicpu=millicpu, processes=processes)


def _objectives(api_ms: float, web_ms: float) -> dict[Cls, float]:
    return {"latency-critical": api_ms / 1000.0, "default": web_ms / 1000.0}


def _wave(low: float, high: float, period: float, points: int = 20) -> Curve:
    """A cosine from low to high and back, by straight lines."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    wave: Points = tuple(
        (period * n / points, round(middle - half * math.cos(2.0 * math.pi * n / points), 1)) for n in range(points)
    )
    return Curve(wave, "linear", period)


_QUIET = Scenario(
    name="quiet",
    text="Both services need 8 % of the node together. Batch is idle but for cycles 40-49 of every 50, when one process"
    " runs and leaves a core free: weights hardly matter.",
    pods=(_api(constant(20.0), 4.0), _web(constant(10.0), 8.0), _batch(Curve(((0.0, 0.0), (40.0, 1.0)), period=50.0))),
    phases=(("idle", 0.0), ("batch", 40.0)),
    phase_period=50.0,
    objectives=_objectives(60.0, 120.0),
    matters=False,
)

_STEADY = Scenario(
    name="steady",
    text="The same all the time: the API needs 30 % of the node, the web service 30 %, four batch processes all else.",
    pods=(_api(constant(120.0)), _web(constant(60.0)), _batch(constant(4.0))),
    objectives=_objectives(75.0, 150.0),
)

_DIURNAL = Scenario(
    name="diurnal",
    text="A day of 200 cycles: night at cycle 0, noon at cycle 100. The API goes from 8 to 50 % of the node, the web"
    " service from 10 to 30 %; four batch processes all day.",
    pods=(_api(_wave(30.0, 200.0, 200.0)), _web(_wave(20.0, 60.0, 200.0)), _batch(constant(4.0))),
    phases=(("night", 0.0), ("day", 50.0), ("evening", 150.0)),
    phase_period=200.0,
    objectives=_objectives(90.0, 200.0),
)

_FLASH_SALE = Scenario(
    name="flash-sale",
    text="Cycles 30-39 of every 80: almost four times the requests reach the API, more than the node can serve. What"
    " was waiting then is to be served before cycle 50 or so. Else the API needs 30 % and the web service 25 %.",
    pods=(
        _api(Curve(((0.0, 120.0), (30.0, 440.0), (40.0, 120.0)), period=80.0)),
        _web(constant(50.0)),
        _batch(constant(4.0)),
    ),
    phases=(("calm", 0.0), ("surge", 30.0), ("after", 40.0)),
    phase_period=80.0,
    objectives=_objectives(75.0, 150.0),
)

_SWAP = Scenario(
    name="swap",
    text="Every 50 cycles the services trade places: the busy one needs 65 % of the node, the other 15 %. A profile"
    " that puts one first while it is busy hurts it or the other one in the next 50; in hindsight one that treats them"
    " alike and puts batch last does as well as any, since fair shares protect the quiet one. Four batch processes.",
    pods=(
        _api(Curve(((0.0, 260.0), (50.0, 60.0)), period=100.0)),
        _web(Curve(((0.0, 30.0), (50.0, 130.0)), period=100.0)),
        _batch(constant(4.0)),
    ),
    phases=(("api-busy", 0.0), ("web-busy", 50.0)),
    phase_period=100.0,
    objectives=_objectives(90.0, 150.0),
)

_FLOOD = Scenario(
    name="flood",
    text="100 cycles in which the API is sent 3.2 cores' worth of requests while the web service needs 60 % of the"
    " node; then 100 cycles the other way round. The flooded one is lost, whatever the weights; only a profile that"
    " puts the other one first keeps that whole. Bounded: the best profile per phase scores -0.75, the best single one"
    " -1.00. Unbounded: what piled up in one phase is never served, so the API stays lost in the second.",
    pods=(
        _api(Curve(((0.0, 320.0), (100.0, 120.0)), period=200.0), 10.0),
        _web(Curve(((0.0, 120.0), (100.0, 320.0)), period=200.0)),
        _batch(constant(4.0)),
    ),
    phases=(("api-flooded", 0.0), ("web-flooded", 100.0)),
    phase_period=200.0,
    objectives=_objectives(200.0, 200.0),
)

_NOISY_NEIGHBOUR = Scenario(
    name="noisy-neighbour",
    text="Six batch processes arrive at cycle 20 of every 50 and leave at its end; the services need 50 % of the node"
    " all the time, 30 % the API and 20 % the web service.",
    pods=(
        _api(constant(120.0)),
        _web(constant(40.0)),
        _batch(Curve(((0.0, 0.0), (20.0, 6.0)), period=50.0)),
    ),
    phases=(("alone", 0.0), ("neighbour", 20.0)),
    phase_period=50.0,
    objectives=_objectives(75.0, 150.0),
)

_RUNAWAY = Scenario(
    name="runaway",
    text="A second latency-critical pod spins with three threads in cycles 40-69 of every 80. What is given to its"
    " class then goes to it as well: the API (25 % of the node) and the web service (30 %) are whole only while neither"
    " class takes more than half. Four batch processes all the time.",
    pods=(
        _api(constant(100.0)),
        SpinnerPod(
            name="wild",
            cls="latency-critical",
            request_millicpu=100,
            processes=Curve(((0.0, 0.0), (40.0, 3.0), (70.0, 0.0)), period=80.0),
        ),
        _web(constant(60.0)),
        _batch(constant(4.0)),
    ),
    phases=(("calm", 0.0), ("wild", 40.0), ("over", 70.0)),
    phase_period=80.0,
    objectives=_objectives(75.0, 150.0),
)

_MISLABELLED = Scenario(
    name="mislabelled",
    text="Steady load with requests that say the opposite of priority: batch asks for 8000m, the API (35 % of the node)"
    " and the web service (25 %) for 100m each.",
    pods=(
        _api(constant(140.0), millicpu=100),
        _web(constant(50.0), millicpu=100),
        _batch(constant(4.0), millicpu=8000),
    ),
    objectives=_objectives(75.0, 150.0),
)

_NAMED = {
    scenario.name: scenario
    for scenario in (
        _QUIET,
        _STEADY,
        _DIURNAL,
        _FLASH_SALE,
        _SWAP,
        _FLOOD,
        _NOISY_NEIGHBOUR,
        _RUNAWAY,
        _MISLABELLED,
    )
}


def names() -> tuple[str, ...]:
    """The nine names, in the order in which they are told."""
    return tuple(_NAMED)


def named(name: str, queue: Queue = "bounded") -> Scenario:
    """One of the nine, or `gen:SEED`. Raises ValueError that lists what is known."""
    if queue not in QUEUES:
        raise ValueError(f"queue {queue!r}; known: {', '.join(QUEUES)}")
    if name.startswith(PREFIX):
        seed = name.removeprefix(PREFIX)
        if not (seed.isascii() and seed.isdigit()):
            raise ValueError(f"scenario {name!r}: after {PREFIX} comes a whole number, as in {PREFIX}17")
        return generated(int(seed), queue)
    try:
        scenario = _NAMED[name]
    except KeyError:
        raise ValueError(f"unknown scenario {name!r}; known: {', '.join(_NAMED)}, {PREFIX}SEED") from None
    return structs.replace(scenario, queue=queue)


def resolve(text: str, queue: Queue = "bounded") -> tuple[Scenario, ...]:
    """Scenarios from `a,b`, `all` (the nine), `gen:17` and files (`mine.json`, `mine.yaml`), in the order given and
    each once, all with this queue. Raises ValueError.
    """
    found: dict[str, None] = {}
    for word in (part.strip() for part in text.split(",")):
        if word == "all":
            found.update(dict.fromkeys(_NAMED))
        elif word:
            found[word] = None
    if not found:
        raise ValueError(f"no scenario named; known: all, {', '.join(_NAMED)}, {PREFIX}SEED, FILE.json, FILE.yaml")
    scenarios = tuple(_from_file(word, queue) if is_file_name(word) else named(word, queue) for word in found)
    names = [scenario.name for scenario in scenarios]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"two scenarios are called {name!r}; give the file's another name")
    return scenarios


def _from_file(path: str, queue: Queue) -> Scenario:
    scenario = read_scenario(path)
    if scenario.name in (*_NAMED, "all") or scenario.name.startswith(PREFIX):
        raise ValueError(f"{path}: name: {scenario.name!r} is a scenario of Trimtab's own; give it another name")
    return structs.replace(scenario, queue=queue)
