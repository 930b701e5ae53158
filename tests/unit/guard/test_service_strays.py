"""States of another run, or of a cycle out of all order, among those of the collector that is at work."""

import pytest

from schemas.messages import Verdict
from tests.support.builders import BOOT, action, state
from tests.support.services import guard_in

FAR = 2**63 - 1
STRAYS = [("boot0", 1), ("boot0", FAR), (BOOT, FAR), (BOOT, 100_000)]


async def cycle(guard, number, boot=BOOT):
    await guard.inject(state(boot=boot, cycle=number, at=guard.at()), action(boot=boot, cycle=number))


def judged(guard):
    return [(told.boot, told.cycle, told.outcome) for told in guard.sent(Verdict)]


@pytest.mark.parametrize(("boot", "number"), STRAYS)
async def test_one_stray_state_costs_the_collector_nothing(boot, number):
    async with guard_in() as guard:
        await cycle(guard, 1)
        await guard.advance(2.0)
        await cycle(guard, number, boot)
        await guard.advance(3.0)
        await cycle(guard, 2)
        assert judged(guard) == [(BOOT, 1, "allow"), (BOOT, 2, "allow")]
        assert guard.dropped("state", "stray") == 1


@pytest.mark.parametrize(("boot", "number"), STRAYS)
async def test_a_stray_state_that_is_heard_costs_one_cycle(boot, number):
    async with guard_in() as guard:
        await cycle(guard, 1)
        await guard.advance(4.9)
        await guard.inject(state(boot=boot, cycle=number, at=guard.at()))
        await guard.advance(0.1)
        for later in (2, 3, 4):
            await cycle(guard, later)
            await guard.advance(5.0)
        assert judged(guard) == [
            (BOOT, 1, "allow"),
            (boot, number, "late"),
            (BOOT, 3, "allow"),
            (BOOT, 4, "allow"),
        ]


async def test_a_stray_state_does_not_end_the_silence_of_the_collector():
    async with guard_in() as guard:
        await cycle(guard, 1)
        await guard.advance(3.0)
        before = guard.service._last_state_at
        await guard.inject(state(boot="boot0", cycle=7, at=guard.at()))
        assert guard.service._last_state_at == before


async def test_a_collector_that_was_started_anew_misses_no_cycle():
    async with guard_in() as guard:
        await cycle(guard, 41)
        await guard.advance(5.2)
        for number in (1, 2):
            await cycle(guard, number, "boot2")
            await guard.advance(5.0)
        assert judged(guard) == [(BOOT, 41, "allow"), ("boot2", 1, "allow"), ("boot2", 2, "allow")]
