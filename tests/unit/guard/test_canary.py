"""Which pods are in a canary, and what their weights amount to."""

import msgspec
import pytest

from schemas.canary import is_canary
from schemas.messages import Verdict
from schemas.settings import WeightSettings
from services.guard.core.canary import Ordered, canary_weights, ordered_after
from tests.support.builders import BATCH, CRITICAL, DEFAULT, PROPOSED, action, actuation, command, pod, state, write
from tests.support.services import guard_in

LIMITS = WeightSettings()
UIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(2000)]


def test_the_same_pods_are_picked_on_every_machine_and_in_every_run():
    picked = [name for name in ("a", "b", "c", "d", "e", "f", "g", "h") if is_canary(f"uid-{name}", 0.5)]
    assert picked == ["b", "e", "f", "g"]


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 0.9])
def test_about_the_wanted_share_is_picked(ratio):
    picked = sum(is_canary(uid, ratio) for uid in UIDS) / len(UIDS)
    assert picked == pytest.approx(ratio, abs=0.03)


def test_nobody_is_in_at_0_and_everybody_at_1():
    assert not any(is_canary(uid, 0.0) for uid in UIDS)
    assert all(is_canary(uid, 1.0) for uid in UIDS)


def test_only_the_weights_of_picked_pods_count():
    pods = (pod("api", CRITICAL, 60), pod("web", BATCH, 20), pod("db", CRITICAL, 9000))
    assert canary_weights(pods, 0.5, LIMITS) == {CRITICAL: 300, BATCH: 100}


@pytest.mark.parametrize("fields", [{"cls": None}, {"weight": 0}, {"weight": None}, {"skip": "idle"}])
def test_a_picked_pod_that_is_never_written_does_not_count(fields):
    pods = (pod("api", CRITICAL, 60), pod("web", **{"cls": BATCH, "weight": 20, **fields}))
    assert canary_weights(pods, 0.5, LIMITS) == {CRITICAL: 100}


# ---- what was ordered, and what integers made of it ----

PODS = (pod("api", CRITICAL, 13), pod("web", BATCH, 1))
DONE = actuation(weights={CRITICAL: 1000, BATCH: 100}, writes=(write("api", 10, 13), write("web", 4, 1)))


def test_an_order_is_in_force_as_long_as_its_pods_have_what_was_written_for_it():
    ordered = ordered_after(None, DONE)
    assert canary_weights(PODS, 0.5, LIMITS, ordered) == {CRITICAL: 1000, BATCH: 100}
    assert canary_weights(PODS, 0.5, LIMITS) == {CRITICAL: 1300, BATCH: 100}


@pytest.mark.parametrize(
    "pods",
    [
        (pod("api", CRITICAL, 12), PODS[1]),
        (*PODS, pod("x", BATCH, 1)),
        (PODS[0], pod("web", DEFAULT, 1)),
        (PODS[0],),
    ],
)
def test_an_order_is_over_when_a_weight_or_the_set_of_pods_changes(pods):
    ordered = ordered_after(None, DONE)
    assert canary_weights(pods, 0.5, LIMITS, ordered) == canary_weights(pods, 0.5, LIMITS)


def test_pods_outside_the_canary_do_not_end_an_order():
    pods = (*PODS, pod("db", BATCH, 7))
    assert canary_weights(pods, 0.5, LIMITS, ordered_after(None, DONE)) == {CRITICAL: 1000, BATCH: 100}


@pytest.mark.parametrize(
    "told",
    [
        actuation(outcome="restored", weights=None),
        actuation(outcome="rolled_back"),
        actuation(outcome="failed"),
        actuation(rule="unreachable"),
        actuation(writes=(write(), write("job", 1, 2, result="failed"))),
        actuation(outcome="skipped", rule="deadline", weights=None, writes=(write(result="skipped"),)),
    ],
)
def test_whatever_was_not_carried_out_whole_ends_an_order(told):
    assert ordered_after(Ordered({BATCH: 100}, {}), told) is None


@pytest.mark.parametrize("outcome", ["held", "skipped"])
def test_a_cycle_in_which_nothing_was_touched_leaves_it(outcome):
    before = Ordered({BATCH: 100}, {})
    assert ordered_after(before, actuation(outcome=outcome, weights=None, writes=())) is before


