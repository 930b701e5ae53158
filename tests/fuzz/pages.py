"""Metrics pages: any bytes, one piece many times, and well made ones that are then damaged; several in a row."""

from hypothesis import strategies as st

from services.collector.config import CollectorConfig
from services.collector.core.latency_source import UNITS_PER_SECOND
from tests.fuzz.damage import DAMAGES, ELAPSED, ODD_NUMBERS, PLACES, damaged, mostly, one_in

PLAIN_TYPE, OPEN_TYPE = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0; charset=utf-8"
CONTENT_TYPES = st.sampled_from([PLAIN_TYPE, PLAIN_TYPE, OPEN_TYPE, OPEN_TYPE, "", "APPLICATION/OpenMetrics-Text"])
METRICS = ("http_request_duration_seconds", "request_ms", "rpc_usec", "work_nanos")
CANDIDATES = (*METRICS, *CollectorConfig().latency_metrics)
METRIC_NAMES = mostly(
    st.none(),
    st.one_of(
        st.sampled_from([*METRICS, "latency"]),
        st.sampled_from(["a" * 100, "m_bucket", "(", "é", "m{"]),
        st.text(min_size=1, max_size=5),
    ),
    4,
)
"""Never empty: an empty name is none (core/targets.py)."""
UNITS = mostly(st.none(), st.sampled_from([*UNITS_PER_SECOND, "hours", ""]))

_BOUNDS = (
    ("0.005", "0.1", "0.5", "1.0", "5"),
    ("1", "1.0", "2"),
    ("0", "0.1"),
    ("-1", "0.1", "1"),
    ("1e-320", "1e-300", "1"),
    ("0.1", "1e308"),
    ("10", "100", "1000", "NaN"),
    (),
)
_LABELS = mostly(
    st.sampled_from(["", 'method="GET"', 'code="200",method="GET"', 'path="/x"']),
    st.sampled_from(
        [
            'method="GET",code="200"',
            r'path="/a\"b\\c\n{}",x="=,"',
            'le_="1", q = "2" ',
            'unicode="é😀\u2028"',
            'a="1",a="2"',
            'quantile="0.5"',
        ]
    ),
)
_LARGE = (10**6, 2**53 + 1, 2**62, 2**63, 10**19, 10**25, 9 * 10**307)
_COUNTS = st.integers(0, 999).map(lambda number: _LARGE[number % len(_LARGE)] if number >= 985 else number % 60)
_ENDS = mostly(
    st.just(""),
    st.sampled_from([" 1700000000000", ' # {trace_id="ab"} 0.05', ' # {a="} 1"} 0.05 1.7e9', "  ", "\r"]),
    6,
)
_QUANTILES = ("0.5", "0.95", "0.99")


def _sample(name, labels, value, end="", own=""):
    inside = ",".join(part for part in (labels, own) if part)
    return f"{name}{{{inside}}} {value}{end}" if inside else f"{name} {value}{end}"


_NAMES, _ODD_TIMES = st.sampled_from([METRICS[0], *METRICS]), st.sampled_from(["1.5", "1e5", "NaN", "1e308"])
_KINDS = st.sampled_from(["histogram", "histogram", "histogram", "summary", "both"])
_FEW_LABELS = st.lists(_LABELS, min_size=1, max_size=3, unique=True)
_ANY_BOUNDS = mostly(st.just(_BOUNDS[0]), st.sampled_from(_BOUNDS), 4)
_SAID = mostly(st.sampled_from(["0.1", "0.25", "3", "NaN", "1e-9"]), ODD_NUMBERS, 40)
_LINE_ENDS = mostly(st.just("\n"), st.sampled_from(["\r\n", "\n\n", "\r"]), 12)


@st.composite
def histories(draw, pages):
    """Pages of one pod's endpoint, scrape after scrape: counters grow, at times they are reset, at times a page is
    damaged.
    """
    name = draw(_NAMES)
    kind = draw(_KINDS)
    ending = ["# EOF"] if draw(st.booleans()) else []
    all_labels = draw(_FEW_LABELS)
    bounds = draw(_ANY_BOUNDS)
    has_inf, has_count, end = not draw(one_in(8)), draw(st.booleans()), draw(_ENDS)
    so_far = {labels: [0] * (len(bounds) + 1) for labels in all_labels}
    found = []
    for _ in range(pages):
        lines = [f"# HELP {name} of requests", f"# TYPE {name} {'summary' if kind == 'summary' else 'histogram'}"]
        restarts = draw(one_in(8))
        if restarts or not so_far:  # at times no labels have been seen since
            is_new = restarts and draw(st.booleans())
            so_far = {} if is_new else {labels: [0] * (len(bounds) + 1) for labels in all_labels}
        for labels, counts in so_far.items():
            for index in range(len(counts)):
                counts[index] += draw(_COUNTS)
            if kind != "summary":
                for index, bound in enumerate(bounds):
                    lines.append(_sample(f"{name}_bucket", labels, sum(counts[: index + 1]), end, f'le="{bound}"'))
                if has_inf:
                    lines.append(_sample(f"{name}_bucket", labels, sum(counts), end, 'le="+Inf"'))
            if kind != "histogram":
                for quantile in _QUANTILES:
                    value = draw(_SAID)
                    lines.append(_sample(name, labels, value, own=f'quantile="{quantile}"'))
            if has_count or kind != "histogram":
                lines.append(_sample(f"{name}_count", labels, sum(counts)))
                lines.append(_sample(f"{name}_sum", labels, draw(_ODD_TIMES)))
        if draw(one_in(5)):
            lines = damaged(lines, draw(DAMAGES))
        page = draw(_LINE_ENDS).join(lines + ending) + "\n"
        if draw(one_in(20)):
            page = page[: draw(PLACES)]
        found.append(page.encode("utf-8", "surrogatepass"))
    return found


