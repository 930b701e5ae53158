"""Latency per class over windows: adds up what each interval brought, and grows a window that holds too little."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from schemas.messages import Latency
from services.collector.core.histogram import added, has_bounds, merge, over, quantile, total
from services.collector.core.page import Buckets, HistogramPage, Key, Page, SummaryPage
from services.collector.core.summary import Observed, observed, worst

_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_GONE: Final = 1_000
_MOST: Final = 2.0**53
"""Most requests that a float counts one by one; a page may say anything."""


@dataclass(frozen=True)
class Interval:
    """What one class served between two collections: histograms added up, summaries at their worst."""

    seconds: float
    buckets: Buckets
    summaries: Observed = field(default_factory=Observed)
    pods: int = 0

    @property
    def requests(self) -> float:
        """All of them."""
        return total(self.buckets) + self.summaries.count


@dataclass
class _Pod:
    """A pod's last page, and the series that were on an earlier one and not on it (the oldest are forgotten)."""

    page: Page
    gone: dict[Key, None] = field(default_factory=dict)

    def advance(self, page: Page) -> Buckets | Observed | None:
        """What the next page adds, None if it is no continuation; takes it in."""
        before, self.page = self.page, page
        if before.metric != page.metric:
            self.gone.clear()
            return None
        part: Buckets | Observed | None = None
        if isinstance(before, HistogramPage) and isinstance(page, HistogramPage):
            part = added(before.series, page.series, self.gone)
        elif isinstance(before, SummaryPage) and isinstance(page, SummaryPage):
            part = observed(before.series, page.series, self.gone)
        for key in before.series.keys() - page.series.keys():
            self.gone[key] = None
        for key in page.series:
            self.gone.pop(key, None)
        while len(self.gone) > _GONE:
            del self.gone[next(iter(self.gone))]
        return part


@dataclass
class LatencyWindows:
    """Remembers each pod's last page and each class's last intervals."""

    min_requests: int
    max_window_seconds: float
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _intervals: dict[str, deque[Interval]] = field(default_factory=dict)

    def add(self, elapsed_seconds: float | None, pages: Mapping[str, tuple[str, Page]]) -> None:
        """Takes in the pages of one collection: by uid, the pod's class and its page. Pods that are not in it have gone
        or did not answer: their next page is a baseline again.
        """
        self._pods = {uid: pod for uid, pod in self._pods.items() if uid in pages}
        by_class: dict[str, list[Buckets | Observed]] = {}
        part: Buckets | Observed | None
        for uid, (name, page) in pages.items():
            pod = self._pods.get(uid)
            if pod is None:
                self._pods[uid] = _Pod(page)
                part = observed(None, page.series) if isinstance(page, SummaryPage) else None
            else:
                part = pod.advance(page)
            if part is not None:
                by_class.setdefault(name, []).append(part)
        if elapsed_seconds is None or elapsed_seconds <= 0:
            return
        for name in self._intervals.keys() - by_class.keys():
            del self._intervals[name]  # a window has no holes: what was before one is not added to what comes after
        for name, parts in by_class.items():
            intervals = self._intervals.setdefault(name, deque(maxlen=64))
            histograms = [part for part in parts if not isinstance(part, Observed)]
            summaries = [part for part in parts if isinstance(part, Observed)]
            intervals.append(Interval(elapsed_seconds, merge(histograms), worst(summaries), len(parts)))

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
        window, *older = reversed(intervals)
        for interval in older:
            if not may_grow or window.requests >= self.min_requests:
                break
            grown = _joined(window, interval)
            if grown.seconds > self.max_window_seconds:
                break
            if total(grown.buckets) > 0 and has_bounds(window.buckets) and not has_bounds(grown.buckets):
                break  # pods with other buckets were here before: they would take away what the newer ones tell
            window = grown
        return latency_of(window, objective_seconds, self.min_requests)


def _joined(newer: Interval, older: Interval) -> Interval:
    return Interval(
        newer.seconds + older.seconds,
        merge([newer.buckets, older.buckets]),
        worst([newer.summaries, older.summaries]),
        newer.pods,
    )


def latency_of(window: Interval, objective_seconds: float | None, min_requests: int) -> Latency:
    """The message's view of a window. Quantiles only from enough requests; the rest is a reason."""
    count = int(min(window.requests, _MOST))
    served = Latency(
        requests=count,
        requests_per_second=count / window.seconds if window.seconds > 0 else None,
        window_seconds=window.seconds,
        pods=window.pods,
    )
    if count < min_requests:
        return replace(served, reason="idle" if count == 0 else "few_requests")
    in_buckets, in_summaries = total(window.buckets) > 0, window.summaries.count > 0
    seconds: dict[str, float | None] = {}
    saturated: list[str] = []
    for label, q in _QUANTILES.items():
        merged = quantile(window.buckets, q) if in_buckets else None
        if in_buckets and (merged is None or not math.isfinite(merged.seconds)):
            return replace(served, reason="no_common_buckets")
        said = window.summaries.quantiles.get(q)
        known = [value for value in (merged.seconds if merged is not None else None, said) if value is not None]
        seconds[label] = max(known, default=None)
        if merged is not None and merged.saturated:
            saturated.append(label)
    if seconds["p99"] is None:  # NaN, or the last bucket of nothing
        return replace(served, reason="idle")
    judges = in_buckets and not in_summaries and objective_seconds is not None
    over_ratio = over(window.buckets, objective_seconds) if judges and objective_seconds is not None else None
    return replace(
        served,
        p50_seconds=seconds["p50"],
        p95_seconds=seconds["p95"],
        p99_seconds=seconds["p99"],
        saturated=tuple(saturated),
        over_ratio=over_ratio,
        source="mixed" if in_buckets and in_summaries else "summary" if in_summaries else "histogram",
        reason="beyond_buckets" if judges and over_ratio is None else None,
    )
