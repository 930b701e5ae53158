"""One reward message per cycle, whatever comes, comes twice or does not come."""

from itertools import permutations

import pytest

from schemas.messages import CollectRequest, Contention, Reward
from services.collector.config import CollectorConfig
from tests.support.builders import (
    BATCH,
    BOOT,
    CRITICAL,
    EXAMPLE_FEATURES,
    action,
    actuation,
    after,
    pod,
    state,
    verdict,
    with_p99,
    with_wait,
)
from tests.support.harness import SlowBus
from tests.support.services import rewarder

SETTLE, BUDGET, TIMEOUT = 2.0, 0.1, 1.5
LONGEST = BUDGET + TIMEOUT + SETTLE + TIMEOUT
LATE = verdict(outcome="late", rule="budget", execute=False, weights=None, arm=None, propensity=None)


def ends(made):
    return [(reward.cycle, reward.outcome, reward.reason) for reward in made.sent(Reward)]


async def parts(made, cycle=1):
    """The first half of a cycle: seen, proposed, judged and applied."""
    await made.inject(state(cycle=cycle), action(cycle=cycle), verdict(cycle=cycle), actuation(cycle=cycle))


async def test_a_whole_cycle_is_rewarded_when_it_was_seen_again():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        assert made.sent(Reward) == []
        await made.inject(after(state()))
        (reward,) = made.sent(Reward)
        assert (reward.boot, reward.cycle, reward.outcome, reward.reason) == (BOOT, 1, "joined", None)
        assert (reward.arm, reward.propensity, reward.policy) == ("favour", 0.5, "test")
        assert (reward.features, reward.features_schema) == (EXAMPLE_FEATURES, state().features_schema)
        assert (reward.verdict, reward.actuation) == ("allow", "applied")
        assert reward.weights == action().weights
        moved = reward.terms["oscillation"]
        assert reward.value == pytest.approx(0.5 + 0.05 * moved)
        assert -0.1 < moved < 0.0
        await made.advance(10.0)
        assert len(made.sent(Reward)) == 1


async def test_the_features_of_a_reward_are_the_state_s_and_what_the_decider_remembered():
    async with rewarder() as made:
        await made.inject(state(), action(context={"latency-critical.lost": 0.5}), verdict(), actuation())
        await made.advance(SETTLE)
        await made.inject(after(state(), features={"bias": 0.0}))
        (reward,) = made.sent(Reward)
        assert reward.features == {**EXAMPLE_FEATURES, "latency-critical.lost": 0.5}


async def test_a_cycle_of_a_class_without_any_latency_is_rewarded_by_its_wait():
    settings = {f"classes.{CRITICAL}.objective_pressure_ratio": 0.1}
    async with rewarder(settings) as made:
        for cycle, waited in ((1, 0.1), (2, 0.55), (3, None)):
            before = with_wait(state(cycle=cycle), 0.3)
            await made.inject(before, action(cycle=cycle), verdict(cycle=cycle), actuation(cycle=cycle))
            await made.advance(SETTLE)
            await made.inject(with_wait(after(before), waited))
        assert ends(made) == [
            (1, "joined", None),
            (2, "joined", None),
            (3, "censored", f"no_pressure: {CRITICAL}"),
        ]
        kept, broken, _ = made.sent(Reward)
        assert kept.value > 0.0 > broken.value
        assert broken.terms[f"severity.{CRITICAL}"] == pytest.approx(-0.5)
        assert made.metric("trimtab_rewarder_slo_violations_total", slo=CRITICAL) == 1
        assert made.metric("trimtab_rewarder_censored_total", reason="no_pressure") == 1


async def test_the_second_look_is_asked_for_settle_seconds_after_the_actuation():
    async with rewarder() as made:
        await made.inject(state(), action())
        await made.advance(0.05)
        await made.inject(verdict())
        await made.advance(0.3)
        await made.inject(actuation())
        await made.advance(SETTLE - 0.001)
        assert made.sent(CollectRequest) == []
        await made.advance(0.001)
        assert [(request.boot, request.cycle) for request in made.sent(CollectRequest)] == [(BOOT, 1)]


async def test_the_settle_time_is_the_configured_one():
    async with rewarder({"loop.settle_seconds": 0.5}) as made:
        await parts(made)
        await made.advance(0.5)
        assert len(made.sent(CollectRequest)) == 1


