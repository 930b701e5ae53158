"""Step 7 on the bus: each verdict at most once, in time, on a state that is known; and what is said of it."""

import asyncio
import errno
import itertools

import msgspec
import pytest

from runtime.clock import settle
from runtime.errors import HostError
from runtime.host_roots import HostRoots
from schemas.codec import encode
from schemas.messages import Actuation
from tests.support.builders import BATCH, CRITICAL, START_NS, actuation, command, heartbeat, pod, state, verdict
from tests.unit.actuator.world import API, JOB, Tree, actuator, at


def outcomes(h):
    return [(message.cycle, message.outcome, message.rule) for message in h.sent(Actuation)]


async def test_a_verdict_is_carried_out_and_told(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        assert (tree.weight(API), tree.weight(JOB)) == ("2000", "100\n")
        (told,) = h.sent(Actuation)
        assert (told.boot, told.cycle, told.outcome, told.arm) == ("boot1", 1, "applied", "favour")
        assert told.weights == {CRITICAL: 2000, BATCH: 100}
        assert [(w.group, w.before, w.wanted, w.after, w.result) for w in told.writes] == [
            (API, 100, 2000, 2000, "applied"),
            (JOB, 100, 100, 100, "unchanged"),
        ]
        assert h.service.cycle == 1
        assert h.metric("trimtab_actuator_writable") == 1


async def test_weights_in_force_already_are_held(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(*at(h, 2))
        assert outcomes(h) == [(1, "applied", None), (2, "held", None)]
        assert h.sent(Actuation)[1].weights == {CRITICAL: 2000, BATCH: 100}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"outcome": "hold", "execute": False, "weights": None, "rule": "hold"}, "held"),
        ({"outcome": "refuse", "execute": False, "rule": "step"}, "skipped"),
        ({"outcome": "late", "execute": False, "rule": "budget", "weights": None}, "skipped"),
        ({"outcome": "allow", "execute": False, "rule": "shadow", "mode": "shadow"}, "skipped"),
        ({"outcome": "allow", "execute": True, "weights": None, "rule": None}, "skipped"),
    ],
)
async def test_what_must_not_be_executed_writes_nothing(tree, journal, faults, fields, outcome):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, **fields))
        assert outcomes(h) == [(1, outcome, fields["rule"])]
        assert h.sent(Actuation)[0].weights is None
    assert faults.attempts == []


@pytest.mark.parametrize("mode", ["shadow", "frozen"])
async def test_i8_a_verdict_that_contradicts_its_mode_writes_nothing(tree, journal, faults, mode):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, mode=mode))
        assert outcomes(h) == [(1, "skipped", "mode")]
    assert faults.attempts == []


