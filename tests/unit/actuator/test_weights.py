"""Journal first, then write, then read back; and the way home whatever happened in between."""

import errno
import os
import shutil

import pytest

from runtime.errors import HostError
from services.actuator import cgroup_writer
from services.actuator.core.journal_format import lines_of, records_of
from services.actuator.core.ledger import ledger_of
from services.actuator.core.records import Intend, Original
from services.actuator.core.solver import Target
from tests.unit.actuator.world import API, BOOT_ID, JOB, killed, weights_on


def target(group, weight):
    return Target(f"uid-{group}", group, group, weight)


@pytest.fixture
def weights(tree, journal):
    made = weights_on(tree, journal)
    yield made
    made.close()


def results(writes):
    return {write.group: (write.result, write.reason) for write in writes}


def copied(journal, tmp_path):
    """The journal as a crash leaves it at this moment, at a path of its own."""
    folder = tmp_path / "copy"
    shutil.copytree(journal.parent, folder)
    return folder / journal.name


# ---- forth ----


def test_an_application_writes_reads_back_and_restores_the_bytes(tree, weights):
    tree.write(JOB, "39\n")
    batch = weights.apply([target(API, 2000), target(JOB, 7)], 0.0)
    assert {write.group: (write.before, write.wanted, write.after) for write in batch.writes} == {
        API: (100, 2000, 2000),
        JOB: (39, 7, 7),
    }
    assert weights.touched
    assert weights.originals() == {API: 100, JOB: 39}
    assert results(weights.restore()) == {API: ("applied", None), JOB: ("applied", None)}
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "39\n")
    assert not weights.touched


@pytest.mark.parametrize("original", ["100\n", "100", " 100\n", "100 \n"])
def test_the_exact_bytes_return(tree, weights, original):
    tree.write(API, original)
    weights.apply([target(API, 200)], 0.0)
    weights.apply([target(API, 100)], 1.0)  # the same number as the original, on the way
    weights.restore()
    assert tree.weight(API) == original


def test_a_weight_that_is_in_force_already_is_neither_written_nor_journalled(tree, weights, journal, faults):
    before = journal.read_bytes()
    assert results(weights.apply([target(API, 100)], 0.0).writes) == {API: ("unchanged", None)}
    assert faults.attempts == []
    assert journal.read_bytes() == before


def test_the_journal_is_on_disk_before_the_first_write(tree, weights, journal, monkeypatch):
    events = []
    fsync, write = os.fsync, cgroup_writer._write
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("synced"), fsync(descriptor)))

    def spy(folder, raw):
        known = ledger_of(records_of(journal.read_bytes(), BOOT_ID)).entries
        events.append(("wrote", sorted((group, entry.original) for group, entry in known.items())))
        write(folder, raw)

    monkeypatch.setattr(cgroup_writer, "_write", spy)
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    both = [(API, "100\n"), (JOB, "100\n")]
    assert events == ["synced", ("wrote", both), ("wrote", both)]


def test_no_sync_is_paid_for_groups_that_are_known(weights, monkeypatch):
    weights.apply([target(API, 200)], 0.0)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    weights.apply([target(API, 300)], 1.0)
    assert synced == []


def test_without_a_journal_no_weight_is_written(tree, weights, faults, monkeypatch):
    def full(descriptor, block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(HostError, match="No space left") as caught:
            weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    assert "\n" not in str(caught.value)
    assert faults.attempts == []
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "100\n")
    assert not weights.touched


def test_an_original_that_a_full_disk_refused_is_journalled_the_next_time(
    tree, weights, journal, monkeypatch, tmp_path
):
    def full(descriptor, block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(HostError):
            weights.apply([target(API, 200)], 0.0)
    weights.apply([target(API, 200)], 5.0)
    assert tree.weight(API) == "200"
    again = weights_on(tree, copied(journal, tmp_path))
    again.restore()
    again.close()
    assert tree.weight(API) == "100\n"


def test_a_foreign_value_is_not_lost_when_the_journal_fails_in_between(tree, weights, monkeypatch):
    weights.apply([target(API, 200)], 0.0)
    tree.write(API, "39\n")

    def full(descriptor, block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(HostError):
            weights.apply([target(API, 300)], 5.0)
    batch = weights.apply([target(API, 300)], 10.0)
    assert batch.overridden == [API]
    weights.restore()
    assert tree.weight(API) == "39\n"


def test_a_journal_that_somebody_removed_is_written_anew(tree, weights, journal, tmp_path):
    weights.apply([target(API, 200)], 0.0)
    journal.unlink()
    weights.apply([target(API, 300), target(JOB, 50)], 1.0)
    again = weights_on(tree, copied(journal, tmp_path))
    again.restore()
    again.close()
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "100\n")


def test_the_journal_does_not_grow_for_ever(tree, weights, journal, tmp_path, monkeypatch):
    monkeypatch.setattr("services.actuator.weights._COMPACT_BYTES", 2000)
    for number in range(200):
        weights.apply([target(API, 200 + number % 2), target(JOB, 300 + number % 2)], float(number))
        assert journal.stat().st_size < 3000
    again = weights_on(tree, copied(journal, tmp_path))
    again.restore()
    again.close()
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "100\n")


