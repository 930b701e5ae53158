"""Which metric is the pod's latency, in which unit, and when it is not believed."""

import math

import pytest

from services.collector.config import CollectorConfig
from services.collector.core.exposition import Exposition, ExpositionError, LabelTexts
from services.collector.core.latency_source import NoLatency, find_latency, unit_of
from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries, reason

INF = math.inf
NAMES = ("req_seconds", "rpc_seconds", "old_milliseconds")


def found(page, metric=None, unit=None, names=NAMES, *, believed=None):
    return find_latency(Exposition(page, LabelTexts(False)), metric, unit, names, believed=believed)


def word(page, metric=None, unit=None, names=NAMES):
    with pytest.raises(NoLatency) as caught:
        found(page, metric, unit, names)
    assert str(caught.value)
    return caught.value.word


def histogram(name, *buckets, total=None, count=None):
    lines = [f'{name}_bucket{{le="{bound}"}} {number}' for bound, number in buckets]
    if total is not None:
        lines.append(f"{name}_sum {total}")
    if count is not None:
        lines.append(f"{name}_count {count}")
    return "\n".join(lines) + "\n"


def summary(name, *quantiles, count=10):
    lines = [f'{name}{{quantile="{q}"}} {value}' for q, value in quantiles]
    return "\n".join([*lines, f"{name}_sum 1", *([] if count is None else [f"{name}_count {count}"])]) + "\n"


GOOD = histogram("req_seconds", ("0.1", 90), ("+Inf", 100))
GOOD_SUMMARY = summary("rpc_seconds", ("0.95", 0.1), ("0.99", 0.2))


def test_a_histogram_is_found_by_its_name():
    assert found(GOOD) == HistogramPage("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


def test_a_summary_is_found_by_its_name():
    assert found(GOOD_SUMMARY) == SummaryPage("rpc_seconds", {(): SummarySeries(10.0, {0.95: 0.1, 0.99: 0.2})})


@pytest.mark.parametrize(
    ("page", "metric"),
    [
        (GOOD + GOOD.replace("req_", "rpc_"), "req_seconds"),
        (GOOD.replace("req_", "rpc_") + GOOD, "req_seconds"),
        (summary("req_seconds", ("0.99", 1)) + histogram("rpc_seconds", ("1", 1), ("+Inf", 1)), "rpc_seconds"),
        (GOOD_SUMMARY.replace("rpc_", "req_") + GOOD_SUMMARY, "req_seconds"),
        (GOOD + GOOD_SUMMARY.replace("rpc_", "req_"), "req_seconds"),
        (histogram("req_seconds", ("+Inf", 5)) + GOOD_SUMMARY, "rpc_seconds"),
        (histogram("req_seconds", ("1", 5)) + GOOD.replace("req_", "rpc_"), "rpc_seconds"),
        (summary("req_seconds", ("0.5", 5)) + GOOD_SUMMARY, "rpc_seconds"),
        ("req_seconds_sum 5\nreq_seconds_count 5\n" + GOOD_SUMMARY, "rpc_seconds"),
        ("req_seconds 5\n" + GOOD_SUMMARY, "rpc_seconds"),
    ],
)
def test_histograms_in_the_given_order_then_summaries_and_what_gives_nothing_is_passed_by(page, metric):
    assert found(page).metric == metric


def test_the_metric_that_the_pod_names_and_no_other():
    page = GOOD + GOOD.replace("req_", "own_")
    assert found(page, "own_seconds").metric == "own_seconds"
    assert word(GOOD, "own_seconds") == "no_metric"
    assert word(GOOD + summary("own_seconds", ("0.5", 1)), "own_seconds") == "no_quantiles"


def test_a_pod_may_name_a_metric_that_is_both_or_a_summary():
    both = histogram("own_seconds", ("1", 1), ("+Inf", 1)) + 'own_seconds{quantile="0.99"} 0.5\n'
    assert isinstance(found(both, "own_seconds"), HistogramPage)
    assert isinstance(found(GOOD + GOOD_SUMMARY, "rpc_seconds"), SummaryPage)
    native = histogram("own_seconds", ("+Inf", 1)) + summary("own_seconds", ("0.99", 0.5))
    assert isinstance(found(native, "own_seconds"), SummaryPage)


@pytest.mark.parametrize("page", ["", "<html><body>It works!</body></html>", "up 1\n", GOOD.replace("req_", "my_req_")])
def test_a_page_without_any_of_them_says_so(page):
    assert word(page) == "no_metric"
    assert word(page, names=()) == "no_metric"


def test_what_is_on_the_page_instead_is_said():
    page = "".join(GOOD.replace("req_", f"{name}_") for name in ("a", "b", "c", "d"))
    with pytest.raises(NoLatency, match=r"it has a_seconds, b_seconds, c_seconds$"):
        found(page)
    with pytest.raises(NoLatency, match="no own_seconds on the page; it has no histogram"):
        found("up 1\n", "own_seconds")


def test_names_that_are_beginnings_of_others_are_not_mixed_up():
    page = histogram("req_seconds_total", ("1", 1), ("+Inf", 2)) + histogram("my_req_seconds", ("1", 3), ("+Inf", 4))
    assert word(page) == "no_metric"
    assert found(page + GOOD) == HistogramPage("req_seconds", {(): {0.1: 90.0, INF: 100.0}})


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("http_request_duration_seconds", "seconds"),
        ("http_request_duration_milliseconds", "milliseconds"),
        ("x_ms", "milliseconds"),
        ("x_MS", "milliseconds"),
        ("x_us", "microseconds"),
        ("x_microseconds", "microseconds"),
        ("x_ns", "nanoseconds"),
        ("x_duration", None),
        ("seconds", None),
        ("x_seconds_total", None),
        ("params", None),
        ("x_items", None),
        ("", None),
    ],
)
def test_the_unit_is_the_last_word_of_the_name(metric, unit):
    assert unit_of(metric) == unit
    assert unit_of(metric, "nanoseconds") == "nanoseconds"


