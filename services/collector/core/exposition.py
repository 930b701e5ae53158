"""A metrics page to samples of one metric: only its lines are read, and their labels by the well-kept parsers.

A page has thousands of lines and a latency metric a few hundred, the same ones in every scrape but for their values. So
the lines are found by name, a pattern takes each apart at its quotes, and what a label text means is asked of
`prometheus_client`'s parser for the page's format once and remembered.
"""

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from services.collector.core.page import Key

MAX_LINES: Final = 20_000
"""Most lines taken from one page. A page with more has a label that it should not have."""

MAX_SERIES: Final = 2_000
"""Most series of one metric on one page."""

MAX_LABELS: Final = 4_096
"""Longest labels of one line, in characters: reading them takes time by the square of it."""

MAX_NEW: Final = 400_000
"""Most characters of labels that one page may bring and no page before had: up to 0.3 s of CPU. What was read
until then is remembered, so a page with that many that stay gets through in one of the next scrapes.
"""

_REMEMBERED_BYTES: Final = 12 << 20
_ENTRY_BYTES: Final = 100
_LEAD: Final = 16
_AFTER_NAME: Final = frozenset("{ \t")
_EOF: Final = "# EOF"

_Place = TypeVar("_Place")

# Characters are not given back (`*+`): each pattern is done in one pass, whatever a line is made of. Groups are
# repeated plainly: before 3.11.5 Python matches too little with possessive ones (CPython gh-106052).
_BLANKS: Final = r"[ \t]*+"
_TEXT: Final = r'[^"\\]*+(?:\\.[^"\\]*+)*'
_PAIR: Final = rf'[^"=,{{}}]++={_BLANKS}"{_TEXT}"{_BLANKS}'
_VALUE: Final = rf"{_BLANKS}([-+.0-9A-Za-z]++)(?:[ \t]++[-+.0-9eE]++)?{_BLANKS}(?:#{_BLANKS}\{{.*+)?\r?$"
_PLAIN: Final = re.compile(rf"{_BLANKS}(?:\{{((?:{_PAIR},)*(?:{_PAIR})?{_BLANKS})\}}|(?<=[ \t])){_VALUE}")
_HISTOGRAM: Final = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)_bucket\{", re.MULTILINE)


def _labelled(label: str) -> re.Pattern[str]:
    """A line whose labels hold `label`; what stands before and after it is the series."""
    own = rf"{_BLANKS}{label}{_BLANKS}={_BLANKS}"
    before, after = rf"(?:(?!{own}){_PAIR},)*", rf"(?:,{_PAIR})*"
    return re.compile(rf'{_BLANKS}\{{({before}){own}"({_TEXT})"{_BLANKS}({after}),?+{_BLANKS}\}}{_VALUE}')


_LABELLED: Final = {label: _labelled(label) for label in ("le", "quantile")}


class ExpositionError(ValueError):
    """The page cannot be used; the text says why."""


@dataclass
class LabelTexts:
    """What label texts mean, as far as they were seen: bounded, shared by all pods, one for each format."""

    is_openmetrics: bool
    _keys: dict[str, Key] = field(default_factory=dict)
    _older: dict[str, Key] = field(default_factory=dict)
    _bytes: int = 0

    def known(self, text: str) -> Key | None:
        """The labels in a text such as `method="GET",code="200"`, in order; None for one that was not read yet."""
        key = self._keys.get(text)
        if key is None and (key := self._older.get(text)) is not None:
            self._remember(text, key)
        return key

    def read(self, text: str) -> Key:
        """The same for a new text, which is then known. Raises ExpositionError."""
        if len(text) > MAX_LABELS:
            raise ExpositionError(f"labels of more than {MAX_LABELS} characters: {text[:40]!r} and so on")
        key = self._read(text)
        self._remember(text, key)
        return key

    def _remember(self, text: str, key: Key) -> None:
        """Two generations: what was not asked for while the younger one filled up is forgotten."""
        self._bytes += sys.getsizeof(text) + sys.getsizeof(key) + sum(map(sys.getsizeof, key)) + _ENTRY_BYTES
        if self._bytes > _REMEMBERED_BYTES:
            self._older, self._keys, self._bytes = self._keys, {}, 0
        self._keys[text] = key

    def _read(self, text: str) -> Key:
        line = f"labels{{{text}}} 0\n"
        try:
            read = openmetrics.text_string_to_metric_families if self.is_openmetrics else text_string_to_metric_families
            families = read(line + "# EOF\n" if self.is_openmetrics else line)
            (sample,) = [sample for family in families for sample in family.samples]
        except Exception as error:  # whatever a parser stumbles over is the page's fault
            raise ExpositionError(f"labels {text[:80]!r} cannot be read: {type(error).__name__}") from error
        return tuple(sorted(f"{name}={value}" for name, value in sample.labels.items()))


class Exposition:
    """One metrics page. Raises ExpositionError where it contradicts itself or its format."""

    def __init__(self, page: str, labels: LabelTexts) -> None:
        if labels.is_openmetrics:
            end = 0 if page.startswith(_EOF) else page.find("\n" + _EOF)
            if end < 0 or page[end:].strip() != _EOF:
                raise ExpositionError(f"an OpenMetrics page without {_EOF} at its end: it was cut off")
        self._page = page
        self._labels = labels
        self._new = 0
        self._lines_read = 0

    def by_bound(self, sample: str, label: str) -> dict[Key, dict[float, float]]:
        """The samples of this name that have `label` ("le" or "quantile"): their values by the label's number and by
        series. NaN stays NaN.
        """
        found = self._by_text(sample, _LABELLED[label])
        mark = f"{label}="
        series: dict[Key, dict[float, float]] = {}
        for (before, after), numbers in found.items():
            text = (before + after.lstrip(", \t")).rstrip(", \t")
            key = self._key(text)
            if mark in text and any(pair.startswith(mark) for pair in key):
                raise ExpositionError(f"{sample}: a line with two labels {label}")
            known = series.setdefault(key, numbers)
            if known is not numbers:  # the same labels in another order
                for bound, count in numbers.items():
                    _put(known, bound, count, sample)
            if len(series) > MAX_SERIES:
                raise ExpositionError(f"{sample}: more than {MAX_SERIES} series; some label has too many values")
        return series

    def by_series(self, sample: str) -> dict[Key, float]:
        """The samples of this name, such as `…_count`, by series."""
        found: dict[Key, float] = {}
        for text, value in self._plain(sample):
            _put(found, self._key(text), value, sample)
            if len(found) > MAX_SERIES:
                raise ExpositionError(f"{sample}: more than {MAX_SERIES} series; some label has too many values")
        return found

    def total(self, sample: str) -> float | None:
        """The sum of the samples of this name, such as `…_sum`; None without one."""
        values = [value for _, value in self._plain(sample)]
        return sum(values) if values else None

    def has(self, sample: str) -> bool:
        """Whether there is a sample of this name."""
        return next(self._places(sample), None) is not None

    def declared(self, name: str) -> str | None:
        """The type that the page declares for a metric, such as "histogram"; None if it does not."""
        page, mark = self._page, f"# TYPE {name} "
        at = page.find(mark)
        while at >= 0:
            place = at + len(mark)
            if _starts_line(page, at):
                end = page.find("\n", place)
                return page[place : end if end >= 0 else len(page)].strip()
            at = page.find(mark, place)
        return None

    def histograms(self, most: int) -> list[str]:
        """Names of the first few histograms on the page, to tell a person what could be meant."""
        names: dict[str, None] = {}
        for match in _HISTOGRAM.finditer(self._page):
            names[match[1]] = None
            if len(names) >= most:
                break
        return list(names)

    def _key(self, text: str) -> Key:
        key = self._labels.known(text)
        if key is None:
            self._new += len(text)
            if self._new > MAX_NEW:
                raise ExpositionError(f"more than {MAX_NEW} characters of labels that no page before had")
            key = self._labels.read(text)
        return key

    def _by_text(self, sample: str, pattern: re.Pattern[str]) -> dict[tuple[str, str], dict[float, float]]:
        """Values by the own label's number, and by what stands before and after it.

        A histogram's lines come series by series: one that differs from the line before in bound and value alone is not
        taken apart again.
        """
        page = self._page
        found: dict[tuple[str, str], dict[float, float]] = {}
        bounds: dict[str, float] = {}
        numbers: dict[float, float] = {}
        head = tail = ""
        for place, end in self._lines(sample):
            own, value = "", None
            if head and page.startswith(head, place):
                quote = page.find('"', place + len(head), end)
                if quote >= 0 and page.startswith(tail, quote):
                    own, value = page[place + len(head) : quote], _float(page[quote + len(tail) : end])
            if value is None:  # another series, or a timestamp or an exemplar follows
                match = self._match(sample, pattern, place, end)
                if match is None:
                    continue
                before, own, after, text = match.groups()
                numbers, value = found.setdefault((before, after), {}), _number(text, sample)
                head, tail = page[place : match.start(2)], page[match.end(2) : match.start(4)]
            bound = bounds.get(own)
            if bound is None:
                bound = bounds[own] = _number(own, sample)
            if bound in numbers:
                _put(numbers, bound, value, sample)
            else:
                numbers[bound] = value
        return found

    def _plain(self, sample: str) -> Iterator[tuple[str, float]]:
        """Of each line the labels and the number."""
        for place, end in self._lines(sample):
            match = self._match(sample, _PLAIN, place, end)
            if match is not None:
                yield (match[1] or "").rstrip(", \t"), _number(match[2], sample)

    def _match(self, sample: str, pattern: re.Pattern[str], place: int, end: int) -> re.Match[str] | None:
        """None for a sample of that name without the label that is asked for."""
        match = pattern.match(self._page, place, end)
        if match is None and not _PLAIN.match(self._page, place, end):
            raise ExpositionError(f"{sample}: cannot read {self._page[place : min(end, place + 80)]!r}")
        return match

    def _lines(self, sample: str) -> Iterator[tuple[int, int]]:
        """Where the name ends and where its line does, for each line that begins with it: so many a page at most."""
        for place, end in self._places(sample):
            self._lines_read += 1
            if self._lines_read > MAX_LINES:
                raise ExpositionError(f"{sample}: more than {MAX_LINES} lines; some label has too many values")
            yield place, end

    def _places(self, sample: str) -> Iterator[tuple[int, int]]:
        """The same without a bound. Lines end at newlines alone: a label's value may hold other characters at which
        Python would split.
        """
        page, size = self._page, len(sample)
        at = page.find(sample) if sample else -1
        while at >= 0:
            place = at + size
            if page[place : place + 1] in _AFTER_NAME and _starts_line(page, at):
                end = page.find("\n", place)
                yield place, end if end >= 0 else len(page)
                place = end if end >= 0 else len(page)
            at = page.find(sample, place)


def _starts_line(page: str, at: int) -> bool:
    """Whether only a few blanks stand between this place and the beginning of its line."""
    if at == 0 or page[at - 1] == "\n":
        return True
    lead = page[max(0, at - _LEAD) : at]
    return (at <= _LEAD or "\n" in lead) and not lead.rpartition("\n")[2].strip(" \t")


def _put(numbers: dict[_Place, float], place: _Place, value: float, sample: str) -> None:
    """Keeps one value at each place; the same series twice with other numbers is no page to believe (PM-09)."""
    known = numbers.setdefault(place, value)
    if known is not value and known != value and not (math.isnan(known) and math.isnan(value)):
        raise ExpositionError(f"{sample}: two different values for one series: {known:g} and {value:g}")


def _number(text: str, sample: str) -> float:
    number = _float(text)
    if number is None:
        raise ExpositionError(f"{sample}: {text[:32]!r} is no number")
    return number


def _float(text: str) -> float | None:
    """Python also takes 1_000 and the digits of all scripts; the formats do not."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None