async def test_without_a_verdict_the_cycle_is_censored_and_was_still_looked_at():
    async with rewarder() as made:
        await made.inject(state(), action())
        await made.advance(BUDGET + TIMEOUT + SETTLE - 0.001)
        assert made.sent(CollectRequest) == []
        await made.advance(0.001)
        assert len(made.sent(CollectRequest)) == 1
        await made.inject(after(state()))
        assert ends(made) == [(1, "censored", "no_verdict")]


async def test_without_an_actuation_the_cycle_is_censored():
    async with rewarder() as made:
        await made.inject(state(), action(), verdict())
        await made.advance(TIMEOUT + SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "censored", "no_actuation")]


async def test_a_collection_that_takes_the_whole_scrape_timeout_is_still_waited_for():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE + CollectorConfig().scrape_timeout_seconds + 0.25)
        await made.inject(after(state()))
        assert ends(made) == [(1, "joined", None)]


async def test_without_a_second_look_the_cycle_is_censored():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE + TIMEOUT - 0.001)
        assert ends(made) == []
        await made.advance(0.001)
        assert ends(made) == [(1, "censored", "no_after_state")]
        await made.inject(after(state()))
        assert len(ends(made)) == 1


async def test_with_nothing_but_a_state_the_cycle_ends_all_the_same():
    async with rewarder() as made:
        await made.inject(state())
        await made.advance(LONGEST - 0.001)
        assert ends(made) == []
        await made.advance(0.001)
        assert ends(made) == [(1, "censored", "no_verdict")]


async def test_a_late_cycle_is_censored_as_late():
    async with rewarder() as made:
        await made.inject(state(), LATE, actuation(outcome="skipped", arm=None, weights=None, writes=()))
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "censored", "late")]


async def test_a_censored_reward_has_no_value_and_no_features_but_its_terms():
    async with rewarder() as made:
        await made.inject(state(), action(), verdict(rule="shadow", mode="shadow", execute=False))
        await made.inject(actuation(outcome="skipped", rule="shadow"))
        await made.advance(SETTLE)
        await made.inject(after(state()))
        (reward,) = made.sent(Reward)
        assert (reward.outcome, reward.reason, reward.value, reward.features) == ("censored", "shadow", None, {})
        assert reward.terms["throughput"] == 0.5
        assert made.metric("trimtab_rewarder_censored_total", reason="shadow") == 1


async def test_the_label_of_a_reason_has_no_details():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(with_p99(after(state()), 0.05, requests=3))
        assert ends(made) == [(1, "censored", f"few_requests: {CRITICAL}: 3")]
        assert made.metric("trimtab_rewarder_censored_total", reason="few_requests") == 1


# ---- twice, early, late ----


@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_the_order_of_the_parts_does_not_matter(order):
    messages = [state(), action(), verdict(), actuation()]
    async with rewarder() as made:
        for index in order:
            await made.inject(messages[index])
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "joined", None)]


async def test_one_reward_whatever_is_delivered_twice():
    async with rewarder() as made:
        for message in (state(), action(), verdict(), actuation()):
            await made.inject(message, message)
        await made.advance(SETTLE)
        await made.inject(after(state()), after(state()), state(), verdict(), actuation())
        await made.advance(5.0)
        assert ends(made) == [(1, "joined", None)]
        assert len(made.sent(CollectRequest)) == 1
        assert made.dropped("state", "duplicate") == 2


async def test_the_first_of_a_kind_counts():
    async with rewarder() as made:
        await parts(made)
        await made.inject(action(arm="other"), LATE, actuation(outcome="failed"))
        await made.advance(SETTLE)
        await made.inject(after(state()))
        (reward,) = made.sent(Reward)
        assert (reward.outcome, reward.arm, reward.verdict, reward.actuation) == (
            "joined",
            "favour",
            "allow",
            "applied",
        )


async def test_a_change_that_was_taken_back_before_the_second_look_is_not_learned():
    async with rewarder() as made:
        await parts(made)
        await made.inject(actuation(outcome="restored", reason="dead_man"), actuation())
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "censored", "not_applied: dead_man")]


