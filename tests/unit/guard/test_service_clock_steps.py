"""NA-09 and I3: wall clocks jump, and neither let a stale verdict through nor stop the loop."""

import pytest

from schemas.messages import Verdict
from tests.support.builders import action, state
from tests.support.services import guard_in

HOUR = 3600.0
SECOND = 1_000_000_000


async def cycles(guard, first, last):
    """Ordinary cycles: stamped, seen and answered within milliseconds, one tick each."""
    for cycle in range(first, last + 1):
        made = state(cycle=cycle, at=guard.at())
        await guard.advance(0.005)
        await guard.inject(made, action(cycle=cycle))
        await guard.advance(4.995)


def executed(guard):
    return [verdict.cycle for verdict in guard.sent(Verdict) if verdict.execute]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_na_09_a_step_between_two_cycles_costs_none(step):
    async with guard_in() as guard:
        await cycles(guard, 1, 2)
        guard.clock.step_wall(step)
        await cycles(guard, 3, 4)
        assert executed(guard) == [1, 2, 3, 4]


@pytest.mark.parametrize(("step", "lost"), [(HOUR, [2]), (-HOUR, [])])
async def test_na_09_a_step_between_stamp_and_arrival_costs_that_cycle_at_most(step, lost):
    async with guard_in() as guard:
        await cycles(guard, 1, 1)
        made = state(cycle=2, at=guard.at())
        guard.clock.step_wall(step)
        await guard.advance(0.005)
        await guard.inject(made, action(cycle=2))
        await guard.advance(4.995)
        await cycles(guard, 3, 4)
        assert [cycle for cycle in (1, 2, 3, 4) if cycle not in executed(guard)] == lost
        assert len(guard.sent(Verdict)) == 4


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_na_09_a_step_while_the_decider_thinks_costs_nothing(step):
    async with guard_in() as guard:
        await guard.inject(state())
        guard.clock.step_wall(step)
        await guard.advance(0.05)
        await guard.inject(action())
        (verdict,) = guard.sent(Verdict)
        assert verdict.execute
        assert (verdict.deadline - guard.at()) / SECOND == pytest.approx(0.55, abs=1e-6)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_i3_a_step_makes_no_old_state_fresh(step):
    async with guard_in() as guard:
        await cycles(guard, 1, 1)
        old = [state(cycle=cycle, at=guard.at() + (cycle - 2) * 5 * SECOND) for cycle in (2, 3, 4)]
        await guard.advance(30.0)
        guard.clock.step_wall(step)
        for made in old:
            await guard.inject(made, action(cycle=made.cycle))
        assert [(verdict.cycle, verdict.rule) for verdict in guard.sent(Verdict)[1:]] == [
            (2, "freshness"),
            (3, "freshness"),
            (4, "freshness"),
        ]
        await cycles(guard, 5, 5)
        assert executed(guard) == [1, 5]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_the_rate_and_the_budget_do_not_look_at_the_wall_clock(step):
    async with guard_in(settings={"weights.max_changes_per_minute": 2}) as guard:
        await cycles(guard, 1, 2)
        guard.clock.step_wall(step)
        await cycles(guard, 3, 3)
        await guard.inject(state(cycle=4, at=guard.at()))
        guard.clock.step_wall(step)
        await guard.advance(0.099)
        assert [(verdict.cycle, verdict.rule) for verdict in guard.sent(Verdict)[2:]] == [(3, "rate")]
        await guard.advance(0.001)
        assert guard.sent(Verdict)[-1].outcome == "late"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_step_is_no_silence(step):
    async with guard_in() as guard:
        await cycles(guard, 1, 1)
        guard.clock.step_wall(step)
        await guard.advance(10.0)
        assert guard.metric("trimtab_guard_frozen") == 0
        assert len(guard.bus.history) == 3  # a state, an action, a verdict, and no order
