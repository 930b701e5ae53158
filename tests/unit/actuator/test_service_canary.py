"""In a canary only the picked pods are written; all others are as they were before Trimtab."""

import errno

import pytest

from schemas.canary import is_canary
from schemas.messages import Actuation
from tests.support.builders import BATCH, CRITICAL, command, pod
from tests.unit.actuator.world import Tree, actuator, at

IN = ("pod-api", "pod-web")
OUT = ("pod-cron", "pod-job")
PODS = (
    pod("api", CRITICAL, 100),
    pod("web", BATCH, 100),
    pod("cron", CRITICAL, 100),
    pod("job", BATCH, 100),
)
WEIGHTS = {CRITICAL: 300, BATCH: 100}


@pytest.fixture
def tree(tmp_path):
    """Four pods: `api` and `web` are in a canary of a half, of a tenth is `web` alone."""
    made = Tree(tmp_path)
    for group in (*IN, *OUT):
        made.add(group)
    return made


def weights(tree):
    return [tree.weight(group).strip() for group in (*IN, *OUT)]


def canary(h, cycle, ratio=0.5, **fields):
    return at(h, cycle, **{"pods": PODS, "mode": "canary", "canary_ratio": ratio, "weights": WEIGHTS, **fields})


def outcomes(h):
    return [(told.outcome, told.rule) for told in h.sent(Actuation)]


def test_who_is_in_which_canary():
    assert [is_canary(pod.uid, 0.5) for pod in PODS] == [True, True, False, False]
    assert [is_canary(pod.uid, 0.1) for pod in PODS] == [False, True, False, False]


async def test_only_picked_pods_are_written_and_their_sum_stays(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        assert weights(tree) == ["150", "50", "100", "100"]
        assert sorted(faults.attempts) == sorted(IN)
        assert [write.group for write in h.sent(Actuation)[0].writes] == sorted(IN)
    assert (weights(tree), tree.weight("pod-api")) == (["100"] * 4, "100\n")


async def test_after_active_whoever_is_not_picked_gets_its_original_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=PODS, weights=WEIGHTS))
        assert weights(tree) == ["150", "50", "150", "50"]
        await h.inject(*canary(h, 2))
        assert weights(tree) == ["150", "50", "100", "100"]
        assert [tree.weight(group) for group in OUT] == ["100\n", "100\n"]


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "hold", "execute": False, "weights": None, "rule": "hold"},
        {"outcome": "refuse", "execute": False, "weights": None, "rule": "rate"},
        {"outcome": "late", "execute": False, "weights": None, "rule": "budget"},
        {"deadline": 1},
    ],
)
async def test_that_needs_no_change_to_be_executed(tree, journal, fields):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=PODS, weights=WEIGHTS))
        await h.inject(*canary(h, 2, **fields))
        assert [tree.weight(group) for group in OUT] == ["100\n", "100\n"]
        assert [tree.weight(group) for group in IN] == ["150", "50"]


async def test_a_pod_that_a_smaller_ratio_leaves_out_gets_its_original_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        await h.inject(*canary(h, 2, 0.1, outcome="hold", execute=False, weights=None, rule="hold"))
        assert weights(tree) == ["100", "50", "100", "100"]


async def test_a_larger_ratio_takes_more_pods_in(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        await h.inject(*canary(h, 2, 1.0))
        assert weights(tree) == ["150", "50", "150", "50"]


async def test_active_after_canary_writes_all(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        await h.inject(*at(h, 2, pods=PODS, weights=WEIGHTS))
        assert outcomes(h) == [("applied", None), ("applied", None)]
        assert weights(tree) == ["150", "50", "150", "50"]


@pytest.mark.parametrize("ratio", [0.0, -1.0, 0.0001])
async def test_a_canary_of_nobody_writes_nothing(tree, journal, faults, ratio):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1, ratio))
        assert outcomes(h) == [("skipped", None)]
        assert "no pod" in h.sent(Actuation)[0].reason
    assert faults.attempts == []


async def test_i8_a_canary_that_names_no_share_writes_nothing(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1, None))
        assert outcomes(h) == [("skipped", "mode")]
    assert faults.attempts == []


async def test_classes_without_a_common_parent_within_the_canary_are_unreachable(tree, journal):
    """Here `cron` and `job` would join the two, and are not in it."""
    tree.add("burstable/pod-web")
    pods = (PODS[0], pod("web", BATCH, 100, group="burstable/pod-web"), *PODS[2:])
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1, pods=pods))
        assert h.sent(Actuation)[0].rule == "unreachable"


async def test_a_rollback_of_a_canary_touches_nobody_else(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        await h.inject(command(verb="rollback", by="guard"))
        assert outcomes(h)[-1][0] == "rolled_back"
        assert weights(tree) == ["100"] * 4
        assert set(faults.attempts) == set(IN)


async def test_an_actuator_on_its_way_out_gives_nothing_back_a_second_time(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=PODS, weights=WEIGHTS))
        faults.errno_of["*"] = errno.EROFS
        await h.service.stop()
        tried = len(faults.attempts)
        await h.inject(*canary(h, 2))
        assert len(faults.attempts) == tried


async def test_i4_all_of_it_returns_after_a_kill_in_between(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*canary(h, 1))
        h.service._weights.restore = list  # what a SIGKILL leaves undone
    assert weights(tree)[:2] == ["150", "50"]
    async with actuator(tree, journal):
        assert [tree.weight(group) for group in (*IN, *OUT)] == ["100\n"] * 4
