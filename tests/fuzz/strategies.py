"""What the targets are fed: metrics pages and kernel texts, well made and then damaged. All drawn values are literals,
so that what failed can be printed and pasted.
"""

from functools import cache

from hypothesis import strategies as st

from services.collector.config import CollectorConfig
from services.collector.core.latency_source import UNITS_PER_SECOND
from services.collector.core.targets import METRIC, PATH, PORT, SCHEME, SCRAPE, UNIT

PLAIN_TYPE, OPEN_TYPE = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0; charset=utf-8"


def mostly(usual, odd, of=8):
    """The usual, but one in `of` times something odd. (`one_of` takes a strategy that it is given twice as one.)"""
    return st.integers(1, of).flatmap(lambda number: odd if number == of else usual)


@cache
def one_in(of):
    """True about one time in so many."""
    return st.integers(1, of).map(lambda number: number == of)


# ---- numbers and damage ---------------------------------------------------------------------------------------------

ODD_NUMBERS = st.sampled_from(
    [
        *(
            "NaN",
            "nan",
            "+Inf",
            "-Inf",
            "inf",
            "Infinity",
            "-0",
            "-1",
            "-1e-9",
            "",
            "+",
            ".",
            "1_000",
            "0x10",
            "\u0661",
        ),
        *("1e308", "1.7976931348623157e308", "1e309", "5e-324", "1e-300", "1e19", "9007199254740993"),
        *("9223372036854775807", "9223372036854775808", "18446744073709551615", "99999999999999999999", "9" * 400),
    ]
)
ODD_CHARACTERS = st.one_of(
    st.sampled_from([*' \t\r\n\0"\\,{}=#+-.0eE/_%:\x0b\x0c\x1c\x85\u2028\ufeff\ud800', '\\"', ",,", "{}", "\r\n"]),
    st.characters(),
)


def _spliced(text, at, length, piece):
    at %= len(text) + 1
    return text[:at] + piece + text[at + length :]


PLACES = st.integers(0, 10_000)
_DAMAGE = st.one_of(
    st.tuples(st.just("drop"), PLACES),
    st.tuples(st.just("double"), PLACES),
    st.tuples(st.just("swap"), PLACES, PLACES),
    st.tuples(st.just("cut line"), PLACES, PLACES),
    st.tuples(st.just("number"), PLACES, ODD_NUMBERS),
    st.tuples(st.just("splice"), PLACES, PLACES, st.integers(0, 3), ODD_CHARACTERS),
    st.tuples(st.just("join"), PLACES),
)
DAMAGES = st.lists(_DAMAGE, max_size=4)


def damaged(lines, damages):
    """The lines after some accidents."""
    found = list(lines)
    for what, *args in damages:
        if not found:
            break
        at = args[0] % len(found)
        if what == "drop":
            del found[at]
        elif what == "double":
            found.insert(at, found[at])
        elif what == "swap":
            other = args[1] % len(found)
            found[at], found[other] = found[other], found[at]
        elif what == "cut line":
            found[at] = found[at][: args[1] % (len(found[at]) + 1)]
        elif what == "number":
            found[at] = f"{found[at].rpartition(' ')[0]} {args[1]}"
        elif what == "splice":
            found[at] = _spliced(found[at], *args[1:])
        else:
            found[at : at + 2] = ["".join(found[at : at + 2])]
    return found


# ---- metrics pages --------------------------------------------------------------------------------------------------

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
        if draw(one_in(8)):  # a restart
            so_far = {labels: [0] * (len(bounds) + 1) for labels in all_labels}
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

# ---- windows --------------------------------------------------------------------------------------------------------

ELAPSED = mostly(
    st.sampled_from([5.0, 2.0, 1.0]), st.one_of(st.sampled_from([0.0, -1.0, 1e-9, 3600.0]), st.floats(1e-9, 1e9)), 6
)
"""Seconds between two collections. The clock counts in nanoseconds."""

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

