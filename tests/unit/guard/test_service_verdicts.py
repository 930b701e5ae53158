"""One verdict per cycle, whatever is delivered twice, late, early or out of order."""

import pytest

from runtime.clock import settle
from schemas.codec import encode
from schemas.messages import Contention, Verdict
from tests.support.builders import BATCH, BOOT, CRITICAL, PROPOSED, START_NS, WEIGHTS, action, after, hold, state
from tests.support.harness import SlowBus
from tests.support.services import guard_in

BUDGET = 0.1


def outcomes(guard):
    return [(verdict.cycle, verdict.outcome) for verdict in guard.sent(Verdict)]


async def test_a_proposal_that_nobody_objects_to_is_allowed():
    async with guard_in() as guard:
        await guard.inject(state(), action())
        (verdict,) = guard.sent(Verdict)
        assert (verdict.boot, verdict.cycle, verdict.outcome, verdict.execute) == (BOOT, 1, "allow", True)
        assert (verdict.arm, verdict.weights, verdict.propensity) == ("favour", PROPOSED, 0.5)
        assert (verdict.mode, verdict.changes_left, verdict.previous_weights) == ("active", 7, WEIGHTS)


async def test_the_deadline_is_budget_and_time_to_apply_after_the_state_was_seen():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.advance(0.04)
        await guard.inject(action())
        assert guard.sent(Verdict)[0].deadline == pytest.approx(START_NS + 600_000_000, abs=1000)


async def test_i3_the_deadline_is_never_later_than_two_ticks_after_the_state_s_stamp():
    async with guard_in() as guard:
        await guard.advance(60.0)
        await guard.inject(state(at=guard.at() - 9_900_000_000), action())
        (verdict,) = guard.sent(Verdict)
        assert verdict.execute
        assert verdict.deadline == pytest.approx(guard.at() + 100_000_000, abs=1000)


async def test_i3_a_state_older_than_two_ticks_is_refused():
    async with guard_in() as guard:
        await guard.advance(60.0)
        await guard.inject(state(at=guard.at() - 10_100_000_000), action())
        assert [(verdict.outcome, verdict.rule) for verdict in guard.sent(Verdict)] == [("refuse", "freshness")]


async def test_without_an_action_the_cycle_is_late_after_the_budget_and_not_before():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.advance(BUDGET - 0.001)
        assert guard.sent(Verdict) == []
        await guard.advance(0.001)
        (verdict,) = guard.sent(Verdict)
        assert (verdict.outcome, verdict.rule, verdict.execute) == ("late", "budget", False)
        assert verdict.arm is verdict.weights is None


async def test_an_action_within_the_budget_is_in_time():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.advance(BUDGET - 0.001)
        await guard.inject(action())
        await guard.advance(1.0)
        assert outcomes(guard) == [(1, "allow")]


async def test_an_action_after_the_verdict_late_is_dropped_and_counted():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.advance(BUDGET)
        await guard.inject(action())
        assert outcomes(guard) == [(1, "late")]
        assert guard.dropped("action", "late") == 1


async def test_an_action_that_overtakes_its_state_is_judged_when_the_state_comes():
    async with guard_in() as guard:
        await guard.inject(action())
        assert guard.sent(Verdict) == []
        await guard.inject(state())
        await guard.advance(BUDGET)
        assert outcomes(guard) == [(1, "allow")]


