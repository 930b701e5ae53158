"""Whose value is it: after our write, after theirs, after a crash between the journal and the write."""

from services.actuator.core.ledger import Entry, Ledger, ledger_of, restore_step
from services.actuator.core.records import Intend, Original, Rebase

G = "pod-a"
BEGIN = [Original(group=G, identity=7, value="100\n", name="a"), Intend(group=G, values=("200",))]


def written():
    """A ledger with 200 confirmed over 100."""
    ledger = ledger_of(BEGIN)
    ledger.wrote(G, "200\n")
    return ledger


def test_a_group_that_was_never_written_is_new():
    assert Ledger().owner(G, 7, "100\n") == "new"
    assert not Ledger().touched


def test_another_inode_is_another_group():
    assert written().owner(G, 8, "200\n") == "new"


def test_a_confirmed_value_is_ours_with_and_without_a_newline():
    assert written().owner(G, 7, "200") == "ours"
    assert written().owner(G, 7, "200\n") == "ours"


def test_wt_04_the_original_over_our_confirmed_value_is_somebody_elses_write():
    assert written().owner(G, 7, "100\n") == "foreign"


def test_the_original_after_a_crash_before_the_write_is_the_original():
    assert ledger_of(BEGIN).owner(G, 7, "100\n") == "original"
    assert ledger_of(BEGIN).owner(G, 7, "200\n") == "ours"
    assert ledger_of(BEGIN).owner(G, 7, "39\n") == "foreign"


def test_after_a_rebase_nothing_of_ours_is_there():
    ledger = written()
    ledger.take(Rebase(group=G, value="39\n"))
    assert not ledger.touched
    assert ledger.originals() == {G: 39}
    assert ledger.owner(G, 7, "39\n") == "original"
    assert ledger.owner(G, 7, "200\n") == "moved"  # theirs, though it looks like what we wrote once
    assert ledger.owner(G, 7, "50\n") == "moved"


def test_only_the_last_values_are_ours_after_many_changes():
    ledger = ledger_of([*BEGIN, Intend(group=G, values=("200", "300")), Intend(group=G, values=("300", "400"))])
    assert ledger.owner(G, 7, "300\n") == "ours"
    assert ledger.owner(G, 7, "400\n") == "ours"
    assert ledger.owner(G, 7, "200\n") == "foreign"


def test_a_write_that_did_not_happen_leaves_what_was_ours_before():
    ledger = written()
    ledger.take(Intend(group=G, values=("200", "300")))
    ledger.not_written(G, frozenset({"200"}))
    assert ledger.owner(G, 7, "200\n") == "ours"
    assert ledger.owner(G, 7, "300\n") == "foreign"


def test_records_without_an_original_change_nothing():
    assert ledger_of([Intend(group=G, values=("200",)), Rebase(group=G, value="39\n")]).entries == {}


def test_the_shortest_journal_leads_to_the_same_ledger():
    long = [
        *BEGIN,
        Rebase(group=G, value="39\n"),
        Intend(group=G, values=("400",)),
        Intend(group=G, values=("400", "500")),
    ]
    ledger = ledger_of(long)
    assert ledger_of(ledger.records()) == ledger
    assert len(ledger.records()) == 2


def test_a_group_is_left_alone_after_some_foreign_writes_in_a_row():
    ledger = written()
    assert not ledger.overwritten(G, 7, 10.0, 3, 600.0)
    assert not ledger.is_last_straw(G, 7, 3)
    assert not ledger.overwritten(G, 7, 15.0, 3, 600.0)
    assert ledger.is_last_straw(G, 7, 3)
    assert ledger.overwritten(G, 7, 20.0, 3, 600.0)
    assert ledger.left_alone(G, 7, 619.0) == "foreign"
    assert ledger.left_alone(G, 7, 620.0) is None


def test_a_value_that_stayed_breaks_the_row():
    ledger = written()
    ledger.overwritten(G, 7, 1.0, 3, 600.0)
    ledger.overwritten(G, 7, 2.0, 3, 600.0)
    ledger.stayed(G)
    assert not ledger.overwritten(G, 7, 3.0, 3, 600.0)


def test_being_left_alone_outlives_a_restore_but_not_the_group():
    ledger = written()
    ledger.overwritten(G, 7, 1.0, 1, 600.0)
    ledger.forget(G)
    assert ledger.left_alone(G, 7, 2.0) == "foreign"
    assert ledger.left_alone(G, 8, 2.0) is None
    ledger.vanished(G)
    assert ledger.left_alone(G, 7, 2.0) is None


def test_restoring_takes_what_is_there_into_account():
    entry = Entry(G, 7, "100\n", ours=frozenset({"200", "300"}))
    assert restore_step(entry, 7, "200\n") == "write"
    assert restore_step(entry, 7, "300") == "write"
    assert restore_step(entry, 7, "100\n") == "done"
    assert restore_step(entry, 7, "39\n") == "foreign"
    assert restore_step(entry, 8, "200\n") == "gone"
    assert restore_step(entry, None, None) == "gone"