def test_the_deadline_is_asked_once_more_after_the_journal(tree, weights, faults):
    batch = weights.apply([target(API, 200)], 0.0, too_late=lambda: "3 ms after the deadline")
    assert batch.late == "3 ms after the deadline"
    assert results(batch.writes) == {API: ("skipped", "deadline")}
    assert faults.attempts == []
    assert not weights.touched


# ---- what cannot be written ----


def test_wt_03_an_idle_group_is_skipped_and_the_other_is_written(tree, weights):
    tree.write(API, "0\n")
    (tree.base / API / "cpu.idle").write_text("1\n")
    batch = weights.apply([target(API, 50), target(JOB, 50)], 0.0)
    assert results(batch.writes) == {API: ("skipped", "idle"), JOB: ("applied", None)}
    assert weights.originals() == {JOB: 100}


def test_wt_03_a_group_that_turns_idle_under_our_hands_keeps_its_original(tree, weights, faults):
    weights.apply([target(API, 200)], 0.0)
    (tree.base / API / "cpu.idle").write_text("1\n")
    faults.errno_of[API] = errno.EINVAL
    batch = weights.apply([target(API, 50), target(JOB, 50)], 1.0)
    assert results(batch.writes) == {API: ("skipped", "idle"), JOB: ("applied", None)}
    assert weights.originals()[API] == 100
    tree.write(API, "0\n")
    weights.apply([target(API, 50)], 2.0)
    assert weights.originals()[API] == 100


def test_wt_03_an_idle_group_is_not_written_by_restoring(tree, weights):
    weights.apply([target(API, 200)], 0.0)
    tree.write(API, "0\n")
    assert results(weights.restore()) == {API: ("skipped", "foreign")}
    assert tree.weight(API) == "0\n"


def test_i7_a_bad_group_path_costs_that_pod_only(tree, weights):
    batch = weights.apply([target("../escape", 50), target("burstable", 50), target(API, 200)], 0.0)
    assert results(batch.writes) == {
        "../escape": ("skipped", "not_a_pod_group"),
        "burstable": ("skipped", "not_a_pod_group"),
        API: ("applied", None),
    }


def test_a_vanished_group_is_gone_and_forgotten(tree, weights):
    weights.apply([target(API, 200)], 0.0)
    tree.remove(API)
    assert results(weights.apply([target(API, 300)], 1.0).writes) == {API: ("skipped", "gone")}
    assert not weights.touched


def test_a_group_that_is_no_target_any_more_is_forgotten_once_it_is_gone(tree, weights):
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    tree.remove(API)
    weights.apply([target(JOB, 60)], 1.0)
    assert weights.originals() == {JOB: 100}


def test_a_group_that_is_no_target_any_more_is_restored_all_the_same(tree, weights):
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    weights.apply([target(JOB, 60)], 1.0)
    weights.restore()
    assert tree.weight(API) == "100\n"


def test_a_group_made_again_has_an_original_of_its_own(tree, weights):
    weights.apply([target(API, 200)], 0.0)
    tree.again(API, "55\n")
    weights.apply([target(API, 300)], 1.0)
    weights.restore()
    assert tree.weight(API) == "55\n"


def test_restoring_does_not_write_to_a_group_made_again(tree, weights, faults):
    weights.apply([target(API, 200)], 0.0)
    tree.again(API, "200\n")
    faults.attempts.clear()
    assert results(weights.restore()) == {API: ("skipped", "gone")}
    assert faults.attempts == []
    assert tree.weight(API) == "200\n"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_group_that_cannot_be_read_for_a_moment_keeps_its_original(tree, weights, monkeypatch, number):
    weights.apply([target(API, 200)], 0.0)
    real = os.open

    def failing(path, *args, **kwargs):
        if path == "cpu.weight":
            raise OSError(number, os.strerror(number))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        assert results(weights.apply([target(API, 300)], 1.0).writes) == {API: ("skipped", "unreadable")}
        assert results(weights.restore()) == {API: ("failed", "unreadable")}
    assert weights.touched
    weights.apply([target(API, 300)], 2.0)
    weights.restore()
    assert tree.weight(API) == "100\n"


