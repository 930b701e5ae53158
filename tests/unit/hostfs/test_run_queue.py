"""The run queue from whichever file there is, and the busy part of the CPU time."""

import pytest

from hostfs.run_queue import (
    ProcStat,
    RunQueueReader,
    RunQueueSample,
    busy_ratio_between,
    parse_loadavg,
    parse_proc_stat,
    parse_schedstat,
    run_queue_between,
)

SCHEDSTAT_15 = """\
version 15
timestamp 4295222820
cpu0 0 0 1200 300 900 450 88000000000 7000000000 5100
domain0 3 10 9 0 0 0 0 0 9 1 1 0 0 0 0 0 1 2 2 0 0 0 0 0 2 0 0 0 0 0 0 0 0 0 5 0 0
cpu1 0 0 1100 280 850 400 77000000000 9000000000 4900
domain0 3 10 9 0 0 0 0 0 9 1 1 0 0 0 0 0 1 2 2 0 0 0 0 0 2 0 0 0 0 0 0 0 0 0 5 0 0
"""
SCHEDSTAT_17 = SCHEDSTAT_15.replace("version 15", "version 17").replace("domain0 3", "domain0 MC 3")
STAT = """\
cpu  100 20 30 1000 50 5 6 7 40 8
cpu0 50 10 15 500 25 3 3 4 20 4
cpu1 50 10 15 500 25 2 3 3 20 4
intr 211509 0 0
ctxt 424997
btime 1700000000
processes 4933
procs_running 3
procs_blocked 0
"""


def schedstat(*delays):
    return RunQueueSample(source="schedstat", run_delay_nsec=dict(enumerate(delays)))


def pressure(some_usec):
    return RunQueueSample(source="pressure", some_usec=some_usec)


@pytest.mark.parametrize("text", [SCHEDSTAT_15, SCHEDSTAT_17, SCHEDSTAT_15.replace("version 15", "version 16")])
def test_the_run_delay_of_every_cpu_is_read_in_each_known_version(text):
    assert parse_schedstat(text) == {0: 7_000_000_000, 1: 9_000_000_000}


def test_fields_and_lines_that_a_later_kernel_adds_to_schedstat_are_ignored():
    text = SCHEDSTAT_17.replace(" 5100\n", " 5100 77 88\n").replace("timestamp", "clock 5\ntimestamp")
    assert parse_schedstat(text) == {0: 7_000_000_000, 1: 9_000_000_000}


def test_a_schedstat_of_zeros_is_a_measured_zero():
    assert parse_schedstat("version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 0 0 0\n") == {0: 0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version\ncpu0 0 0 1 2 3 4 5 6 7\n",
        "version 15 16\ncpu0 0 0 1 2 3 4 5 6 7\n",
        f"version 15\ncpu0 0 0 1 2 3 4 5 {2**64} 7\n",
        "version 15\ncpu 0 0 1 2 3 4 5 6 7\n",
        SCHEDSTAT_15.replace("version 15", "version 14"),
        SCHEDSTAT_15.replace("version 15", "version 18"),
        SCHEDSTAT_15.removeprefix("version 15\n"),
        "version 15\ntimestamp 1\n",
        "version 15\ntimestamp 1\ncpu0 0 0 1 2 3 4 5\n",
        "version 15\ntimestamp 1\ncpu0 0 0 1 2 3 4 5 x 7\n",
    ],
)
def test_a_schedstat_of_another_form_is_none(text):
    assert parse_schedstat(text) is None


@pytest.mark.parametrize(
    ("text", "runnable"),
    [
        ("0.20 0.18 0.12 2/77 4933\n", 2),
        ("0.20 0.18 0.12\n", None),
        ("1 2 3 4 5", None),
        ("1 2 3 x/7 5", None),
        ("", None),
    ],
)
def test_loadavg_gives_the_runnable_tasks(text, runnable):
    assert parse_loadavg(text) == runnable


def test_steal_is_busy_iowait_is_idle_and_guest_is_not_counted_twice():
    assert parse_proc_stat(STAT) == ProcStat(busy_ticks=168, total_ticks=1218, procs_running=3, cpus=2)


