"""Budgets of single classes, and rules that are only watched."""

from runtime.clock import ManualClock
from runtime.memory_bus import MemoryBus
from schemas.codec import encode
from schemas.messages import Verdict
from schemas.subjects import message_id, subject_of
from tests.support.builders import BATCH, CRITICAL, START_NS, WEIGHTS, action, state, verdict
from tests.support.services import guard_in

SECOND = 1_000_000_000
TO = {CRITICAL: 2000, BATCH: 100}
TO_BATCH = {CRITICAL: 1000, BATCH: 200}


def rules(guard):
    return [told.rule for told in guard.sent(Verdict)]


async def cycles(guard, *weights, first=1):
    """One cycle a tick for each proposal, always from the weights of `state()`."""
    for cycle, asked in enumerate(weights, start=first):
        await guard.inject(state(cycle=cycle, at=guard.at()), action(cycle=cycle, weights=asked))
        await guard.advance(5.0)


async def test_i2_a_class_is_changed_no_more_often_than_its_own_rate():
    async with guard_in(settings={"guard.max_class_changes_per_minute": 2}) as guard:
        await cycles(guard, TO, TO, TO, TO_BATCH, TO)
        assert rules(guard) == [None, None, "class_rate", None, "class_rate"]
        await guard.advance(40.0)  # the first change is more than a minute old
        await cycles(guard, TO, TO, first=6)
        assert rules(guard)[5:] == [None, None]


async def test_without_a_rate_of_its_own_the_nodes_counts_for_a_class():
    async with guard_in(settings={"weights.max_changes_per_minute": 2}) as guard:
        await cycles(guard, TO, TO, TO)
        assert rules(guard) == [None, None, "rate"]


async def test_i2_a_restart_does_not_refill_the_budget_of_a_class():
    bus, clock = MemoryBus(), ManualClock(START_NS + 30 * SECOND)
    for cycle, weights in ((1, TO), (2, TO), (3, TO_BATCH)):
        said = verdict(cycle=cycle, at=START_NS + cycle * SECOND, weights=weights, previous_weights=WEIGHTS)
        await bus.publish(subject_of(said), encode(said), msg_id=message_id(said))
    async with guard_in(settings={"guard.max_class_changes_per_minute": 2}, bus=bus, clock=clock) as guard:
        await cycles(guard, TO, TO_BATCH, TO_BATCH, first=10)
        assert rules(guard)[-3:] == ["class_rate", None, "class_rate"]


async def test_i2_a_restart_at_a_fast_tick_still_finds_all_changes_of_the_last_minute():
    bus, clock = MemoryBus(), ManualClock(START_NS + 59 * SECOND)
    for cycle in range(1, 401):  # eight changes, and then nothing but holding
        fields = {"execute": cycle <= 8, "at": START_NS + cycle * SECOND // 10}
        said = verdict(cycle=cycle, previous_weights=WEIGHTS, **fields)
        await bus.publish(subject_of(said), encode(said), msg_id=message_id(said))
    fast = {"loop.tick_seconds": 0.1, "loop.settle_seconds": 0.02, "loop.decision_budget_seconds": 0.02}
    async with guard_in(settings={**fast, "guard.apply_within_seconds": 0.05}, bus=bus, clock=clock) as guard:
        await guard.inject(state(cycle=500, at=guard.at()), action(cycle=500))
        assert rules(guard)[-1] == "rate"


async def test_a_watched_rule_is_counted_and_told_and_lets_the_change_pass():
    async with guard_in(settings={"weights.max_changes_per_minute": 1, "guard.watch": ["rate"]}) as guard:
        await cycles(guard, TO, TO)
        first, second = guard.sent(Verdict)
        assert (first.execute, first.would_refuse, first.changes_left) == (True, (), 0)
        assert (second.execute, second.rule, second.would_refuse) == (True, None, ("rate",))
        assert guard.metric("trimtab_guard_would_refuse_total", rule="rate") == 1
        assert guard.metric("trimtab_guard_rule_hits_total", rule="rate") == 0


async def test_the_least_share_and_the_list_of_profiles_are_kept():
    listed = {"guard.profiles": {"far": {CRITICAL: 4000, BATCH: 100}, "calm": TO}, "guard.min_share_ratio": 0.03}
    async with guard_in(settings=listed) as guard:
        await cycles(guard, TO, TO_BATCH, {CRITICAL: 4000, BATCH: 100})
        assert rules(guard) == [None, "known_profile", "min_share"]
