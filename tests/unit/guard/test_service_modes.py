"""Modes, blindness, and what a restart takes up."""

import pytest

from runtime.clock import ManualClock, settle
from runtime.memory_bus import MemoryBus
from schemas.codec import encode
from schemas.messages import Command, Verdict
from schemas.subjects import message_id, subject, subject_of
from tests.support.builders import NODE, START_NS, action, actuation, after, command, state, verdict, with_p99
from tests.support.services import guard_in

SECOND = 1_000_000_000
BLIND_AFTER = 30.0


async def told(*messages):
    """A bus on which these were said before."""
    bus = MemoryBus(lambda: START_NS)
    for message in messages:
        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
    return bus


def mode(value, **fields):
    return command(verb="mode", mode=value, **{"id": f"m-{value}", **fields})


def orders(guard):
    return [(order.cycle, order.verb) for order in guard.sent(Command)]


# ---- modes ----


async def test_an_order_changes_the_mode():
    async with guard_in("shadow") as guard:
        await guard.inject(mode("active"), state(), action())
        assert guard.service.mode == "active"
        assert [(verdict.mode, verdict.execute) for verdict in guard.sent(Verdict)] == [("active", True)]
        assert guard.metric("trimtab_mode", mode="active") == 1
        assert guard.metric("trimtab_mode", mode="shadow") == 0


async def test_frozen_refuses_from_the_next_verdict_on():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.inject(mode("frozen"))
        await guard.inject(action())
        assert [(verdict.outcome, verdict.rule) for verdict in guard.sent(Verdict)] == [("refuse", "frozen")]
        assert guard.metric("trimtab_guard_frozen") == 1


@pytest.mark.parametrize("order", [command(verb="restore", mode="active"), command(verb="mode", mode=None)])
async def test_other_orders_do_not_change_the_mode(order):
    async with guard_in("shadow") as guard:
        await guard.inject(order)
        assert guard.service.mode == "shadow"


async def test_the_last_order_of_a_mode_is_taken_up_at_start():
    bus = await told(mode("active"), mode("canary"), command(verb="restore"))
    async with guard_in("shadow", bus=bus) as guard:
        assert guard.service.mode == "canary"
        assert guard.metric("trimtab_mode", mode="canary") == 1


async def test_hundreds_of_rollbacks_do_not_hide_the_order_of_a_mode():
    rollbacks = [command(verb="rollback", cycle=cycle, id=str(cycle)) for cycle in range(450)]
    async with guard_in("active", bus=await told(mode("canary"), *rollbacks)) as guard:
        assert guard.service.mode == "canary"


async def test_without_an_order_the_configured_mode_is_in_force():
    async with guard_in("canary", bus=await told(command(verb="restore"))) as guard:
        assert guard.service.mode == "canary"


class _Racing(MemoryBus):
    """While the orders are read, an operator gives another one."""

    async def stored(self, stream, subject, limit):
        found = await super().stored(stream, subject, limit)
        if subject.startswith("trimtab.v1.command"):
            order = mode("frozen")
            await self.publish(subject_of(order), encode(order), msg_id=message_id(order))
            await settle()
        return found


async def test_an_order_given_while_the_guard_starts_is_not_lost():
    bus = _Racing(lambda: START_NS)
    await bus.publish(subject_of(mode("active")), encode(mode("active")), msg_id="1")
    async with guard_in("shadow", bus=bus) as guard:
        assert guard.service.mode == "frozen"


# ---- blindness ----


async def test_when_states_stop_coming_originals_are_ordered_back_once():
    async with guard_in() as guard:
        await guard.inject(state(cycle=5), action(cycle=5))
        await guard.advance(BLIND_AFTER)
        assert orders(guard) == []
        await guard.advance(2.5)
        assert orders(guard) == [(5, "restore")]
        await guard.advance(300.0)
        assert orders(guard) == [(5, "restore")]


async def test_each_silence_has_its_own_order():
    async with guard_in() as guard:
        await guard.inject(state(cycle=5))
        await guard.advance(40.0)
        await guard.inject(state(cycle=6, at=guard.at()))
        await guard.advance(40.0)
        assert orders(guard) == [(5, "restore"), (6, "restore")]


