"""Latency per class over windows: adds up what each interval brought, and grows a window that holds too little."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.messages import Latency
from services.collector.core.histogram import Series, added, merge, over, quantile, total


@dataclass(frozen=True)
class Interval:
    """What one class served between two collections."""

    seconds: float
    buckets: Mapping[float, float]


@dataclass
class LatencyWindows:
    """Remembers each pod's last page and each class's last intervals."""

    min_requests: int
    max_window_seconds: float
    _pages: dict[str, Series] = field(default_factory=dict)
    _intervals: dict[str, deque[Interval]] = field(default_factory=dict)

    def add(self, elapsed_seconds: float | None, pages: Mapping[str, tuple[str, Series]]) -> None:
        """Takes in the pages of one collection: by uid, the pod's class and its series. Pods that are not in it have
        gone or did not answer: their next page is a baseline again.
        """
        by_class: dict[str, list[Mapping[float, float]]] = {}
        for uid, (name, series) in pages.items():
            part = added(self._pages.get(uid), series)
            if part is not None:
                by_class.setdefault(name, []).append(part)
        self._pages = {uid: series for uid, (_, series) in pages.items()}
        if elapsed_seconds is None or elapsed_seconds <= 0:
            return
        for name in self._intervals.keys() - by_class.keys():
            del self._intervals[name]  # a window has no holes: what was before one is not added to what comes after
        for name, parts in by_class.items():
            intervals = self._intervals.setdefault(name, deque(maxlen=64))
            intervals.append(Interval(elapsed_seconds, merge(parts)))

    def forget_absent(self, classes: set[str]) -> None:
        """Drops classes that have no pods any more."""
        for name in list(self._intervals):
            if name not in classes:
                del self._intervals[name]

    def latency(self, name: str, objective_seconds: float | None, *, may_grow: bool) -> Latency:
        """The class's latency in the newest interval, or, if that holds too few requests and it may, in as many as
        are needed up to the longest window.
        """
        intervals = self._intervals.get(name)
        if not intervals:
            return Latency(reason="first_scrape")
        seconds = 0.0
        parts: list[Mapping[float, float]] = []
        buckets: dict[float, float] = {}
        for interval in reversed(intervals):
            if parts and (not may_grow or seconds + interval.seconds > self.max_window_seconds):
                break
            parts.append(interval.buckets)
            seconds += interval.seconds
            buckets = merge(parts)
            if total(buckets) >= self.min_requests:
                break
        return latency_of(buckets, seconds, objective_seconds, self.min_requests)


def latency_of(
    buckets: Mapping[float, float], seconds: float, objective_seconds: float | None, min_requests: int
) -> Latency:
    """The message's view of a merged histogram. Quantiles only from enough requests; the rest is a reason."""
    count = int(total(buckets))
    rate = count / seconds if seconds > 0 else None
    if count < min_requests:
        reason = "idle" if count == 0 else "few_requests"
        return Latency(requests=count, requests_per_second=rate, window_seconds=seconds, reason=reason)
    values = {label: quantile(buckets, q) for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    if any(value is None or not math.isfinite(value.seconds) for value in values.values()):
        return Latency(requests=count, requests_per_second=rate, window_seconds=seconds, reason="no_buckets")
    seconds_of = {label: value.seconds for label, value in values.items() if value is not None}
    return Latency(
        p50_seconds=seconds_of["p50"],
        p95_seconds=seconds_of["p95"],
        p99_seconds=seconds_of["p99"],
        saturated=tuple(label for label, value in values.items() if value is not None and value.saturated),
        requests=count,
        requests_per_second=rate,
        over_ratio=over(buckets, objective_seconds) if objective_seconds is not None else None,
        window_seconds=seconds,
    )