def test_an_empty_text_is_not_an_absence(tree, weights):
    weights.apply([target(API, 200)], 0.0)
    tree.write(API, "")  # between truncation and writing, or a group that is dying
    assert results(weights.apply([target(API, 300)], 1.0).writes) == {API: ("skipped", "unreadable")}
    tree.write(API, "200")
    weights.restore()
    assert tree.weight(API) == "100\n"


def test_a_text_that_is_no_weight_never_becomes_an_original(tree, weights):
    tree.write(API, "max\n")
    assert results(weights.apply([target(API, 300)], 1.0).writes) == {API: ("skipped", "unreadable")}
    assert weights.originals() == {}


def test_wt_02_erange_is_said_and_changes_nothing(tree, weights, faults):
    faults.errno_of[API] = errno.ERANGE
    batch = weights.apply([target(API, 300), target(JOB, 50)], 0.0)
    assert results(batch.writes) == {
        API: ("failed", "refused: Numerical result out of range"),
        JOB: ("applied", None),
    }
    assert weights.restore()
    assert tree.weight(API) == "100\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_wt_05_writes_refused_everywhere_are_told_from_one_refused_write(weights, faults, number):
    faults.errno_of["*"] = number
    batch = weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    assert results(batch.writes) == {API: ("failed", "read_only"), JOB: ("failed", "read_only")}
    assert batch.refused_everywhere
    assert not weights.touched


def test_a_group_that_alone_refuses_is_left_alone_and_the_others_go_on(tree, weights, faults):
    faults.errno_of[API] = errno.EACCES
    batch = weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    assert not batch.refused_everywhere
    faults.attempts.clear()
    batch = weights.apply([target(API, 300), target(JOB, 60)], 5.0)
    assert results(batch.writes) == {API: ("skipped", "read_only"), JOB: ("applied", None)}
    assert faults.attempts == [JOB]
    weights.apply([target(API, 300), target(JOB, 60)], 700.0)
    assert faults.attempts == [JOB, API]


# ---- somebody else ----


def test_wt_04_a_foreign_value_is_the_new_baseline_and_reported(tree, weights):
    tree.write(API, "39\n")
    weights.apply([target(API, 200)], 0.0)
    tree.write(API, "39\n")  # the original's own value, put back by its owner
    batch = weights.apply([target(API, 300)], 5.0)
    assert batch.overridden == [API]
    assert [(write.before, write.after) for write in batch.writes] == [(39, 300)]
    tree.write(API, "77\n")
    assert weights.apply([target(API, 400)], 10.0).overridden == [API]
    weights.restore()
    assert tree.weight(API) == "77\n"


def test_wt_04_a_foreign_value_at_restore_stays(tree, weights, faults):
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    tree.write(API, "77\n")
    faults.attempts.clear()
    assert results(weights.restore()) == {API: ("skipped", "foreign"), JOB: ("applied", None)}
    assert faults.attempts == [JOB]
    assert tree.weight(API) == "77\n"


def test_wt_04_after_three_in_a_row_the_group_is_left_alone(tree, weights, faults):
    for cycle in range(3):
        weights.apply([target(API, 200 + cycle)], cycle * 5.0)
        tree.write(API, "39\n")
    faults.attempts.clear()
    batch = weights.apply([target(API, 300)], 15.0)
    assert batch.overridden == [API]
    assert results(batch.writes) == {API: ("skipped", "foreign")}
    for cycle in range(4, 10):
        batch = weights.apply([target(API, 300 + cycle)], cycle * 5.0)
        assert (results(batch.writes), batch.overridden) == ({API: ("skipped", "foreign")}, [])
    assert faults.attempts == []
    assert tree.weight(API) == "39\n"
    weights.apply([target(API, 300)], 700.0)
    assert tree.weight(API) == "300"


def test_i5_being_left_alone_outlives_a_restore(tree, weights, faults):
    for cycle in range(3):
        weights.apply([target(API, 200 + cycle)], cycle * 5.0)
        tree.write(API, "39\n")
    weights.apply([target(API, 300)], 15.0)
    weights.restore()
    faults.attempts.clear()
    weights.apply([target(API, 400)], 20.0)
    assert faults.attempts == []
    assert tree.weight(API) == "39\n"


def test_changes_of_a_group_that_is_left_alone_override_nothing_of_ours(tree, weights):
    for cycle in range(3):
        weights.apply([target(API, 200 + cycle)], cycle * 5.0)
        tree.write(API, "39\n")
    weights.apply([target(API, 300)], 15.0)
    tree.write(API, "55\n")
    assert weights.apply([target(API, 300)], 20.0).overridden == []
    weights.restore()
    assert tree.weight(API) == "55\n"


