"""What one scrape of one pod brought: its latency metric as a histogram or as a summary, in seconds; or why nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""A series, by its labels as `name=value` in order; without the bucket's bound or the quantile."""

Buckets: TypeAlias = Mapping[float, float]
"""Cumulative counts by upper bound in seconds; `inf` holds all, where the page says how many those are."""

Series: TypeAlias = Mapping[Key, Buckets]
"""The histogram's series of one pod."""


@dataclass(frozen=True, slots=True)
class HistogramPage:
    """A histogram, all counters since the pod started. `metric` is its name on the page."""

    metric: str
    series: Series


@dataclass(frozen=True, slots=True)
class SummarySeries:
    """One series of a summary: observations since the pod started, and what it says of the quantiles in seconds.

    The pod makes the quantiles over a window of its own, often ten minutes. NaN (nothing observed) is left out.
    """

    count: float
    quantiles: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class SummaryPage:
    """A summary. Quantiles cannot be added up: of several the worst counts."""

    metric: str
    series: Mapping[Key, SummarySeries]


Page: TypeAlias = HistogramPage | SummaryPage

_MOST: Final = 200


def reason(word: str, text: str) -> str:
    """Why a pod has no page: the word that is counted, and what a person should know, in one printable line of at most
    200 characters, whatever the pod sent or is called.
    """
    line = " ".join(f"{word}: {text[: 4 * _MOST]}".split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= _MOST else line[: _MOST - 1] + "…"
