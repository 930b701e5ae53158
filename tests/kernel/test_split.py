"""Class weights over a whole tree, measured: what the solver says the classes get is what the kernel gives them.

The tree is a kubelet's: Guaranteed pods beside `burstable` beside `besteffort`, one busy loop in each pod, one CPU.
"""

import statistics
import subprocess
import sys
import time
from collections import defaultdict

import pytest

from hostfs.cgroup import CgroupTree
from schemas.messages import PodState
from schemas.tree import structural_shares
from services.actuator.core.solver import solution

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]

CRITICAL, DEFAULT, BATCH = "latency-critical", "default", "batch"
_LEAST_SECONDS = 2.0
"""CPU that the class which gets least must have used in a window: 200 turns of 10 ms, so that one more or less is no
matter.
"""
_SETTLE_SECONDS = 4.0
"""CPU that all pods must have used under their new weights before a window begins: before Linux 6.7 who ran under
another weight has to wait for the others first. CPU and not time, of which a busy machine gives little.
"""
_AGREE_RATIO = 0.03
"""How far two windows may be apart to be taken as they are. Where the machine takes the CPU away in the middle of a turn
a window can be off; then there are more, and their median counts.
"""
_WINDOWS = 7
_PATIENCE_SECONDS = 800.0


_BURN = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print("busy", flush=True)
while True: pass
"""


@pytest.fixture
def burn(sandbox):
    """Starts a busy loop in a group, on the first CPU; it says when it has begun: little CPU makes a slow start."""
    running = []

    def start(group):
        command = [sys.executable, "-c", _BURN]
        join = sandbox.enter(group)
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=join))  # noqa: PLW1509 - no threads
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def pod(name: str, cls: str | None, weight: int, group: str) -> PodState:
    return PodState(uid=name, name=name, group=group, cls=cls, weight=weight)


def measured(sandbox, burn, pods: list[PodState], parents: dict[str, int], order: dict[str, int]):
    """Each class's part of the CPU that all pods used, as measured and as the written weights should have it; the
    solution; and the same parts of the pods without a class, by name, under the originals and then.
    """
    running = []
    for group, weight in parents.items():
        sandbox.add(f"kubepods/{group}", weight)
    for one in pods:
        sandbox.add(f"kubepods/{one.group}", one.weight)
        running.append(burn(f"kubepods/{one.group}"))
    solved = solution(pods, order, {}, parents)
    written = {target.group: target.weight for target in solved.targets}
    for group, weight in written.items():
        sandbox.add(f"kubepods/{group}", weight)
    now = [pod(one.name, one.cls, written.get(one.group, one.weight), one.group) for one in pods]
    should = parts_of(pods, structural_shares(now, parents))
    for process in running:
        assert process.stdout.readline() == b"busy\n"
    return split(CgroupTree(str(sandbox.path)), pods), should, solved


def parts_of(pods, amounts):
    """Amounts by group, summed by class; a pod without one stands for itself."""
    found = defaultdict(float)
    for one in pods:
        found[one.cls or one.name] += amounts[one.group]
    return dict(found)


def split(tree, pods):
    """Each class's part of the CPU that all use: of two windows that agree, or the median of seven."""
    used_by(tree, pods, until=lambda used: sum(used.values()) >= _SETTLE_SECONDS)
    windows = []
    for _ in range(_WINDOWS):
        used = used_by(tree, pods, until=lambda used: min(used.values()) >= _LEAST_SECONDS)
        windows.append({name: seconds / sum(used.values()) for name, seconds in used.items()})
        if len(windows) == 2 and all(
            abs(windows[1][name] / part - 1) <= _AGREE_RATIO for name, part in windows[0].items()
        ):
            break
    return {name: statistics.median(window[name] for window in windows) for name in windows[0]}


