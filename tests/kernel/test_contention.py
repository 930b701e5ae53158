"""Weights at work: busy groups on one CPU share it as their weights say, and the collector sees it."""

import time

import pytest

from hostfs.cgroup import CgroupTree
from schemas.messages import PodState
from services.actuator.core.solver import solve
from services.collector.core.shares import effective_shares

pytestmark = pytest.mark.kernel


def usage(tree: CgroupTree, group: str) -> int:
    return tree.reading(group).stat.usage_usec


def split(tree: CgroupTree, groups: list[str], cpu_usec: int) -> list[float]:
    """The groups' parts of the CPU time that they used together, once that is `cpu_usec`."""
    before = [usage(tree, group) for group in groups]
    deadline = time.monotonic() + 60
    while True:
        used = [usage(tree, group) - start for group, start in zip(groups, before, strict=True)]
        if sum(used) >= cpu_usec:
            return [part / sum(used) for part in used]
        assert time.monotonic() < deadline, used
        time.sleep(0.05)


@pytest.mark.parametrize("weights", [(100, 100), (1000, 100), (300, 100)])
def test_the_cpu_is_split_as_the_weights_say(sandbox, burn, weights):
    groups = ["kubepods/podone", "kubepods/podtwo"]
    for group, weight in zip(groups, weights, strict=True):
        sandbox.add(group, weight)
        burn(group)
    measured = split(CgroupTree(str(sandbox.path)), groups, 3_000_000)
    expected = weights[0] / sum(weights)
    assert measured[0] == pytest.approx(expected, abs=0.06)


def test_class_weights_reach_the_cpu_through_the_solver(sandbox, burn):
    """Two pods of one class and one of another: the classes split as asked, the pods inside by their requests."""
    pods = [
        PodState(uid="a", name="api", group="burstable/podapi", cls="latency-critical", weight=10),
        PodState(uid="b", name="big", group="burstable/podbig", cls="batch", weight=120),
        PodState(uid="c", name="small", group="burstable/podsmall", cls="batch", weight=40),
    ]
    targets = solve(pods, {"latency-critical": 300, "batch": 100}, {})
    for target in targets:
        sandbox.add(f"kubepods/{target.group}", target.weight)
        burn(f"kubepods/{target.group}")
    groups = [f"kubepods/{pod.group}" for pod in pods]
    tree = CgroupTree(str(sandbox.path))
    api, big, small = split(tree, groups, 4_000_000)
    assert api == pytest.approx(0.75, abs=0.06)
    assert big + small == pytest.approx(0.25, abs=0.06)
    assert big / (big + small) == pytest.approx(0.75, abs=0.15)
    weights = {"burstable": 100, **{target.group: target.weight for target in targets}}
    shares = effective_shares(["burstable/podapi"], weights, frozenset(weights))
    assert shares["burstable/podapi"] == pytest.approx(0.75, abs=0.01)
