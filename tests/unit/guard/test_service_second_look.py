"""Step 11: rollbacks, the breaker, and what is never judged twice."""

import msgspec
import pytest

from runtime.clock import settle
from schemas.messages import Command, Verdict
from tests.support.builders import (
    BATCH,
    BOOT,
    CRITICAL,
    WEIGHTS,
    action,
    actuation,
    after,
    command,
    hold,
    pod,
    state,
    with_p99,
    with_wait,
)
from tests.support.services import guard_in

WORSE, KEPT = 0.145, 0.143


async def cycle_to_actuation(guard, cycle=1, outcome="applied"):
    """A change, allowed and carried out. Its state, with a P99 of 120 ms."""
    before = with_p99(state(cycle=cycle, at=guard.at()), 0.120)
    await guard.inject(before, action(cycle=cycle))
    await guard.advance(0.05)
    await guard.inject(actuation(cycle=cycle, outcome=outcome, at=guard.at()))
    return before


async def whole_cycle(guard, cycle, p99_after):
    before = await cycle_to_actuation(guard, cycle)
    await guard.advance(2.0)
    await guard.inject(with_p99(after(before, at=guard.at()), p99_after))
    await guard.advance(2.95)


def orders(guard):
    return [(order.cycle, order.verb) for order in guard.sent(Command)]


async def test_a_worse_p99_after_an_applied_change_is_rolled_back():
    async with guard_in() as guard:
        await whole_cycle(guard, 1, WORSE)
        (order,) = guard.sent(Command)
        assert (order.boot, order.cycle, order.verb, order.by) == (BOOT, 1, "rollback", "guard")
        assert (order.weights, order.p99_before_seconds, order.p99_after_seconds) == (WEIGHTS, 0.120, WORSE)
        assert order.reason == f"{CRITICAL}: P99 120.0 ms -> 145.0 ms (+21 %)"


async def test_a_longer_wait_after_an_applied_change_is_rolled_back_without_any_p99_in_the_order():
    async with guard_in() as guard:
        before = with_wait(state(at=guard.at()), 0.05)
        await guard.inject(before, action())
        await guard.advance(0.05)
        await guard.inject(actuation(at=guard.at()))
        await guard.advance(2.0)
        await guard.inject(with_wait(after(before, at=guard.at()), 0.40))
        (order,) = guard.sent(Command)
        assert (order.cycle, order.verb, order.by, order.weights) == (1, "rollback", "guard", WEIGHTS)
        assert order.reason == f"{CRITICAL}: waited 5 % -> 40 % of the time"
        assert (order.p99_before_seconds, order.p99_after_seconds) == (None, None)
        assert guard.metric("trimtab_guard_evidence_total", evidence="regressed") == 1


async def test_a_longer_wait_within_the_ceiling_is_kept():
    async with guard_in() as guard:
        before = with_wait(state(at=guard.at()), 0.02)
        await guard.inject(before, action(), actuation(), with_wait(after(before), 0.09))
        assert orders(guard) == []
        assert guard.metric("trimtab_guard_evidence_total", evidence="keep") == 1


async def test_nineteen_point_two_per_cent_is_kept():
    async with guard_in() as guard:
        await whole_cycle(guard, 1, KEPT)
        assert orders(guard) == []
        assert guard.metric("trimtab_guard_evidence_total", evidence="keep") == 1


async def test_where_the_second_look_never_came_the_next_first_look_stands_in():
    async with guard_in() as guard:
        await cycle_to_actuation(guard, 1)
        await guard.advance(4.95)
        await guard.inject(with_p99(state(cycle=2, at=guard.at()), WORSE))
        assert orders(guard) == [(1, "rollback")]
        await guard.inject(action(cycle=2))
        assert guard.sent(Verdict)[-1].rule == "freshness"  # that state shows weights that were taken back since


async def test_a_second_look_that_came_needs_no_stand_in():
    async with guard_in() as guard:
        await whole_cycle(guard, 1, KEPT)
        await guard.inject(with_p99(state(cycle=2, at=guard.at()), 10.0))
        assert orders(guard) == []


