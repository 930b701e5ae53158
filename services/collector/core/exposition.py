"""A metrics page to histogram series, with the well-kept parsers, on only the lines that matter."""

import math
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from services.collector.core.histogram import Series


class ExpositionError(ValueError):
    """The page cannot be used; the text says why."""


def parse_histogram(page: str, content_type: str, names: Sequence[str]) -> tuple[str, Series] | None:
    """The first of `names` that the page has as a histogram: its name, and buckets by series; None if it has none.

    Raises ExpositionError for a page that is no exposition text, or whose series contradict themselves.
    """
    is_openmetrics = "openmetrics-text" in content_type
    if is_openmetrics and not page.rstrip().endswith("# EOF"):
        raise ExpositionError("an OpenMetrics page without # EOF: it was cut off")
    for name in names:
        lines = list(_lines_of(page, name))
        if not any(line.startswith(f"{name}_bucket") for line in lines):
            continue
        text = "\n".join(lines) + ("\n# EOF\n" if is_openmetrics else "\n")
        try:
            series = _series(_families(text, is_openmetrics=is_openmetrics), name)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise ExpositionError(f"{name}: {type(error).__name__}: {error}") from error
        if series:
            return name, series
    return None


def _lines_of(page: str, name: str) -> Iterator[str]:
    """Lines of one histogram: a page of thousands of samples is parsed only where it matters."""
    bucket, kind = f"{name}_bucket", f"# TYPE {name} "
    for line in page.splitlines():
        if (line.startswith(bucket) and line[len(bucket) : len(bucket) + 1] in ("{", " ", "\t")) or line.startswith(
            kind
        ):
            yield line


def _families(text: str, *, is_openmetrics: bool) -> Iterable[Metric]:
    if is_openmetrics:
        opened: Iterable[Metric] = openmetrics.text_string_to_metric_families(text)
        return opened
    families: Iterable[Metric] = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # it has no types
    return families


def _series(families: Iterable[Metric], name: str) -> dict[tuple[str, ...], dict[float, float]]:
    found: dict[tuple[str, ...], dict[float, float]] = {}
    for family in families:
        for sample in family.samples:
            if sample.name != f"{name}_bucket" or "le" not in sample.labels:
                continue
            key = tuple(sorted(f"{label}={value}" for label, value in sample.labels.items() if label != "le"))
            bound, count = float(sample.labels["le"]), float(sample.value)
            if math.isnan(bound) or not math.isfinite(count) or count < 0:
                raise ExpositionError(f"{name}: bucket le={sample.labels['le']} has count {sample.value}")
            buckets = found.setdefault(key, {})
            if bound in buckets and buckets[bound] != count:
                raise ExpositionError(f"{name}: two different counts for le={sample.labels['le']}")
            buckets[bound] = count
    for buckets in found.values():
        if math.inf not in buckets and buckets:
            buckets[math.inf] = max(buckets.values())
    return found
