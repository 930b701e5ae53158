"""The half-open breaker: one change, on the canary's pods, until it is known what came of it."""

from contextlib import asynccontextmanager

import pytest

from schemas.canary import is_canary
from schemas.messages import Command, PodState, Verdict
from tests.support.builders import BATCH, CRITICAL, action, actuation, after, command, pod, state, with_p99, write
from tests.support.services import guard_in

TICK = 5.0
BAD, GOOD = 0.5, 0.1
SETTINGS = {
    "guard.rollbacks_to_open": 1,
    "guard.cool_down_seconds": 60.0,
    "guard.trial_seconds": 30.0,
    "weights.max_changes_per_minute": 600.0,
}


WRITTEN = (write(before=500, after=1000),)
"""The states that follow show what this leaves."""


class World:
    """One guard whose breaker has opened and cooled down."""

    def __init__(self, guard):
        self.guard = guard
        self.number = 0
        self.known = 0

    async def cycle(
        self, before_p99=GOOD, after_p99=GOOD, *, outcome="applied", requests=500, later=None, pods=None, over=None
    ):
        """A whole cycle that takes a tick; returns its verdict. `over`: the part of the requests over the objective in
        both looks, with P99s beyond what can be seen.
        """
        self.number += 1
        guard, fields = self.guard, {} if pods is None else {"pods": pods}
        seen = {} if over is None else {"over_ratio": over, "saturated": ("p99",)}
        before = with_p99(state(cycle=self.number, at=guard.at(), **fields), before_p99, requests=requests, **seen)
        await guard.inject(before, action(cycle=self.number, at=guard.at()))
        told = guard.sent(Verdict)[-1]
        assert told.cycle == self.number
        if told.execute and outcome is not None:
            await guard.inject(actuation(cycle=self.number, outcome=outcome, at=guard.at(), writes=WRITTEN))
        await guard.advance(2.0)
        await guard.inject(
            with_p99(after(before, pods=before.pods), after_p99, requests=requests if later is None else later, **seen)
        )
        await guard.advance(TICK - 2.0)
        return told

    def orders(self):
        """What was ordered since the breaker is half open."""
        return [(order.cycle, order.verb) for order in self.guard.sent(Command)[self.known :]]


@asynccontextmanager
async def half_open():
    async with guard_in(settings=SETTINGS) as guard:
        world = World(guard)
        await world.cycle(after_p99=BAD)
        assert world.orders() == [(1, "rollback"), (1, "restore")]
        await guard.advance(60.0)
        world.known = len(guard.sent(Command))
        yield world


FEW = 50  # requests: too few to be evidence (guard.min_requests is 100)


async def test_one_change_goes_through_however_long_nothing_is_known_of_it():
    async with half_open() as world:
        told = [await world.cycle(requests=FEW) for _ in range(5)]
        assert [verdict.execute for verdict in told] == [True, False, False, False, False]
        assert {(verdict.rule, verdict.breaker) for verdict in told[1:]} == {("breaker", "half_open")}
        assert world.orders() == []


async def test_a_change_that_nothing_becomes_known_of_is_taken_back_and_it_opens_again():
    async with half_open() as world:
        for _ in range(8):
            await world.cycle(requests=FEW)
        assert world.orders() == [(2, "restore")]
        order = world.guard.sent(Command)[-1]
        assert order.reason == "the change under trial gave no evidence in 30 s"
        told = await world.cycle(requests=FEW)
        assert (told.execute, told.breaker) == (False, "open")
        assert "another 50 s" in told.reason


LATE = 10.0  # seconds: the end of the histogram


async def test_a_change_under_which_no_more_is_missed_than_before_has_stood_its_trial_at_its_end_and_not_before():
    async with half_open() as world:
        told = [await world.cycle(LATE, LATE, over=1.0) for _ in range(7)]
        assert [verdict.execute for verdict in told] == [True, False, False, False, False, False, True]
        assert [verdict.breaker for verdict in told] == ["half_open"] * 6 + ["closed"]
        assert world.orders() == []


