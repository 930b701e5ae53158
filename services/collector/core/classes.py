"""Pods to classes: sums, worst cases, shares, and who ran while a class waited."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.messages import ClassState, Latency, PodState
from schemas.objective import judged_by
from schemas.profile import on_profile_scale
from schemas.settings import ClassSettings, WeightSettings
from schemas.tree import class_weights
from services.collector.core.in_force import Ordered, is_in_force
from services.collector.core.tally import GroupRates

_WAITED = 0.05
_ABOVE = 1.05
_MOST = 2**63 - 1
"""Largest whole number that a message holds."""


@dataclass(frozen=True)
class PodReading:
    """One pod with its rates, its effective share and its memory. One that does not `take part` is only looked at: its
    class is not made of it.
    """

    state: PodState
    rates: GroupRates
    share: float | None
    memory_bytes: int | None
    takes_part: bool = True


def class_states(  # noqa: PLR0917 - a pure core takes all it needs
    pods: Sequence[PodReading],
    latencies: Mapping[str, Latency],
    specs: Mapping[str, ClassSettings],
    limits: WeightSettings,
    cpus: int,
    ordered: Ordered | None = None,
    parents: Mapping[str, int] | None = None,
) -> dict[str, ClassState]:
    """One state per configured class, present or not. `ordered` is what the last actuation put in force, `parents` are
    the weights of the groups above the pods.
    """
    members = {name: [pod for pod in pods if pod.state.cls == name and pod.takes_part] for name in specs}
    steered = [pod.state for group in members.values() for pod in group if pod.state.skip is None]
    sums = {name: sum(pod.weight or 0 for pod in steered if pod.cls == name) for name in specs}
    states_seen = [pod.state for pod in pods]
    is_as_ordered = ordered is not None and is_in_force(ordered, states_seen)
    as_read = class_weights(steered, states_seen, parents or {})
    scale = on_profile_scale(ordered.weights if ordered is not None and is_as_ordered else as_read, limits)
    used = {name: _sum([pod.rates.cpu_cores for pod in group]) for name, group in members.items()}
    shares = {name: _sum([pod.share for pod in group]) for name, group in members.items()}
    states: dict[str, ClassState] = {}
    for name, spec in specs.items():
        group = members[name]
        waits = [(wait, pod.rates) for pod in group if (wait := pod.rates.waited_ratio(cpus)) is not None]
        waited, worst = max(waits, key=lambda found: found[0]) if waits else (None, None)
        latency = latencies.get(name, Latency(reason="no_source")) if group else Latency(reason="no_pods")
        states[name] = ClassState(
            pods=len(group),
            weight=scale.get(name),
            pods_weight=sums[name] or None,
            share=shares[name],
            cpu_cores=used[name],
            pressure_ratio=_largest([pod.rates.pressure_ratio for pod in group]),
            throttled_ratio=_largest([pod.rates.throttled_ratio for pod in group]),
            memory_bytes=_total([pod.memory_bytes for pod in group]),
            objective_seconds=spec.objective_p99_seconds,
            latency=latency,
            waited_for=_who_ran(name, used, shares, cpus) if (waited or 0.0) > _WAITED else (),
            waited_ratio=waited,
            run_delay=_largest([pod.rates.run_delay for pod in group]),
            waited_source=None if worst is None else "run_delay" if worst.pressure_ratio is None else "pressure",
            waited_reason=next((pod.rates.unknown for pod in group), "no_pods") if waited is None else None,
            objective_pressure_ratio=spec.objective_pressure_ratio,
            judged_by=judged_by(latency, spec) if group else None,
        )
    return states


def _who_ran(
    waiting: str, used: Mapping[str, float | None], shares: Mapping[str, float | None], cpus: int
) -> tuple[str, ...]:
    """The classes that ran while `waiting` waited, largest excess first: those that used more than their weights
    entitle them to; where nobody did, whoever used most, for then the weights themselves are the answer.
    """
    cores_of = {name: cores for name, cores in used.items() if name != waiting and cores is not None and cores > 0}
    excess = {
        name: cores / cpus / share
        for name, cores in cores_of.items()
        if (share := shares[name]) is not None and share > 0 and cpus > 0
    }
    above = sorted((name for name, ratio in excess.items() if ratio > _ABOVE), key=lambda name: -excess[name])
    return tuple(above or sorted(cores_of, key=lambda name: -cores_of[name])[:1])


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(sum(known), _MOST) if known else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