async def test_i6_whatever_is_delivered_twice_is_applied_once(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(seen, judged, judged, seen, judged)
        assert outcomes(h) == [(1, "applied", None)]
        assert faults.attempts == [API]
        assert h.dropped("verdict", "duplicate") == 2


async def test_i6_an_older_verdict_after_a_newer_one_is_dropped(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen1, judged1 = at(h, 1, weights={CRITICAL: 500, BATCH: 100})
        seen2, judged2 = at(h, 2)
        await h.inject(seen1, seen2, judged2, judged1)
        assert outcomes(h) == [(2, "applied", None)]
        assert tree.weight(API) == "2000"


@pytest.mark.parametrize("order", sorted(set(itertools.permutations([0, 1, 1, 2, 3, 3]))))
async def test_i6_in_every_order_there_is_at_most_one_application_a_cycle(tmp_path, order):
    tree = Tree(tmp_path)
    tree.add(API)
    tree.add(JOB)
    async with actuator(tree, tmp_path / "state/journal") as h:
        seen1, judged1 = at(h, 1, weights={CRITICAL: 500, BATCH: 100})
        seen2, judged2 = at(h, 2)
        messages = (seen1, judged1, seen2, judged2)
        await h.inject(*(messages[index] for index in order))
        applied = [cycle for cycle, outcome, _ in outcomes(h) if outcome == "applied"]
        assert applied in ([1], [2], [1, 2])
        assert len({cycle for cycle, _, _ in outcomes(h)}) == len(outcomes(h))


async def test_a_verdict_before_its_state_waits_for_it(tree, journal):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(judged)
        assert outcomes(h) == []
        await h.advance(0.1)
        await h.inject(seen)
        assert outcomes(h) == [(1, "applied", None)]


async def test_a_verdict_whose_state_comes_too_late_is_not_applied(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(judged)
        await h.advance(0.7)
        await h.inject(seen)
        assert outcomes(h) == [(1, "skipped", "deadline")]
    assert faults.attempts == []


async def test_a_waiting_verdict_is_too_late_by_our_own_clock_when_the_wall_steps_back(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(judged)
        await h.advance(1.5)
        h.clock.step_wall(-3600)
        await h.inject(seen)
        assert outcomes(h) == [(1, "skipped", "deadline")]
    assert faults.attempts == []


async def test_a_verdict_whose_state_never_comes_is_told_of(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(at(h, 1)[1])
        await h.advance(4.0)
        assert outcomes(h) == []
        await h.advance(3.0)
        assert outcomes(h) == [(1, "skipped", "no_state")]


async def test_a_waiting_verdict_gives_way_to_the_next(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(at(h, 1)[1])
        await h.inject(*at(h, 2))
        assert outcomes(h) == [(1, "skipped", "no_state"), (2, "applied", None)]


async def test_a_state_of_another_run_does_not_stand_in_for_the_verdicts(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(at(h, 1, boot="other")[0], at(h, 1)[1])
        assert outcomes(h) == []


async def test_a_state_after_is_no_ground_to_act_on(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(state(phase="after", pods=(pod("api", CRITICAL, 100),)), at(h, 1)[1])
        assert outcomes(h) == []


# ---- I3 ----


async def test_i3_nothing_is_applied_after_the_deadline(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(seen)
        await h.advance(0.61)
        await h.inject(judged)
        (told,) = h.sent(Actuation)
        assert (told.outcome, told.rule, told.reason) == ("skipped", "deadline", "10 ms after the deadline")
    assert faults.attempts == []


async def test_i3_at_the_deadline_it_still_is_in_time(tree, journal):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(seen)
        await h.advance(0.59)
        await h.inject(judged)
        assert outcomes(h) == [(1, "applied", None)]


async def test_i3_without_a_deadline_nothing_is_applied(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, deadline=None))
        assert outcomes(h) == [(1, "skipped", "deadline")]
    assert faults.attempts == []


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
@pytest.mark.parametrize("waited", [0.0, 0.3, 0.7, 30.0])
async def test_i3_a_step_of_the_wall_clock_never_makes_a_late_verdict_good(tree, journal, faults, step, waited):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(seen)
        await h.advance(waited)
        h.clock.step_wall(step)
        await h.inject(judged)
        assert len(outcomes(h)) == 1
        if step > 0 or waited > 0.6:
            assert outcomes(h) == [(1, "skipped", "deadline")]
            assert faults.attempts == []


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_i3_a_step_between_state_and_verdict_gives_no_more_than_two_ticks(tree, journal, faults, step):
    async with actuator(tree, journal) as h:
        seen, _ = at(h, 1)
        await h.inject(seen)
        h.clock.step_wall(step)
        await h.advance(10.1)
        await h.inject(at(h, 1)[1])  # its deadline is of the new wall time
        assert outcomes(h) == [(1, "skipped", "deadline")]
    assert faults.attempts == []


async def test_i3_a_state_that_was_old_when_it_came_is_not_acted_on(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, _ = at(h, 1)
        await h.advance(10.5)
        await h.inject(seen, at(h, 1)[1])
        (told,) = h.sent(Actuation)
        assert (told.outcome, told.rule, told.reason) == ("skipped", "deadline", "the state is 10.50 s old")
    assert faults.attempts == []


async def test_i3_a_state_that_comes_twice_is_no_younger_for_it(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(seen)
        await h.advance(5.0)
        h.clock.step_wall(-3600)
        await h.inject(seen, judged)
        assert outcomes(h) == [(1, "skipped", "deadline")]
    assert faults.attempts == []


async def test_i3_a_slow_journal_does_not_carry_a_write_over_the_deadline(tree, journal, faults, monkeypatch):
    async with actuator(tree, journal) as h:
        append = h.service._weights._journal.append

        def slow(records, *, sync):
            append(records, sync=sync)
            h.clock.step_wall(1.0)

        monkeypatch.setattr(h.service._weights._journal, "append", slow)
        await h.inject(*at(h, 1))
        assert outcomes(h) == [(1, "skipped", "deadline")]
        assert faults.attempts == []


async def test_a_verdict_of_a_state_that_newer_ones_have_pushed_out_is_told_of(tree, journal, faults):
    async with actuator(tree, journal) as h:
        seen, judged = at(h, 1)
        await h.inject(judged)  # waits for its state, which comes together with more than are kept
        await h.inject(*(at(h, cycle)[0] for cycle in range(2, 9)), seen)
        assert outcomes(h) == [(1, "applied", None)]


# ---- what is there to write ----


async def test_i7_a_bad_group_path_costs_that_pod_only(tree, journal):
    pods = (
        pod("api", CRITICAL, 100),
        pod("evil", CRITICAL, 100, group="../../etc"),
        pod("qos", BATCH, 100, group="burstable"),
    )
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=pods))
        (told,) = h.sent(Actuation)
        assert {write.group: (write.result, write.reason) for write in told.writes} == {
            API: ("applied", None),
            "../../etc": ("skipped", "not_a_pod_group"),
            "burstable": ("skipped", "not_a_pod_group"),
        }


async def test_without_pods_the_cycle_is_skipped(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=()))
        assert outcomes(h) == [(1, "skipped", None)]


async def test_wt_03_an_idle_pod_is_skipped_and_the_second_one_is_written(tree, journal):
    tree.add("pod-idle", "0\n", idle="1\n")
    pods = (pod("idle", CRITICAL, 100), pod("api", CRITICAL, 100), pod("job", BATCH, 100))
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, pods=pods))
        (told,) = h.sent(Actuation)
        assert told.outcome == "applied"
        assert {w.group: (w.result, w.reason) for w in told.writes}["pod-idle"] == ("skipped", "idle")
        assert tree.weight(API) == "1000"
    assert (tree.weight(API), tree.weight("pod-idle")) == ("100\n", "0\n")


async def test_a_bad_message_costs_itself(tree, journal):
    async with actuator(tree, journal) as h:
        for raw in (b"", b"{}", b"[1]", b"\xff\xfe", b'{"type":"verdict","execute":true}', encode(actuation())):
            await h.bus.publish("trimtab.v1.verdict.node-1", raw)
            await h.bus.publish("trimtab.v1.state.node-1", raw)
        await settle()
        h.bus.history.clear()  # nobody can read that
        await h.inject(*at(h, 1))
        assert outcomes(h) == [(1, "applied", None)]
        assert h.dropped("verdict", "decode") == 6


# ---- somebody else, and what refuses ----


async def test_wt_04_a_foreign_write_is_rebaselined_counted_and_reported(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        tree.write(API, "39\n")
        await h.advance(5.0)
        await h.inject(*at(h, 2, weights={CRITICAL: 3000, BATCH: 100}))
        assert h.sent(Actuation)[1].overridden == (API,)
        assert h.metric("trimtab_actuator_foreign_changes_total") == 1
    assert tree.weight(API) == "39\n"


async def test_wt_04_after_three_in_a_row_a_pod_is_left_alone_and_keeps_its_value(tree, journal, faults):
    async with actuator(tree, journal) as h:
        for cycle in range(1, 8):
            await h.inject(*at(h, cycle, weights={CRITICAL: 1000 + cycle, BATCH: 100}))
            tree.write(API, "39\n")
            await h.advance(5.0)
            await h.inject(heartbeat())
        overridden = [message.overridden for message in h.sent(Actuation)]
        assert overridden == [(), (API,), (API,), (API,), (), (), ()]
        assert faults.attempts == [API] * 3
    assert tree.weight(API) == "39\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
async def test_wt_05_a_refused_write_leads_to_observing_only(tree, journal, faults, number):
    faults.errno_of["*"] = number
    async with actuator(tree, journal) as h:
        await h.advance(3000.0)  # whatever was probed at start is long ago
        await h.inject(*at(h, 1, weights={CRITICAL: 2000, BATCH: 50}))
        assert len(faults.attempts) == 2
        for cycle in range(2, 12):
            await h.advance(5.0)
            await h.inject(heartbeat(), *at(h, cycle, weights={CRITICAL: 2000 + cycle, BATCH: 50}))
            assert h.context.health.ready()[0] is False
            assert h.metric("trimtab_actuator_writable") == 0
        assert len(faults.attempts) == 2
        assert outcomes(h)[0] == (1, "failed", None)
        assert outcomes(h)[1:] == [(cycle, "skipped", "read_only") for cycle in range(2, 12)]
        assert not any(message.weights for message in h.sent(Actuation))


async def test_wt_05_after_a_while_one_cycle_tries_again_and_success_ends_it(tree, journal, faults):
    faults.errno_of["*"] = errno.EROFS
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.advance(61.0)
        await h.inject(*at(h, 2))
        await h.advance(5.0)
        await h.inject(*at(h, 3))
        assert faults.attempts == [API, API]
        faults.errno_of.clear()
        await h.advance(61.0)
        await h.inject(*at(h, 4))
        assert outcomes(h)[-1] == (4, "applied", None)
        assert h.context.health.ready() == (True, "ready")
        assert h.metric("trimtab_actuator_writable") == 1


async def test_wt_05_originals_that_could_be_returned_show_that_writes_are_taken_again(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        faults.errno_of["*"] = errno.EROFS
        await h.advance(5.0)
        await h.inject(*at(h, 2, weights={CRITICAL: 2000, BATCH: 50}))
        assert h.metric("trimtab_actuator_writable") == 0
        faults.errno_of.clear()
        await h.inject(command(verb="restore"))
        assert h.metric("trimtab_actuator_writable") == 1
        await h.advance(5.0)
        await h.inject(*at(h, 3))
        assert outcomes(h)[-1] == (3, "applied", None)


async def test_wt_05_a_read_only_mount_found_at_start_is_never_tried(tree, journal, faults, monkeypatch):
    roots = HostRoots(str(tree.root), "kubepods", str(tree.proc), "cgroup2 is mounted read-only")
    monkeypatch.setattr("services.actuator.service.find_roots", lambda settings: roots)
    async with actuator(tree, journal) as h:
        for cycle in range(1, 30):
            await h.inject(heartbeat(), *at(h, cycle))
            await h.advance(5.0)
        assert h.context.health.ready() == (False, "writable: cgroup2 is mounted read-only")
        assert set(outcomes(h)) == {(c, "skipped", "read_only") for c in range(1, 30)}
    assert faults.attempts == []


async def test_a_full_disk_fails_the_cycle_and_writes_nothing(tree, journal, faults, monkeypatch):
    async with actuator(tree, journal) as h:

        def full(records, *, sync):
            raise HostError("actuator.journal: full")

        monkeypatch.setattr(h.service._weights._journal, "append", full)
        await h.inject(*at(h, 1))
        assert outcomes(h) == [(1, "failed", "journal")]
        assert faults.attempts == []


async def test_an_unusable_journal_ends_the_start_with_one_line(tree):
    with pytest.raises(HostError) as caught:
        async with actuator(tree, "/dev/null/journal"):
            pass
    assert "\n" not in str(caught.value)


async def test_nothing_is_applied_while_the_service_ends(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        late = at(h, 2, weights={CRITICAL: 5000, BATCH: 100})
        send = h.context.messenger.send
        heard = asyncio.Event()

        async def slow(message):  # the network takes its time while the last word is said
            if isinstance(message, Actuation) and message.outcome == "restored":
                await h.inject(*late)
                heard.set()
            return await send(message)

        h.context.messenger.send = slow
        await h.stop()
        assert heard.is_set()
        assert sorted(outcomes(h)[1:]) == [(1, "restored", None), (2, "skipped", "stopping")]
        assert tree.weight(API) == "100\n"


def test_the_builders_deadline_is_of_the_clock_these_tests_start_with():
    assert verdict().deadline == START_NS + 600_000_000
    assert command().verb == "restore"


async def test_a_pod_that_is_no_target_any_more_gets_its_original_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        assert tree.weight(API) == "2000"
        before, order = at(h, 2)
        opted_out = msgspec.structs.replace(before, pods=(pod("api", None, 2000), pod("job", BATCH, 100)))
        await h.inject(opted_out, order)
        assert tree.weight(API) == "100\n"


async def test_classes_without_a_common_parent_are_said_to_be_unreachable(tree, journal):
    tree.add("besteffort/pod-far")
    async with actuator(tree, journal) as h:
        before, order = at(h, 1)
        far = pod("far", BATCH, 100, group="besteffort/pod-far")
        await h.inject(msgspec.structs.replace(before, pods=(pod("api", CRITICAL, 100), far)), order)
        told = h.sent(Actuation)[0]
        assert told.rule == "unreachable"
        assert told.reason == f"no common parent group with another class: {BATCH}, {CRITICAL}"


@pytest.mark.parametrize("mode", ["frozen", "shadow"])
async def test_i8_an_order_to_stand_still_that_the_guard_missed_is_kept_until_it_shows_or_is_lifted(
    tree, journal, mode
):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command(verb="mode", mode=mode, id="stop"))
        assert tree.weight(API) == "100\n"
        await h.inject(*at(h, 2))
        assert tree.weight(API) == "100\n"
        assert outcomes(h)[-1] == (2, "skipped", "mode")
        await h.inject(command(verb="mode", mode="active", id="go"))
        await h.inject(*at(h, 3))
        assert tree.weight(API) == "2000"


@pytest.mark.parametrize("weight", [0, 9, 10_001, -5])
async def test_i2_a_verdict_with_a_weight_out_of_bounds_is_not_carried_out_whoever_sent_it(
    tree, journal, faults, weight
):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: weight, BATCH: 100}))
        assert outcomes(h) == [(1, "skipped", "bounds")]
    assert faults.attempts == []
