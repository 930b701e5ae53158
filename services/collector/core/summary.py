"""Latency from summaries: which series were asked anything between two scrapes, and the worst that those say.

A quantile of a summary cannot be added to another nor be taken apart by time. So it counts while its series has new
observations, however old its own window reaches, and of several series and pods the worst one counts (PM-01).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from services.collector.core.page import Key, SummarySeries


@dataclass(frozen=True)
class Observed:
    """Observations between two scrapes, and the quantiles in seconds of what had any."""

    count: float = 0.0
    quantiles: Mapping[float, float] = field(default_factory=dict)


def observed(
    previous: Mapping[Key, SummarySeries] | None, current: Mapping[Key, SummarySeries], gone: Collection[Key] = ()
) -> Observed | None:
    """What one pod's summary brought between two scrapes; None where there is nothing to compare with. A series that
    went back was reset and counts from zero, a new one whole, one that comes back after a gap (`gone`) not at all.

    A first page on which every quantile is NaN needs nothing to compare with: it says that nothing was observed.
    """
    if previous is None or (previous and previous.keys().isdisjoint(current.keys())):
        return None if any(series.quantiles for series in current.values()) else Observed()
    parts: list[Observed] = []
    for key, series in current.items():
        before = previous.get(key)
        if before is None and key in gone:
            continue
        count = series.count if before is None or series.count < before.count else series.count - before.count
        parts.append(Observed(count, series.quantiles if count > 0 else {}))
    return worst(parts)


def worst(parts: Iterable[Observed]) -> Observed:
    """All observations, and each quantile at its largest."""
    count = 0.0
    quantiles: dict[float, float] = {}
    for part in parts:
        count += part.count
        for q, seconds in part.quantiles.items():
            quantiles[q] = max(seconds, quantiles.get(q, seconds))
    return Observed(count, quantiles)
