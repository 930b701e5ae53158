"""A pod that is not steered any more gets its original back with the next verdict, whatever that says."""

import errno

import msgspec
import pytest

from schemas.messages import Actuation
from services.rewarder.core.censor import Cycle, censor_reason
from tests.support.builders import BATCH, CRITICAL, action, command, pod, state
from tests.unit.actuator.world import API, JOB, actuator, at

HOLD = {"outcome": "hold", "execute": False, "weights": None, "rule": "unchanged"}
NOT_EXECUTED = [
    HOLD,
    {"outcome": "refuse", "execute": False, "weights": None, "rule": "rate"},
    {"outcome": "late", "execute": False, "weights": None, "rule": "budget"},
]
NOT_DONE = [{"deadline": 1}, {"mode": "canary", "canary_ratio": None}, {"weights": {CRITICAL: 20_000, BATCH: 100}}]
ORDER = {"weights": {CRITICAL: 300, BATCH: 100}}


def pods(cls=CRITICAL, skip=None, weight=300):
    return (pod("api", cls, weight, skip=skip), pod("job", BATCH, 100))


def told(h):
    """Of the last cycle: its outcome, and what became of `api`."""
    last = h.sent(Actuation)[-1]
    writes = [(write.result, write.reason, write.before, write.after) for write in last.writes if write.group == API]
    return last.outcome, last.rule, writes


@pytest.mark.parametrize("fields", [*NOT_EXECUTED, *NOT_DONE])
async def test_a_pod_that_is_opted_out_has_its_original_back_whatever_comes_of_the_verdict(tree, journal, fields):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        assert tree.weight(API) == "300"
        await h.advance(5.0)
        await h.inject(*at(h, 2, pods=pods(None, "excluded"), **{**ORDER, **fields}))
        assert tree.weight(API) == "100\n"
        outcome, _, writes = told(h)
        assert outcome in ("held", "skipped")
        assert writes == [("released", "excluded", 300, 100)]
        assert tree.weight(JOB) == "100\n"


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (pods(None), "no_class"),
        (pods(None, "namespace"), "namespace"),
        (pods(CRITICAL, "exclusive_cpus"), "exclusive_cpus"),
        (pods(None, "terminating"), "terminating"),
        (pods()[1:], "not_seen"),
    ],
)
async def test_whatever_it_is_not_steered_for_any_more(tree, journal, seen, why):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        await h.inject(*at(h, 2, pods=seen, **HOLD))
        assert tree.weight(API) == "100\n"
        assert told(h) == ("held", "unchanged", [("released", why, 300, 100)])


async def test_the_others_keep_what_was_ordered_and_nothing_is_told_twice(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 300, BATCH: 50}))
        for cycle in (2, 3):
            await h.advance(5.0)
            await h.inject(*at(h, cycle, pods=pods(None, "excluded"), **HOLD))
            assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "50")
        assert told(h) == ("held", "unchanged", [])


async def test_a_change_that_is_carried_out_tells_it_too(tree, journal):
    tree.add("pod-web")
    web = pod("web", CRITICAL, 100)
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=(*pods(weight=100), web), **ORDER))
        await h.advance(5.0)
        await h.inject(*at(h, 2, pods=(*pods(None, "excluded", 150), web), weights={CRITICAL: 500, BATCH: 100}))
        assert tree.weight(API) == "100\n"
        assert told(h) == ("applied", None, [("released", "excluded", 150, 100)])


async def test_i5_somebody_else_s_value_is_not_fought(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        tree.write(API, "777\n")
        tried = len(faults.attempts)
        await h.advance(5.0)
        await h.inject(*at(h, 2, pods=pods(None, "excluded", 777), **HOLD))
        assert tree.weight(API) == "777\n"
        assert len(faults.attempts) == tried
    assert tree.weight(API) == "777\n"


async def test_what_the_kernel_refuses_is_told_and_tried_again(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        faults.errno_of[API] = errno.EROFS
        await h.advance(5.0)
        await h.inject(*at(h, 2, pods=pods(None, "excluded"), **HOLD))
        assert told(h) == ("held", "unchanged", [("failed", "read_only", 300, None)])
        faults.errno_of.clear()
        await h.advance(5.0)
        await h.inject(*at(h, 3, pods=pods(None, "excluded"), **HOLD))
        assert tree.weight(API) == "100\n"


async def test_a_verdict_that_overtook_its_state_waits_for_it(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        seen, judged = at(h, 2, pods=pods(None, "excluded"), **HOLD)
        await h.inject(judged)
        assert len(h.sent(Actuation)) == 1
        await h.inject(seen)
        assert tree.weight(API) == "100\n"
        assert told(h) == ("held", "unchanged", [("released", "excluded", 300, 100)])


async def test_a_verdict_whose_state_never_comes_is_told_all_the_same(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        await h.inject(at(h, 2, **HOLD)[1])
        await h.advance(6.0)
        assert told(h) == ("held", "unchanged", [])
        assert tree.weight(API) == "300"


async def test_i2_it_is_a_move_to_a_state_from_before_it(tree, journal):
    """As it would be of another run of the collector."""
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        early = at(h, 1, boot="boot2", pods=pods(), weights={CRITICAL: 900, BATCH: 100})
        await h.advance(0.1)
        await h.inject(*at(h, 2, pods=pods(None, "excluded"), **HOLD))
        await h.inject(*early)
        assert told(h)[:2] == ("skipped", "freshness")
        assert tree.weight(API) == "100\n"


async def test_a_rollback_afterwards_does_not_put_it_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        await h.inject(*at(h, 2, weights={CRITICAL: 900, BATCH: 100}))
        await h.advance(5.0)
        await h.inject(*at(h, 3, pods=pods(None, "excluded", 900), **HOLD))
        await h.inject(command(cycle=2, verb="rollback", by="guard"))
        assert tree.weight(API) == "100\n"


async def test_the_cycle_is_not_learned_from(tree, journal):
    """A pod that changed its weight on the way makes no equal conditions, also where nothing else was done."""
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **ORDER))
        await h.advance(5.0)
        seen, judged = at(h, 2, pods=pods(None, "excluded"), **HOLD)
        await h.inject(seen, judged)
        after = state(boot=seen.boot, cycle=2, phase="after", pods=pods(None, "excluded", 100))
        cycle = Cycle(seen, action(boot=seen.boot, cycle=2), judged, h.sent(Actuation)[-1], after)
        assert censor_reason(cycle, {}, min_requests=1, require_contention=False) == "partial: excluded"
        quiet = msgspec.structs.replace(h.sent(Actuation)[-1], writes=())
        assert censor_reason(
            Cycle(seen, action(), judged, quiet, after), {}, min_requests=1, require_contention=False
        ) == ("no_latency_class")
