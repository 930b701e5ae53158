"""Step 11: whether a change made a class's latency worse, and what follows from missing evidence.

One documented rule (PM-02, PM-05): only a comparison of two known, unsaturated numbers can say `keep` or `regressed`;
an infinite or saturated value after a known one is `regressed` when its lower bound already is; everything else is
`unknown`, which keeps the weights for the moment but is never evidence that they are good. A class that pressure judges
is compared by how long it waited; one that is judged by another signal after the change than before it is `unknown`.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from schemas.messages import ClassState, JudgedBy, Latency, State
from services.guard.core.excuses import Excuses

_ROUNDING = 1e-9

Evidence: TypeAlias = Literal["keep", "regressed", "unknown"]


def compare(before: float | None, after: float | None, limit_ratio: float, floor_seconds: float = 0.0) -> Evidence:
    """What two P99s in seconds say about a change. `limit_ratio` 0.2 allows 20 % more."""
    if before is None or not math.isfinite(before) or before <= 0.0:
        return "unknown"
    if after is None or math.isnan(after) or after < 0.0:
        return "unknown"
    if math.isinf(after):
        return "regressed"
    if after <= floor_seconds:
        return "keep"
    return "regressed" if after > before * (1.0 + limit_ratio) else "keep"


@dataclass(frozen=True)
class Regression:
    """One class that got worse: its P99s in seconds, or its waits (0-1) where pressure judges it."""

    name: str
    before: float
    after: float
    signal: JudgedBy = "latency"

    @property
    def times(self) -> float:
        """How many times as much it is: infinity from nothing."""
        return self.after / self.before if self.before > 0.0 else math.inf

    def __str__(self) -> str:
        if self.signal == "pressure":
            return f"{self.name}: waited {self.before * 100:.0f} % -> {self.after * 100:.0f} % of the time"
        rise = (self.after / self.before - 1.0) * 100
        return f"{self.name}: P99 {self.before * 1000:.1f} ms -> {self.after * 1000:.1f} ms (+{rise:.0f} %)"


def find_regression(
    before: State,
    after: State,
    *,
    limit_ratio: float,
    floor_ratio: float,
    wait_ratio: float,
    min_requests: int,
    excuses: Excuses | None = None,
) -> tuple[Evidence, Regression | None]:
    """The worst regression over all classes with an objective that nothing excuses, or what else the evidence says.

    `keep` needs at least one class that says so and none that is unknown while it had requests (or a known wait, where
    pressure judges it) before: a class that vanished with its requests speaks for nothing, an idle one does not stand
    in the way. What is excused (core/excuses.py) is unknown; without `excuses` nothing is.
    """
    worst: Regression | None = None
    said: set[Evidence] = set()
    for name, then in before.classes.items():
        now = after.classes.get(name)
        if then.judged_by == "pressure":
            old, new = then.waited_ratio, now.waited_ratio if now is not None else None
            evidence, counts = compare_waits(then, now, wait_ratio), old is not None
        elif then.objective_seconds is not None:
            old, new = then.latency.p99_seconds, now.latency.p99_seconds if now is not None else None
            evidence = _compare_latencies(then, now, limit_ratio, floor_ratio, min_requests)
            if evidence == "regressed" and excuses is not None and excuses.find(name, before, after) is not None:
                evidence = "unknown"
            counts = then.latency.requests > 0
        else:
            continue
        if evidence != "unknown" or counts:
            said.add(evidence)
        if evidence == "regressed" and old is not None and new is not None:
            worst = _worse(worst, Regression(name, old, new, then.judged_by or "latency"))
    if worst is not None:
        return "regressed", worst
    return ("keep", None) if said == {"keep"} else ("unknown", None)


def _worse(worst: Regression | None, found: Regression) -> Regression:
    return found if worst is None or found.times > worst.times else worst


def _compare_latencies(
    then: ClassState, now: ClassState | None, limit_ratio: float, floor_ratio: float, min_requests: int
) -> Evidence:
    if now is None or now.judged_by == "pressure" or not _is_histogram(then.latency) or not _is_histogram(now.latency):
        return "unknown"
    old, old_saturated = _p99(then.latency, min_requests)
    new, new_saturated = _p99(now.latency, min_requests)
    evidence = compare(old, new, limit_ratio, floor_ratio * (then.objective_seconds or 0.0))
    if old_saturated or (new_saturated and evidence == "keep"):
        return "unknown"
    if evidence == "keep" and now.latency.silent_pods > then.latency.silent_pods:
        return "unknown"  # who does not answer any more is not among the good numbers
    return evidence


def compare_waits(then: ClassState, now: ClassState | None, limit_ratio: float) -> Evidence:
    """What two looks at a class that pressure judges say. Waits are parts of the time, and nothing is as good a number
    as any: they are compared by their difference, not by their ratio, and only above the ceiling, since what is allowed
    is no harm.
    """
    if now is None or now.judged_by != "pressure" or now.waited_source != then.waited_source:
        return "unknown"
    old, new, ceiling = then.waited_ratio, now.waited_ratio, then.objective_pressure_ratio or 0.0
    if old is None or new is None or not 0.0 <= old <= 1.0 or not 0.0 <= new <= 1.0:
        return "unknown"
    return "regressed" if new > ceiling and new - old > limit_ratio + _ROUNDING else "keep"


def _is_histogram(latency: Latency) -> bool:
    """A summary's quantiles are of the pod's own long window, and come and go with its series: no two looks compare."""
    return latency.source in (None, "histogram")


def _p99(latency: Latency, min_requests: int) -> tuple[float | None, bool]:
    if latency.p99_seconds is None or latency.requests < min_requests:
        return None, False
    return latency.p99_seconds, "p99" in latency.saturated
