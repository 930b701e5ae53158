"""Latency from cumulative histograms: what was added between two scrapes, merged over series and pods, then asked.

A series that went back in any bucket was reset and counts from zero; a new series of a known pod counts whole, one that
comes back after a gap is a baseline; a pod's first scrape is a baseline and adds nothing, and so is a page that shares
no series with the one before, or a series that shares no finite bound with what it was. Bounds are numbers, so le="1"
and le="1.0" are one bucket; a bound that was not there before waits for the next scrape.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate

from services.collector.core.page import Buckets, Key, Series


@dataclass(frozen=True)
class Quantile:
    """A value in seconds; `saturated` if it fell into the last bucket and is only a lower bound."""

    seconds: float
    saturated: bool = False


def added(previous: Series | None, current: Series, gone: Collection[Key] = ()) -> dict[float, float] | None:
    """Cumulative counts added between two scrapes of one pod, summed over its series; None where there is nothing to
    compare with. A page that declared the histogram and had no series yet is one: all that came since is new. `gone`
    are series that were there before the previous scrape and not in it.
    """
    if previous is None or (previous and previous.keys().isdisjoint(current.keys())):
        return None
    if not current:
        return {}
    parts = [_added_to_series(previous.get(key), buckets) for key, buckets in current.items() if key not in gone]
    comparable = [part for part in parts if part is not None]
    return merge(comparable) if comparable else None


def _added_to_series(previous: Buckets | None, current: Buckets) -> dict[float, float] | None:
    if previous is None:
        return _monotone(current)
    both = previous.keys() & current.keys()
    if any(current[bound] < previous[bound] for bound in both):
        return _monotone(current)
    if not has_bounds(both) and has_bounds(current):
        return None
    return _monotone({bound: current[bound] - previous[bound] for bound in both})


def has_bounds(buckets: Iterable[float]) -> bool:
    """Whether there is a bucket that says how long something took: +Inf alone does not."""
    return any(map(math.isfinite, buckets))


def _monotone(buckets: Buckets) -> dict[float, float]:
    """What is at or below a bound is at or below every larger one, also where a page was written while it was counted
    (as PromQL's histogram_quantile repairs it).
    """
    return dict(zip(sorted(buckets), accumulate((buckets[bound] for bound in sorted(buckets)), max), strict=True))


def merge(histograms: Iterable[Buckets]) -> dict[float, float]:
    """The sum of cumulative histograms over the bounds that all of them have: exact, where others would be guessed.
    Those without observations have no say in the bounds, unless all are.
    """
    parts = [part for part in histograms if part]
    parts = [part for part in parts if total(part) > 0] or parts
    if not parts:
        return {}
    bounds = set(parts[0]).intersection(*parts[1:])
    return {bound: sum(part[bound] for part in parts) for bound in sorted(bounds)}


def total(buckets: Buckets) -> float:
    """All observations."""
    return buckets.get(math.inf, 0.0)


def quantile(buckets: Buckets, q: float) -> Quantile | None:
    """The q-quantile, linear inside its bucket (as PromQL's histogram_quantile). None without observations."""
    count = total(buckets)
    finite = [(bound, buckets[bound]) for bound in sorted(buckets) if math.isfinite(bound)]
    if count <= 0 or not finite:
        return None
    rank = q * count
    below, lower = 0.0, 0.0
    for bound, cumulative in finite:
        if cumulative >= rank:
            if bound <= 0:
                return Quantile(bound)
            inside = cumulative - below
            part = (rank - below) / inside if inside > 0 else 1.0
            return Quantile(lower + (bound - lower) * part)
        below, lower = max(below, cumulative), max(0.0, bound)
    return Quantile(finite[-1][0], saturated=True)


def over(buckets: Buckets, limit_seconds: float) -> float | None:
    """The fraction of observations above a limit, linear inside the bucket that holds it. None without observations,
    and where some lie in the last bucket and that begins below the limit: how many of them are above is not known.
    """
    count = total(buckets)
    if count <= 0:
        return None
    below, lower = 0.0, 0.0
    for bound, cumulative in sorted(buckets.items()):
        if bound >= limit_seconds:
            if not math.isfinite(bound):
                return None if cumulative > below else 0.0
            if bound > lower:
                below += (cumulative - below) * ((limit_seconds - lower) / (bound - lower))
            break
        below, lower = max(below, cumulative), max(0.0, bound)
    return min(1.0, max(0.0, 1.0 - below / count))
