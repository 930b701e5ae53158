"""Which metric of a page is the pod's latency, in which unit, and whether it can be believed (docs/signals.md).

The order: the metric that the pod names, and no other; else the first of the configured names that the page has as a
histogram; else the first that it has as a summary. A histogram comes first since histograms of several pods add up.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from services.collector.core.exposition import Exposition, ExpositionError
from services.collector.core.page import Buckets, HistogramPage, Key, Page, SummaryPage, SummarySeries

Word: TypeAlias = Literal["no_metric", "no_buckets", "no_count", "no_quantiles", "unit_unknown", "unit_suspect"]

UNITS_PER_SECOND: Final[Mapping[str, float]] = {
    "seconds": 1.0,
    "milliseconds": 1e3,
    "microseconds": 1e6,
    "nanoseconds": 1e9,
}
"""Units of time by the word that a workload may give."""

_UNIT_BY_SUFFIX: Final = {
    "seconds": "seconds",
    "sec": "seconds",
    "secs": "seconds",
    "milliseconds": "milliseconds",
    "millis": "milliseconds",
    "msec": "milliseconds",
    "ms": "milliseconds",
    "microseconds": "microseconds",
    "micros": "microseconds",
    "usec": "microseconds",
    "us": "microseconds",
    "nanoseconds": "nanoseconds",
    "nanos": "nanoseconds",
    "ns": "nanoseconds",
}
_SHOWN: Final = 3
_LOOK_ON: Final = frozenset({"no_buckets", "no_count", "no_quantiles"})


class NoLatency(Exception):
    """The page is fine and gives no latency. `word` names the reason, the text says what to do about it."""

    def __init__(self, word: Word, text: str) -> None:
        super().__init__(text)
        self.word = word


def unit_of(metric: str, named: str | None = None) -> str | None:
    """The unit that the workload names, else the one at the end of the metric's name; None if it says nothing."""
    if named is not None:
        return named
    return _UNIT_BY_SUFFIX.get(metric.rpartition("_")[2].lower()) if "_" in metric else None


def find_latency(
    page: Exposition, metric: str | None, unit: str | None, names: Sequence[str], *, believed: str | None = None
) -> Page:
    """The pod's latency. `metric` and `unit` are what the workload names, `names` what else is looked for. `believed`
    is the metric whose unit an earlier page of the pod proved right: a service that starts anew under overload is
    heard.

    Raises NoLatency, or ExpositionError for a metric that contradicts itself.
    """
    wanted = (metric,) if metric is not None else tuple(names)
    useless: tuple[Word, str] | None = None
    for is_there, read in ((_has_buckets, _histogram), (_has_summary, _summary)):
        for name in wanted:
            if is_there(page, name):
                try:
                    found = read(page, name, _units_per_second(name, unit))
                    if isinstance(found, HistogramPage) and name != believed:
                        _check_unit(page, found, _units_per_second(name, unit))
                    return found
                except NoLatency as error:
                    if error.word not in _LOOK_ON:
                        raise
                    useless = useless or (error.word, str(error))  # the error itself would hold on to the whole page
    if useless is not None:
        raise NoLatency(*useless)
    for name in wanted:  # a labelled metric has no samples before its first request
        kind = page.declared(name)
        if kind in ("histogram", "summary") and unit_of(name, unit) in UNITS_PER_SECOND:
            return HistogramPage(name, {}) if kind == "histogram" else SummaryPage(name, {})
    there = ", ".join(page.histograms(_SHOWN))
    what = f"no {metric}" if metric is not None else "none of collector.latency_metrics"
    raise NoLatency("no_metric", f"{what} on the page; {f'it has {there}' if there else 'it has no histogram'}")


def _has_buckets(page: Exposition, name: str) -> bool:
    return page.has(f"{name}_bucket")


def _has_summary(page: Exposition, name: str) -> bool:
    return page.has(name) or page.has(f"{name}_count")


