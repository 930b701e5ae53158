"""Step 11: whether a change that has been under trial for as long as it may is no worse than what was there before.

A class of which every request is late has no P99 that could fall: it is saturated, or its rise is excused, and every
look stays `unknown`. Originals were in force until the change, so the look from before it tells what they give. Where
the parts of late requests say that the change gives no less, to return the originals protects nobody.

It is asked at the end of a trial in which no look showed a regression that nothing excused, and never before.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from schemas.messages import ClassState, Latency, State
from schemas.settings import ClassSettings
from services.guard.core.excuses import are_comparable, was_lost
from services.guard.core.regression import compare_waits

_ROUNDING: Final = 1e-9

_ANSWERED_RATIO: Final = 0.5
"""Of the requests a second that a class answered before the change: with fewer of them the parts of late requests are
not of the same load. Half, as what one look counts of a burst differs from another by less."""


def is_no_worse(
    before: State,
    after: State,
    classes: Mapping[str, ClassSettings],
    *,
    lost_ratio: float,
    min_requests: int,
    wait_ratio: float,
) -> bool:
    """Whether no class misses its objective in the last look that kept it in the one from before the change, and no
    class misses more unless more important ones together miss less by as much.

    Not knowing is no good word here either. Both looks must be of the same pods, as far as their number tells. Each
    class that has requests in either must be known in both, by as many as a P99 needs, answered by no fewer pods and at
    half the rate of before at least; one class must be. Of one that was lost before a few requests will do, since the
    starved answer few and have nothing to lose; what it then seems to gain does not count. A class that pressure judges
    must have waited no longer, as after any other change.
    """
    if not are_comparable(before, after):
        return False
    gains: dict[float, float] = defaultdict(float)
    is_known = False
    for name, then in before.classes.items():
        now = after.classes.get(name)
        if then.pods == 0 or now is None or (then.objective_seconds is None and then.judged_by != "pressure"):
            continue
        if then.judged_by == "pressure" or now.judged_by == "pressure":
            if compare_waits(then, now, wait_ratio) != "keep":
                return False
            continue
        if then.latency.requests == 0 and now.latency.requests == 0:
            continue
        missed = _missed_in(then, now, min_requests, is_lost=was_lost(name, before, lost_ratio))
        if missed is None or name not in classes or _answers_less(then, now):
            return False
        spec, is_known = classes[name], is_known or then.latency.requests > 0
        counted, counted_now = (part if part > spec.violation_target_ratio else 0.0 for part in missed)
        if counted_now > 0.0 and counted <= 0.0:
            return False
        gains[spec.importance] += counted - counted_now
    so_far = accumulate(gains[importance] for importance in sorted(gains, reverse=True))
    return is_known and all(gain >= -_ROUNDING for gain in so_far)


def _missed_in(then: ClassState, now: ClassState, min_requests: int, *, is_lost: bool) -> tuple[float, float] | None:
    """The part of the requests over the objective in both looks, where there are enough of them to tell."""
    missed, missed_now = _missed(then), _missed(now)
    if then.latency.requests == 0:
        missed = 0.0
    if missed is None or missed_now is None:
        return None
    is_enough = all(count == 0 or count >= min_requests for count in (then.latency.requests, now.latency.requests))
    if is_enough:
        return missed, missed_now
    return (missed, max(missed, missed_now)) if is_lost else None


def _missed(seen: ClassState) -> float | None:
    over = seen.latency.over_ratio
    return over if over is not None and 0.0 <= over <= 1.0 and seen.latency.requests > 0 else None


def _answers_less(then: ClassState, now: ClassState) -> bool:
    """Whether fewer pods answer than before, more are silent, or what they answer is less than half."""
    if now.latency.silent_pods > then.latency.silent_pods or now.latency.pods < then.latency.pods:
        return True
    rate, rate_now = _rate(then.latency), _rate(now.latency)
    return rate is None or rate_now is None or rate_now < _ANSWERED_RATIO * rate


def _rate(latency: Latency) -> float | None:
    """Requests a second; 0 without any, None where the window is not known."""
    if latency.requests == 0:
        return 0.0
    return latency.requests / latency.window_seconds if latency.window_seconds else None
