"""Rules that hold for any text a kernel file might hold."""

import math
import os.path
import string

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hostfs.cgroup import (
    CgroupTree,
    CpuMax,
    CpuMaxUnknown,
    check_group,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_memory,
    parse_weight,
)
from hostfs.counters import parse_keyed, parse_unsigned
from hostfs.mounts import find_cgroup_host, parse_mountinfo
from hostfs.pods import parse_pod_group
from hostfs.pressure import parse_pressure, pressure_in
from hostfs.run_queue import (
    RunQueueSample,
    parse_loadavg,
    parse_proc_stat,
    parse_schedstat,
    run_queue_between,
)
from hostfs.weights import kernel_weight, shares_from_millicpu, weight_from_shares

untimed = settings(deadline=None)

PARSERS = [
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_keyed,
    parse_loadavg,
    parse_memory,
    parse_mountinfo,
    parse_pod_group,
    parse_pressure,
    parse_proc_stat,
    parse_schedstat,
    parse_unsigned,
    parse_weight,
    pressure_in,
]

WORDS = st.sampled_from(
    [
        *(
            "some",
            "full",
            "avg10=1.5",
            "avg60=nan",
            "avg300=-1",
            "total=7",
            "total=",
            "max",
            "0",
            "1",
            "10001",
            "9" * 5000,
        ),
        *(
            "cpu",
            "cpu0",
            "cpux",
            "version",
            "15",
            "timestamp",
            "2/77",
            "/",
            "procs_running",
            "usage_usec",
            "-",
            "-1",
            "1e9",
        ),
        *("cgroup2", "cgroup", "tmpfs", "rw,cpu", "ro", "/sys/fs/cgroup", r"\040", r"\777", "٣", "²", "\0", "\ud800"),
    ]
)
ALMOST_KERNEL_TEXT = st.lists(st.tuples(WORDS, st.sampled_from([" ", "\n", "  ", "\t", " - "])), max_size=40).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)
ANY_TEXT = st.one_of(st.text(), ALMOST_KERNEL_TEXT)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@untimed
@given(text=ANY_TEXT)
@example(text="9" * 5000)
@example(text="cpu  " + "9" * 5000)
def test_no_parser_raises(parse, text):
    parse(text)


@untimed
@given(text=st.one_of(ANY_TEXT, st.integers().map(str)))
def test_a_parsed_weight_is_one_the_kernel_can_show(text):
    weight = parse_weight(text)
    assert weight is None or 0 <= weight <= 10_000


@untimed
@given(weight=st.integers(1, 10_000))
def test_every_weight_of_the_kernel_is_read_back(weight):
    assert parse_weight(f"{weight}\n") == weight
    assert kernel_weight(weight) == weight


@untimed
@given(value=st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_finite_number_becomes_a_weight_and_order_is_kept(value):
    weight = kernel_weight(value)
    assert 1 <= weight <= 10_000
    assert weight <= kernel_weight(value + 1)


@untimed
@given(millicpu=st.integers(-10, 10**9))
def test_every_request_has_a_weight_and_a_bigger_one_never_a_smaller_weight(millicpu):
    weight = weight_from_shares(shares_from_millicpu(millicpu))
    more = weight_from_shares(shares_from_millicpu(millicpu + 1))
    assert weight is not None
    assert more is not None
    assert 1 <= weight <= more <= 10_000


@untimed
@given(text=ANY_TEXT)
def test_a_limit_is_positive_unlimited_or_unknown_with_a_reason(text):
    limit = parse_cpu_max(text)
    if isinstance(limit, CpuMaxUnknown):
        assert limit.reason
    else:
        assert isinstance(limit, CpuMax)
        assert limit.cpus is None or limit.cpus > 0


GROUPS = st.one_of(
    st.text(),
    st.lists(st.sampled_from(["..", ".", "", "kubepods", "pod1", "a\0", "...", "x:y:z", " "]), max_size=6).map(
        "/".join
    ),
)


@untimed
@given(group=GROUPS)
def test_every_group_that_is_accepted_stays_below_the_root_and_is_its_only_spelling(group):
    try:
        accepted = check_group(group)
    except ValueError:
        return
    assert accepted == group
    joined = f"/root/{accepted}"
    assert os.path.normpath(joined) == joined
    assert joined.startswith("/root/")
    assert joined != "/root/"


@untimed
@given(group=GROUPS)
def test_plain_names_are_always_accepted(group):
    components = [
        "".join(character for character in part if character in string.ascii_letters) for part in group.split("/")
    ]
    assume(all(components))
    assert check_group("/".join(components)) == "/".join(components)


@untimed
@given(group=GROUPS)
def test_a_tree_gives_a_value_or_refuses_the_group(group, tmp_path_factory):
    tree = CgroupTree(str(tmp_path_factory.getbasetemp() / "nowhere"))
    try:
        assert tree.reading(group) is None
    except ValueError:
        with pytest.raises(ValueError):
            check_group(group)


@untimed
@given(text=ANY_TEXT, controllers=st.one_of(st.none(), st.just("cpu"), ANY_TEXT))
def test_a_node_has_a_root_exactly_when_cpu_is_on_v2_and_else_a_reason_and_a_remedy(text, controllers):
    host = find_cgroup_host(text, lambda folder: controllers)
    assert (host.root is not None) == (host.cpu_on == "v2")
    if not host.is_writable:
        assert host.reason
        assert host.remedy


COUNTERS = st.integers(0, 2**64 - 1)
SAMPLES = st.one_of(
    st.builds(
        RunQueueSample,
        source=st.just("schedstat"),
        run_delay_nsec=st.dictionaries(st.integers(0, 3), COUNTERS, max_size=4),
    ),
    st.builds(RunQueueSample, source=st.just("pressure"), some_usec=COUNTERS),
    st.builds(RunQueueSample, source=st.sampled_from(["loadavg", "stat"]), runnable=COUNTERS),
)


@untimed
@given(
    previous=st.one_of(st.none(), SAMPLES),
    current=SAMPLES,
    elapsed_seconds=st.floats(),
    cpus=st.integers(-1, 512),
)
def test_a_run_queue_is_never_negative_and_pressure_never_above_one(previous, current, elapsed_seconds, cpus):
    value = run_queue_between(previous, current, elapsed_seconds, cpus)
    assert value is None or (value >= 0 and math.isfinite(value))
    if value is not None and current.source == "pressure":
        assert value <= 1


@untimed
@given(delays=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_a_schedstat_is_read_back(delays):
    lines = [f"cpu{cpu} 0 0 1 1 1 1 5 {delay} 9" for cpu, delay in enumerate(delays)]
    text = "version 16\ntimestamp 1\n" + "\n".join(lines) + "\n"
    assert parse_schedstat(text) == dict(enumerate(delays))
