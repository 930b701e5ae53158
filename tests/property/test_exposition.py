"""Every histogram page: read by its lines, it says what `prometheus_client`'s parsers say of the whole of it."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from services.collector.core.exposition import Exposition, ExpositionError, LabelTexts

METRIC = "req_seconds_bucket"
BOUNDS = ("0.005", "0.01", "0.1", "0.5", "1.0", "2.5", "1000.0", "+Inf")
NAMES = st.sampled_from(["a", "b", "le_", "Le", "route", "quantile", "trace_id", "x_le"])
VALUES = st.text(st.sampled_from('\\"\n,{}=# \tle0.1é\u2028\x1c\r'), max_size=8) | st.sampled_from(
    [',le="1"} 5', '"} 7', "\\n", "# EOF", "req_seconds_bucket{"]
)


def escaped(value):
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def pages(draw, *, is_openmetrics):
    """A page with some series of one histogram, each line's labels in an order of its own, and others around it."""
    found = []
    series = draw(
        st.lists(st.dictionaries(NAMES, VALUES, max_size=3), max_size=4, unique_by=lambda one: frozenset(one.items()))
    )
    for labels in series:
        count, stamp = 0, draw(st.sampled_from(["", " 1767000000"]))
        for bound in BOUNDS[draw(st.integers(0, len(BOUNDS) - 1)) :]:
            count += draw(st.integers(0, 9))
            pairs = draw(st.permutations([*labels.items(), ("le", bound)]))
            text = ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)
            more = stamp
            if is_openmetrics:
                more += draw(st.sampled_from(["", "", ' # {id="a\\"} 5"} 0.04', " # {} 0.04 1767000000.5"]))
            found.append(f"req_seconds_bucket{{{text}}} {count}{more}")
        if draw(st.booleans()):
            text = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
            found.append(f"req_seconds_count{{{text}}} {count}{stamp}")
            found.append(f"req_seconds_sum{{{text}}} {count}{stamp}")
    around = st.lists(
        st.sampled_from(["other 1", 'total{le="1"} 2', "req_seconds_bucket_more 3"]), max_size=2, unique=True
    )
    lines = [*draw(around), "# TYPE req_seconds histogram", *found, "# TYPE last gauge"]
    return "\n".join(lines) + "\n"


def by_their_parser(families):
    series = {}
    for sample in [sample for family in families for sample in family.samples if sample.name == METRIC]:
        if "le" in sample.labels:
            key = tuple(sorted(f"{name}={value}" for name, value in sample.labels.items() if name != "le"))
            series.setdefault(key, {})[float(sample.labels["le"])] = float(sample.value)
    return series


@given(pages(is_openmetrics=False))
def test_a_classic_page_is_what_the_full_parser_says(page):
    read = Exposition(page, LabelTexts(False)).by_bound(METRIC, "le")
    assert read == by_their_parser(text_string_to_metric_families(page))


@given(pages(is_openmetrics=True))
def test_an_open_metrics_page_is_what_the_full_parser_says(page):
    read = Exposition(page + "# EOF\n", LabelTexts(True)).by_bound(METRIC, "le")
    assert read == by_their_parser(openmetrics.text_string_to_metric_families(page + "# EOF\n"))


@given(st.text(st.sampled_from('r{}le="1", \\\n#\t+Inf5')), st.booleans())
def test_whatever_a_line_is_made_of_there_are_samples_or_an_error(text, is_openmetrics):
    page = f'r_bucket{{le="1"}} 5\nr_bucket{text}\n# EOF\n'
    try:
        found = Exposition(page, LabelTexts(is_openmetrics)).by_bound("r_bucket", "le")
    except ExpositionError:
        return
    for buckets in found.values():
        assert all(not math.isnan(bound) for bound in buckets)


@given(
    st.lists(st.sampled_from(["{", "}", 'le="1"', 'le="2"', 'a="}"', 'a="\\""', ",", " ", "\t", "5", "1e3", "# {} 1"]))
)
def test_a_line_that_both_can_read_says_the_same_to_both(parts):
    line = f'{METRIC}{{le="1"}} 5\n{METRIC}{{{"".join(parts)}'
    try:
        found = Exposition(line, LabelTexts(False)).by_bound(METRIC, "le")
        expected = by_their_parser(text_string_to_metric_families(line))
    except ValueError:
        return
    assert found == expected
