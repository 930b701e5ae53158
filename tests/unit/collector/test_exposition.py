"""Metrics pages, as they are and as they should not be: samples by name, labels by the formats' own parsers."""

import math

import pytest

from services.collector.core.exposition import (
    MAX_LABELS,
    MAX_LINES,
    MAX_NEW,
    MAX_SERIES,
    Exposition,
    ExpositionError,
    LabelTexts,
)

INF = math.inf

PAGE_A = """\
# TYPE req_seconds histogram
req_seconds_bucket{le="0.1"} 90
req_seconds_bucket{le="+Inf"} 100
req_seconds_count 100
req_seconds_sum 9.5
# TYPE req_seconds_created gauge
req_seconds_created 1.767e+09
"""
SERIES_A = {(): {0.1: 90.0, INF: 100.0}}


class Counted(LabelTexts):
    """Remembers which texts were given to a parser."""

    def __init__(self, *, is_openmetrics=False):
        super().__init__(is_openmetrics)
        self.texts = []

    def read(self, text):
        self.texts.append(text)
        return super().read(text)


def buckets(page, *, is_openmetrics=False, sample="req_seconds_bucket", labels=None):
    return Exposition(page, labels or LabelTexts(is_openmetrics)).by_bound(sample, "le")


def lines(*labels_and_values):
    return "".join(f"req_seconds_bucket{line}\n" for line in labels_and_values)


def test_pm_06_a_the_classic_format_with_created():
    assert buckets(PAGE_A) == SERIES_A


def test_pm_06_b_an_open_metrics_page_that_was_cut_off():
    with pytest.raises(ExpositionError, match="cut off"):
        buckets("\n".join(PAGE_A.split("\n")[:5]), is_openmetrics=True)


@pytest.mark.parametrize(
    "end", ["# EOF", "# EOF\n", "# EOF\r\n", "# EOF\n\n"], ids=["bare", "newline", "windows", "blank line"]
)
def test_pm_06_a_whole_open_metrics_page_ends_with_eof(end):
    assert buckets(PAGE_A + end, is_openmetrics=True) == SERIES_A


def test_pm_06_an_empty_open_metrics_page_is_whole():
    assert buckets("# EOF\n", is_openmetrics=True) == {}
    with pytest.raises(ExpositionError, match="cut off"):
        buckets("", is_openmetrics=True)


@pytest.mark.parametrize("rest", [PAGE_A, PAGE_A + "# EOF\n", "x 1\n"])
def test_pm_06_an_open_metrics_page_does_not_go_on_after_its_end(rest):
    with pytest.raises(ExpositionError, match="at its end"):
        buckets(PAGE_A + "# EOF\n" + rest, is_openmetrics=True)


def test_pm_06_on_a_classic_page_eof_is_a_comment():
    page = lines('{le="0.1"} 90') + "# EOF\n" + lines('{le="+Inf"} 100')
    assert buckets(page) == SERIES_A


def test_pm_06_eof_inside_a_label_or_a_help_text_is_not_the_end():
    page = '# HELP x see # EOF\nreq_seconds_bucket{a="# EOF",le="1"} 5\nother 1\n# EOF\n'
    assert buckets(page, is_openmetrics=True) == {("a=# EOF",): {1.0: 5.0}}


@pytest.mark.parametrize(
    "exemplar",
    [
        ' # {trace_id="ab12"} 0.043 1767000000.5',
        ' # {trace_id="ab12"} 0.043',
        " # {} 0.043",
        ' 1767000000 # {trace_id="} 7 # {"} 0.043 1767000000.5',
        ' # {le="7"} 0.043',
    ],
)
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_pm_06_c_an_exemplar_is_not_read(exemplar, is_openmetrics):
    page = lines('{le="0.05"} 80' + exemplar, '{le="0.1"} 90' + exemplar, '{le="+Inf"} 100') + "# EOF\n"
    assert buckets(page, is_openmetrics=is_openmetrics) == {(): {0.05: 80.0, 0.1: 90.0, INF: 100.0}}


@pytest.mark.parametrize("stamp", [" 1767000000000", " 1767000000.5", "\t1767000000", " -5", " 1.7e9"])
def test_a_timestamp_is_not_read(stamp):
    page = lines(f'{{le="0.1"}} 90{stamp}', f'{{le="+Inf"}} 100{stamp}') + f"req_seconds_count 100{stamp}\n"
    assert buckets(page) == SERIES_A
    assert Exposition(page, LabelTexts(False)).by_series("req_seconds_count") == {(): 100.0}


