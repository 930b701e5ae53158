"""Waits task by task, as the kernel counts them: the signal where it shows no pressure per group."""

import time

import pytest

from hostfs.cgroup import CgroupTree
from hostfs.files import read_text
from hostfs.tasks import parse_task_schedstat, read_run_delays, tasks_in

pytestmark = pytest.mark.kernel


def ran_and_waited(tree: CgroupTree, group: str) -> tuple[int, int]:
    """Nanoseconds, summed over the group's tasks."""
    read = [parse_task_schedstat(read_text(f"/proc/{task}/schedstat")) for task in tasks_in(tree, group)]
    known = [numbers for numbers in read if numbers is not None]
    return sum(ran for ran, _ in known), sum(waited for _, waited in known)


@pytest.mark.parametrize("weights", [(100, 100), (300, 100)])
def test_a_busy_task_waits_while_the_other_group_runs(sandbox, burn, weights):
    """Two burners on one CPU: each runs for its share of the time and waits for the rest."""
    groups = ["kubepods/podone", "kubepods/podtwo"]
    for group, weight in zip(groups, weights, strict=True):
        sandbox.add(group, weight)
        burn(group)
    tree = CgroupTree(str(sandbox.path))
    before = [ran_and_waited(tree, group) for group in groups]
    deadline = time.monotonic() + 60
    while True:
        after = [ran_and_waited(tree, group) for group in groups]
        ran, waited = ([now[i] - then[i] for now, then in zip(after, before, strict=True)] for i in (0, 1))
        if sum(ran) >= 3_000_000_000:
            break
        assert time.monotonic() < deadline, (ran, waited)
        time.sleep(0.05)
    for index, weight in enumerate(weights):
        assert waited[index] / (ran[index] + waited[index]) == pytest.approx(1 - weight / sum(weights), abs=0.08)


def test_tasks_below_the_pod_group_are_counted_and_an_empty_group_tells_nothing(sandbox, burn):
    sandbox.add("kubepods/podone", 100)
    tree = CgroupTree(str(sandbox.path))
    assert read_run_delays(tree, "kubepods/podone", "/proc") is None
    sandbox.add("kubepods/podone/container", 100)
    burn("kubepods/podone/container")
    deadline = time.monotonic() + 60
    while read_run_delays(tree, "kubepods/podone", "/proc") is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(tasks_in(tree, "kubepods/podone")) == 1
