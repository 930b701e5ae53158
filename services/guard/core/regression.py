"""Step 11: whether a change made a class's latency worse, and what follows from missing evidence.

One documented rule (PM-02, PM-05): only a comparison of two known, unsaturated numbers can say `keep` or `regressed`;
an infinite or saturated value after a known one is `regressed` when its lower bound already is; everything else is
`unknown`, which keeps the weights for the moment but is never evidence that they are good.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from schemas.messages import Latency, State

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
    """One class that got worse: its P99s in seconds."""

    name: str
    before_seconds: float
    after_seconds: float


def _p99(latency: Latency, min_requests: int) -> tuple[float | None, bool]:
    if latency.p99_seconds is None or latency.requests < min_requests:
        return None, False
    return latency.p99_seconds, "p99" in latency.saturated


def find_regression(
    before: State, after: State, *, limit_ratio: float, floor_ratio: float, min_requests: int
) -> tuple[Evidence, Regression | None]:
    """The worst regression over all classes with an objective, or what else the evidence says.

    `keep` needs at least one class that says so and none that is unknown while it had requests before: a class that
    vanished with its requests speaks for nothing, an idle one does not stand in the way.
    """
    worst: Regression | None = None
    said: set[Evidence] = set()
    for name, then in before.classes.items():
        if then.objective_seconds is None:
            continue
        now = after.classes.get(name)
        old, old_saturated = _p99(then.latency, min_requests)
        new, new_saturated = _p99(now.latency, min_requests) if now is not None else (None, False)
        evidence = compare(old, new, limit_ratio, floor_ratio * then.objective_seconds)
        if old_saturated or (new_saturated and evidence == "keep"):
            evidence = "unknown"
        if evidence != "unknown" or then.latency.requests > 0:
            said.add(evidence)
        if evidence != "regressed" or old is None or new is None:
            continue
        if worst is None or new / old > worst.after_seconds / worst.before_seconds:
            worst = Regression(name, old, new)
    if worst is not None:
        return "regressed", worst
    return ("keep", None) if said == {"keep"} else ("unknown", None)
