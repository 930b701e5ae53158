"""What one look saw, class by class."""

from collections.abc import Mapping

from lab.explain.moments import at_text
from lab.explain.told import ClassTold, SeenTold
from schemas.messages import ClassState, State
from schemas.objective import has_evidence, is_violated
from schemas.settings import ClassSettings


def seen_told(state: State, classes: Mapping[str, ClassSettings] | None) -> SeenTold:
    """One look. Who misses an objective is told where the settings of the classes are known."""
    return SeenTold(
        at=at_text(state.at),
        window_seconds=state.window_seconds,
        classes=tuple(
            _class_told(name, seen, classes.get(name) if classes is not None else None)
            for name, seen in state.classes.items()
        ),
        contention=state.contention,
        features=dict(state.features),
        notes=state.notes,
        writable=state.writable,
    )


def _class_told(name: str, seen: ClassState, spec: ClassSettings | None) -> ClassTold:
    latency = seen.latency
    is_known = seen.judged_by is None or has_evidence(seen)
    why = None
    if not is_known:
        why = (seen.waited_reason if seen.judged_by == "pressure" else latency.reason) or "unknown"
    return ClassTold(
        name=name,
        pods=seen.pods,
        judged_by=seen.judged_by,
        p99_seconds=latency.p99_seconds,
        p99_is_at_least="p99" in latency.saturated,
        objective_seconds=seen.objective_seconds,
        over_ratio=latency.over_ratio,
        requests=latency.requests,
        waited_ratio=seen.waited_ratio,
        objective_pressure_ratio=seen.objective_pressure_ratio,
        cpu_cores=seen.cpu_cores,
        weight=seen.weight,
        share=seen.share,
        waited_for=seen.waited_for,
        is_violated=is_violated(seen, spec) if spec is not None and is_known else None,
        why=why,
    )
