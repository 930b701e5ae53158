"""What the text of a cgroup file means."""

import pytest

from hostfs.cgroup import (
    CpuMax,
    CpuMaxUnknown,
    CpuStat,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_memory,
    parse_weight,
)

THREE_LINES = "usage_usec 73000\nuser_usec 27000\nsystem_usec 46000\n"
EIGHT_LINES = THREE_LINES + "nr_periods 7\nnr_throttled 3\nthrottled_usec 139381\nnr_bursts 0\nburst_usec 0\n"
THROTTLED = CpuStat(73_000, 27_000, 46_000, nr_periods=7, nr_throttled=3, throttled_usec=139_381)


def test_st_05_a_throttling_is_read_in_microseconds():
    assert parse_cpu_stat(EIGHT_LINES) == THROTTLED


def test_st_05_b_throttling_is_unknown_not_zero_without_the_cpu_controller():
    assert parse_cpu_stat(THREE_LINES) == CpuStat(73_000, 27_000, 46_000, None, None, None)


def test_st_05_c_unknown_keys_are_ignored():
    assert parse_cpu_stat(EIGHT_LINES + "core_sched.force_idle_usec 0\nnice_usec 5\n") == THROTTLED


def test_st_05_the_name_of_cgroup_v1_is_not_mistaken_for_microseconds():
    assert parse_cpu_stat(THREE_LINES + "throttled_time 139381000\n") == CpuStat(73_000, 27_000, 46_000)


@pytest.mark.parametrize("value", [str(2**64), "18446744073709551616000", "-1", "max", ""])
def test_a_value_that_no_counter_has_is_unknown_and_leaves_the_others(value):
    text = EIGHT_LINES.replace("throttled_usec 139381", f"throttled_usec {value}")
    assert parse_cpu_stat(text) == CpuStat(73_000, 27_000, 46_000, nr_periods=7, nr_throttled=3)


def test_the_largest_counter_is_read():
    assert parse_cpu_stat(f"usage_usec {2**64 - 1}\n") == CpuStat(2**64 - 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user_usec 1\n",
        "usage_usec -5\n",
        "usage_usec 1.5\n",
        "usage_usec\n",
        "usage_usec " + "9" * 5000,
        f"usage_usec {2**64}",
    ],
)
def test_a_cpu_stat_without_a_usage_is_none(text):
    assert parse_cpu_stat(text) is None


@pytest.mark.parametrize(
    ("text", "limit", "cpus"),
    [
        ("max 100000\n", CpuMax(None, 100_000), None),
        ("150000 100000\n", CpuMax(150_000, 100_000), 1.5),
        ("200000\n", CpuMax(200_000, 100_000), 2.0),
        ("max\n", CpuMax(None, 100_000), None),
        ("5000 50000", CpuMax(5_000, 50_000), 0.1),
    ],
)
def test_st_06_limits_are_read_in_each_form(text, limit, cpus):
    read = parse_cpu_max(text)
    assert read == limit
    assert isinstance(read, CpuMax)
    assert read.cpus == cpus


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("1 2 3", "3 words"),
        ("lots 100000", "'lots'"),
        ("0 100000", "'0'"),
        ("-1 100000", "'-1'"),
        ("100000 0", "period '0'"),
        ("max x", "period 'x'"),
    ],
)
def test_st_06_a_limit_that_makes_no_sense_is_not_mistaken_for_no_limit(text, reason):
    unknown = parse_cpu_max(text)
    assert isinstance(unknown, CpuMaxUnknown)
    assert reason in unknown.reason


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("100\n", 100),
        ("1\n", 1),
        ("10000\n", 10_000),
        ("0\n", 0),
        ("10001\n", None),
        ("", None),
        ("-1", None),
        ("1e2", None),
        ("٣", None),
    ],
)
def test_wt_03_a_weight_of_zero_is_a_reading_and_nonsense_is_none(text, weight):
    assert parse_weight(text) == weight


@pytest.mark.parametrize(("text", "flag"), [("1\n", True), ("0\n", False), ("", None), ("2\n", None), ("yes", None)])
def test_a_flag_is_one_digit(text, flag):
    assert parse_flag(text) is flag


def test_memory_is_in_bytes():
    assert parse_memory("4096\n") == 4096
    assert parse_memory("max\n") is None


def test_controllers_are_a_set_of_names():
    assert parse_controllers("cpuset cpu io memory\n") == {"cpuset", "cpu", "io", "memory"}
    assert parse_controllers("\n") == frozenset()