async def test_old_states_again_and_again_do_not_break_the_silence():
    async with guard_in() as guard:
        await guard.inject(state(cycle=5))
        for _ in range(8):
            await guard.advance(5.0)
            await guard.inject(state(cycle=5))
        assert orders(guard) == [(5, "restore")]


async def test_a_guard_that_never_saw_a_state_orders_restore_too():
    async with guard_in() as guard:
        await guard.advance(40.0)
        (order,) = guard.sent(Command)
        assert (order.node, order.boot, order.cycle, order.verb) == (NODE, "service-boot", 0, "restore")


async def test_an_order_that_could_not_leave_is_given_again():
    async with guard_in() as guard:
        await guard.inject(state())
        guard.bus.partition = True
        await guard.advance(60.0)
        assert orders(guard) == []
        guard.bus.partition = False
        await guard.advance(60.0)
        assert orders(guard) == [(1, "restore")]


# ---- after a restart ----


async def test_i2_a_restart_does_not_refill_the_change_budget():
    clock = ManualClock(START_NS + 30 * SECOND)
    late = [verdict(cycle=cycle, at=START_NS + cycle * SECOND) for cycle in range(1, 9)]
    async with guard_in(bus=await told(*late), clock=clock) as guard:
        await guard.inject(state(cycle=9, at=guard.at()), action(cycle=9))
        assert (guard.sent(Verdict)[-1].rule, guard.sent(Verdict)[-1].changes_left) == ("rate", 0)
        await guard.advance(32.0)  # the first two are more than a minute old now
        await guard.inject(state(cycle=10, at=guard.at()), action(cycle=10))
        assert (guard.sent(Verdict)[-1].execute, guard.sent(Verdict)[-1].changes_left) == (True, 1)


async def test_a_restart_does_not_close_an_open_breaker():
    clock = ManualClock(START_NS + 30 * SECOND)
    rollbacks = [
        command(verb="rollback", by="guard", cycle=cycle, at=START_NS + cycle * SECOND, id=f"{cycle}")
        for cycle in (1, 2, 3)
    ]
    async with guard_in(bus=await told(*rollbacks), clock=clock) as guard:
        assert guard.metric("trimtab_guard_frozen") == 1
        await guard.inject(state(cycle=9, at=guard.at()), action(cycle=9))
        assert guard.sent(Verdict)[-1].rule == "breaker"
        await guard.advance(33.0)
        await guard.inject(state(cycle=10, at=guard.at()), action(cycle=10))
        assert guard.sent(Verdict)[-1].execute


async def test_rollbacks_of_long_ago_do_not_make_the_next_one_open_the_breaker():
    clock = ManualClock(START_NS + 600 * SECOND)
    rollbacks = [
        command(verb="rollback", by="guard", cycle=cycle, at=START_NS + cycle * SECOND, id=f"{cycle}")
        for cycle in (1, 2, 3)
    ]
    async with guard_in(bus=await told(*rollbacks), clock=clock) as guard:
        before = with_p99(state(cycle=9, at=guard.at()), 0.1)
        await guard.inject(before, action(cycle=9), actuation(cycle=9))
        await guard.inject(with_p99(after(before), 0.2))
        assert orders(guard) == [(9, "rollback")]


async def test_an_order_that_was_given_while_the_bus_was_lost_holds_before_the_next_verdict():
    async with guard_in("active") as guard:
        guard.bus.partition = True
        missed = encode(command(verb="mode", mode="frozen", by="ann", id="missed"))
        guard.bus.store(subject("command", NODE), missed)
        guard.bus.partition = False
        await guard.inject(state(cycle=1, at=guard.at()), action(cycle=1))
        assert guard.sent(Verdict)[-1].mode == "active"  # nothing told it that it was away
        guard.bus.ended_partitions += 1
        await guard.inject(state(cycle=2, at=guard.at()), action(cycle=2))
        assert (guard.sent(Verdict)[-1].mode, guard.sent(Verdict)[-1].execute) == ("frozen", False)