def test_pm_08_quotes_braces_and_missing_blanks():
    page = (
        'lat_seconds_bucket{route="/v1/{id}/items",q="a\\"b\\\\c",le="0.5",} 7\n'
        'lat_seconds_bucket{route="/v1/{id}/items",q="a\\"b\\\\c",le="+Inf",}18 \n'
    )
    labels = ('q=a"b\\c', "route=/v1/{id}/items")
    assert buckets(page, sample="lat_seconds_bucket") == {labels: {0.5: 7.0, INF: 18.0}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('x,le="9"', None),
        (',le=\\"9\\"', ',le="9"'),
        ('\\"} 5 # {le=\\"9\\"} ', '"} 5 # {le="9"} '),
        ("} 7", "} 7"),
        ("a=b,c", "a=b,c"),
        ("\\\\", "\\"),
        ("\\\\\\\\", "\\\\"),
        ("\\n", "\n"),
        ('\\\\\\"', '\\"'),
        ("", ""),
        (" ", " "),
        ("# EOF", "# EOF"),
        ("req_seconds_bucket{", "req_seconds_bucket{"),
        ("\u2028", "\u2028"),
        ("\u0085", "\u0085"),
        ("\x0b", "\x0b"),
        ("\x1c", "\x1c"),
        ("a\rb", "a\rb"),
        ("é", "é"),
    ],
)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_pm_08_a_label_value_may_hold_anything_and_le_may_stand_anywhere(text, value, place):
    if value is None:  # the quote ends the value: two labels le
        page = lines(f'{{a="{text},le="1"}} 5')
        with pytest.raises(ExpositionError):
            buckets(page)
        return
    form = {"first": 'le="%s",a="{0}",b="2"', "middle": 'a="{0}",le="%s",b="2"', "last": 'a="{0}",b="2",le="%s"'}
    page = lines(
        *("{" + form[place].replace("{0}", text) % bound + f"}} {n}" for n, bound in enumerate((1, 2, "+Inf")))
    )
    assert buckets(page) == {(f"a={value}", "b=2"): {1.0: 0.0, 2.0: 1.0, INF: 2.0}}


@pytest.mark.parametrize(
    "line",
    [
        '{a="1",le="0.1"} 5',
        '{le="0.1",a="1"} 5',
        '{a="1",le="0.1",} 5',
        '{le="0.1",a="1",} 5',
        '{a="1",le="0.1"}5',
        '{a="1",le="0.1"}\t5\t',
        ' {a="1",le="0.1"} 5',
        '\t{ a="1" , le="0.1" } 5',
        '{ a = "1", le = "0.1" , } 5',
        '{a ="1",le= "0.1"}   5   ',
        '{le\t=\t"0.1"\t,\ta\t=\t"1"\t}\t5',
        '{a="1",le="0.1"} 5\r',
        '{a="1",le="0.10"} 5.0',
        '{a="1",le="1e-1"} 0.5e1',
    ],
)
@pytest.mark.parametrize("lead", ["", " ", "\t", "   "])
def test_pm_08_blanks_and_commas_wherever_the_format_allows_them(line, lead):
    page = f"# TYPE req_seconds histogram\n{lead}req_seconds_bucket{line}\n{lead}req_seconds_bucket{line}\n"
    assert buckets(page) == {("a=1",): {0.1: 5.0}}


def test_labels_in_another_order_are_the_same_series():
    page = lines('{a="1",b="2",le="0.1"} 5', '{b="2",le="1",a="1"} 7', '{le="+Inf",b="2",a="1"} 9')
    assert buckets(page) == {("a=1", "b=2"): {0.1: 5.0, 1.0: 7.0, INF: 9.0}}
    with pytest.raises(ExpositionError, match="two different values"):
        buckets(page + lines('{b="2",a="1",le="1.0"} 8'))


def test_series_next_to_each_other_are_kept_apart():
    page = lines('{a="1",le="1"} 1', '{a="2",le="1"} 2', '{le="1"} 3', '{le="1",a="3"} 4', '{le="1",a="3",b=""} 5')
    assert buckets(page) == {
        ("a=1",): {1.0: 1.0},
        ("a=2",): {1.0: 2.0},
        (): {1.0: 3.0},
        ("a=3",): {1.0: 4.0},
        ("a=3", "b="): {1.0: 5.0},
    }


def test_lines_may_end_as_on_windows():
    assert buckets(PAGE_A.replace("\n", "\r\n")) == SERIES_A


def test_the_last_line_may_end_with_the_page():
    assert buckets(PAGE_A.partition("req_seconds_count")[0].rstrip("\n")) == SERIES_A


