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
    CpuStat,
    check_group,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_memory,
    parse_weight,
)
from hostfs.counters import parse_keyed, parse_unsigned
from hostfs.cpus import parse_cpu_list, pods_apart
from hostfs.mounts import find_cgroup_host, parse_mountinfo
from hostfs.pods import parse_pod_group
from hostfs.pressure import Pressure, PressureLine, parse_pressure, pressure_in
from hostfs.run_queue import (
    SCHEDSTAT_VERSIONS,
    ProcStat,
    RunQueueSample,
    parse_loadavg,
    parse_proc_stat,
    parse_schedstat,
    run_queue_between,
)
from hostfs.tasks import parse_task_schedstat, run_delay_between
from hostfs.weights import kernel_weight, shares_from_millicpu, weight_from_shares

untimed = settings(deadline=None)

PARSERS = [
    parse_controllers,
    parse_cpu_list,
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
    parse_task_schedstat,
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
@given(delays=st.lists(COUNTERS, min_size=1, max_size=8), version=st.sampled_from(sorted(SCHEDSTAT_VERSIONS)))
def test_a_schedstat_is_read_back(delays, version):
    lines = [f"cpu{cpu} 0 0 1 1 1 1 5 {delay} 9" for cpu, delay in enumerate(delays)]
    text = f"version {version}\ntimestamp 1\n" + "\n".join(lines) + "\n"
    assert parse_schedstat(text) == dict(enumerate(delays))


@untimed
@given(ran=COUNTERS, waited=COUNTERS, slices=COUNTERS)
def test_a_tasks_schedstat_is_read_back(ran, waited, slices):
    assert parse_task_schedstat(f"{ran} {waited} {slices}\n") == (ran, waited)


STAT_FIELDS = ("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
UNKNOWN_KEYS = st.text(string.ascii_lowercase + "_.", min_size=1, max_size=12).filter(
    lambda key: key not in STAT_FIELDS
)


@untimed
@given(
    known=st.fixed_dictionaries({"usage_usec": COUNTERS}, optional=dict.fromkeys(STAT_FIELDS[1:], COUNTERS)),
    unknown=st.dictionaries(UNKNOWN_KEYS, COUNTERS, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_a_cpu_stat_is_read_back_in_any_order_with_any_fields_missing_or_added(known, unknown, order):
    lines = [f"{key} {value}" for key, value in (known | unknown).items()]
    order.shuffle(lines)
    assert parse_cpu_stat("\n".join(lines) + "\n") == CpuStat(**known)


@untimed
@given(quota=st.one_of(st.none(), st.integers(1, 2**63)), period=st.integers(1, 2**63))
def test_a_limit_is_read_back(quota, period):
    assert parse_cpu_max(f"{'max' if quota is None else quota} {period}\n") == CpuMax(quota, period)


PERCENTS = st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)
PRESSURE_LINES = st.builds(PressureLine, PERCENTS, PERCENTS, PERCENTS, COUNTERS)


@untimed
@given(some=PRESSURE_LINES, full=st.one_of(st.none(), PRESSURE_LINES))
def test_a_pressure_is_read_back(some, full):
    text = "".join(
        f"{name} avg10={line.avg10:.2f} avg60={line.avg60:.2f} avg300={line.avg300:.2f} total={line.total_usec}\n"
        for name, line in (("some", some), ("full", full))
        if line is not None
    )
    assert parse_pressure(text) == Pressure(some, full)
    assert pressure_in(text) == Pressure(some, full)


@untimed
@given(
    ticks=st.lists(st.integers(0, 2**50), min_size=8, max_size=8), running=st.integers(0, 10**6), cpus=st.integers(1, 9)
)
def test_a_proc_stat_is_read_back(ticks, running, cpus):
    each = "".join(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n" for cpu in range(cpus))
    text = f"cpu  {' '.join(map(str, ticks))} 0 0\n{each}procs_running {running}\n"
    busy = sum(ticks) - ticks[3] - ticks[4]
    assert parse_proc_stat(text) == ProcStat(busy, sum(ticks), running, cpus)
    assert parse_loadavg(f"0.20 0.18 0.12 {running}/77 4933\n") == running


DELAYS = st.dictionaries(st.integers(1, 9), COUNTERS, max_size=6)


@untimed
@given(
    previous=st.one_of(st.none(), DELAYS),
    current=DELAYS,
    elapsed_seconds=st.floats(1e-3, 1e4),
    held_ratio=st.floats(0, 1),
)
def test_no_more_tasks_wait_than_there_are_and_a_limit_never_makes_it_more(
    previous, current, elapsed_seconds, held_ratio
):
    waited = run_delay_between(previous, current, elapsed_seconds)
    unheld = run_delay_between(previous, current, elapsed_seconds, held_ratio)
    if waited is None or unheld is None:
        assert previous is None
        assert waited == unheld
        return
    assert 0 <= unheld <= waited <= len(current) * (1 + 1e-9)


def _cpu_list(cpus):
    """Ranges as the kernel writes them."""
    parts, ordered = [], sorted(cpus)
    while ordered:
        length = next((n for n in range(1, len(ordered)) if ordered[n] != ordered[0] + n), len(ordered))
        first, last = ordered[0], ordered[length - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
        ordered = ordered[length:]
    return ",".join(parts) + "\n"


@untimed
@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_back(cpus):
    assert parse_cpu_list(_cpu_list(cpus)) == cpus


@untimed
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.lists(st.frozensets(st.integers(0, 5), max_size=3)),
    )
)
def test_a_pod_that_is_apart_has_cpus_that_no_other_pod_was_given(pods):
    for uid in pods_apart(pods):
        others = frozenset(cpu for other, sets in pods.items() if other != uid for cpus in sets for cpu in cpus)
        assert any(cpus and not cpus & others for cpus in pods[uid])