def _units_per_second(metric: str, named: str | None) -> float:
    unit = unit_of(metric, named)
    if unit is None:
        raise NoLatency("unit_unknown", f"{metric} does not end in a unit of time; set the workload's latency_unit")
    if unit not in UNITS_PER_SECOND:
        raise NoLatency("unit_unknown", f"the unit {unit!r} is not one of {', '.join(UNITS_PER_SECOND)}")
    return UNITS_PER_SECOND[unit]


def _histogram(page: Exposition, metric: str, per_second: float) -> Page:
    found = page.by_bound(f"{metric}_bucket", "le")
    counts: dict[Key, float] | None = None
    series: dict[Key, Buckets] = {}
    for key, buckets in found.items():
        for bound, count in buckets.items():
            if not bound >= 0 or not 0 <= count < math.inf:
                raise ExpositionError(f"{metric}: the bucket le={bound:g} has the count {count:g}")
        if math.inf not in buckets:
            if counts is None:
                counts = page.by_series(f"{metric}_count")
            if key in counts:
                _check_count(metric, counts[key])
                buckets[math.inf] = max(counts[key], *buckets.values())
        series[key] = {bound / per_second: count for bound, count in buckets.items()}
    if not any(math.isfinite(bound) for buckets in series.values() for bound in buckets):
        text = f"{metric} has no finite bucket; a native histogram needs classic buckets beside it to be read as text"
        raise NoLatency("no_buckets", text)
    if not all(math.inf in buckets for buckets in series.values()):
        raise NoLatency("no_count", f"{metric} has neither a +Inf bucket nor a count: what is beyond cannot be told")
    return HistogramPage(metric, series)


def _check_unit(page: Exposition, found: HistogramPage, per_second: float) -> None:
    """Raises NoLatency where the mean of all that the pod ever counted lies beyond the last bucket: such a histogram is
    fed another unit than its name says, or its buckets do not fit (PM-10). Nothing is guessed.

    Over the pod's life and not over a window: a service that was fine and is now overloaded is no such case.
    """
    count = sum(buckets.get(math.inf, 0.0) for buckets in found.series.values())
    observed = page.total(f"{found.metric}_sum")
    if count <= 0 or observed is None or not math.isfinite(observed):
        return
    last = max(bound for buckets in found.series.values() for bound in buckets if math.isfinite(bound))
    mean_seconds = observed / per_second / count
    if mean_seconds > last:
        text = (
            f"the mean of {found.metric} is {mean_seconds:g} s, beyond its last bucket of {last:g} s: it is fed "
            f"another unit than its buckets are made for; mend that in the pod"
        )
        raise NoLatency("unit_suspect", text)


def _summary(page: Exposition, metric: str, per_second: float) -> Page:
    quantiles = page.by_bound(metric, "quantile")
    if not quantiles:
        raise NoLatency("no_quantiles", f"{metric} has neither buckets nor quantiles; switch one of them on in the pod")
    has_p99 = [0.99 in of_series for of_series in quantiles.values()]  # noqa: PLR2004 - the P99
    if not any(has_p99):
        raise NoLatency("no_quantiles", f"the summary {metric} has no quantile 0.99; switch it on in the pod")
    counts = page.by_series(f"{metric}_count")
    series: dict[Key, SummarySeries] = {}
    for key, of_series in quantiles.items():
        if key not in counts:
            raise NoLatency("no_count", f"the summary {metric} has no {metric}_count: an idle one cannot be told")
        _check_count(metric, counts[key])
        for quantile, value in of_series.items():
            if not 0 <= quantile <= 1 or value < 0 or math.isinf(value):
                raise ExpositionError(f"{metric}: the quantile {quantile:g} is {value:g}")
        known = {q: value / per_second for q, value in of_series.items() if not math.isnan(value)}
        series[key] = SummarySeries(counts[key], known)
    if not all(has_p99):
        raise NoLatency("no_quantiles", f"not every series of the summary {metric} has a quantile 0.99")
    return SummaryPage(metric, series)


def _check_count(metric: str, count: float) -> None:
    if not 0 <= count < math.inf:
        raise ExpositionError(f"{metric}: the count is {count:g}")