def used_by(tree, pods, *, until):
    """CPU seconds by class from now until enough was used."""

    def usage():
        return {one.group: tree.reading(f"kubepods/{one.group}").stat.usage_usec / 1e6 for one in pods}

    before, deadline = usage(), time.monotonic() + _PATIENCE_SECONDS
    while True:
        now = usage()
        found = parts_of(pods, {group: seconds - before[group] for group, seconds in now.items()})
        if until(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def of(order):
    return {name: weight / sum(order.values()) for name, weight in order.items()}


def test_three_classes_in_three_parents_split_as_ordered(sandbox, burn):
    """Each class has pods in two parents at least, so all of it can be reached."""
    pods = [
        pod("db", CRITICAL, 157, "poddb"),
        pod("cron", BATCH, 39, "podcron"),
        pod("api", CRITICAL, 4, "burstable/podapi"),
        pod("web", DEFAULT, 20, "burstable/podweb"),
        pod("job", BATCH, 39, "burstable/podjob"),
        pod("tool", DEFAULT, 1, "besteffort/podtool"),
        pod("scan", BATCH, 1, "besteffort/podscan"),
    ]
    order = {CRITICAL: 600, DEFAULT: 200, BATCH: 200}
    got, should, solved = measured(sandbox, burn, pods, {"burstable": 79, "besteffort": 10}, order)
    assert solved.unreachable is None
    assert should == pytest.approx(of(order), rel=0.03)
    assert got == pytest.approx(of(order), rel=0.10)


def test_a_guaranteed_pod_beside_burstable_ones_moves_its_weight_beside_the_group(sandbox, burn):
    """Each class has a parent of its own: only the one weight at the top can do it."""
    pods = [
        pod("db", CRITICAL, 157, "poddb"),
        pod("big", BATCH, 60, "burstable/podbig"),
        pod("small", BATCH, 20, "burstable/podsmall"),
    ]
    order = {CRITICAL: 400, BATCH: 100}
    got, should, solved = measured(sandbox, burn, pods, {"burstable": 79}, order)
    assert solved.unreachable is None
    assert {target.name: target.weight for target in solved.targets}["db"] == 4 * 79
    assert should == pytest.approx(of(order), rel=0.02)
    assert got == pytest.approx(of(order), rel=0.10)


def test_who_is_not_steered_keeps_what_the_originals_give_while_the_others_move(sandbox, burn):
    """`agent` has no class; the sum of the pods beside it shrinks as the group does, so that its share stays."""
    pods = [
        pod("db", CRITICAL, 100, "poddb"),
        pod("job", BATCH, 60, "burstable/podjob"),
        pod("agent", None, 20, "burstable/podagent"),
    ]
    parents, order = {"burstable": 100}, {CRITICAL: 300, BATCH: 200}
    before = structural_shares(pods, parents)["burstable/podagent"]
    got, should, solved = measured(sandbox, burn, pods, parents, order)
    assert solved.unreachable is None
    assert before <= should["agent"] == pytest.approx(before, rel=0.02)
    assert got["agent"] == pytest.approx(before, rel=0.10)
    assert got[CRITICAL] / got[BATCH] == pytest.approx(1.5, rel=0.10)


def test_what_cannot_be_reached_is_as_near_as_it_says(sandbox, burn):
    """`besteffort` has a tenth of what `burstable` has, and batch is nowhere else."""
    pods = [
        pod("api", CRITICAL, 4, "burstable/podapi"),
        pod("web", DEFAULT, 8, "burstable/podweb"),
        pod("job", BATCH, 1, "besteffort/podjob"),
    ]
    order = {CRITICAL: 300, DEFAULT: 100, BATCH: 400}
    got, should, solved = measured(sandbox, burn, pods, {"burstable": 90, "besteffort": 9}, order)
    assert should == pytest.approx({CRITICAL: 0.682, DEFAULT: 0.227, BATCH: 0.0909}, rel=0.01)
    assert "batch: 0.0909 of the pods' CPU instead of 0.5 (besteffort has weight 9 beside burstable's 90)" in (
        solved.unreachable or ""
    )
    assert got == pytest.approx(should, rel=0.10)
