"""When a cycle must not be learned from, and the word for why.

The order is that of the cycle: what did not happen first, then what somebody else did, then what could not be seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import EXECUTED, Action, Actuation, State, Verdict
from schemas.settings import ClassSettings


@dataclass(frozen=True)
class Cycle:
    """The messages of one cycle, as far as they came."""

    before: State
    action: Action | None = None
    verdict: Verdict | None = None
    actuation: Actuation | None = None
    after: State | None = None


def censor_reason(
    cycle: Cycle, classes: Mapping[str, ClassSettings], *, min_requests: int, require_contention: bool
) -> str | None:
    """Why the cycle is censored, or None if it can be learned from."""
    return (
        _not_executed(cycle)
        or _not_seen(cycle)
        or _overridden(cycle)
        or _no_contention(cycle, required=require_contention)
        or _no_evidence(cycle, classes, min_requests)
    )


def _not_executed(cycle: Cycle) -> str | None:  # noqa: PLR0911 - one line a reason, in their order
    verdict, actuation = cycle.verdict, cycle.actuation
    if verdict is None:
        return "no_verdict"
    if verdict.outcome == "late":
        return "late"
    if cycle.action is None:
        return "no_action"
    if verdict.outcome == "refuse":
        return f"refused: {verdict.rule}"
    if verdict.outcome == "hold" and verdict.rule == "contention":
        return "no_contention"
    if verdict.outcome != "hold" and not verdict.execute:
        return verdict.rule or verdict.mode
    if actuation is None:
        return "no_actuation"
    if actuation.outcome not in EXECUTED:
        return f"not_applied: {actuation.rule or actuation.reason or actuation.outcome}"
    if verdict.outcome == "clamp":
        return "clamped"  # what was executed is no arm, so it has no propensity
    return None


def _not_seen(cycle: Cycle) -> str | None:
    return "no_after_state" if cycle.after is None else None


def _overridden(cycle: Cycle) -> str | None:
    """Somebody else rewrote a weight, at once or between the write and the second look (WT-04)."""
    assert cycle.after is not None
    expected = {pod.group: pod.weight for pod in cycle.before.pods if pod.cls is not None}
    for write in cycle.actuation.writes if cycle.actuation else ():
        if write.result == "mismatch":
            return "overridden"
        if write.after is not None:
            expected[write.group] = write.after
    for pod in cycle.after.pods:
        wanted = expected.get(pod.group)
        if wanted is not None and pod.weight is not None and pod.weight != wanted:
            return "overridden"
    return None


def _no_contention(cycle: Cycle, *, required: bool) -> str | None:
    assert cycle.after is not None
    if required and not (cycle.before.contention.contended or cycle.after.contention.contended):
        return "no_contention"
    return None


def _no_evidence(cycle: Cycle, classes: Mapping[str, ClassSettings], min_requests: int) -> str | None:
    """The most important latency classes with pods must have been seen serving enough requests, and every throughput
    class with pods must have been seen using CPU, or not: what is unknown is not nothing.
    """
    assert cycle.after is not None
    seen = {name: cycle.after.classes[name] for name in classes if name in cycle.after.classes}
    present = [name for name in seen if seen[name].pods > 0]
    latency_classes = [name for name in present if classes[name].kind == "latency"]
    if not latency_classes:
        return "no_latency_class"
    top = max(classes[name].importance for name in latency_classes)
    for name in latency_classes:
        if classes[name].importance < top:
            continue
        latency = seen[name].latency
        if latency.p99_seconds is None and latency.over_ratio is None:
            return f"no_latency: {name}: {latency.reason or 'unknown'}"
        if latency.requests < min_requests:
            return f"few_requests: {name}: {latency.requests}"
    for name in present:
        if classes[name].kind == "throughput" and seen[name].cpu_cores is None:
            return f"no_throughput: {name}"
    return None
