"""A metrics page to histogram series, with the well-kept parsers, on only the lines that matter."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from services.collector.core.histogram import Series

MAX_BUCKETS: Final = 10_000
"""Most bucket lines taken from one page: parsing that many costs about 0.2 s of CPU, and a page of the largest size
that is allowed could cost ten times as much. A page with more has a label that it should not have.
"""


class ExpositionError(ValueError):
    """The page cannot be used; the text says why."""


def parse_histogram(page: str, content_type: str, names: Sequence[str]) -> tuple[str, Series] | None:
    """The first of `names` that the page has as a histogram: its name, and buckets by series; None if it has none.

    Raises ExpositionError for a page that is no exposition text, or whose series contradict themselves.
    """
    is_openmetrics = "openmetrics-text" in content_type.lower()
    if is_openmetrics and not page.rstrip().endswith("# EOF"):
        raise ExpositionError("an OpenMetrics page without # EOF: it was cut off")
    for name in names:
        lines = _lines_of(page, name)
        if not lines:
            continue
        text = "\n".join(lines) + ("\n# EOF\n" if is_openmetrics else "\n")
        try:
            series = _series(_families(text, is_openmetrics=is_openmetrics), name)
        except ExpositionError:
            raise
        except Exception as error:  # whatever a parser stumbles over is the page's fault
            raise ExpositionError(f"{name}: {type(error).__name__}: {error}") from error
        if series:
            return name, series
    return None


def _lines_of(page: str, name: str) -> list[str]:
    """Lines of one histogram, none if it has no bucket: a page of thousands of samples is parsed only where it matters.

    Lines end at newlines alone: a label's value may hold other characters at which Python would split.
    """
    bucket, kind = f"{name}_bucket", f"# TYPE {name} "
    if bucket not in page:
        return []
    lines = [line for line in page.split("\n") if line.startswith((bucket, kind))]
    buckets = [line for line in lines if line.startswith(bucket) and line[len(bucket) : len(bucket) + 1] in "{ \t"]
    if len(buckets) > MAX_BUCKETS:
        raise ExpositionError(f"{name}: {len(buckets)} buckets, more than {MAX_BUCKETS}")
    return [line for line in lines if line.startswith(kind)][:1] + buckets if buckets else []


def _families(text: str, *, is_openmetrics: bool) -> Iterable[Metric]:
    read = openmetrics.text_string_to_metric_families if is_openmetrics else text_string_to_metric_families
    families: Iterable[Metric] = read(text)
    return families


def _series(families: Iterable[Metric], name: str) -> dict[tuple[str, ...], dict[float, float]]:
    found: dict[tuple[str, ...], dict[float, float]] = {}
    for family in families:
        for sample in family.samples:
            if sample.name != f"{name}_bucket" or "le" not in sample.labels:
                continue
            key = tuple(sorted(f"{label}={value}" for label, value in sample.labels.items() if label != "le"))
            bound, count = float(sample.labels["le"]), float(sample.value)
            if not bound >= 0 or not math.isfinite(count) or count < 0:
                raise ExpositionError(f"{name}: bucket le={sample.labels['le']} has count {sample.value}")
            buckets = found.setdefault(key, {})
            if bound in buckets and buckets[bound] != count:
                raise ExpositionError(f"{name}: two different counts for le={sample.labels['le']}")
            buckets[bound] = count
    for buckets in found.values():
        if math.inf not in buckets and buckets:
            buckets[math.inf] = max(buckets.values())
    return found