# ---- kernel texts ---------------------------------------------------------------------------------------------------

COUNTERS = st.one_of(st.integers(0, 10**9), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1, 10**20 - 1]))
_PERCENT = st.sampled_from(["0.00", "1.50", "100.00", "nan", "-1", "1e400"])


@st.composite
def _keyed(draw, keys):
    return [f"{key} {draw(COUNTERS)}" for key in draw(st.permutations(keys))]


@st.composite
def _pressure(draw):
    lines = []
    for kind in draw(st.sampled_from([("some", "full"), ("some",), ("full",), ("full", "some")])):
        averages = " ".join(f"{name}={draw(_PERCENT)}" for name in ("avg10", "avg60", "avg300"))
        lines.append(f"{kind} {averages} total={draw(COUNTERS)}")
    return lines


@st.composite
def _proc_stat(draw):
    fields = draw(st.integers(7, 10))
    lines = [f"cpu  {' '.join(str(draw(COUNTERS)) for _ in range(fields))}"]
    lines += [f"cpu{number} 1 2 3 4 5 6 7 8 9 10" for number in range(draw(st.integers(0, 3)))]
    return [*lines, f"ctxt {draw(COUNTERS)}", f"procs_running {draw(COUNTERS)}"]


@st.composite
def _schedstat(draw):
    lines = [f"version {draw(st.integers(14, 18))}", "timestamp 4294892297"]
    for number in range(draw(st.integers(0, 3))):
        lines += [f"cpu{number} 0 0 1 1 1 1 5 {draw(COUNTERS)} 9", "domain0 3 0 0 0"]
    return lines


_WORDS = st.lists(COUNTERS.map(str), max_size=4).map(" ".join)
_NUMBER = st.one_of(COUNTERS.map(str), st.sampled_from(["0", "1", "100", "10000", "10001", "max"]))
_CONTROLLERS = st.lists(st.sampled_from(["cpu", "cpuset", "io", "memory"]), max_size=3).map(" ".join)

KERNEL_LINES = {
    "cpu.stat": _keyed(("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")),
    "cpu.pressure": _pressure(),
    "cpu.weight": _NUMBER.map(lambda text: [text]),
    "cpu.idle": st.sampled_from([["0"], ["1"], ["2"], []]),
    "cpu.max": st.tuples(_NUMBER, _NUMBER).map(lambda words: [" ".join(words)]),
    "memory.current": _NUMBER.map(lambda text: [text]),
    "cgroup.threads": st.lists(COUNTERS.map(str), max_size=4),
    "cgroup.subtree_control": _CONTROLLERS.map(lambda text: [text]),
    "stat": _proc_stat(),
    "schedstat": _schedstat(),
    "loadavg": st.tuples(_NUMBER, _NUMBER).map(lambda words: [f"0.1 0.2 0.3 {'/'.join(words)} 4711"]),
    "pressure/cpu": _pressure(),
    "task/schedstat": _WORDS.map(lambda text: [text]),
}
"""The lines of each kernel file, as the kernel writes them."""


@st.composite
def kernel_text(draw, name, damage_one_in=8):
    """The text of one file, at times damaged, as `hostfs.files` reads it."""
    lines = draw(KERNEL_LINES[name])
    if draw(one_in(damage_one_in)):
        lines = damaged(lines, draw(DAMAGES))
    return "".join(f"{line}\n" for line in lines)


KERNEL_TEXTS = st.sampled_from(sorted(KERNEL_LINES)).flatmap(
    lambda name: st.tuples(st.just(name), mostly(kernel_text(name, 2), st.text(max_size=40)))
)

# ---- workloads ------------------------------------------------------------------------------------------------------

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""Text that JSON and UTF-8 can carry, as Kubernetes' names, labels and annotations are."""