async def test_a_change_that_was_rolled_back_for_what_the_second_look_saw_is_learned():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(with_p99(after(state()), 0.4, over_ratio=0.5), actuation(outcome="rolled_back"))
        (reward,) = made.sent(Reward)
        assert (reward.outcome, reward.actuation) == ("joined", "applied")
        assert reward.value < -0.5


async def test_wt_04_a_weight_that_somebody_put_back_is_not_learned_and_counted():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(after(state(), pods=(pod("api", weight=39), pod("job", BATCH, 100))))
        assert ends(made) == [(1, "censored", "overridden")]
        assert made.metric("trimtab_rewarder_censored_total", reason="overridden") == 1


async def test_parts_of_other_cycles_do_not_join():
    async with rewarder() as made:
        await made.inject(state(cycle=2), action(cycle=1), verdict(cycle=3), actuation(boot="boot0", cycle=2))
        await made.inject(after(state(cycle=1)))
        await made.advance(LONGEST)
        assert ends(made) == [(2, "censored", "no_verdict")]
        assert made.dropped("action", "stale") == 1


async def test_old_parts_do_not_crowd_out_the_ones_to_come():
    async with rewarder() as made:
        await made.inject(state(cycle=1))
        await made.inject(action(cycle=2), verdict(cycle=2), actuation(cycle=2))
        await made.inject(*(verdict(cycle=0, rule=str(number)) for number in range(30)))
        await made.inject(state(cycle=2))
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=2)))
        assert ends(made) == [(1, "censored", "overrun"), (2, "joined", None)]


async def test_parts_may_come_before_even_the_state_of_the_cycle_before():
    async with rewarder() as made:
        await made.inject(action(cycle=2), verdict(cycle=2), actuation(cycle=2))
        await made.inject(state(cycle=1), state(cycle=2))
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=2)))
        assert ends(made)[-1] == (2, "joined", None)


# ---- the next cycle, and the end ----


async def test_a_cycle_that_the_next_one_overtakes_ends_with_that_word():
    async with rewarder() as made:
        await parts(made, 1)
        await made.advance(1.0)
        await parts(made, 2)
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=1)), after(state(cycle=2)))
        await made.advance(5.0)
        assert ends(made) == [(1, "censored", "overrun"), (2, "joined", None)]
        assert [request.cycle for request in made.sent(CollectRequest)] == [2]


async def test_a_cycle_that_was_seen_again_as_the_next_one_began_is_whole():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.service._on_state(after(state()))  # handled, but nobody who waited for it has run yet
        await made.service._on_state(state(cycle=2))
        await made.inject(after(state()))
        assert ends(made) == [(1, "joined", None)]


async def test_parts_that_come_while_the_earlier_cycle_ends_are_not_lost():
    async with rewarder() as made:
        await parts(made, 1)
        await made.inject(state(cycle=2), action(cycle=2), verdict(cycle=2), actuation(cycle=2))
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=2)))
        assert ends(made) == [(1, "censored", "overrun"), (2, "joined", None)]


async def test_a_stray_state_is_not_followed_and_a_new_run_of_the_collector_is_after_a_tick_of_silence():
    async with rewarder() as made:
        await made.inject(state(cycle=9), state(boot="boot2", cycle=1), state(cycle=900), state(cycle=10))
        await made.advance(LONGEST)
        await made.advance(5.0)
        await made.inject(state(boot="boot2", cycle=2))
        await made.advance(LONGEST)
        assert [(reward.boot, reward.cycle, reward.reason) for reward in made.sent(Reward)] == [
            (BOOT, 9, "overrun"),
            (BOOT, 10, "no_verdict"),
            ("boot2", 2, "no_verdict"),
        ]


async def test_stopping_ends_the_cycle_under_way():
    async with rewarder() as made:
        await parts(made)
        await made.advance(1.0)
        await made.stop()
        assert ends(made) == [(1, "censored", "stopped")]


async def test_stopping_with_everything_seen_still_rewards():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.service._on_state(after(state()))  # handled, but nobody who waited for it has run yet
        await made.stop()
        assert ends(made) == [(1, "joined", None)]


async def test_stopping_waits_for_a_reward_that_is_on_its_way():
    async with rewarder(bus=SlowBus("reward")) as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == []  # the reward is made, and has not left
        await made.stop()
        assert ends(made) == [(1, "joined", None)]