@pytest.mark.parametrize(
    ("name", "unit"),
    [("req_milliseconds", None), ("req_ms", None), ("req", "milliseconds"), ("req_seconds", "milliseconds")],
)
def test_pm_10_milliseconds_by_the_name_or_as_the_pod_says(name, unit):
    page = histogram(name, ("50", 90), ("100", 99), ("+Inf", 100), total=5000, count=100)
    assert found(page, name, unit) == HistogramPage(name, {(): {0.05: 90.0, 0.1: 99.0, INF: 100.0}})
    page = summary(name, ("0.95", 120), ("0.99", 250), count=7)
    assert found(page, name, unit) == SummaryPage(name, {(): SummarySeries(7.0, {0.95: 0.12, 0.99: 0.25})})


def test_pm_10_a_name_without_a_unit_needs_one_said():
    page = histogram("latency", ("1", 5), ("+Inf", 5))
    assert word(page, "latency") == "unit_unknown"
    assert word(page, "latency", "ms") == "unit_unknown"
    assert word(page, "latency", "Seconds") == "unit_unknown"
    assert found(page, "latency", "microseconds").series == {(): {1e-6: 5.0, INF: 5.0}}


BOUNDS = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10")


def pm_10(within=0, count=400, total="61234", name="http_request_duration_seconds"):
    return histogram(name, *((bound, within) for bound in BOUNDS), ("+Inf", count), total=total, count=count)


def pm_10_word(page, metric="http_request_duration_seconds", unit=None):
    return word(page, metric, unit)


def test_pm_10_milliseconds_in_buckets_of_seconds_are_suspect():
    with pytest.raises(NoLatency, match=r"the mean of .* is 153\.085 s, beyond its last bucket of 10 s") as caught:
        found(pm_10(), None, None, CollectorConfig().latency_metrics)
    assert caught.value.word == "unit_suspect"