# ---- the guard in mode canary ----


def node(critical=100, batch=100, others=100):
    """`api` and `web` are in the canary of 0.5, `job` and `cron` are not."""
    pods = (
        pod("api", CRITICAL, critical),
        pod("web", BATCH, batch),
        pod("cron", CRITICAL, others),
        pod("job", BATCH, others),
    )
    return state(pods=pods)


def canary_of(ratio, **settings):
    return guard_in("canary", {"guard.canary_ratio": ratio, **settings})


async def test_in_a_canary_the_verdict_says_how_many_pods_it_is_for():
    async with canary_of(0.5) as guard:
        await guard.inject(node(), action(weights={CRITICAL: 300, BATCH: 100}))
        (told,) = guard.sent(Verdict)
        assert (told.mode, told.outcome, told.execute, told.canary_ratio) == ("canary", "allow", True, 0.5)
        assert told.previous_weights == {CRITICAL: 100, BATCH: 100}


@pytest.mark.parametrize("mode", ["active", "shadow", "frozen"])
async def test_in_other_modes_it_is_for_all(mode):
    async with guard_in(mode) as guard:
        await guard.inject(node(), action())
        assert guard.sent(Verdict)[0].canary_ratio is None


async def test_i2_in_a_canary_the_step_is_measured_from_its_own_pods():
    """All pods together stand at 1.1 : 1 here; the canary's at 100 : 1, from where 1 : 1 is a jump."""
    async with canary_of(0.5) as guard:
        await guard.inject(node(critical=1000, batch=10, others=5000), action(weights={CRITICAL: 100, BATCH: 100}))
        (told,) = guard.sent(Verdict)
        assert (told.outcome, told.weights) == ("clamp", {CRITICAL: 2500, BATCH: 100})
        assert told.previous_weights == {CRITICAL: 10_000, BATCH: 100}


async def test_a_canary_on_a_node_with_no_picked_pod_is_held_and_says_so():
    async with canary_of(0.0001) as guard:
        await guard.inject(node(), action())
        (told,) = guard.sent(Verdict)
        assert (told.outcome, told.rule, told.execute) == ("hold", "canary", False)
        assert "no pod" in told.reason


async def test_a_canary_of_one_class_has_nothing_to_be_weighed_against():
    async with canary_of(0.5) as guard:
        await guard.inject(state(pods=(pod("api", CRITICAL, 7), pod("job", BATCH, 7))), action())
        assert (guard.sent(Verdict)[0].outcome, guard.sent(Verdict)[0].rule) == ("hold", "unchanged")


async def test_what_integers_made_of_an_order_is_not_ordered_again():
    async with canary_of(0.5) as guard:
        asked = {CRITICAL: 1000, BATCH: 100}
        await guard.inject(state(pods=(pod("api", CRITICAL, 10), pod("web", BATCH, 4))), action(weights=asked))
        await guard.inject(msgspec.structs.replace(DONE, weights=asked))
        await guard.advance(5.0)
        await guard.inject(state(cycle=2, pods=PODS, at=guard.at()), action(cycle=2, weights=asked))
        assert [(told.outcome, told.rule) for told in guard.sent(Verdict)] == [("allow", None), ("hold", "unchanged")]


async def test_active_after_canary_is_for_all_pods_again():
    async with canary_of(0.5) as guard:
        await guard.inject(command(verb="mode", mode="active"), node(), action())
        (told,) = guard.sent(Verdict)
        assert (told.execute, told.canary_ratio, told.weights) == (True, None, PROPOSED)


# ---- in several parents ----


def test_in_several_parents_a_canary_weighs_what_it_has_of_the_cpu():
    pods = (
        pod("api", CRITICAL, 20),
        pod("web", BATCH, 100, group="burstable/pod-web"),
        pod("job", CRITICAL, 300, group="burstable/pod-job"),
    )
    assert canary_weights(pods, 0.5, LIMITS, None, {"burstable": 80}) == {CRITICAL: 100, BATCH: 100}
    assert canary_weights(pods, 0.5, LIMITS, None, {}) == {CRITICAL: 100, BATCH: 500}
