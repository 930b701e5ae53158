"""Run delay task by task: who is in the group, what its texts say, and what is new between two readings."""

import errno
import os

import pytest

from hostfs.cgroup import CgroupTree
from hostfs.files import read_at
from hostfs.tasks import MAX_TASKS, parse_task_schedstat, read_run_delays, run_delay_between, tasks_in

SECOND = 1_000_000_000


def group(tmp_path, name, threads):
    folder = tmp_path / "cgroup" / name
    folder.mkdir(parents=True)
    (folder / "cgroup.threads").write_text("".join(f"{thread}\n" for thread in threads))


def tree(tmp_path):
    return CgroupTree(str(tmp_path / "cgroup"))


def task(tmp_path, number, text):
    folder = tmp_path / "proc" / str(number)
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text(text)


def delays(tmp_path, name="pod"):
    return read_run_delays(tree(tmp_path), name, str(tmp_path / "proc"))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("600 500 5\n", (600, 500)),
        ("600 500 5 7 9\n", (600, 500)),  # fields that a later kernel adds
        ("600 500\n", (600, 500)),
        (f"{2**64 - 1} 0 1\n", (2**64 - 1, 0)),
        ("600\n", None),
        ("", None),
        ("600 x 5\n", None),
        ("-1 500 5\n", None),
        (f"{2**64} 500 5\n", None),
    ],
)
def test_the_first_two_fields_are_what_it_ran_and_what_it_waited(text, read):
    assert parse_task_schedstat(text) == read


def test_tasks_of_the_group_and_of_the_groups_below_are_found_and_counted_once(tmp_path):
    group(tmp_path, "pod", [])
    group(tmp_path, "pod/app", [11, 12])
    group(tmp_path, "pod/side", [21])
    group(tmp_path, "pod/app/nested", [31])
    group(tmp_path, "other", [99])
    assert tasks_in(tree(tmp_path), "pod") == [11, 12, 31, 21]


def test_tasks_of_another_pid_namespace_and_nonsense_are_left_out(tmp_path):
    group(tmp_path, "pod", [0, 7, "x", -1, 0, 8])
    assert tasks_in(tree(tmp_path), "pod") == [7, 8]


def test_no_more_tasks_than_the_most_are_taken(tmp_path):
    group(tmp_path, "pod", [])
    group(tmp_path, "pod/a", range(1, MAX_TASKS))
    group(tmp_path, "pod/b", range(5001, 5101))
    group(tmp_path, "pod/c", range(9001, 9101))
    assert tasks_in(tree(tmp_path), "pod") == [*range(1, MAX_TASKS), 5001]


def test_a_group_that_is_gone_has_no_tasks(tmp_path):
    assert tasks_in(tree(tmp_path), "pod") == []
    assert delays(tmp_path) is None


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP])
def test_cg_07_a_list_of_tasks_that_cannot_be_read_is_unknown(tmp_path, number):
    group(tmp_path, "pod", [7])
    task(tmp_path, 7, "600 500 5\n")

    def read(name, dir_fd):
        if name == "cgroup.threads":
            raise OSError(number, os.strerror(number))
        return read_at(name, dir_fd)

    failing = CgroupTree(str(tmp_path / "cgroup"), read)
    assert read_run_delays(failing, "pod", str(tmp_path / "proc")) is None


def test_delays_are_read_task_by_task(tmp_path):
    group(tmp_path, "pod", [7, 8])
    task(tmp_path, 7, "600 500 5\n")
    task(tmp_path, 8, "0 40 0\n")
    assert delays(tmp_path) == {7: 500, 8: 40}


def test_a_task_that_ends_between_the_list_and_its_file_is_left_out(tmp_path):
    group(tmp_path, "pod", [7, 8, 9])
    task(tmp_path, 7, "600 500 5\n")
    task(tmp_path, 9, "")
    assert delays(tmp_path) == {7: 500}


def test_where_all_tasks_are_gone_nothing_is_known(tmp_path):
    group(tmp_path, "pod", [7, 8])
    assert delays(tmp_path) is None


def test_a_kernel_that_does_not_count_is_unknown_and_not_zero(tmp_path):
    group(tmp_path, "pod", [7, 8])
    task(tmp_path, 7, "0 0 0\n")
    task(tmp_path, 8, "0 0 0\n")
    assert delays(tmp_path) is None


def test_a_task_that_ran_and_never_waited_is_a_measured_zero(tmp_path):
    group(tmp_path, "pod", [7, 8])
    task(tmp_path, 7, "900 0 1\n")
    task(tmp_path, 8, "0 0 0\n")
    assert delays(tmp_path) == {7: 0, 8: 0}
    assert run_delay_between({7: 0, 8: 0}, {7: 0, 8: 0}, 5.0) == 0.0


def test_the_mean_number_of_tasks_that_waited():
    assert run_delay_between({1: 0, 2: SECOND}, {1: 2 * SECOND, 2: 2 * SECOND}, 2.0) == 1.5


def test_a_new_task_counts_whole():
    assert run_delay_between({1: 0}, {1: 0, 2: SECOND}, 2.0) == 0.5


def test_a_number_that_was_given_anew_is_a_new_task():
    assert run_delay_between({1: 90 * SECOND}, {1: SECOND}, 2.0) == 0.5


def test_a_task_that_waited_longer_than_the_window_before_it_was_seen_adds_nothing():
    assert run_delay_between({1: 0}, {1: SECOND, 2: 90 * SECOND}, 2.0) == 0.5


def test_a_task_that_ended_takes_nothing_away():
    assert run_delay_between({1: 0, 2: 90 * SECOND}, {1: SECOND}, 2.0) == 0.5


def test_no_task_waits_longer_than_the_window():
    # The kernel adds a wait when it ends: this one began before the window.
    assert run_delay_between({1: 0}, {1: 30 * SECOND}, 2.0) == 1.0


def test_what_the_groups_own_limit_held_is_taken_off_every_task():
    four = dict.fromkeys(range(4), SECOND)
    assert run_delay_between(dict.fromkeys(range(4), 0), four, 2.0, held_ratio=0.5) == 0.0
    assert run_delay_between({1: 0, 2: 0}, {1: 2 * SECOND, 2: 0}, 2.0, held_ratio=0.25) == 0.75


@pytest.mark.parametrize(
    ("previous", "current", "elapsed"),
    [(None, {1: 5}, 2.0), ({1: 5}, None, 2.0), ({1: 5}, {1: 6}, None), ({1: 5}, {1: 6}, 0.0), ({1: 5}, {1: 6}, -1.0)],
)
def test_what_cannot_be_compared_is_unknown(previous, current, elapsed):
    assert run_delay_between(previous, current, elapsed) is None


def test_this_machines_own_task_has_a_schedstat():
    with open(f"/proc/self/task/{os.getpid()}/schedstat", encoding="ascii") as file:
        assert parse_task_schedstat(file.read()) is not None


def test_a_list_that_was_cut_counts_only_tasks_that_were_in_it_before():
    """Other tasks come into view when those before them end: their lives' waits are not this window's."""
    before = dict.fromkeys(range(MAX_TASKS), 0)
    others = dict.fromkeys(range(MAX_TASKS, 2 * MAX_TASKS), SECOND // 10)
    assert run_delay_between(before, others, 2.0) == 0.0
    assert run_delay_between(before, {**others, 0: SECOND}, 2.0) == 0.5