@pytest.mark.parametrize("total", [None, "NaN", "+Inf"])
def test_pm_10_without_a_sum_nothing_is_suspected(total):
    page = pm_10(total=total)
    assert found(page, "http_request_duration_seconds").series[()][INF] == 400.0


def test_pm_10_a_service_that_was_fine_for_long_and_is_overloaded_now_is_not_suspect():
    page = pm_10(within=1_000_000, count=1_300_000, total=300_000 * 30)
    assert found(page, "http_request_duration_seconds").series[()][10.0] == 1_000_000.0


def test_pm_10_slow_requests_within_reach_of_the_last_bucket_are_not_suspect():
    page = pm_10(within=0, count=400, total=4000)
    assert found(page, "http_request_duration_seconds").series[()][INF] == 400.0
    assert pm_10_word(pm_10(within=0, count=400, total=4001)) == "unit_suspect"


@pytest.mark.parametrize("within", [0, 199, 200, 399])
def test_pm_10_the_mean_alone_decides_however_many_lie_within(within):
    """A service with health checks that take a fifth of a millisecond, say, beside requests of 300 ms."""
    assert pm_10_word(pm_10(within=within)) == "unit_suspect"
    assert isinstance(found(pm_10(within=within, total=3999), "http_request_duration_seconds"), HistogramPage)


def test_pm_10_a_metric_that_is_believed_is_not_suspect_and_another_one_is():
    name = "http_request_duration_seconds"
    assert found(pm_10(), name, believed=name).series[()][INF] == 400.0
    with pytest.raises(NoLatency, match="the mean of"):
        found(pm_10(), name, believed="req_seconds")
    both = pm_10(name="req_seconds") + pm_10(name="rpc_seconds")
    assert found(both, believed="req_seconds").metric == "req_seconds"
    with pytest.raises(NoLatency, match="the mean of req_seconds"):
        found(both, believed="rpc_seconds")


def test_pm_10_nothing_counted_yet_is_not_suspect():
    assert found(pm_10(count=0, total=0), "http_request_duration_seconds").series[()][INF] == 0.0


def test_pm_10_all_series_are_looked_at_together():
    fine = pm_10(within=10, count=10, total=1).replace('{le="', '{path="/",le="').replace("_sum ", '_sum{path="/"} ')
    fine = fine.replace("_count ", '_count{path="/"} ')
    slow = pm_10().replace('{le="', '{path="/x",le="').replace("_sum ", '_sum{path="/x"} ')
    slow = slow.replace("_count ", '_count{path="/x"} ')
    assert pm_10_word(fine + slow) == "unit_suspect"
    assert len(found(slow + fine.replace("} 10", "} 6000"), "http_request_duration_seconds").series) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", ""])
def test_a_metric_that_is_declared_and_has_no_samples_yet_is_a_page_without_series(end):
    assert found(f"up 1\n# TYPE req_seconds histogram{end}") == HistogramPage("req_seconds", {})
    assert found(f"# HELP rpc_seconds x\n# TYPE rpc_seconds summary{end}") == SummaryPage("rpc_seconds", {})


def test_what_has_samples_goes_before_what_is_only_declared():
    assert found("# TYPE req_seconds histogram\n" + GOOD_SUMMARY).metric == "rpc_seconds"
    assert word("# TYPE req_seconds histogram\n" + summary("rpc_seconds", ("0.5", 1))) == "no_quantiles"
    declared = "# TYPE rpc_seconds histogram\n# TYPE req_seconds histogram\n"
    assert found(declared) == HistogramPage("req_seconds", {})
    assert found(declared, "rpc_seconds") == HistogramPage("rpc_seconds", {})


@pytest.mark.parametrize(
    "line",
    [
        "# TYPE req_seconds gauge",
        "# TYPE req_seconds counter",
        "# TYPE req_seconds untyped",
        "# TYPE req_seconds histograms",
        "# TYPE req_seconds_total histogram",
        "# TYPE my_req_seconds histogram",
        "# TYPE xreq_seconds histogram",
        "# HELP req_seconds histogram",
        "# HELP x # TYPE req_seconds histogram",
        'x{a="# TYPE req_seconds histogram"} 1',
    ],
)
def test_what_declares_nothing_is_no_page(line):
    assert word(f"up 1\n{line}\nup 2\n") == "no_metric"