@pytest.mark.parametrize(
    "other",
    [
        'req_seconds_total_bucket{le="0.1"} 7',
        'req_seconds_bucket_total{le="0.1"} 7',
        'my_req_seconds_bucket{le="0.1"} 7',
        'my:req_seconds_bucket{le="0.1"} 7',
        '# HELP req_seconds_bucket{le="0.1"} 7',
        '#req_seconds_bucket{le="0.1"} 7',
        'other{a=" req_seconds_bucket{le=\\"0.1\\"} 7"} 1',
        'other{a="\treq_seconds_bucket 7"} 1',
        "req_seconds_bucket{} 7",
        "req_seconds_bucket 7",
        'req_seconds_bucket{lex="0.1"} 7',
        'req_seconds_bucket{xle="0.1",a="le"} 7',
    ],
)
def test_names_and_labels_that_only_look_alike_are_others(other):
    for page in (PAGE_A + other, f"{other}\n{PAGE_A}", f"{other}\n{PAGE_A}{other}\n"):
        assert buckets(page) == SERIES_A


def test_pm_09_a_the_same_bound_in_two_spellings():
    page = (
        'd_seconds_bucket{inst="a",le="1"} 5\nd_seconds_bucket{inst="a",le="+Inf"} 6\n'
        'd_seconds_bucket{inst="b",le="1.0"} 7\nd_seconds_bucket{inst="b",le="+Inf"} 7\n'
    )
    assert buckets(page, sample="d_seconds_bucket") == {
        ("inst=a",): {1.0: 5.0, INF: 6.0},
        ("inst=b",): {1.0: 7.0, INF: 7.0},
    }


@pytest.mark.parametrize("infinity", ["+Inf", "Inf", "inf", "+inf", "Infinity"])
def test_pm_09_infinity_has_spellings_too(infinity):
    assert buckets(lines(f'{{le="{infinity}"}} 5')) == {(): {INF: 5.0}}


@pytest.mark.parametrize(
    "second", ['{le="0.1"} 9', '{le="0.10"} 9', '{le="1e-1",} 9', '{ le = "0.1" } 9', '{le="0.1"} 9 1767000000']
)
def test_pm_09_b_a_conflicting_duplicate_is_rejected(second):
    page = lines('{le="0.1"} 5', second, '{le="+Inf"} 10')
    with pytest.raises(ExpositionError, match="two different values for one series: 5 and 9"):
        buckets(page)


def test_pm_09_b_conflicting_counts_are_rejected_too():
    page = Exposition("r_count 5\nr_count 9\n", LabelTexts(False))
    with pytest.raises(ExpositionError, match="two different values"):
        page.by_series("r_count")


def test_pm_09_an_agreeing_duplicate_counts_once():
    page = lines('{le="1"} 5', '{le="1.0"} 5', '{le="+Inf"} 10')
    assert buckets(page) == {(): {1.0: 5.0, INF: 10.0}}
    idle = 'q{quantile="0.99"} NaN\n' * 2
    (quantiles,) = Exposition(idle, LabelTexts(False)).by_bound("q", "quantile").values()
    assert math.isnan(quantiles[0.99])


@pytest.mark.parametrize(
    ("text", "value"), [("1e3", 1000.0), ("+5", 5.0), ("-5", -5.0), ("+Inf", INF), ("-Inf", -INF), ("5.", 5.0)]
)
def test_numbers_are_what_the_formats_call_one(text, value):
    page = lines('{le="1"} 0', f'{{le="2"}} {text}')
    assert buckets(page) == {(): {1.0: 0.0, 2.0: value}}
    assert Exposition(f"x_count {text}\n", LabelTexts(False)).by_series("x_count") == {(): value}


def test_not_a_number_stays_one():
    (found,) = buckets(lines('{le="1"} 0', '{le="2"} NaN')).values()
    assert math.isnan(found[2.0])


@pytest.mark.parametrize(
    "line",
    [
        '{le="fast"} 5',
        '{le="1_0"} 5',
        '{le="٣"} 5',
        '{le=""} 5',
        '{le="0.1\\\\"} 5',
        '{le="0.1"} many',
        '{le="0.1"} 1_0',
        '{le="0.1"} ٣',
        '{le="0.1"} 5 5 5',
        '{le="0.1"} 5 # comment',
        '{le="0.1"} {count:5}',
        '{le="0.1"}',
        '{le="0.1"} ',
        '{le="0.1" 5',
        '{le="0.1}',
        '{le="0.1"}}',
        '{le="0.1",,} 5',
        '{,le="0.1"} 5',
        "{,} 5",
        "{le=0.1} 5",
        '{le="0.1"a="1"} 5',
        '{le="0.1",le="0.1"} 5',
        '{le="0.1",a="1",le="0.2"} 5',
        '{"le"="0.1"} 5',
        '{a="1",a="2",le="0.1"} 5',
        '{1a="1",le="0.1"} 5',
        '{a b="1",le="0.1"} 5',
        '{="1",le="0.1"} 5',
        "{{{{",
        " ",
        " {",
    ],
)
@pytest.mark.parametrize("before", ["", 'req_seconds_bucket{le="0.01"} 1\n'])
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_nonsense_is_the_pages_fault(line, before, is_openmetrics):
    page = f"# TYPE req_seconds histogram\n{before}req_seconds_bucket{line}\n# EOF\n"
    with pytest.raises(ExpositionError):
        buckets(page, is_openmetrics=is_openmetrics)


