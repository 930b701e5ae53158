"""Metrics pages, as they are and as they should not be."""

import math

import pytest

from services.collector.core.exposition import MAX_BUCKETS, ExpositionError, parse_histogram

INF = math.inf
TEXT = "text/plain; version=0.0.4"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"

PAGE_A = """\
# TYPE req_seconds histogram
req_seconds_bucket{le="0.1"} 90
req_seconds_bucket{le="+Inf"} 100
req_seconds_count 100
req_seconds_sum 9.5
# TYPE req_seconds_created gauge
req_seconds_created 1.767e+09
"""


def parsed(page, names=("req_seconds",), content_type=TEXT):
    return parse_histogram(page, content_type, names)


def test_pm_06_a_the_classic_format_with_created():
    assert parsed(PAGE_A) == ("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_pm_06_b_an_open_metrics_page_that_was_cut_off():
    with pytest.raises(ExpositionError, match="cut off"):
        parsed("\n".join(PAGE_A.split("\n")[:5]), content_type=OPEN)


@pytest.mark.parametrize("content_type", [OPEN, OPEN.upper()])
def test_pm_06_the_parser_is_chosen_by_the_content_type_in_any_case(content_type):
    with pytest.raises(ExpositionError, match="cut off"):
        parsed(PAGE_A, content_type=content_type)
    assert parsed(PAGE_A + "# EOF\n", content_type=content_type) == ("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_pm_06_c_an_exemplar_on_a_classic_page():
    found = parsed('req_seconds_bucket{le="0.1"} 90 # {trace_id="ab12"} 0.043 1767000000.5\n')
    assert found is not None
    assert found[1][()][0.1] == 90.0


def test_an_exemplar_on_an_open_metrics_page():
    page = (
        "# TYPE req_seconds histogram\n"
        'req_seconds_bucket{le="0.1"} 90 # {trace_id="ab12"} 0.043 1767000000.5\n'
        'req_seconds_bucket{le="+Inf"} 100\n# EOF\n'
    )
    assert parsed(page, content_type=OPEN) == ("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_pm_08_quotes_braces_and_missing_blanks():
    page = (
        'lat_seconds_bucket{route="/v1/{id}/items",q="a\\"b\\\\c",le="0.5",} 7\n'
        'lat_seconds_bucket{route="/v1/{id}/items",q="a\\"b\\\\c",le="+Inf",}18 \n'
    )
    labels = ('q=a"b\\c', "route=/v1/{id}/items")
    assert parsed(page, ("lat_seconds",)) == ("lat_seconds", {labels: {0.5: 7.0, INF: 18.0}})


@pytest.mark.parametrize("inside", ["\u2028", "\u0085", "\x0b", "\x1c", "é", "\\n"])
def test_a_label_value_may_hold_what_python_splits_lines_at(inside):
    page = (
        f'req_seconds_bucket{{route="a{inside}b",le="0.1"}} 5\nreq_seconds_bucket{{route="a{inside}b",le="+Inf"}} 6\n'
    )
    found = parsed(page)
    assert found is not None
    assert list(found[1].values()) == [{0.1: 5.0, INF: 6.0}]


def test_lines_may_end_as_on_windows():
    assert parsed(PAGE_A.replace("\n", "\r\n")) == ("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_pm_09_a_the_same_bound_in_two_spellings():
    page = (
        'd_seconds_bucket{inst="a",le="1"} 5\nd_seconds_bucket{inst="a",le="+Inf"} 6\n'
        'd_seconds_bucket{inst="b",le="1.0"} 7\nd_seconds_bucket{inst="b",le="+Inf"} 7\n'
    )
    found = parsed(page, ("d_seconds",))
    assert found == ("d_seconds", {("inst=a",): {1.0: 5.0, INF: 6.0}, ("inst=b",): {1.0: 7.0, INF: 7.0}})


def test_pm_09_b_a_conflicting_duplicate_is_rejected():
    page = 'e_seconds_bucket{le="0.1"} 5\ne_seconds_bucket{le="0.1"} 9\ne_seconds_bucket{le="+Inf"} 10\n'
    with pytest.raises(ExpositionError, match="two different counts"):
        parsed(page, ("e_seconds",))


def test_pm_09_an_agreeing_duplicate_counts_once():
    page = 'e_seconds_bucket{le="1"} 5\ne_seconds_bucket{le="1.0"} 5\ne_seconds_bucket{le="+Inf"} 10\n'
    assert parsed(page, ("e_seconds",)) == ("e_seconds", {(): {1.0: 5.0, INF: 10.0}})


def test_the_first_name_that_the_page_has_wins():
    page = PAGE_A + PAGE_A.replace("req_", "other_")
    found = parsed(page, ("none_seconds", "other_seconds", "req_seconds"))
    assert found is not None
    assert found[0] == "other_seconds"


@pytest.mark.parametrize(
    "page", ["", "\n", "# HELP x y\n", "req_seconds_sum 5\nreq_seconds_count 6\n", "req_seconds_bucket_total 5\n"]
)
def test_a_page_without_the_histogram_has_none(page):
    assert parsed(page) is None


def test_a_summary_of_that_name_is_no_histogram():
    assert parsed('# TYPE req_seconds summary\nreq_seconds{quantile="0.99"} NaN\nreq_seconds_count 407\n') is None


def test_a_missing_last_bucket_is_the_largest_count():
    assert parsed('req_seconds_bucket{le="0.1"} 5\nreq_seconds_bucket{le="1"} 8\n') == (
        "req_seconds",
        {(): {0.1: 5.0, 1.0: 8.0, INF: 8.0}},
    )


@pytest.mark.parametrize(
    "line",
    [
        'req_seconds_bucket{le="0.1"} NaN',
        'req_seconds_bucket{le="0.1"} -5',
        'req_seconds_bucket{le="0.1"} +Inf',
        'req_seconds_bucket{le="NaN"} 5',
        'req_seconds_bucket{le="-1"} 5',
        'req_seconds_bucket{le="fast"} 5',
        'req_seconds_bucket{le="0.1"} many',
        'req_seconds_bucket{le="0.1" 5',
        "req_seconds_bucket{le=0.1} 5",
        'req_seconds_bucket{le="0.1}',
        "req_seconds_bucket{{{{",
        "req_seconds_bucket ",
    ],
)
@pytest.mark.parametrize("content_type", [TEXT, OPEN])
def test_nonsense_is_the_pages_fault_and_nothing_else_happens(line, content_type):
    page = f"# TYPE req_seconds histogram\n{line}\n" + ("# EOF\n" if content_type == OPEN else "")
    try:
        found = parsed(page, content_type=content_type)
    except ExpositionError:
        return
    assert found is None


def test_thousands_of_unrelated_lines_are_not_parsed():
    noise = "\n".join(f'other_metric{{path="/{n}"}} not-a-number' for n in range(20_000))
    assert parsed(f"{noise}\n{PAGE_A}{noise}\n") == ("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_a_histogram_without_end_is_refused():
    page = "".join(f'req_seconds_bucket{{route="{n}",le="+Inf"}} 1\n' for n in range(MAX_BUCKETS + 1))
    with pytest.raises(ExpositionError, match=f"more than {MAX_BUCKETS}"):
        parsed(page)