_LABEL_KEYS = st.sampled_from(CollectorConfig().class_labels)
_CLASS_NAMES = ("latency-critical", "default", "batch")
_NOTE_VALUES = {
    SCRAPE: st.sampled_from(["true", "TRUE ", "false", ""]),
    SCHEME: st.sampled_from(["http", "https", "HTTPS", "ftp", ""]),
    PORT: st.sampled_from(["80", "8080", "0", "65536", "٣", "-1", " 9 ", ""]),
    PATH: st.sampled_from(["/metrics", "metrics?x=1#y", "//evil:99999/", "/ü", "@x:1", ""]),
    METRIC: st.sampled_from([*METRICS, "request_ms_bucket", ""]),
    UNIT: st.sampled_from([*UNITS_PER_SECOND, "hours", ""]),
}
_ANNOTATIONS = st.fixed_dictionaries(
    {}, optional={key: mostly(values, UNICODE) for key, values in _NOTE_VALUES.items()}
)
_FEW_ANNOTATIONS = mostly(st.just({}), _ANNOTATIONS, 4)
_ADDRESSES = st.one_of(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "FE80::1", "fe80::1%eth0", "::ffff:10.0.0.1"]),
    st.none(),
    UNICODE.map(lambda scope: f"fe80::1%{scope}"),
)
_URLS = st.one_of(
    st.none(),
    st.sampled_from(["http://x/", "HTTP://X:80", "https://[::1]:9/m", "http://u:p@h/", "http://10.0.0.1:8080/metrics"]),
    UNICODE.map(lambda text: f"http://{text}"),
)


def workload(uids, groups):
    """One workload as the keywords of `Workload`."""
    return st.fixed_dictionaries(
        {
            "uid": uids,
            "name": UNICODE,
            "group": groups,
            "labels": st.dictionaries(_LABEL_KEYS, mostly(st.sampled_from(_CLASS_NAMES), UNICODE), max_size=2),
            "annotations": _ANNOTATIONS,
            "address": _ADDRESSES,
            "ports": st.lists(st.sampled_from([80, 8080, 65535]), max_size=2).map(tuple),
            "metrics_url": _URLS,
            "latency_metric": st.one_of(st.none(), st.sampled_from(METRICS)),
            "latency_unit": st.one_of(st.none(), st.sampled_from(list(UNITS_PER_SECOND))),
        }
    )


WORKLOADS = st.lists(
    workload(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3), st.just("pod")),
    max_size=5,
    unique_by=lambda fields: fields["uid"],
)

# ---- the whole ------------------------------------------------------------------------------------------------------

PODS = ("pod-a", "burstable/pod-b", "burstable/pod-c", "besteffort/x/pod-d")
NEIGHBOURS = ("burstable", "besteffort", "besteffort/x", "system", "burstable/other", "caf\udce9")
"""A folder's name may hold any bytes: the last one is Latin-1, as Python reads it."""

GROUP_FILES = ("cpu.weight", "cpu.idle", "cpu.stat", "cpu.pressure", "memory.current")


_WEIGHTS, _INODES = st.sampled_from([100, 1, 39, 10_000]), st.sampled_from([1, 1, 1, 1, 1, 1, 2])
_USAGES, _WAITS = st.integers(0, 10**7), st.integers(0, 6 * 10**6)
_ODD_FILES = mostly(st.just([]), st.lists(st.sampled_from(GROUP_FILES), min_size=1, max_size=2, unique=True), 3)


@st.composite
def _group_texts(draw, step):
    """One group's files at a step: counters that grow with it, now and then anything else."""
    steady, waited = draw(_USAGES), draw(_WAITS)
    texts = {
        "cpu.weight": f"{draw(_WEIGHTS)}\n",
        "cpu.idle": "0\n",
        "cpu.stat": f"usage_usec {steady * step}\nuser_usec 0\nsystem_usec 0\nthrottled_usec {(waited // 3) * step}\n",
        "cpu.pressure": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited * step}\n",
        "memory.current": f"{steady}\n",
    }
    for name in draw(_ODD_FILES):
        texts[name] = draw(kernel_text(name, 3))
    return draw(_INODES), texts