@pytest.mark.parametrize("page", ["", "\n", "# HELP x y\n", "<html>\n<body>It works!</body>\n</html>\n", "{", "\0" * 9])
def test_a_page_without_the_metric_has_no_samples(page):
    read = Exposition(page, LabelTexts(False))
    assert read.by_bound("req_seconds_bucket", "le") == {}
    assert read.by_series("req_seconds_count") == {}
    assert read.total("req_seconds_sum") is None
    assert not read.has("req_seconds_bucket")
    assert read.histograms(3) == []


def test_samples_without_labels_and_with():
    page = Exposition('n_count 5\nn_count{a="1"} 6\nn_count{a="2",} 7\nn_count_total 8\n', LabelTexts(False))
    assert page.by_series("n_count") == {(): 5.0, ("a=1",): 6.0, ("a=2",): 7.0}
    assert page.total("n_count") == 18.0
    assert page.has("n_count")
    assert not page.has("n")


@pytest.mark.parametrize("labels", ['{a="1"}', '{a="1",}', '{a="1", }', '{ a = "1" , } ', '\t{a="1"\t}'])
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_blanks_and_commas_are_allowed_in_samples_without_a_bound_too(labels, is_openmetrics):
    page = Exposition(f"n_count{labels} 5\nm_count{{ }} 6\n# EOF\n", LabelTexts(is_openmetrics))
    assert page.by_series("n_count") == {("a=1",): 5.0}
    assert page.by_series("m_count") == {(): 6.0}


def test_histograms_are_named_in_the_order_of_the_page_and_no_more_than_asked_for():
    page = Exposition(PAGE_A.replace("req_", "a_") + PAGE_A + PAGE_A.replace("req_", "b_"), LabelTexts(False))
    assert page.histograms(2) == ["a_seconds", "req_seconds"]
    assert page.histograms(9) == ["a_seconds", "req_seconds", "b_seconds"]


def test_thousands_of_unrelated_lines_are_not_parsed():
    noise = "\n".join(f'other_metric{{path="/{n}"}} not-a-number' for n in range(100_000))
    labels = Counted()
    page = f"{noise}\n{PAGE_A}{noise}\n"
    assert len(page) > 5 << 20
    assert buckets(page, labels=labels) == SERIES_A
    assert labels.texts == [""]


def test_labels_are_parsed_once_a_series_and_not_again_on_the_next_page():
    labels = Counted()
    page = lines(*(f'{{route="/{n}",le="{bound}"}} {bound}' for n in range(50) for bound in range(20)))
    first = buckets(page, labels=labels)
    assert labels.texts == [f'route="/{n}"' for n in range(50)]
    assert buckets(page, labels=labels) == first
    assert len(labels.texts) == 50


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (PAGE_A, "histogram"),
        ("# TYPE req_seconds summary\r\n", "summary"),
        ("up 1\n  # TYPE req_seconds gauge  ", "gauge"),
        ("# TYPE req_seconds_created gauge\n", None),
        ("up 1 # TYPE req_seconds gauge\n", None),
        ("", None),
    ],
)
def test_the_type_that_a_page_declares_for_a_metric(page, kind):
    assert Exposition(page, LabelTexts(False)).declared("req_seconds") == kind


def test_a_histogram_without_end_is_refused():
    page = lines(*(f'{{le="{n}"}} 1' for n in range(MAX_LINES)))
    assert len(buckets(page)[()]) == MAX_LINES == 20_000
    with pytest.raises(ExpositionError, match=f"more than {MAX_LINES} lines; some label has too many values$"):
        buckets(page + lines('{le="+Inf"} 1'))