async def test_the_first_look_of_another_collectors_run_does_not_stand_in():
    async with guard_in() as guard:
        await cycle_to_actuation(guard, 1)
        await guard.advance(4.95)
        await guard.inject(with_p99(state(boot="boot2", cycle=1, at=guard.at()), WORSE))
        assert orders(guard) == []


@pytest.mark.parametrize("outcome", ["held", "skipped", "failed", "rolled_back", "restored"])
async def test_what_was_not_applied_is_not_rolled_back(outcome):
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard, outcome=outcome)
        await guard.inject(with_p99(after(before), WORSE))
        assert orders(guard) == []


async def test_without_an_actuation_nothing_is_rolled_back():
    async with guard_in() as guard:
        before = with_p99(state(), 0.120)
        await guard.inject(before, action(), with_p99(after(before), WORSE))
        assert orders(guard) == []


async def test_one_rollback_whatever_is_delivered_twice():
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard)
        worse = with_p99(after(before), WORSE)
        await guard.inject(actuation(), worse, worse, actuation(), worse)
        await guard.inject(actuation())
        await guard.inject(worse)
        assert orders(guard) == [(1, "rollback")]
        assert guard.metric("trimtab_guard_rollbacks_total") == 1


async def test_an_actuation_that_comes_after_the_second_look_still_counts():
    async with guard_in() as guard:
        before = with_p99(state(), 0.120)
        await guard.inject(before, action())
        await guard.inject(with_p99(after(before), WORSE))
        await guard.inject(actuation())
        assert orders(guard) == [(1, "rollback")]


@pytest.mark.parametrize("taken_back", ["restored", "rolled_back"])
async def test_what_was_taken_back_before_the_second_look_is_not_rolled_back_again(taken_back):
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard)
        await guard.inject(actuation(outcome=taken_back), actuation(), with_p99(after(before), WORSE))
        assert orders(guard) == []


async def test_a_second_look_of_an_earlier_cycle_rolls_nothing_back():
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard)
        await guard.advance(5.0)
        await guard.inject(state(cycle=2, at=guard.at()), with_p99(after(before), WORSE))
        assert orders(guard) == []


async def test_an_actuation_of_an_earlier_cycle_rolls_nothing_back():
    async with guard_in() as guard:
        before = with_p99(state(), 0.120)
        await guard.inject(before, action())
        await guard.inject(with_p99(after(before), WORSE))
        await guard.advance(5.0)
        await guard.inject(state(cycle=2, at=guard.at()), actuation(cycle=1))
        assert orders(guard) == []


async def test_a_second_look_of_another_boot_is_not_compared():
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard)
        await guard.inject(msgspec.structs.replace(with_p99(after(before), WORSE), boot="boot0"))
        assert orders(guard) == []


async def test_pm_02_missing_evidence_is_neither_kept_nor_rolled_back():
    async with guard_in() as guard:
        await whole_cycle(guard, 1, None)
        assert orders(guard) == []
        assert guard.metric("trimtab_guard_evidence_total", evidence="unknown") == 1
        assert guard.metric("trimtab_guard_evidence_total", evidence="keep") == 0


async def test_the_breaker_opens_with_the_nth_rollback_and_restores_once():
    async with guard_in() as guard:
        for cycle in (1, 2, 3):
            await whole_cycle(guard, cycle, WORSE)
        assert orders(guard) == [(1, "rollback"), (2, "rollback"), (3, "rollback"), (3, "restore")]
        await guard.inject(state(cycle=4, at=guard.at()), action(cycle=4))
        assert (guard.sent(Verdict)[-1].outcome, guard.sent(Verdict)[-1].rule) == ("refuse", "breaker")
        assert guard.metric("trimtab_guard_frozen") == 1


