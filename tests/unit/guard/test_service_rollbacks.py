"""What a change is taken back for: the defaults, and what excuses a class."""

import pytest

from schemas.messages import Command, State
from services.guard.config import GuardConfig
from tests.support.builders import (
    BATCH,
    CRITICAL,
    action,
    actuation,
    after,
    batch_state,
    class_state,
    latency,
    pod,
    state,
    with_p99,
    write,
)
from tests.support.services import guard_in

OBJECTIVE = 0.1


async def orders_after(before: State, then: State, mode="active", **settings):
    """What the guard orders when a change is carried out between these two looks."""
    async with guard_in(mode, {f"guard.{name}": value for name, value in settings.items()}) as guard:
        await guard.inject(before, action(), actuation(writes=(write(), write("job", 100, 100))), then)
        return [(order.verb, order.reason) for order in guard.sent(Command)]


def rise(p99_before, p99_after):
    before = with_p99(state(), p99_before)
    return before, with_p99(after(before), p99_after)


def test_the_defaults_are_what_the_decision_says():
    """docs/adr/0017-what-a-rollback-is-for.md"""
    assert (GuardConfig().regression_floor_ratio, GuardConfig().regression_lost_ratio) == (1.0, 0.9)


async def test_by_default_a_rise_that_stays_within_the_objective_is_kept():
    assert await orders_after(*rise(OBJECTIVE / 10, OBJECTIVE)) == []


async def test_by_default_a_rise_above_the_objective_is_taken_back():
    assert await orders_after(*rise(OBJECTIVE / 10, OBJECTIVE * 1.01)) == [
        ("rollback", "latency-critical: P99 10.0 ms -> 101.0 ms (+910 %)")
    ]


async def test_with_a_floor_of_nothing_every_rise_of_a_fifth_is_taken_back():
    assert await orders_after(*rise(0.010, 0.0121), regression_floor_ratio=0.0) == [
        ("rollback", "latency-critical: P99 10.0 ms -> 12.1 ms (+21 %)")
    ]
    assert await orders_after(*rise(0.010, 0.0119), regression_floor_ratio=0.0) == []


def looks(weights, weights_after, over_before=0.0):
    """A look at critical and batch before a change of their weights, and one after it that shows a P99 risen to 0.5."""
    seen = []
    for (critical, batch), p99, over in ((weights, 0.2, over_before), (weights_after, 0.5, 1.0)):
        classes = {
            CRITICAL: class_state(weight=critical, latency=latency(p99, over_ratio=over)),
            BATCH: batch_state(weight=batch),
        }
        seen.append(state(classes=classes, pods=(pod("api", weight=critical), pod("job", BATCH, batch))))
    before, then = seen
    return before, after(before, classes=then.classes, pods=then.pods)


GIVEN = ((1000, 100), (2000, 100))
TAKEN = ((4000, 100), (2000, 100))


@pytest.mark.parametrize(("weights", "verbs"), [(GIVEN, []), (TAKEN, ["rollback"])])
async def test_what_a_class_was_given_is_not_taken_back_for_its_load(weights, verbs):
    assert [verb for verb, _ in await orders_after(*looks(*weights))] == verbs


async def test_in_a_canary_the_weights_of_the_class_excuse_nothing():
    """They are those of all pods, and the change was for some."""
    told = await orders_after(*looks(*GIVEN), mode="canary", canary_ratio=1.0)
    assert [verb for verb, _ in told] == ["rollback"]


@pytest.mark.parametrize("mode", ["active", "canary"])
@pytest.mark.parametrize(("over", "verbs"), [(0.9, ["rollback"]), (0.91, [])])
async def test_by_default_what_is_lost_on_a_class_is_not_given_back_to_it(over, verbs, mode):
    told = await orders_after(*looks(*TAKEN, over_before=over), mode=mode, canary_ratio=1.0)
    assert [verb for verb, _ in told] == verbs


async def test_with_a_ratio_of_one_no_class_counts_as_lost():
    told = await orders_after(*looks(*TAKEN, over_before=1.0), regression_lost_ratio=1.0)
    assert [verb for verb, _ in told] == ["rollback"]