def test_a_metric_with_too_many_series_is_refused():
    labels = Counted()
    page = lines(*(f'{{id="{n}",le="1"}} 1' for n in range(MAX_SERIES)))
    assert len(buckets(page, labels=labels)) == MAX_SERIES
    with pytest.raises(ExpositionError, match=f"more than {MAX_SERIES} series; some label has too many values$"):
        buckets(page + lines('{id="more",le="1"} 1'), labels=labels)
    counts = Exposition("".join(f'n_count{{id="{n}"}} 1\n' for n in range(MAX_SERIES + 1)), labels)
    with pytest.raises(ExpositionError, match=f"more than {MAX_SERIES} series; some label has too many values$"):
        counts.by_series("n_count")


def test_a_page_of_ever_new_labels_is_given_up_early():
    labels = Counted()
    page = lines(*(f'{{id="{n:04}{"x" * 2000}",le="1"}} 1' for n in range(1000)))
    with pytest.raises(ExpositionError, match="that no page before had"):
        buckets(page, labels=labels)
    assert sum(map(len, labels.texts)) <= MAX_NEW


def test_a_page_of_many_labels_that_stay_gets_through_in_the_end():
    labels = LabelTexts(False)
    page = lines(*(f'{{id="{n:04}{"x" * 500}",le="1"}} 1' for n in range(1500)))
    with pytest.raises(ExpositionError, match="that no page before had"):
        buckets(page, labels=labels)
    assert len(buckets(page, labels=labels)) == 1500


def test_one_series_in_thousands_of_spellings_is_given_up_too():
    labels = Counted()
    page = lines(*(f'{{id="1",{" " * (n % 2500)}b="2",le="{n}"}} 1' for n in range(MAX_LINES)))
    with pytest.raises(ExpositionError, match="that no page before had"):
        buckets(page, labels=labels)
    assert len(labels.texts) < MAX_SERIES


def test_labels_of_more_than_four_thousand_characters_are_refused():
    value = "x" * (MAX_LABELS - len('id=""'))
    assert buckets(lines(f'{{id="{value}",le="1"}} 1')) == {(f"id={value}",): {1.0: 1.0}}
    with pytest.raises(ExpositionError, match=f"more than {MAX_LABELS} characters") as caught:
        buckets(lines(f'{{id="{value}x",le="1"}} 1'))
    assert len(str(caught.value)) < 200


def test_what_is_remembered_of_labels_is_bounded():
    labels = LabelTexts(False)
    for page in range(40):
        buckets(lines(*(f'{{id="{page}-{n}{"x" * 3000}",le="1"}} 1' for n in range(100))), labels=labels)
    assert sum(map(len, labels._keys)) < 10_000_000
    assert labels.known('id="39-99' + "x" * 3000 + '"') is not None


NAME = "req_seconds_bucket"
SIZE = 1_000_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "page",
    [
        NAME * 100_000,
        f"{NAME} " * 100_000,
        f"{NAME}{{" * 100_000,
        f" {NAME} x" * 100_000,
        f"x{NAME}{{\n" * 100_000,
        " " * 17 + f"{NAME} 1" + " " * SIZE,
        NAME + " " * SIZE,
        NAME + '{le="1"' + " " * SIZE,
        NAME + '{a="1"' + " " * SIZE,
        NAME + '{a="1",' + " " * SIZE,
        NAME + "{" + 'le="1",' * 100_000,
        NAME + "{" + 'le="1",' * 100_000 + "} 1",
        NAME + "{" + 'a="1",' * 100_000 + 'le="1"} 1',
        NAME + "{" + 'a="1",' * 100_000 + "le=1} 1",
        NAME + "{a" + "=" * SIZE,
        NAME + '{a="' + "\\" * SIZE,
        NAME + '{a="' + '\\"' * SIZE,
        NAME + '{a="' + "\\" * SIZE + '",le="1"} 1',
        NAME + '{le="1"}' + " " * SIZE,
        NAME + '{le="1"}' + " " * SIZE + "x y",
        NAME + '{le="1"} ' + "9" * SIZE + "x",
        NAME + '{le="1"} 1 ' + "9" * SIZE + "x",
        NAME + '{le="1"} 1' + " " * SIZE + "x",
        NAME + '{le="1"} 1 #' + " " * SIZE,
        NAME + '{le="' + "9" * SIZE + 'x"} 1',
    ],
    ids=range(25),
)
def test_no_page_takes_longer_than_its_length(page):
    """What takes time by the square of a page's length takes hours for these; a second is enough."""
    try:
        buckets(page)
        Exposition(page, LabelTexts(False)).by_series(NAME)
        Exposition(page, LabelTexts(False)).histograms(3)
    except ExpositionError as error:
        assert len(str(error)) < 400  # noqa: PT017 - whether there is one depends on the page