async def test_a_change_under_which_more_is_missed_than_before_has_not():
    async with half_open() as world:
        await world.cycle(LATE, LATE, over=0.9)
        told = [await world.cycle(LATE, LATE, over=0.95) for _ in range(8)]
        assert world.orders() == [(2, "restore")]
        assert (told[-1].execute, told[-1].breaker) == (False, "open")


async def test_evidence_that_comes_later_closes_it():
    async with half_open() as world:
        assert (await world.cycle(later=FEW)).execute
        assert (await world.cycle(requests=FEW)).breaker == "half_open"
        assert (await world.cycle()).breaker == "closed"  # by its own first look, which is a later one of the trial


async def test_a_later_look_that_shows_it_got_worse_takes_it_back_and_opens_it_again():
    async with half_open() as world:
        await world.cycle(later=FEW)
        told = await world.cycle(before_p99=BAD)
        assert not told.execute
        assert world.orders() == [(2, "rollback"), (2, "restore")]
        assert (await world.cycle()).breaker == "open"


async def test_a_change_that_was_not_carried_out_leaves_room_for_another_one():
    async with half_open() as world:
        assert (await world.cycle(outcome="skipped")).execute
        assert (await world.cycle()).execute


async def test_a_change_whose_actuation_is_never_heard_of_is_no_success():
    async with half_open() as world:
        told = [await world.cycle(outcome=None) for _ in range(8)]
        assert [verdict.execute for verdict in told].count(True) == 1
        assert world.orders() == [(2, "restore")]


@pytest.mark.parametrize(
    "order", [command(verb="restore"), command(verb="mode", mode="frozen")], ids=["restore", "frozen"]
)
async def test_an_operator_who_takes_the_weights_back_ends_the_trial_without_a_second_one(order):
    async with half_open() as world:
        await world.cycle(requests=FEW)
        await world.guard.inject(order)
        if order.verb == "mode":
            await world.guard.inject(command(verb="mode", mode="active", id="c2"))
        told = [await world.cycle(requests=FEW) for _ in range(3)]
        assert [(verdict.execute, verdict.breaker) for verdict in told] == [(False, "open")] * 3
        assert world.orders() == [(2, "restore")]


async def test_originals_that_returned_by_themselves_end_the_trial_without_a_second_one():
    async with half_open() as world:
        await world.cycle(requests=FEW)
        await world.guard.inject(actuation(cycle=2, outcome="restored", at=world.guard.at() + 1))
        assert (await world.cycle()).breaker == "open"


@pytest.mark.parametrize("weight", [500, 39], ids=["a restarted actuator", "somebody else"])
async def test_weights_that_are_no_longer_those_of_the_change_prove_nothing_about_it(weight):
    async with half_open() as world:
        await world.cycle(later=FEW)
        others = (pod("api", weight=weight), pod("job", BATCH, 100))
        told = await world.cycle(pods=others)  # all is well, without the change
        assert (told.execute, told.breaker) == (False, "open")
        assert world.orders() == [(2, "restore")]
        order = world.guard.sent(Command)[-1]
        assert order.reason == "the change under trial was taken back before it was judged"


# ---- on the canary's pods ----


def pods(*critical):
    return tuple(
        PodState(uid=f"pod-{n}", name=f"{n}", group=f"pod{n}", cls=CRITICAL if n in critical else BATCH, weight=100)
        for n in range(20)
    )


async def test_the_one_change_is_for_the_canary_s_pods_alone():
    async with half_open() as world:
        picked = picked_of(pods())
        told = await world.cycle(pods=pods(*picked[:1]))
        assert (told.execute, told.mode, told.canary_ratio) == (True, "active", 0.2)
        assert (await world.cycle(pods=pods(*picked[:1]))).canary_ratio is None  # closed: for all again


async def test_a_canary_that_has_nothing_to_weigh_is_no_trial_for_anybody():
    async with half_open() as world:
        told = await world.cycle(pods=pods(*(n for n in range(20) if n not in picked_of(pods()))))
        assert (told.execute, told.canary_ratio) == (True, None)


def picked_of(all_pods):
    picked = [n for n, pod in enumerate(all_pods) if is_canary(pod.uid, 0.2)]
    assert len(picked) > 1
    return picked
