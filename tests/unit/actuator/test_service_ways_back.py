"""I4: rollback, restore, a standing mode, the dead man, the end, and the next start."""

import asyncio
import errno
import shutil

import pytest

from runtime.errors import HostError
from schemas.messages import Actuation
from services.actuator.core.journal_format import header
from tests.support.builders import BATCH, CRITICAL, command, heartbeat
from tests.unit.actuator.world import API, JOB, actuator, at, killed


def outcomes(h):
    return [(message.cycle, message.outcome) for message in h.sent(Actuation)]


def both(tree):
    return tree.weight(API), tree.weight(JOB)


ORIGINALS = ("100\n", "100\n")


# ---- rollback ----


async def test_a_rollback_returns_the_exact_earlier_values(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        await h.inject(*at(h, 2, weights={CRITICAL: 3000, BATCH: 20}))
        await h.inject(command(verb="rollback", cycle=2, by="guard", weights={CRITICAL: 1000, BATCH: 50}))
        assert both(tree) == ("1000", "50")
        told = h.sent(Actuation)[-1]
        assert (told.cycle, told.outcome, told.weights) == (2, "rolled_back", {CRITICAL: 1000, BATCH: 50})
        assert [(write.before, write.after, write.result) for write in told.writes] == [
            (3000, 1000, "applied"),
            (20, 50, "applied"),
        ]
    assert both(tree) == ORIGINALS


async def test_a_rollback_of_the_first_write_returns_the_original_bytes(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command(verb="rollback", cycle=1))
        assert both(tree) == ORIGINALS


async def test_a_rollback_is_done_once(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        back = command(verb="rollback", cycle=1)
        await h.inject(back, back, back, command(verb="rollback", cycle=1, id="another"))
        assert outcomes(h) == [(1, "applied"), (1, "rolled_back")]
        assert len(faults.attempts) == 2
        assert h.dropped("command", "duplicate") == 2
        assert h.dropped("command", "not_applied") == 1


async def test_only_the_last_applied_cycle_can_be_rolled_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        await h.inject(*at(h, 2, weights={CRITICAL: 3000, BATCH: 20}))
        await h.inject(command(verb="rollback", cycle=1, id="a"))
        await h.inject(command(verb="rollback", cycle=2, boot="other", id="b"))
        await h.inject(command(verb="rollback", cycle=3, id="c"))
        assert both(tree) == ("3000", "20")
        assert h.dropped("command", "not_applied") == 3
        await h.inject(command(verb="rollback", cycle=2, id="d"))
        assert both(tree) == ("1000", "50")


async def test_a_cycle_that_was_skipped_since_does_not_stand_in_the_way(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(*at(h, 2, outcome="late", execute=False, weights=None))
        await h.inject(command(verb="rollback", cycle=1))
        assert both(tree) == ORIGINALS


async def test_wt_04_a_rollback_leaves_somebody_elses_value_alone(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        tree.write(API, "77\n")
        await h.inject(command(verb="rollback", cycle=1))
        assert both(tree) == ("77\n", "100\n")
        assert h.sent(Actuation)[-1].overridden == (API,)
    assert both(tree) == ("77\n", "100\n")


async def test_after_a_restore_there_is_nothing_to_roll_back(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command())
        await h.inject(command(verb="rollback", cycle=1))
        assert outcomes(h) == [(1, "applied"), (1, "restored")]
        assert both(tree) == ORIGINALS


async def test_a_restore_while_the_application_is_being_told_leaves_nothing_to_roll_back(tree, journal):
    async with actuator(tree, journal) as h:
        send, gate = h.context.messenger.send, asyncio.Event()

        async def slow(message):
            if isinstance(message, Actuation) and message.outcome == "applied":
                await gate.wait()
            return await send(message)

        h.context.messenger.send = slow
        await h.inject(*at(h, 1))
        await h.inject(command())
        gate.set()
        await h.inject(command(verb="rollback", cycle=1, id="later"))
        assert "rolled_back" not in [outcome for _, outcome in outcomes(h)]
        assert both(tree) == ORIGINALS


async def test_a_rollback_without_a_journal_returns_to_the_originals(tree, journal, monkeypatch):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        await h.inject(*at(h, 2, weights={CRITICAL: 3000, BATCH: 20}))

        def full(records, *, sync):
            raise HostError("actuator.journal: full")

        monkeypatch.setattr(h.service._weights._journal, "append", full)
        await h.inject(command(verb="rollback", cycle=2))
        assert outcomes(h)[-1] == (2, "restored")
        assert both(tree) == ORIGINALS


# ---- restore and standing modes ----


async def test_an_operators_restore_returns_every_original(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        await h.inject(command(reason="maintenance"))
        told = h.sent(Actuation)[-1]
        assert (told.cycle, told.outcome, told.reason) == (1, "restored", "command: restore by operator: maintenance")
        assert [(write.before, write.after, write.result) for write in told.writes] == [
            (1000, 100, "applied"),
            (50, 100, "applied"),
        ]
        assert both(tree) == ORIGINALS
        assert h.metric("trimtab_actuator_restores_total", reason="command") == 1


async def test_a_second_restore_does_nothing(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command(), command(id="c2"))
        assert outcomes(h) == [(1, "applied"), (1, "restored")]
        assert len(faults.attempts) == 2


@pytest.mark.parametrize("mode", ["shadow", "frozen"])
async def test_i4_a_mode_that_stands_still_restores(tree, journal, mode):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command(verb="mode", mode=mode))
        assert outcomes(h)[-1] == (1, "restored")
        assert both(tree) == ORIGINALS


@pytest.mark.parametrize("mode", ["active", "canary"])
async def test_a_mode_that_acts_restores_nothing(tree, journal, mode):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(command(verb="mode", mode=mode), heartbeat(mode=mode))
        assert outcomes(h) == [(1, "applied")]


@pytest.mark.parametrize("mode", ["shadow", "frozen"])
async def test_i4_a_guard_that_came_back_in_a_standing_mode_restores_without_a_command(tree, journal, mode):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(heartbeat(mode=mode))  # of before the verdict, for all that can be known
        assert tree.weight(API) == "2000"
        await h.advance(5.1)
        await h.inject(heartbeat(mode=mode))
        assert both(tree) == ORIGINALS
        assert h.metric("trimtab_actuator_restores_total", reason="mode") == 1


@pytest.mark.parametrize("mode", ["shadow", "frozen"])
async def test_i4_a_verdict_in_a_standing_mode_restores_without_a_command(tree, journal, mode):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.inject(*at(h, 2, mode=mode, execute=False, outcome="refuse"))
        assert both(tree) == ORIGINALS
        assert [outcome for _, outcome in outcomes(h)] == ["applied", "restored", "skipped"]


# ---- the dead man ----


async def test_i4_originals_return_when_the_guard_is_silent(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.advance(14.0)
        assert tree.weight(API) == "2000"
        await h.advance(2.0)
        assert both(tree) == ORIGINALS
        await h.advance(100.0)
        assert outcomes(h) == [(1, "applied"), (1, "restored")]
        assert h.metric("trimtab_actuator_restores_total", reason="dead_man") == 1


async def test_i4_the_dead_man_is_armed_again_by_a_sign(tree, journal):
    async with actuator(tree, journal) as h:
        for cycle in (1, 2):
            await h.inject(*at(h, cycle))
            assert tree.weight(API) == "2000"
            await h.advance(20.0)
            assert both(tree) == ORIGINALS
        assert h.metric("trimtab_actuator_restores_total", reason="dead_man") == 2


async def test_heartbeats_of_the_guard_keep_the_weights(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        for _ in range(20):
            await h.advance(2.0)
            await h.inject(heartbeat(mode="active"))
        assert tree.weight(API) == "2000"


async def test_i4_heartbeats_of_others_do_not(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        for _ in range(10):
            await h.advance(2.0)
            await h.inject(heartbeat(service="decider"))
        assert both(tree) == ORIGINALS


async def test_i4_the_dead_man_needs_no_bus(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        h.bus.partition = True
        await h.advance(20.0)
        assert both(tree) == ORIGINALS
        h.bus.partition = False
        await h.inject(*at(h, 2))
        assert tree.weight(API) == "2000"


async def test_i4_what_could_not_be_restored_is_tried_again(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        faults.errno_of[API] = errno.EIO
        await h.inject(command())
        assert both(tree) == ("1000", "100\n")
        faults.errno_of.clear()
        await h.advance(14.0)
        await h.inject(heartbeat())
        await h.advance(2.0)
        assert both(tree) == ORIGINALS
        await h.advance(60.0)
        assert outcomes(h) == [(1, "applied"), (1, "restored"), (1, "restored")]


async def test_a_new_application_ends_the_attempts_to_restore(tree, journal, faults):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        faults.errno_of[API] = errno.EIO
        await h.inject(command())
        faults.errno_of.clear()
        await h.inject(*at(h, 2, weights={CRITICAL: 1500, BATCH: 60}))
        for _ in range(10):
            await h.advance(5.0)
            await h.inject(heartbeat(mode="active"))
        assert both(tree) == ("1500", "60")
    assert both(tree) == ORIGINALS


# ---- the end, and the next start ----


async def test_i4_the_end_restores_and_says_so(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        await h.stop()
        assert both(tree) == ORIGINALS
        assert outcomes(h)[-1] == (1, "restored")


async def test_i4_the_end_restores_without_a_bus(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1))
        h.bus.partition = True
    assert both(tree) == ORIGINALS


async def test_the_end_without_a_write_says_nothing(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, execute=False))
        await h.stop()
        assert outcomes(h) == [(1, "skipped")]


async def test_i4_a_restart_after_a_crash_restores_before_it_listens(tree, journal, tmp_path):
    async with actuator(tree, journal) as h:
        await h.inject(*at(h, 1, weights={CRITICAL: 1000, BATCH: 50}))
        shutil.copytree(journal.parent, tmp_path / "crashed")
        killed(h.service._weights)
        h.service._weights._ledger.entries.clear()  # the killed process does nothing more
        assert both(tree) == ("1000", "50")
        async with actuator(tree, tmp_path / "crashed" / journal.name, start=False) as again:
            listening = []
            listen = again.context.messenger.listen

            async def spy(*args, **kwargs):
                listening.append(both(tree))
                await listen(*args, **kwargs)

            again.context.messenger.listen = spy
            await again.service.start()
            assert listening == [ORIGINALS] * 4
            assert again.metric("trimtab_actuator_restores_total", reason="restart") == 1


async def test_i4_a_restart_on_a_damaged_journal_writes_nothing_and_goes_on(tree, journal, faults):
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"garbage\n")
    async with actuator(tree, journal) as h:
        assert faults.attempts == []
        await h.inject(*at(h, 1))
        assert outcomes(h) == [(1, "applied")]
    assert both(tree) == ORIGINALS


async def test_an_order_to_restore_that_is_replayed_is_dropped_and_counted(tree, journal):
    async with actuator(tree, journal) as h:
        order = command(verb="restore", id="once")
        await h.inject(*at(h, 1), order)
        await h.advance(6.0)
        await h.inject(*at(h, 2), order)
        assert outcomes(h) == [(1, "applied"), (1, "restored"), (2, "applied")]
        assert h.dropped("command", "duplicate") == 1


async def test_what_the_guard_says_again_lifts_no_stop_that_the_guard_has_missed(tree, journal):
    async with actuator(tree, journal) as h:
        await h.inject(command(verb="mode", mode="frozen", id="stop"))
        await h.inject(command(verb="mode", mode="active", by="guard", id="again-first"))
        await h.inject(*at(h, 1))
        assert outcomes(h) == [(1, "skipped")]


# ---- originals that are not known any more ----


async def test_a_damaged_journal_is_no_readiness_until_somebody_has_looked(tree, journal):
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_bytes(b"damaged\n")
    async with actuator(tree, journal) as h:
        ready, why = h.context.health.ready()
        assert not ready
        assert "journal.set-aside" in why
        assert "the weights that were found then count as the originals" in why
        assert h.metric("trimtab_actuator_originals_lost") == 1
    async with actuator(tree, journal) as h:  # a restart forgets it no more than the disk does
        assert not h.context.health.ready()[0]
        journal.with_suffix(".set-aside").unlink()
        await h.advance(11.0)
        assert h.context.health.ready() == (True, "ready")
        assert h.metric("trimtab_actuator_originals_lost") == 0


async def test_a_journal_of_another_boot_loses_nothing(tree, journal):
    async with actuator(tree, journal):
        pass
    journal.write_bytes(header("another-boot"))
    async with actuator(tree, journal) as h:
        assert h.context.health.ready() == (True, "ready")
        assert journal.with_suffix(".other-boot").read_bytes() == header("another-boot")