@pytest.mark.parametrize("text", ["", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 7 x\n", "intr 5\n"])
def test_a_proc_stat_without_its_cpu_line_is_none(text):
    assert parse_proc_stat(text) is None


def test_a_proc_stat_without_procs_running_still_has_its_times():
    assert parse_proc_stat("cpu  1 1 1 4 0 1 1 1 0 0\ncpu0 1 1 1 4 0 1 1 1 0 0\n") == ProcStat(6, 10, None, 1)


def test_the_busy_ratio_is_the_busy_part_of_the_time_between():
    assert busy_ratio_between(ProcStat(100, 1000, 1, 2), ProcStat(175, 1100, 1, 2)) == 0.75


@pytest.mark.parametrize("current", [ProcStat(100, 1000, 1, 2), ProcStat(99, 1100, 1, 2), ProcStat(50, 500, 1, 2)])
def test_without_time_or_with_counters_going_back_there_is_no_busy_ratio(current):
    assert busy_ratio_between(ProcStat(100, 1000, 1, 2), current) is None


def test_iowait_going_back_does_not_make_the_node_busier_than_busy():
    assert busy_ratio_between(ProcStat(100, 1000, 1, 2), ProcStat(200, 1098, 1, 2)) == 1.0


def test_schedstat_gives_the_mean_number_of_waiting_tasks_per_cpu():
    # Three tasks on two CPUs for two seconds: one waits at any time, half a task per CPU.
    assert run_queue_between(schedstat(5_000, 7_000), schedstat(1_000_005_000, 1_000_007_000), 2.0, 2) == 0.5


def test_pressure_gives_the_part_of_the_time_in_which_a_task_waited():
    assert run_queue_between(pressure(1_000_000), pressure(2_500_000), 5.0, 2) == 0.3
    assert run_queue_between(pressure(0), pressure(5_100_000), 5.0, 2) == 1.0


@pytest.mark.parametrize("source", ["loadavg", "stat"])
@pytest.mark.parametrize(("runnable", "value"), [(5, 2.0), (1, 0.0), (0, 0.0)])
def test_runnable_tasks_are_counted_per_cpu_without_the_reader(source, runnable, value):
    current = RunQueueSample(source=source, runnable=runnable)
    assert run_queue_between(None, current, 0.0, 2) == value


@pytest.mark.parametrize(
    ("previous", "current"),
    [
        (None, schedstat(1, 1)),
        (schedstat(5, 5), schedstat(9, 4)),
        (schedstat(), schedstat(9)),
        (pressure(5), schedstat(9)),
        (schedstat(5), pressure(9)),
        (None, pressure(9)),
        (pressure(9), pressure(5)),
    ],
)
def test_a_counter_that_cannot_be_compared_gives_none(previous, current):
    assert run_queue_between(previous, current, 5.0, 2) is None


@pytest.mark.parametrize(("elapsed_seconds", "cpus"), [(0.0, 2), (-1.0, 2), (5.0, 0), (5.0, -1)])
def test_no_time_or_no_cpu_gives_none(elapsed_seconds, cpus):
    assert run_queue_between(schedstat(1), schedstat(2), elapsed_seconds, cpus) is None
    assert run_queue_between(pressure(1), pressure(2), elapsed_seconds, cpus) is None


def test_a_cpu_that_comes_online_does_not_bring_its_past():
    before = RunQueueSample(source="schedstat", run_delay_nsec={0: 0})
    after = RunQueueSample(source="schedstat", run_delay_nsec={0: 1_000_000_000, 1: 900_000_000_000})
    assert run_queue_between(before, after, 1.0, 2) == 0.5


def test_sources_are_tried_from_best_to_last(tmp_path):
    (tmp_path / "pressure").mkdir()
    (tmp_path / "schedstat").write_text(SCHEDSTAT_15)
    (tmp_path / "pressure" / "cpu").write_text("some avg10=0.84 avg60=0.49 avg300=0.23 total=4034019\n")
    (tmp_path / "loadavg").write_text("0.20 0.18 0.12 2/77 4933\n")
    (tmp_path / "stat").write_text(STAT)
    reader = RunQueueReader(str(tmp_path))
    assert reader.sample() == schedstat(7_000_000_000, 9_000_000_000)
    (tmp_path / "schedstat").write_text(SCHEDSTAT_15.replace("version 15", "version 99"))
    assert reader.sample() == pressure(4_034_019)
    (tmp_path / "pressure" / "cpu").unlink()
    assert reader.sample() == RunQueueSample(source="loadavg", runnable=2)
    (tmp_path / "loadavg").unlink()
    assert reader.sample() == RunQueueSample(source="stat", runnable=3)
    assert reader.proc_stat() == parse_proc_stat(STAT)
    (tmp_path / "stat").unlink()
    assert reader.sample() is None
    assert reader.proc_stat() is None


def test_this_machines_own_files_give_a_sample():
    reader = RunQueueReader()
    sample = reader.sample()
    stat = reader.proc_stat()
    assert sample is not None
    assert stat is not None
    assert stat.cpus >= 1
    assert 0 < stat.busy_ticks <= stat.total_ticks
    value = run_queue_between(sample, reader.sample() or sample, 1.0, stat.cpus)
    assert value is None or value >= 0
