"""The breaker of a guard that is killed, in every phase, and of the guard that comes after it."""

from contextlib import asynccontextmanager

import pytest

from runtime.clock import ManualClock
from runtime.memory_bus import MemoryBus
from schemas.messages import Command, Verdict
from tests.support.builders import START_NS, action, actuation, after, state, with_p99
from tests.support.services import guard_in

TICK = 5.0
SETTINGS = {"guard.rollbacks_to_open": 2, "guard.rollback_window_seconds": 120.0, "guard.cool_down_seconds": 60.0}


class World:
    """Guards one after the other, on one audit and one clock."""

    def __init__(self):
        self.bus, self.clock, self.number = MemoryBus(lambda: START_NS), ManualClock(START_NS), 0

    @asynccontextmanager
    async def guard(self):
        """A guard on a bus that has the audit of the ones before it."""
        bus = MemoryBus(self.clock.now_ns)
        for item in self.bus.history:
            await bus.publish(item.subject, item.payload)
        self.bus = bus
        async with guard_in(settings=SETTINGS, bus=bus, clock=self.clock) as made:
            yield made

    async def cycle(self, guard, p99=0.1, *, applied=True, judged=True):
        """A whole cycle that takes a tick; P99 was 0.1 s before. Returns its verdict."""
        self.number += 1
        before = with_p99(state(cycle=self.number, at=guard.at()), 0.1)
        await guard.inject(before, action(cycle=self.number, at=guard.at()))
        told = guard.sent(Verdict)[-1]
        assert told.cycle == self.number
        if applied and told.execute:
            await guard.inject(actuation(cycle=self.number, at=guard.at()))
        await guard.advance(2.0)
        if judged and told.execute:
            await guard.inject(with_p99(after(before), p99))
        await guard.advance(TICK - 2.0)
        return told


BAD, GOOD = 0.5, 0.1


async def opened(world):
    """Two cycles, and the breaker is open since 3 s ago."""
    async with world.guard() as guard:
        for _ in range(2):
            await world.cycle(guard, BAD)


def frozen(guard):
    return guard.metric("trimtab_guard_frozen")


async def test_closed_with_a_rollback_it_stays_as_far_from_opening():
    world = World()
    async with world.guard() as guard:
        assert (await world.cycle(guard, BAD)).breaker == "closed"
    async with world.guard() as guard:
        assert (await world.cycle(guard, BAD)).execute
        assert frozen(guard) == 1


async def test_open_it_stays_so_for_the_time_that_is_left():
    world = World()
    await opened(world)  # at 7 s; now it is 10 s
    async with world.guard() as guard:
        assert frozen(guard) == 1
        told = await world.cycle(guard)
        assert (told.rule, told.breaker) == ("breaker", "open")
        assert "another 57 s" in told.reason
        await guard.advance(51.9)
    async with world.guard() as guard:
        assert (await world.cycle(guard)).rule == "breaker"  # a tenth of a second too early
        assert (await world.cycle(guard, GOOD)).execute


async def test_half_open_it_tries_one_change_however_long_ago_it_opened():
    world = World()
    await opened(world)
    async with world.guard() as guard:
        await guard.advance(3600.0)
    async with world.guard() as guard:
        told = await world.cycle(guard, BAD)
        assert (told.execute, told.breaker) == (True, "half_open")
        assert frozen(guard) == 1  # one rollback is enough: it had not closed


@pytest.mark.parametrize("applied", [True, False])
async def test_killed_with_a_change_under_trial_it_takes_that_back_and_tries_another_one(applied):
    world = World()
    await opened(world)
    async with world.guard() as guard:
        await guard.advance(60.0)
        assert (await world.cycle(guard, applied=applied, judged=False)).breaker == "half_open"
    async with world.guard() as guard:
        (order,) = guard.sent(Command)
        assert (order.verb, order.reason) == ("restore", "the guard started anew while its breaker was half open")
        told = await world.cycle(guard, BAD)
        assert (told.execute, told.breaker) == (True, "half_open")
        assert frozen(guard) == 1


async def test_killed_right_after_a_trial_was_kept_it_tries_once_more():
    world = World()
    await opened(world)
    async with world.guard() as guard:
        await guard.advance(60.0)
        await world.cycle(guard, GOOD)
        assert frozen(guard) == 0
    async with world.guard() as guard:
        assert (await world.cycle(guard, GOOD)).breaker == "half_open"
        assert (await world.cycle(guard, GOOD)).breaker == "closed"


async def test_closed_again_it_starts_from_a_clean_slate():
    world = World()
    await opened(world)
    async with world.guard() as guard:
        await guard.advance(60.0)
        await world.cycle(guard, GOOD)
        assert (await world.cycle(guard, GOOD)).breaker == "closed"
    async with world.guard() as guard:
        assert (await world.cycle(guard, BAD)).breaker == "closed"
        assert frozen(guard) == 0  # one rollback; the two of before are forgotten
        await world.cycle(guard, BAD)
        assert frozen(guard) == 1


async def test_opened_again_by_the_trial_it_stays_open_for_the_whole_time():
    world = World()
    await opened(world)
    async with world.guard() as guard:
        await guard.advance(60.0)
        await world.cycle(guard, BAD)
    async with world.guard() as guard:
        told = await world.cycle(guard)
        assert told.rule == "breaker"
        assert "another 57 s" in told.reason