async def test_stopping_between_cycles_says_nothing():
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(after(state()))
        await made.stop()
        assert len(ends(made)) == 1
    async with rewarder() as idle:
        await idle.stop()
        assert ends(idle) == []


async def test_while_the_bus_is_down_the_next_cycles_are_still_rewarded():
    async with rewarder() as made:
        await parts(made)
        made.bus.partition = True
        await made.advance(5.0)
        made.bus.partition = False
        await parts(made, 2)
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=2)))
        assert ends(made) == [(2, "joined", None)]


async def test_na_09_clock_steps_change_no_interval():
    async with rewarder() as made:
        await parts(made)
        made.clock.step_wall(-3600.0)
        await made.advance(SETTLE)
        assert len(made.sent(CollectRequest)) == 1
        made.clock.step_wall(7200.0)
        await made.inject(after(state()))
        assert ends(made) == [(1, "joined", None)]
        assert made.metric("trimtab_rewarder_reward_delay_seconds_sum") == pytest.approx(2.0)


async def test_violations_are_counted_by_class_also_in_censored_cycles():
    async with rewarder() as made:
        await made.inject(state(), LATE)
        await made.advance(TIMEOUT + SETTLE)
        calm = Contention(contended=False, cpus=2)
        await made.inject(with_p99(after(state(), contention=calm), 0.4, over_ratio=0.5))
        assert made.metric("trimtab_rewarder_slo_violations_total", slo=CRITICAL) == 1
        assert made.metric("trimtab_rewarder_rewards_total", outcome="censored") == 1


# ---- errors in our own code ----


def breaks(*_args, **_kwargs):
    raise ArithmeticError("nobody thought of it")


def failures(caplog):
    return [record.trimtab_fields for record in caplog.records if record.getMessage() == "cycle_failed"]


async def test_an_error_while_rewarding_is_logged_and_the_cycle_ends_censored(monkeypatch, caplog):
    monkeypatch.setattr("services.rewarder.core.conclude.reward", breaks)
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "censored", "failed")]
        monkeypatch.undo()
        await parts(made, 2)
        await made.advance(SETTLE)
        await made.inject(after(state(cycle=2)))
        assert ends(made)[1:] == [(2, "joined", None)]
    (said,) = failures(caplog)
    assert (said["cycle"], said["detail"]) == (1, "ArithmeticError: nobody thought of it")


@pytest.mark.parametrize("seen_again", [False, True])
async def test_an_error_on_the_way_is_logged_and_the_cycle_ends_censored(monkeypatch, caplog, seen_again):
    async with rewarder() as made:
        await made.inject(state(), action())
        if seen_again:
            await made.inject(after(state()))
        monkeypatch.setattr(made.service, "_wait", breaks)
        await made.inject(verdict(), actuation())
        assert ends(made) == [(1, "censored", "failed")]
        await made.advance(LONGEST)
        assert len(ends(made)) == 1
    assert [said["cycle"] for said in failures(caplog)] == [1]


async def test_an_error_while_an_overtaken_cycle_ends_costs_neither_cycle_its_reward(monkeypatch, caplog):
    async with rewarder() as made:
        await parts(made)
        await made.advance(SETTLE)
        await made.service._on_state(after(state()))  # handled, but nobody who waited for it has run yet
        monkeypatch.setattr("services.rewarder.core.conclude.reward", breaks)
        await made.service._on_state(state(cycle=2))
        monkeypatch.undo()
        await made.inject()  # nothing more: the second cycle's clock starts
        await made.advance(LONGEST)
        assert ends(made) == [(1, "censored", "failed"), (2, "censored", "no_verdict")]
    assert [said["cycle"] for said in failures(caplog)] == [1]


async def test_an_error_after_the_reward_was_sent_does_not_send_another(monkeypatch, caplog):
    async with rewarder() as made:
        send = made.context.messenger.send

        async def sends_and_breaks(message):
            await send(message)
            if isinstance(message, Reward):
                breaks()

        monkeypatch.setattr(made.context.messenger, "send", sends_and_breaks)
        await parts(made)
        await made.advance(SETTLE)
        await made.inject(after(state()))
        assert ends(made) == [(1, "joined", None)]
    assert len(failures(caplog)) == 1