_TICKS = st.integers(0, 1000)
_PROC_FILES = st.sampled_from([("stat", "schedstat"), ("stat", "pressure/cpu"), ("loadavg",), ("stat",), ()])


@st.composite
def _proc_texts(draw, step):
    names = draw(_PROC_FILES)
    texts = {}
    for name in names:
        if not draw(one_in(4)):
            busy, idle = draw(_TICKS) * step, draw(_TICKS) * step
            texts["stat"] = f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0\ncpu1 0\nprocs_running {draw(COUNTERS)}\n"
            texts[name] = {
                "stat": texts["stat"],
                "schedstat": f"version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 0 {busy * 10**7} 0\n",
                "pressure/cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={busy * 10**3}\n",
                "loadavg": f"0.1 0.2 0.3 {busy}/{idle} 4711\n",
            }[name]
        else:
            texts[name] = draw(kernel_text(name))
    return texts


_ERRORS = mostly(
    st.just({}),
    st.dictionaries(
        st.just("uid-0"),
        st.one_of(st.sampled_from(["timeout", "no_metric: x", "unreadable: y", ":"]), UNICODE),
        max_size=1,
    ),
    5,
)
_ORDERED = st.dictionaries(st.sampled_from(_CLASS_NAMES), st.integers(100, 10_000), max_size=3)
_SUBTREE = kernel_text("cgroup.subtree_control")
_TASK = kernel_text("task/schedstat")


@st.composite
def readings(draw):
    """One group, its tasks and the node's own files, reading after reading."""
    return [
        (draw(ELAPSED), *draw(_group_texts(step)), [draw(_TASK), draw(_TASK)], draw(_proc_texts(step)))
        for step in range(draw(st.integers(2, 4)))
    ]


@st.composite
def nodes(draw):
    """A node over some collections: which classes it has, and for each collection a dict as `targets.check_whole` reads."""
    groups = draw(st.lists(st.sampled_from(PODS), min_size=1, max_size=3, unique=True))
    steps = draw(st.integers(2, 3))
    pods = [draw(workload(st.just(f"uid-{number}"), st.just(group))) for number, group in enumerate(groups)]
    for fields in pods[:2]:
        fields["labels"] = {CollectorConfig().class_labels[0]: draw(st.sampled_from(_CLASS_NAMES))}
        fields["metrics_url"] = draw(st.sampled_from([f"http://{fields['uid']}/", fields["metrics_url"]]))
        fields["latency_metric"] = fields["latency_unit"] = None
        fields["annotations"] = draw(_FEW_ANNOTATIONS)
    pages = {fields["uid"]: draw(histories(steps)) for fields in pods[:2]}
    neighbours = draw(st.lists(st.sampled_from(NEIGHBOURS), max_size=3, unique=True))
    above = {"/".join(group.split("/")[:depth]) for group in groups for depth in range(1, group.count("/") + 1)}
    found = []
    for step in range(steps):
        present = [name for name in dict.fromkeys([*groups, *sorted(above), *neighbours]) if not draw(one_in(15))]
        found.append(
            {
                "elapsed": draw(ELAPSED),
                "may_grow": draw(st.booleans()),
                "workloads": pods[:-1] if draw(one_in(8)) else pods,
                "groups": {name: draw(_group_texts(step)) for name in present},
                "controllers": {"": draw(_SUBTREE)},
                "tasks": {
                    group: [
                        f"{10**9 * (step + 1)} {draw(st.integers(0, 10**9)) * step} 1\n",
                        draw(_TASK),
                    ]
                    for group in draw(st.lists(st.sampled_from(groups), max_size=1))
                },
                "proc": draw(_proc_texts(step)),
                "pages": {uid: draw(typed(of_pod[step])) for uid, of_pod in pages.items() if not draw(one_in(10))},
                "errors": draw(_ERRORS),
                "ordered": draw(_ORDERED),
            }
        )
    return draw(st.integers(0, 1)), found