def test_a_write_that_is_overwritten_before_it_is_read_back_is_theirs(tree, weights, faults, journal, tmp_path):
    faults.then[API] = lambda: tree.write(API, "39\n")
    batch = weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    assert results(batch.writes)[API] == ("mismatch", "somebody else wrote in between")
    assert batch.overridden == [API]
    again = weights_on(tree, copied(journal, tmp_path))
    again.restore()
    again.close()
    assert (tree.weight(API), tree.weight(JOB)) == ("39\n", "100\n")


def test_an_owner_who_overwrites_at_once_is_not_fought_for_ever(tree, weights, faults):
    faults.then[API] = lambda: tree.write(API, "100\n")
    for cycle in range(10):
        weights.apply([target(API, 200)], cycle * 5.0)
    assert len(faults.attempts) == 3


def test_a_rollback_writes_over_our_values_only(tree, weights, faults):
    tree.add("pod-new", "10\n")
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    tree.write(JOB, "77\n")
    faults.attempts.clear()
    batch = weights.apply([target(API, 100), target(JOB, 100), target("pod-new", 20)], 2.0, only_ours=True)
    assert results(batch.writes) == {
        API: ("applied", None),
        JOB: ("skipped", "foreign"),
        "pod-new": ("skipped", "not_ours"),
    }
    assert faults.attempts == [API]
    assert (tree.weight(API), tree.weight(JOB), tree.weight("pod-new")) == ("100\n", "77\n", "10\n")


# ---- after a crash ----


def test_a_restart_restores_from_the_journal_alone(tree, weights, journal, tmp_path):
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    weights.apply([target(API, 300)], 5.0)
    again = weights_on(tree, copied(journal, tmp_path))
    assert again.touched
    assert results(again.restore()) == {API: ("applied", None), JOB: ("applied", None)}
    again.close()
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "100\n")


def test_after_a_restart_old_values_of_ours_are_not_taken_for_ours(tree, weights, journal, tmp_path):
    for cycle, weight in enumerate((200, 300, 400)):
        weights.apply([target(API, weight)], cycle * 5.0)
    tree.write(API, "200\n")  # somebody else's choice, that was ours two cycles ago
    again = weights_on(tree, copied(journal, tmp_path))
    assert results(again.restore()) == {API: ("skipped", "foreign")}
    again.close()
    assert tree.weight(API) == "200\n"


def test_a_damaged_journal_writes_nothing(tree, weights, journal, faults):
    weights.apply([target(API, 200)], 0.0)
    killed(weights)
    raw = bytearray(journal.read_bytes())
    raw[len(raw) // 2] ^= 1
    journal.write_bytes(bytes(raw))
    faults.attempts.clear()
    again = weights_on(tree, journal)
    assert not again.touched
    assert again.restore() == []
    again.close()
    assert faults.attempts == []


def test_what_could_not_be_restored_stays_in_the_journal(tree, weights, journal, faults):
    weights.apply([target(API, 200), target(JOB, 50)], 0.0)
    faults.errno_of[API] = errno.EROFS
    assert results(weights.restore()) == {API: ("failed", "read_only"), JOB: ("applied", None)}
    assert weights.touched
    killed(weights)
    faults.errno_of.clear()
    again = weights_on(tree, journal)
    again.restore()
    again.close()
    assert tree.weight(API) == "100\n"


def test_restoring_needs_no_room_on_the_disk(tree, weights, monkeypatch):
    weights.apply([target(API, 200)], 0.0)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert results(weights.restore()) == {API: ("applied", None)}
    assert tree.weight(API) == "100\n"


def test_a_journal_with_a_group_that_is_no_pod_group_restores_the_others(tree, journal):
    first = weights_on(tree, journal)
    first.apply([target(API, 200)], 0.0)
    raw = journal.read_bytes()
    killed(first)
    bad = [Original(group="../x", identity=1, value="100\n"), Intend(group="../x", values=("5",))]
    worse = [Original(group=JOB, identity=tree.inode(JOB), value="max\n"), Intend(group=JOB, values=("100",))]
    journal.write_bytes(raw + lines_of([*bad, *worse]))
    again = weights_on(tree, journal)
    assert results(again.restore()) == {
        API: ("applied", None),
        "../x": ("skipped", "gone"),
        JOB: ("skipped", "refused"),
    }
    again.close()
    assert (tree.weight(API), tree.weight(JOB)) == ("100\n", "100\n")
