"""A metrics page to samples of one metric: only its lines are read, and their labels by the well-kept parsers.

A page has thousands of lines and a latency metric a few hundred, the same ones in every scrape but for their values. So
the lines are found by name, a pattern takes each apart at its quotes, and what a label text means is asked of
`prometheus_client`'s parser for the page's format once and remembered.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from services.collector.core.page import Key

MAX_LINES: Final = 10_000
"""Most lines taken from one page. A page with more has a label that it should not have."""

MAX_SERIES: Final = 2_000
"""Most series of one metric on one page: as many label texts may be new in every scrape, at 0.02 ms of CPU each."""

_REMEMBERED: Final = 50_000

_Place = TypeVar("_Place")

_PAIR: Final = r'[^"=,{}]+="(?:[^"\\]|\\.)*+"[ \t]*'
_VALUE: Final = r"[ \t]*(?P<value>[-+.0-9A-Za-z]++)(?:[ \t]+[-+.0-9eE]+)?[ \t]*(?:#[ \t]*\{.*)?\r?$"
_PLAIN: Final = re.compile(rf"[ \t]*(?:\{{(?P<labels>(?:{_PAIR},)*+(?:{_PAIR})?[ \t]*)\}}|(?=[ \t])){_VALUE}")


def _labelled(label: str) -> re.Pattern[str]:
    """A line whose labels hold `label`; what stands before and after it is the series."""
    own = rf'[ \t]*{label}[ \t]*=[ \t]*"(?P<own>[^"\\]*+)"[ \t]*'
    return re.compile(rf"[ \t]*\{{(?P<before>(?:{_PAIR},)*?){own}(?P<after>(?:,{_PAIR})*+),?[ \t]*\}}{_VALUE}")


_LABELLED: Final = {label: _labelled(label) for label in ("le", "quantile")}


class ExpositionError(ValueError):
    """The page cannot be used; the text says why."""


@dataclass
class LabelTexts:
    """What label texts mean, as far as they were seen: bounded, shared by all pods, one for each format."""

    is_openmetrics: bool
    _keys: dict[str, Key] = field(default_factory=dict)

    def key(self, text: str) -> Key:
        """The labels in a text such as `method="GET",code="200"`, in order. Raises ExpositionError."""
        key = self._keys.get(text)
        if key is None:
            if len(self._keys) >= _REMEMBERED:
                self._keys.clear()  # those in use come back with the next scrape
            key = self._keys[text] = self._read(text)
        return key

    def _read(self, text: str) -> Key:
        line = f"labels{{{text}}} 0\n"
        try:
            families: Iterable[Metric] = (
                openmetrics.text_string_to_metric_families(line + "# EOF\n")
                if self.is_openmetrics
                else text_string_to_metric_families(line)
            )
            (sample,) = [sample for family in families for sample in family.samples]
        except Exception as error:  # whatever a parser stumbles over is the page's fault
            raise ExpositionError(f"labels {text[:80]!r}: {type(error).__name__}: {error}") from error
        return tuple(sorted(f"{name}={value}" for name, value in sample.labels.items()))


class Exposition:
    """One metrics page. Raises ExpositionError where it contradicts itself or its format."""

    def __init__(self, page: str, labels: LabelTexts) -> None:
        if labels.is_openmetrics and not page.rstrip().endswith("# EOF"):
            raise ExpositionError("an OpenMetrics page without # EOF: it was cut off")
        self._page = page
        self._labels = labels

    def by_bound(self, sample: str, label: str) -> dict[Key, dict[float, float]]:
        """The samples of this name that have `label` ("le" or "quantile"): their values by the label's number and by
        series. NaN stays NaN.
        """
        found: dict[tuple[str, str], dict[float, float]] = {}
        for match in self._matches(sample, _LABELLED[label]):
            before, own, after, value = match.group("before", "own", "after", "value")
            numbers = found.get((before, after))
            if numbers is None:
                numbers = found[before, after] = {}
            _put(numbers, _number(own, sample), _number(value, sample), sample)
        series: dict[Key, dict[float, float]] = {}
        for (before, after), numbers in found.items():
            key = self._labels.key((before + after.lstrip(", \t")).rstrip(", \t"))
            known = series.setdefault(key, numbers)
            if known is not numbers:  # the same labels in another order
                for bound, count in numbers.items():
                    _put(known, bound, count, sample)
            if len(series) > MAX_SERIES:
                raise ExpositionError(f"{sample}: more than {MAX_SERIES} series")
        return series

    def by_series(self, sample: str) -> dict[Key, float]:
        """The samples of this name, such as `…_count`, by series."""
        found: dict[Key, float] = {}
        for match in self._matches(sample, _PLAIN):
            _put(
                found, self._labels.key((match["labels"] or "").rstrip(", \t")), _number(match["value"], sample), sample
            )
            if len(found) > MAX_SERIES:
                raise ExpositionError(f"{sample}: more than {MAX_SERIES} series")
        return found

    def total(self, sample: str) -> float | None:
        """The sum of the samples of this name, such as `…_sum`; None without one."""
        values = [_number(match["value"], sample) for match in self._matches(sample, _PLAIN)]
        return sum(values) if values else None

    def has(self, sample: str) -> bool:
        """Whether there is a sample of this name."""
        return next(self._places(sample), None) is not None

    def histograms(self, most: int) -> list[str]:
        """Names of the first few histograms on the page, to tell a person what could be meant."""
        names = dict.fromkeys(re.findall(r"^([A-Za-z_:][A-Za-z0-9_:]*)_bucket\{", self._page, re.MULTILINE))
        return list(names)[:most]

    def _matches(self, sample: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        page, lines = self._page, 0
        for place in self._places(sample):
            end = page.find("\n", place)
            end = end if end >= 0 else len(page)
            match = pattern.match(page, place, end)
            if match is None:
                if _PLAIN.match(page, place, end):
                    continue  # a sample of that name without the label that is asked for
                raise ExpositionError(f"{sample}: cannot read {page[place : min(end, place + 80)]!r}")
            lines += 1
            if lines > MAX_LINES:
                raise ExpositionError(f"{sample}: more than {MAX_LINES} lines")
            yield match

    def _places(self, sample: str) -> Iterator[int]:
        """Where the name ends, for each line that begins with it. Lines end at newlines alone: a label's value may hold
        other characters at which Python would split.
        """
        page, size = self._page, len(sample)
        at = page.find(sample)
        while at >= 0:
            end = at + size
            starts_line = at == 0 or page[at - 1] == "\n" or not page[page.rfind("\n", 0, at) + 1 : at].strip(" \t")
            if starts_line and page[end : end + 1] in ("{", " ", "\t"):
                yield end
            at = page.find(sample, end)


def _put(numbers: dict[_Place, float], place: _Place, value: float, sample: str) -> None:
    """Keeps one value at each place; the same series twice with other numbers is no page to believe (PM-09)."""
    known = numbers.setdefault(place, value)
    if known != value and not (math.isnan(known) and math.isnan(value)):
        raise ExpositionError(f"{sample}: two different values for one series: {known:g} and {value:g}")


def _number(text: str, sample: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ExpositionError(f"{sample}: {text[:32]!r} is no number") from error