@pytest.mark.parametrize(
    "messages",
    [
        [state(), state(), action(), action()],
        [state(), action(), state(), action()],
        [action(), action(), state(), state()],
        [action(), state(), action(), state()],
        [action(), state(), state(), action()],
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_i6_one_verdict_whatever_is_delivered_twice(messages, at_once):
    async with guard_in() as guard:
        if at_once:
            await guard.inject(*messages)
        else:
            for message in messages:
                await guard.inject(message)
        await guard.advance(5.0)
        assert outcomes(guard) == [(1, "allow")]
        assert guard.dropped("state", "duplicate") == 1
        assert guard.dropped("action", "duplicate") == 1


async def test_i6_a_second_different_action_changes_nothing():
    async with guard_in() as guard:
        await guard.inject(action(arm="first"), action(arm="second"), state(), action(arm="third"))
        assert [verdict.arm for verdict in guard.sent(Verdict)] == ["first"]


async def test_an_action_of_an_old_cycle_gets_no_verdict():
    async with guard_in() as guard:
        await guard.inject(state(cycle=40), action(cycle=39), action(cycle=40))
        await guard.inject(state(cycle=39))
        await guard.advance(1.0)
        assert outcomes(guard) == [(40, "allow")]
        assert guard.dropped("action", "stale") == 1
        assert guard.dropped("state", "duplicate") == 1


async def test_an_action_of_an_older_boot_gets_no_verdict():
    async with guard_in() as guard:
        await guard.inject(state(cycle=7))
        await guard.advance(5.0)
        await guard.inject(state(boot="boot2", cycle=1))
        await guard.inject(action(cycle=7), action(boot="boot2"))
        await guard.inject(
            state(cycle=8), action(cycle=8)
        )  # the run that ended does not come back while this one speaks
        await guard.advance(1.0)
        assert [(verdict.boot, verdict.cycle, verdict.outcome) for verdict in guard.sent(Verdict)] == [
            (BOOT, 7, "late"),
            ("boot2", 1, "allow"),
        ]


async def test_a_cycle_that_waits_when_the_next_one_begins_is_over():
    async with guard_in() as guard:
        await guard.inject(state(cycle=1), state(cycle=2))
        await guard.inject(action(cycle=1), action(cycle=2))
        await guard.advance(1.0)
        assert outcomes(guard) == [(1, "late"), (2, "allow")]
        assert "before cycle 2" in guard.sent(Verdict)[0].reason


async def test_only_the_newest_cycles_are_remembered():
    async with guard_in() as guard:
        for cycle in range(1, 21):
            await guard.inject(state(cycle=cycle))
        await guard.inject(action(cycle=4))
        assert guard.dropped("action", "stale") == 1
        await guard.inject(action(cycle=5))
        assert guard.dropped("action", "late") == 1


async def test_i6_one_verdict_while_the_bus_is_slow():
    async with guard_in(bus=SlowBus("verdict")) as guard:
        await guard.inject(action(cycle=2), state(cycle=1))
        await guard.inject(state(cycle=2), action(cycle=2))  # comes again while the verdict on cycle 1 is on its way
        await settle(200)
        assert sorted(outcomes(guard)) == [(1, "late"), (2, "allow")]


async def test_actions_that_never_find_a_state_are_forgotten_and_counted():
    async with guard_in() as guard:
        await guard.inject(*(action(cycle=cycle) for cycle in range(1, 21)))
        assert guard.dropped("action", "unknown_cycle") == 4
        await guard.inject(state(cycle=20))
        assert outcomes(guard) == [(20, "allow")]


async def test_a_message_of_another_node_is_not_ours():
    async with guard_in() as guard:
        await guard.inject_raw("trimtab.v1.state.node-1", encode(state(node="node-2", cycle=2)))
        await guard.inject(state(), action())
        assert outcomes(guard) == [(1, "allow")]
        assert guard.dropped("state", "other_node") == 1


async def test_i7_rubbish_costs_itself_only():
    async with guard_in() as guard:
        rubbish = (b"", b"\xff", b"[]", b'{"type":"state"}', b"9" * 5000)
        await guard.inject_raw("trimtab.v1.state.node-1", *rubbish)
        await guard.inject_raw("trimtab.v1.action.node-1", *rubbish)
        await guard.inject(state(), action())
        assert outcomes(guard) == [(1, "allow")]
        assert guard.dropped("state", "decode") == 5


async def test_a_clamped_proposal_has_no_propensity():
    async with guard_in() as guard:
        await guard.inject(state(), action(weights={CRITICAL: 9000, BATCH: 100}))
        (verdict,) = guard.sent(Verdict)
        assert (verdict.outcome, verdict.propensity, verdict.weights) == ("clamp", None, {CRITICAL: 4000, BATCH: 100})


async def test_a_hold_keeps_its_propensity():
    async with guard_in() as guard:
        await guard.inject(state(), hold(propensity=0.25))
        (verdict,) = guard.sent(Verdict)
        assert (verdict.outcome, verdict.execute, verdict.propensity) == ("hold", False, 0.25)


async def test_a_long_reason_of_the_decider_does_not_swell_the_verdict():
    async with guard_in() as guard:
        await guard.inject(state(), hold(reason="x" * 900_000))
        assert len(guard.sent(Verdict)[0].reason) == 300


async def test_i8_shadow_executes_nothing_and_uses_no_rate():
    async with guard_in("shadow") as guard:
        await guard.inject(state(), action())
        (verdict,) = guard.sent(Verdict)
        assert (verdict.outcome, verdict.rule, verdict.execute, verdict.changes_left) == ("allow", "shadow", False, 8)


async def test_i2_no_more_changes_than_the_rate():
    async with guard_in(settings={"weights.max_changes_per_minute": 3}) as guard:
        for cycle in range(1, 15):
            await guard.inject(state(cycle=cycle, at=guard.at()), action(cycle=cycle))
            await guard.advance(5.0)
        executed = [verdict.cycle for verdict in guard.sent(Verdict) if verdict.execute]
        assert executed == [1, 2, 3, 13, 14]  # the twelve cycles of a minute have three
        assert {verdict.rule for verdict in guard.sent(Verdict) if not verdict.execute} == {"rate"}


async def test_i2_a_backlog_does_not_make_two_steps_of_one_picture():
    async with guard_in() as guard:
        await guard.inject(action(cycle=1), action(cycle=2))
        await guard.advance(9.0)
        second = 1_000_000_000
        await guard.inject(state(cycle=1, at=guard.at() - 8 * second), state(cycle=2, at=guard.at() - 3 * second))
        assert [(verdict.cycle, verdict.execute, verdict.rule) for verdict in guard.sent(Verdict)] == [
            (1, True, None),
            (2, False, "freshness"),
        ]


async def test_without_contention_it_is_held_for_its_reason():
    async with guard_in() as guard:
        await guard.inject(state(contention=Contention(contended=False, reason="idle")), action())
        assert [(verdict.outcome, verdict.rule, verdict.reason) for verdict in guard.sent(Verdict)] == [
            ("hold", "contention", "idle")
        ]


async def test_an_after_state_begins_no_cycle():
    async with guard_in() as guard:
        await guard.inject(after(state()), action())
        await guard.advance(1.0)
        assert guard.sent(Verdict) == []


async def test_verdicts_and_rules_are_counted():
    async with guard_in() as guard:
        await guard.inject(state(), action(weights={CRITICAL: 50, BATCH: 100}))
        assert guard.metric("trimtab_guard_verdicts_total", verdict="refuse") == 1
        assert guard.metric("trimtab_guard_rule_hits_total", rule="bounds") == 1


async def test_stopping_ends_the_timers():
    async with guard_in() as guard:
        await guard.inject(state())
        await guard.service.stop()
        await guard.advance(1.0)
        assert guard.sent(Verdict) == []
