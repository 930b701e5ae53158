"""The actuator beside a kubelet: what it writes for pods in several parents, and what the kubelet writes meanwhile."""

import msgspec

from schemas.messages import Actuation
from tests.support.builders import BATCH, CRITICAL, pod
from tests.unit.actuator.world import actuator, at

DB, A, B = "pod-db", "burstable/pod-a", "burstable/pod-b"
GROUPS = {DB: "157\n", A: "60\n", B: "20\n"}


def node(h, cycle, parents, weights=None, **fields):
    """A state with the QoS groups' weights as found, and the verdict on it."""
    now = weights or (157, 60, 20)
    pods = tuple(
        pod(group[-1], cls, weight, group=group)
        for group, cls, weight in zip(GROUPS, (CRITICAL, BATCH, BATCH), now, strict=True)
    )
    seen, judged = at(h, cycle, pods=pods, **{"weights": {CRITICAL: 300, BATCH: 100}, **fields})
    return msgspec.structs.replace(seen, parents=parents), judged


def make(tree, burstable="79\n"):
    for group, weight in GROUPS.items():
        tree.add(group, weight)
    tree.write("burstable", burstable)


def weights(tree):
    return [tree.weight(group).strip() for group in GROUPS]


async def test_when_the_kubelet_writes_a_qos_group_the_next_cycle_solves_with_it_and_nobody_was_overridden(
    tree, journal, faults
):
    async with actuator(tree, journal) as h:
        make(tree)
        await h.inject(*node(h, 1, {"burstable": 79}))
        assert weights(tree) == ["237", "60", "20"]
        tree.write("burstable", "118\n")
        await h.advance(5.0)
        await h.inject(*node(h, 2, {"burstable": 118}, (237, 60, 20)))
        assert weights(tree) == ["354", "60", "20"]
        told = h.sent(Actuation)
        assert [(message.outcome, message.rule, message.overridden) for message in told] == [("applied", None, ())] * 2
        assert h.metric("trimtab_actuator_foreign_changes_total") == 0
        assert h.service._weights.originals()[DB] == 157
        await h.inject(*node(h, 3, {"burstable": 118}, (354, 60, 20)))
        assert h.sent(Actuation)[2].outcome == "held"
    assert [tree.weight(group) for group in GROUPS] == list(GROUPS.values())
    assert tree.weight("burstable") == "118\n"
    assert "burstable" not in faults.attempts


async def test_an_order_that_the_tree_allows_only_in_part_is_written_and_says_what_it_comes_to(tree, journal):
    make(tree)
    tree.add("besteffort/pod-proxy", "1\n")
    async with actuator(tree, journal) as h:
        seen, judged = node(h, 1, {"burstable": 79, "besteffort": 1})
        proxy = pod("proxy", None, 1, group="besteffort/pod-proxy")
        await h.inject(msgspec.structs.replace(seen, pods=(*seen.pods, proxy)), judged)
        (told,) = h.sent(Actuation)
        assert (told.outcome, told.rule) == ("held", "unreachable")
        assert f"{CRITICAL}: 0.662 of the pods' CPU instead of 0.747" in told.reason
    assert weights(tree) == ["157", "60", "20"]


async def test_a_pod_that_a_canary_gives_back_counts_with_its_original_at_once(tree, journal):
    """`api` and `web` are in a canary of 0.5, `cron` is not: the state still shows it with a weight of ours."""
    tree.add("burstable/pod-web", "60\n")
    tree.add("burstable/pod-cron", "40\n")

    def at_weights(api, web, cron):
        return (
            pod("api", CRITICAL, api),
            pod("web", BATCH, web, group="burstable/pod-web"),
            pod("cron", CRITICAL, cron, group="burstable/pod-cron"),
        )

    async with actuator(tree, journal) as h:
        orders = {"weights": {CRITICAL: 700, BATCH: 100}}
        seen, judged = at(h, 1, pods=at_weights(100, 60, 40), **orders)
        await h.inject(msgspec.structs.replace(seen, parents={"burstable": 100}), judged)
        ours = [int(tree.weight(group)) for group in ("pod-api", "burstable/pod-web", "burstable/pod-cron")]
        assert ours[2] > 40
        seen, judged = at(h, 2, pods=at_weights(*ours), **orders, mode="canary", canary_ratio=0.5)
        await h.inject(msgspec.structs.replace(seen, parents={"burstable": 100}), judged)
        found = [tree.weight(group).strip() for group in ("pod-api", "burstable/pod-web", "burstable/pod-cron")]
        assert found == ["233", "20", "40"]


async def test_what_whole_numbers_make_of_it_is_told_and_is_no_rule(tree, journal):
    tree.write("pod-api", "1\n")
    tree.write("pod-job", "1\n")
    tree.add("pod-x", "1\n")
    pods = (pod("api", CRITICAL, 1), pod("job", BATCH, 1), pod("x", None, 1))
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=pods, weights={CRITICAL: 900, BATCH: 100}))
        (told,) = h.sent(Actuation)
        assert (told.outcome, told.rule) == ("held", None)
        assert told.reason.startswith("weights are whole numbers: ")