_PIECES = st.sampled_from(
    [
        *(
            b"\nrequest_ms_bucket{",
            b"\nrequest_ms_count",
            b"\nrequest_ms_sum{",
            b"\nrequest_ms{",
            b"\nrequest_ms_bucket{le=",
        ),
        *(
            b'le="0.1"',
            b'le="+Inf"',
            b'quantile="0.99"',
            b'a="b"',
            b'a="c"',
            b',a="',
            b'"} 1',
            b'"} 2\n',
            b"} 1",
            b"} 0.5\n",
        ),
        *(
            b"+Inf",
            b"NaN",
            b" 1",
            b" ",
            b",",
            b"=",
            b'"',
            b"{",
            b"}",
            b"\\",
            b"\r",
            b"#",
            b" # {",
            b"\n# EOF\n",
            b"\n# TYPE ",
        ),
        *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\xef\xbb\xbf"),
    ]
)
BYTES = mostly(st.lists(_PIECES, max_size=40).map(b"".join), st.binary(max_size=200))

RAW_PAGES = st.tuples(BYTES, mostly(st.just(PLAIN_TYPE), CONTENT_TYPES, 4), METRIC_NAMES, UNITS)


def content_type_of(body):
    """The type that an endpoint would give to this page."""
    return OPEN_TYPE if body.endswith(b"# EOF\n") else PLAIN_TYPE


@st.composite
def typed(draw, body):
    """A page with its content type, or at times another one."""
    return draw(mostly(st.just(content_type_of(body)), CONTENT_TYPES, 10)), body


@st.composite
def _one_page(draw):
    content_type, body = draw(typed(draw(histories(1))[0]))
    return body, content_type, draw(METRIC_NAMES), draw(UNITS)


PAGES = _one_page()

_HEADS = st.sampled_from(
    [
        "",
        "request_ms_bucket{",
        'request_ms_bucket{le="1"',
        'request_ms_bucket{le="1",a="',
        "request_ms_bucket{a",
        "request_ms ",
    ]
)
_REPEATED = st.one_of(
    st.sampled_from(
        [" ", "\t", 'le="1",', 'le="1" ,', 'a="b",', ',a="b"', '\\"', "\\\\", "1", "request_ms_bucket", "\n", "#", "{"]
    ),
    st.lists(
        st.sampled_from(
            [
                *(
                    "request_ms_bucket",
                    "request_ms",
                    "{",
                    "}",
                    'le="1"',
                    'a="b"',
                    'quantile="0.99"',
                    ",",
                    " ",
                    "\t",
                    "\n",
                    "1",
                ),
                *(
                    "x",
                    "#",
                    "# {",
                    '\\"',
                    "\\",
                    '"',
                    "=",
                    "request_ms_count 1\n",
                    'request_ms_bucket{le="1"} 1\n',
                    "\r",
                    "# EOF",
                ),
            ]
        ),
        min_size=2,
        max_size=3,
    ).map("".join),
)
LONG_PAGES = st.tuples(
    _HEADS,
    _REPEATED,
    st.sampled_from([100_000, 100_000, 10_000, 100]),
    st.sampled_from(["x", '"x', "\n", "} 1\n", 'le="1"} 1\n', "} 1 x\n", ""]),
    st.booleans(),
)
"""Head, a piece, how often it is repeated, tail, whether it is OpenMetrics."""

_UIDS = ("u1", "u2", "u3")


@st.composite
def collections(draw):
    """Several pods' pages over several collections."""
    steps = draw(st.integers(2, 4))
    pods = {
        uid: (draw(mostly(st.just("a"), st.just("b"), 4)), draw(histories(steps)))
        for uid in draw(st.sampled_from([_UIDS[:1], _UIDS]))
    }
    found = []
    for step in range(steps):
        pages = {uid: (cls, pages[step]) for uid, (cls, pages) in pods.items() if not draw(one_in(10))}
        found.append((draw(ELAPSED), draw(st.booleans()), pages))
    return found


WINDOWS = st.tuples(
    collections(),
    st.sampled_from([1, 20]),
    st.sampled_from([30.0, 1e-3]),
    st.sampled_from([0.1, None, 1e-9, 5e-324, 86_400.0]),
)
"""Collections, least requests, longest window, objective."""
