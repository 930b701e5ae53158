"""How long the tasks of a group waited for a CPU, task by task: for kernels that show no pressure per group."""

from collections.abc import Mapping
from typing import Final

from hostfs.cgroup import CgroupTree
from hostfs.counters import parse_all_unsigned
from hostfs.files import read_text

MAX_TASKS: Final = 512
"""Most tasks read of one pod, at three system calls each. Of more the first ones stand for all, and of those only the
ones that were among them before too: a lower bound."""

MAX_GROUPS: Final = 64
"""Most groups visited below one pod: its containers, and what those make inside."""

_CUT: Final = 0.9
"""A list that is almost as long as the most may have been cut: some tasks of it end before they are read."""

_MAX_DEPTH: Final = 3


def parse_task_schedstat(text: str) -> tuple[int, int] | None:
    """Nanoseconds that a task ran and that it waited to run, since it was made; None for another text.

    Source: kernel, scheduler/sched-stats.rst: `/proc/<pid>/schedstat`, first and second field.
    """
    words = text.split()
    numbers = parse_all_unsigned(words[:2])
    return (numbers[0], numbers[1]) if numbers is not None and len(numbers) == 2 else None  # noqa: PLR2004 - ran, waited


def tasks_in(tree: CgroupTree, group: str, depth: int = _MAX_DEPTH) -> list[int]:
    """Thread ids in the group and the groups below it, at most MAX_TASKS. Tasks of another pid namespace than the
    reader's show as 0 and are left out.
    """
    found: list[int] = []
    for word in (tree.read(group, "cgroup.threads") or "").split(None, MAX_TASKS)[:MAX_TASKS]:
        number = parse_all_unsigned([word])
        if number is not None and number[0] > 0:
            found.append(number[0])
    if depth > 0:
        for child in tree.children(group)[:MAX_GROUPS]:
            if len(found) >= MAX_TASKS:
                break
            found += tasks_in(tree, child, depth - 1)
    return found[:MAX_TASKS]


def read_run_delays(tree: CgroupTree, group: str, proc_root: str) -> dict[int, int] | None:
    """Nanoseconds that each task of the group waited to run, since it was made, by thread id. A task that is gone is
    left out. None where nothing can be told: no task can be seen, or the kernel does not count (all ran for 0 ns).
    """
    delays: dict[int, int] = {}
    counts = False
    for task in tasks_in(tree, group):
        try:
            read = parse_task_schedstat(read_text(f"{proc_root}/{task}/schedstat"))
        except OSError:
            continue
        if read is not None:
            ran_nsec, delays[task] = read
            counts = counts or ran_nsec > 0
    return delays if counts else None


def run_delay_between(
    previous: Mapping[int, int] | None,
    current: Mapping[int, int] | None,
    elapsed_seconds: float | None,
    held_ratio: float = 0.0,
) -> float | None:
    """Mean number of the group's tasks that waited between two readings `elapsed_seconds` apart; None if it cannot be
    told. `held_ratio` is the part of the window (0-1) in which the group's own limit held it: that much is taken off
    every task, since all of them may have been held at once.

    No task waits longer than the window: the kernel adds a wait when it ends, so some of it may be older. A task that
    is in the second reading only was made in between, or its number was given anew, and counts whole; one that waited
    longer than the window is older (moved here), and how much of that is new is not known. Where a list may have been
    cut, only tasks in both count.
    """
    if previous is None or current is None or elapsed_seconds is None or elapsed_seconds <= 0:
        return None
    window_nsec = elapsed_seconds * 1e9
    waited_nsec = 0.0
    is_cut = max(len(previous), len(current)) > _CUT * MAX_TASKS
    for task, delay in current.items():
        before = previous.get(task)
        if before is None and is_cut:
            continue
        if before is not None and delay >= before:
            new_nsec = min(window_nsec, delay - before)
        else:
            new_nsec = delay if delay <= window_nsec else 0.0
        waited_nsec += max(0.0, new_nsec - held_ratio * window_nsec)
    return waited_nsec / window_nsec