async def opened(guard):
    """Three rollbacks in cycles 1-3, and the cool-down with cycles 4-15, in which nothing is tried."""
    for cycle in (1, 2, 3):
        await whole_cycle(guard, cycle, WORSE)
    for cycle in range(4, 16):
        await guard.inject(state(cycle=cycle, at=guard.at()), hold(cycle=cycle))
        await guard.advance(5.0)


async def test_after_the_cool_down_one_change_is_tried_and_closes_the_breaker_when_kept():
    async with guard_in() as guard:
        await opened(guard)
        assert guard.metric("trimtab_guard_frozen") == 0
        await whole_cycle(guard, 16, KEPT)
        for cycle in (17, 18):
            await whole_cycle(guard, cycle, WORSE)
        assert orders(guard)[4:] == [(17, "rollback"), (18, "rollback")]  # two of three again: not open


async def test_a_trial_that_is_worse_opens_the_breaker_at_once():
    async with guard_in() as guard:
        await opened(guard)
        await whole_cycle(guard, 16, WORSE)
        assert orders(guard)[4:] == [(16, "rollback"), (16, "restore")]
        await whole_cycle(guard, 17, KEPT)
        assert guard.sent(Verdict)[-1].rule == "breaker"


@pytest.mark.parametrize("outcome", ["failed", "skipped", "restored"])
async def test_a_trial_that_was_never_applied_does_not_block_the_next(outcome):
    async with guard_in() as guard:
        await opened(guard)
        await cycle_to_actuation(guard, 16, outcome)
        await guard.advance(5.0)
        await whole_cycle(guard, 17, KEPT)
        assert [verdict.execute for verdict in guard.sent(Verdict)[15:]] == [True, True]


async def test_a_trial_that_nobody_looked_at_again_does_not_block_the_next():
    async with guard_in() as guard:
        await opened(guard)
        await cycle_to_actuation(guard, 16)
        await guard.advance(5.0)
        in_force = with_p99(
            state(cycle=17, at=guard.at(), pods=(pod("api", weight=2000), pod("job", BATCH, 100))), KEPT
        )
        await guard.inject(in_force, action(cycle=17))
        told = [(verdict.execute, verdict.breaker) for verdict in guard.sent(Verdict)[15:]]
        assert told == [(True, "half_open"), (True, "closed")]


async def test_the_mark_of_the_frozen_goes_when_the_cool_down_is_over_without_a_change():
    async with guard_in() as guard:
        for cycle in (1, 2, 3):
            await whole_cycle(guard, cycle, WORSE)
        assert guard.metric("trimtab_guard_frozen") == 1
        await guard.advance(60.0)
        assert guard.metric("trimtab_guard_frozen") == 0


async def test_a_change_that_lands_after_the_order_to_stand_still_is_restored_once():
    async with guard_in() as guard:
        await guard.inject(state(), action())
        await guard.inject(command(verb="mode", mode="frozen"))
        await guard.inject(actuation(), actuation())
        assert orders(guard) == [(1, "restore")]


async def test_i2_a_state_from_before_a_rollback_is_not_acted_on():
    async with guard_in() as guard:
        before = await cycle_to_actuation(guard)
        await guard.advance(4.9)
        overtaken = state(cycle=2, at=guard.at())
        await guard.advance(0.05)
        await guard.inject(with_p99(after(before), WORSE))
        await guard.advance(0.05)
        await guard.inject(overtaken, action(cycle=2))
        assert orders(guard) == [(1, "rollback")]
        assert (guard.sent(Verdict)[-1].execute, guard.sent(Verdict)[-1].rule) == (False, "freshness")


async def test_every_order_of_the_guard_is_stored():
    async with guard_in() as guard:
        for cycle in (1, 2, 3):
            await whole_cycle(guard, cycle, WORSE)
        await guard.advance(31.0)  # and now it is blind
        await settle()
        stored = await guard.context.messenger.history("any", Command, 100)
        assert [order.verb for order in stored] == ["rollback", "rollback", "rollback", "restore", "restore"]
