"""A whole node: workloads, groups, pages and errors, collection after collection."""

from hypothesis import strategies as st

from services.collector.config import CollectorConfig
from services.collector.core.latency_source import UNITS_PER_SECOND
from services.collector.core.targets import METRIC, PATH, PORT, SCHEME, SCRAPE, UNIT
from tests.fuzz.damage import ELAPSED, mostly, one_in
from tests.fuzz.kernel_files import COUNTERS, kernel_text
from tests.fuzz.pages import METRICS, histories, typed

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
_TOOK = st.sampled_from([0.0, 0.1, 1.2])
"""Seconds from the start of a round to its end."""

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
                "took": draw(_TOOK),
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