def test_a_declaration_that_is_quoted_before_it_is_made_is_found():
    page = "# HELP x # TYPE req_seconds gauge\n# TYPE req_seconds histogram\n"
    assert found(page) == HistogramPage("req_seconds", {})


def test_a_declared_metric_without_a_unit_gives_no_page():
    page = "# TYPE latency histogram\n"
    assert word(page, "latency") == "no_metric"
    assert word(page, "latency", "hours") == "no_metric"
    assert found(page, "latency", "milliseconds") == HistogramPage("latency", {})


def test_pm_10_microseconds_in_buckets_of_milliseconds_are_suspect_too():
    page = pm_10(name="rpc", total=400 * 153_000)
    assert pm_10_word(page, "rpc", "milliseconds") == "unit_suspect"
    assert pm_10_word(page, "rpc", "seconds") == "unit_suspect"


def test_pm_10_the_suspect_metric_is_not_replaced_by_a_guess():
    assert pm_10_word(pm_10(name="req_seconds") + GOOD.replace("req_", "rpc_"), None) == "unit_suspect"


def test_a_missing_last_bucket_is_the_count():
    page = histogram("req_seconds", ("0.1", 5), ("1", 8), count=9)
    assert found(page) == HistogramPage("req_seconds", {(): {0.1: 5.0, 1.0: 8.0, INF: 9.0}})


def test_a_count_behind_the_buckets_gives_way_to_them():
    page = histogram("req_seconds", ("0.1", 5), ("1", 8), count=7)
    assert found(page).series == {(): {0.1: 5.0, 1.0: 8.0, INF: 8.0}}


def test_without_a_last_bucket_and_a_count_what_is_beyond_cannot_be_told():
    assert word(histogram("req_seconds", ("0.1", 5), ("1", 8))) == "no_count"


def test_each_series_needs_its_own_count():
    page = 'req_seconds_bucket{a="1",le="1"} 5\nreq_seconds_bucket{a="2",le="1"} 6\nreq_seconds_count{a="1"} 7\n'
    assert word(page) == "no_count"
    assert found(page + 'req_seconds_count{ a="2" } 8\n').series == {
        ("a=1",): {1.0: 5.0, INF: 7.0},
        ("a=2",): {1.0: 6.0, INF: 8.0},
    }


def test_a_native_histogram_as_text_has_no_buckets_to_read():
    page = histogram("req_seconds", ("+Inf", 5), total=1, count=5)
    assert word(page) == "no_buckets"
    with pytest.raises(NoLatency, match="native histogram needs classic buckets"):
        found(page)


def test_a_bucket_without_a_bound_is_no_histogram():
    assert word("req_seconds_bucket 5\n") == "no_buckets"
    assert word('req_seconds_bucket{a="1"} 5\n') == "no_buckets"


@pytest.mark.parametrize(
    "line", ['{le="0.1"} NaN', '{le="0.1"} -5', '{le="0.1"} +Inf', '{le="NaN"} 5', '{le="-1"} 5', '{le="-Inf"} 5']
)
def test_counts_and_bounds_that_cannot_be_are_refused(line):
    with pytest.raises(ExpositionError, match="req_seconds: the bucket le="):
        found(f'req_seconds_bucket{line}\nreq_seconds_bucket{{le="+Inf"}} 5\n')


@pytest.mark.parametrize("count", ["NaN", "-5", "+Inf"])
def test_a_count_that_cannot_be_is_refused(count):
    with pytest.raises(ExpositionError, match="req_seconds: the count is"):
        found(histogram("req_seconds", ("0.1", 5), count=count))
    with pytest.raises(ExpositionError, match="rpc_seconds: the count is"):
        found(summary("rpc_seconds", ("0.99", 1), count=count))


