"""Step 11: whether a change that has been under trial for as long as it may is no worse than what was there before.

A class of which every request is late has no P99 that could fall: it is saturated, or its rise is excused, and every
look stays `unknown`. Originals were in force until the change, so the look from before it tells what they give. Where
the parts of late requests say that the change gives no less, to return the originals protects nobody.

It is asked at the end of a trial in which no look showed a regression that nothing excused, and never before.
"""

from collections.abc import Mapping

from schemas.messages import ClassState, State
from schemas.settings import ClassSettings
from services.guard.core.excuses import was_lost
from services.guard.core.regression import compare_waits

_ROUNDING = 1e-9


def is_no_worse(
    before: State,
    after: State,
    classes: Mapping[str, ClassSettings],
    *,
    lost_ratio: float,
    min_requests: int,
    wait_ratio: float,
) -> bool:
    """Whether no class misses its objective in the last look that kept it in the one from before the change, and what
    is missed of all objectives is no more than then, by importance.

    Not knowing is no good word here either. Each class that had requests must be known in both looks, by as many
    requests as a P99 needs, and no more of its pods silent; at least one must be. Of one that was lost before a few
    will do: the starved answer few, and have nothing to lose. One without requests before has missed nothing. A class
    that pressure judges must have waited no longer, as after any other change.
    """
    sums, is_known = [0.0, 0.0], False
    for name in before.classes.keys() | after.classes.keys():
        then, now = before.classes.get(name), after.classes.get(name)
        if then is not None and then.judged_by == "pressure":
            if then.waited_ratio is not None and compare_waits(then, now, wait_ratio) != "keep":
                return False
            continue
        if all(seen is None or seen.objective_seconds is None for seen in (then, now)):
            continue
        was_idle = then is None or then.latency.requests == 0
        enough = 0 if was_lost(name, before, lost_ratio) else min_requests
        missed = 0.0 if was_idle else _missed(then, enough)
        missed_now = _missed(now, enough)
        if was_idle and missed_now is None:
            continue
        if name not in classes or missed is None or missed_now is None or _is_quieter(then, now):
            return False
        is_known, spec = is_known or not was_idle, classes[name]
        counted, counted_now = (part if part > spec.violation_target_ratio else 0.0 for part in (missed, missed_now))
        if counted_now > 0.0 and counted <= 0.0:
            return False
        sums = [sums[0] + spec.importance * counted, sums[1] + spec.importance * counted_now]
    return is_known and sums[1] <= sums[0] + _ROUNDING


def _missed(seen: ClassState | None, min_requests: int) -> float | None:
    """The part of the requests over the objective, where there are enough of them to tell."""
    if seen is None or seen.judged_by == "pressure" or seen.latency.requests < min_requests:
        return None
    over = seen.latency.over_ratio
    return over if over is not None and 0.0 <= over <= 1.0 else None


def _is_quieter(then: ClassState | None, now: ClassState | None) -> bool:
    return then is not None and now is not None and now.latency.silent_pods > then.latency.silent_pods
