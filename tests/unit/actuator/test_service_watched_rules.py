"""What the guard only watches is still checked here: bounds, deadline, mode and age are the actuator's own."""

import msgspec
import pytest

from schemas.messages import Actuation, Verdict
from services.guard.core.rules import WATCHABLE
from tests.support.builders import BATCH, CRITICAL, action, state
from tests.support.services import guard_in
from tests.unit.actuator.world import actuator, at

WATCH = {"guard.watch": list(WATCHABLE), "weights.min_weight": 10}
FAR = {CRITICAL: 90_000, BATCH: 100}


async def test_what_bounds_would_have_refused_is_not_written(tree, journal, faults):
    async with guard_in(settings=WATCH) as guard:
        await guard.inject(state(), action(weights=FAR))
        (watched,) = guard.sent(Verdict)
    assert (watched.execute, watched.weights) == (True, FAR)
    assert {"bounds", "max_step"} <= set(watched.would_refuse)
    async with actuator(tree, journal) as h:
        await h.inject(at(h, 1)[0], watched)
        assert [(told.outcome, told.rule) for told in h.sent(Actuation)] == [("skipped", "bounds")]
    assert faults.attempts == []


async def test_what_freshness_would_have_refused_is_not_written(tree, journal, faults):
    async with guard_in(settings=WATCH) as guard:
        await guard.advance(60.0)
        old = state(at=guard.at() - 11_000_000_000)
        await guard.inject(old, action())
        (watched,) = guard.sent(Verdict)
        clock = guard.clock
    assert (watched.execute, watched.would_refuse) == (True, ("freshness",))
    async with actuator(tree, journal, clock=clock) as h:
        await h.inject(old, watched)
        assert [(told.outcome, told.rule) for told in h.sent(Actuation)] == [("skipped", "deadline")]
    assert faults.attempts == []


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"weights": FAR}, "bounds"),
        ({"weights": {CRITICAL: 0, BATCH: 100}}, "bounds"),
        ({"deadline": 1}, "deadline"),
        ({"deadline": None}, "deadline"),
        ({"mode": "frozen"}, "mode"),
        ({"mode": "shadow"}, "mode"),
        ({"mode": "canary"}, "mode"),
    ],
)
async def test_no_list_of_watched_rules_opens_a_way_around_the_actuators_own_checks(
    tree, journal, faults, fields, rule
):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, would_refuse=(*WATCHABLE, "budget", "frozen"), **fields))
        assert [(told.outcome, told.rule) for told in h.sent(Actuation)] == [("skipped", rule)]
    assert faults.attempts == []


async def test_age_is_checked_though_the_deadline_is_far(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.advance(60.0)
        seen, judged = at(h, 1, would_refuse=("freshness",), deadline=h.at() + 3_600_000_000_000)
        await h.inject(msgspec.structs.replace(seen, at=h.at() - 10_100_000_000), judged)
        assert [(told.outcome, told.rule) for told in h.sent(Actuation)] == [("skipped", "deadline")]
    assert faults.attempts == []