def test_a_bound_of_zero_is_one():
    assert found(histogram("req_seconds", ("0", 1), ("+Inf", 2))).series == {(): {0.0: 1.0, INF: 2.0}}


def test_pm_01_quantiles_without_observations_are_left_out_and_the_count_is_kept():
    page = (
        "# TYPE rpc_seconds summary\n"
        'rpc_seconds{quantile="0.95"} NaN\nrpc_seconds{quantile="0.99"} NaN\n'
        "rpc_seconds_sum 81.5\nrpc_seconds_count 407\n"
    )
    assert found(page) == SummaryPage("rpc_seconds", {(): SummarySeries(407.0, {})})


def test_pm_01_one_idle_series_beside_a_busy_one():
    page = (
        'rpc_seconds{m="a",quantile="0.99"} NaN\nrpc_seconds{quantile="0.99",m="b"} 0.5\n'
        'rpc_seconds_count{m="a"} 407\nrpc_seconds_count{m="b"} 8\n'
    )
    assert found(page).series == {("m=a",): SummarySeries(407.0, {}), ("m=b",): SummarySeries(8.0, {0.99: 0.5})}


@pytest.mark.parametrize("spelling", ["0.99", "0.990", ".99", "9.9e-1"])
def test_the_quantile_has_spellings(spelling):
    assert found(summary("rpc_seconds", (spelling, 0.5))).series[()].quantiles == {0.99: 0.5}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (summary("rpc_seconds", ("0.5", 1), ("0.95", 2)), "no_quantiles"),
        (summary("rpc_seconds", ("99", 1)), "no_quantiles"),
        (summary("rpc_seconds"), "no_quantiles"),
        ("rpc_seconds 5\n", "no_quantiles"),
        (summary("rpc_seconds", ("0.99", 1), count=None), "no_count"),
        (summary("rpc_seconds", ("0.99", 1), count=None) + 'rpc_seconds_count{other="1"} 5\n', "no_count"),
    ],
)
def test_a_summary_that_is_none_has_a_word(page, expected):
    assert word(page) == expected


@pytest.mark.parametrize(
    "line", ['{quantile="0.99"} -1', '{quantile="0.99"} +Inf', '{quantile="1.5"} 1', '{quantile="NaN"} 1']
)
def test_quantiles_that_cannot_be_are_refused(line):
    with pytest.raises(ExpositionError, match="rpc_seconds: the quantile"):
        found(
            f'rpc_seconds{line}\nrpc_seconds{{quantile="0.99",a="1"}} 1\nrpc_seconds_count 5\nrpc_seconds_count{{a="1"}} 5\n'
        )


def test_the_first_reason_is_the_one_that_is_said():
    page = histogram("req_seconds", ("+Inf", 5)) + summary("rpc_seconds", ("0.5", 1))
    assert word(page) == "no_buckets"


def test_pm_09_b_a_metric_that_contradicts_itself_is_refused_and_no_other_taken():
    page = 'req_seconds_bucket{le="0.1"} 5\nreq_seconds_bucket{le="0.1"} 9\nreq_seconds_bucket{le="+Inf"} 10\n'
    with pytest.raises(ExpositionError, match="two different values"):
        found(page + GOOD.replace("req_", "rpc_"))


@pytest.mark.parametrize(
    "text",
    ["a\nb", "a\r\n\tb", "a \u2028 b", "a\x0bb", "a\x1cb\x85"],
)
def test_a_reason_is_one_line(text):
    assert reason("failed", text) == "failed: a b"


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\u202e", "\ud800", "\ufeff"])
def test_a_reason_holds_nothing_that_moves_a_cursor_or_cannot_be_sent(char):
    assert reason("failed", f"a{char}b") == "failed: a\ufffdb"


def test_a_reason_is_at_most_two_hundred_characters():
    assert reason("failed", "x" * 192) == "failed: " + "x" * 192
    assert reason("failed", "x" * 193) == "failed: " + "x" * 191 + "…"
    assert len(reason("failed", "\x1b" * 1_000_000)) == 200
