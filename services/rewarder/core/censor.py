"""When a cycle must not be learned from, and the word for why.

The order is that of the cycle: what did not happen first, then what somebody else did, then what could not be seen.
"""

from collections.abc import Mapping

import msgspec

from schemas.messages import EXECUTED, Action, Actuation, ClassState, PodWrite, State, Verdict
from schemas.objective import has_evidence
from schemas.settings import ClassSettings

_TELLING_REQUESTS = 5.0
"""A class of which fewer requests than this were to be expected in the second window may be silent in it by chance."""


class Cycle(msgspec.Struct, frozen=True):
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


def _not_executed(cycle: Cycle) -> str | None:  # noqa: C901, PLR0911 - one line a reason, in their order
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
    if actuation.rule == "unreachable":
        return "unreachable"  # the tree allows no weights of pods that give the arm's shares
    if actuation.outcome not in EXECUTED:
        return f"not_applied: {actuation.rule or actuation.reason or actuation.outcome}"
    if verdict.mode == "canary":
        return "canary"  # the node had the arm's weights on some of its pods only, and its own on the others
    if verdict.outcome == "clamp":
        return "clamped"  # what was executed is no arm, so it has no propensity
    return None


def _not_seen(cycle: Cycle) -> str | None:
    return "no_after_state" if cycle.after is None else None


def _overridden(cycle: Cycle) -> str | None:
    """Somebody else rewrote a weight, before, at or after the write (WT-04); or a pod's part of the arm is not in force
    for another reason. A pod that has vanished takes no part.
    """
    assert cycle.after is not None
    expected = {pod.group: pod.weight for pod in cycle.before.pods if pod.cls is not None and pod.skip is None}
    actuation = cycle.actuation
    if actuation is not None and actuation.overridden:
        return "overridden"
    for write in actuation.writes if actuation else ():
        if write.result == "mismatch":
            return "overridden"
        if write.after is not None:
            expected[write.group] = write.after
    for pod in cycle.after.pods:
        wanted = expected.get(pod.group)
        if wanted is not None and pod.weight is not None and pod.weight != wanted:
            return "overridden"
    for write in actuation.writes if actuation else ():
        if not _is_in_force(write):
            return f"partial: {write.reason or write.result}"
    return None


def _is_in_force(write: PodWrite) -> bool:
    return write.result in ("applied", "unchanged") or (write.result == "skipped" and write.reason == "gone")


def _no_contention(cycle: Cycle, *, required: bool) -> str | None:
    assert cycle.after is not None
    if required and not (cycle.before.contention.contended or cycle.after.contention.contended):
        return "no_contention"
    return None


def _no_evidence(cycle: Cycle, classes: Mapping[str, ClassSettings], min_requests: int) -> str | None:
    """The most important latency classes with pods must have been seen serving enough requests, or, where pressure
    judges them, waiting or not; and every throughput class with pods must have been seen using CPU, or not: what is
    unknown is not nothing. A less important latency class may be silent, but not fall silent: a starved class must not
    be paid for.
    """
    assert cycle.after is not None
    seen = {name: cycle.after.classes[name] for name in classes if name in cycle.after.classes}
    present = [name for name in seen if seen[name].pods > 0]
    latency_classes = [name for name in present if classes[name].kind == "latency"]
    if not latency_classes:
        return "no_latency_class"
    top = max(classes[name].importance for name in latency_classes)
    for name in latency_classes:
        if classes[name].importance == top and (reason := _not_judged(name, seen[name], min_requests)) is not None:
            return reason
    for name in latency_classes:
        if (
            name in cycle.before.classes
            and (word := _not_comparable(cycle.before.classes[name], seen[name])) is not None
        ):
            return f"{word}: {name}"
    for name in present:
        if classes[name].kind == "throughput" and seen[name].cpu_cores is None:
            return f"no_throughput: {name}"
    return None


def _not_judged(name: str, seen: ClassState, min_requests: int) -> str | None:
    if seen.judged_by == "pressure":
        return None if has_evidence(seen) else f"no_pressure: {name}"
    if not has_evidence(seen):
        return f"no_latency: {name}: {seen.latency.reason or 'unknown'}"
    if seen.latency.requests < min_requests:
        return f"few_requests: {name}: {seen.latency.requests}"
    return None


def _not_comparable(before: ClassState, after: ClassState) -> str | None:
    """Why the two looks are not on one scale, or None."""
    if _fell_silent(before, after) or after.latency.silent_pods > before.latency.silent_pods:
        return "lost_evidence"
    if before.judged_by is None or after.judged_by is None:
        return None
    if before.judged_by != after.judged_by:
        return "signal_changed"
    is_by_latency = after.judged_by == "latency"
    return "objective_changed" if is_by_latency and before.objective_seconds != after.objective_seconds else None


def _fell_silent(before: ClassState, after: ClassState) -> bool:
    """Whether a class that was serving requests is not known to serve half as many now, and nothing else is known; or,
    where pressure judged it, whether it is not known any more how long it waits.
    """
    if has_evidence(after):
        return False
    if before.judged_by == "pressure":
        return has_evidence(before)
    rate_before, rate_after = before.latency.requests_per_second, after.latency.requests_per_second
    if rate_before is None or rate_before <= 0:
        return False
    if rate_after is None:
        return True
    expected = rate_before * (after.latency.window_seconds or 0.0)
    return expected >= _TELLING_REQUESTS and rate_after < rate_before / 2
