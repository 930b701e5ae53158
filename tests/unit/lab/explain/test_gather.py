"""One cycle is found in a record by what a person calls it, and everything about it is taken out."""

import pytest

from lab.explain.gather import CycleId, find_cycle, gather
from runtime.errors import ConfigError, TrimtabError
from schemas.codec import encode
from schemas.subjects import subject
from tests.support import builders
from tests.support.records import Record, at_of


def night() -> Record:
    """Two runs of the collector; the second one's last cycle has no reward yet."""
    record = Record()
    for boot, first, count in (("one", 1, 3), ("two", 10, 3)):
        for cycle in range(1, count + 1):
            at = at_of(first + cycle)
            record.keep(builders.state(boot=boot, cycle=cycle, at=at), builders.action(boot=boot, cycle=cycle, at=at))
            if (boot, cycle) != ("two", 3):
                record.keep(builders.reward(boot=boot, cycle=cycle, at=at + 3))
    return record


def found(wanted: str, record: Record | None = None, node: str | None = None) -> tuple[str, int]:
    items = (record or night()).items
    return find_cycle(lambda: items, wanted, node)[1:]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("3", ("two", 3)),
        ("one/3", ("one", 3)),
        ("last", ("two", 2)),
        ("22:13:35", ("one", 2)),
        ("22:13:33", ("one", 1)),
        ("22:14:24", ("two", 2)),
        ("2023-11-14T22:14:24Z", ("two", 2)),
        ("2023-11-14T23:14:24+01:00", ("two", 2)),
        ("22:13", ("one", 1)),
    ],
)
def test_what_a_person_calls_it(wanted, meant):
    assert found(wanted) == meant


def test_a_time_of_day_that_is_not_over_yet_is_yesterdays():
    with pytest.raises(TrimtabError, match="no cycle 22:15"):
        found("22:15")


@pytest.mark.parametrize("wanted", ["", "x", "-1", "one/", "first", "/3", "3/one", "25:00", "2023-13-01T00:00"])
def test_what_says_no_cycle(wanted):
    with pytest.raises(ConfigError):
        found(wanted)


def test_a_cycle_that_is_not_there_is_told_with_its_neighbours():
    record = Record(builders.state(cycle=4), builders.state(cycle=9))
    with pytest.raises(TrimtabError, match=r"no cycle 6; it has boot1/4 to boot1/9, and nothing between 4 and 9"):
        found("6", record)


def test_an_empty_record_has_none():
    with pytest.raises(TrimtabError, match="no cycle"):
        found("last", Record())


def test_two_nodes_with_the_same_number_need_a_name():
    record = Record(builders.state(node="a"), builders.state(node="b"))
    with pytest.raises(ConfigError, match=r"2 nodes \(a, b\); name one: --node"):
        found("1", record)
    assert found("1", record, "b") == (builders.BOOT, 1)


def test_an_order_is_no_cycle():
    record = Record(builders.command(boot="operator", cycle=0))
    with pytest.raises(TrimtabError):
        found("last", record)


def test_everything_about_it_and_nothing_else():
    back = builders.actuation(outcome="rolled_back", at=9)
    order = builders.command(verb="rollback", by="guard")
    record = Record(
        builders.state(cycle=2), builders.action(cycle=11), *(mine := [builders.state(), builders.action()])
    )
    record.keep(builders.verdict(), builders.actuation(), order, back, builders.after(builders.state()))
    record.keep(builders.reward(), builders.state(boot="other"))
    told = gather(lambda: record.items, CycleId(builders.NODE, builders.BOOT, 1))
    assert (told.before, told.action) == tuple(mine)
    assert told.verdict == builders.verdict()
    assert told.actuation == builders.actuation()
    assert told.after is not None
    assert told.after.phase == "after"
    assert told.reward == builders.reward()
    assert (told.commands, told.undone, told.gaps) == ((order,), (back,), ())


def test_the_first_of_a_kind_counts():
    record = Record(builders.action(arm="first"), builders.action(arm="forged"))
    told = gather(lambda: record.items, CycleId(builders.NODE, builders.BOOT, 1))
    assert told.action is not None
    assert told.action.arm == "first"


def test_what_is_missing_in_the_middle_of_it_is_told_and_what_is_missing_beside_it_is_not():
    record = Record(builders.state(cycle=2)).lose().keep(builders.state(), builders.action()).lose(count=2)
    record.keep(builders.reward()).lose()
    told = gather(lambda: record.items, CycleId(builders.NODE, builders.BOOT, 1))
    assert told.gaps == ("2 messages are missing: TRIMTAB_AUDIT 3 to 4 (they had aged)",)


# ---- what cannot be read ----

CYCLE = CycleId(builders.NODE, builders.BOOT, 2)


def around(spoil) -> Record:
    """Cycles 1, 2 and 3; of the second one the actuation is what `spoil` puts there."""
    record = Record()
    for cycle in (1, 2, 3):
        record.keep(builders.state(cycle=cycle), builders.action(cycle=cycle), builders.verdict(cycle=cycle))
        if cycle == 2:
            spoil(record)
        else:
            record.keep(builders.actuation(cycle=cycle))
        record.keep(builders.reward(cycle=cycle))
    return record


def unread_in(record: Record, cycle: CycleId = CYCLE):
    return gather(lambda: record.items, cycle).unread


@pytest.mark.parametrize(
    "payload", [b'{"type":"actuation"', encode(builders.actuation(cycle=2)).replace(b'"schema":1', b'"schema":2')]
)
def test_what_cannot_be_read_in_the_place_of_a_message_is_told(payload):
    record = around(lambda record: record.spoil(builders.actuation(cycle=2), payload))
    (told,) = unread_in(record).pop("actuation")
    assert told.startswith(f"TRIMTAB_AUDIT 7 on {subject('actuation', builders.NODE)} cannot be read: ")
    assert unread_in(record, CYCLE._replace(cycle=1)) == {}
    assert unread_in(record, CYCLE._replace(cycle=3)) == {}


def test_what_cannot_be_read_of_a_neighbour_is_not_in_the_place_of_what_is_missing():
    """In the cycle that is meant none was sent, so none of that kind stands between."""
    for neighbour in (1, 3):
        record = Record()
        for cycle in (1, 2, 3):
            record.keep(builders.state(cycle=cycle), builders.action(cycle=cycle), builders.verdict(cycle=cycle))
            if cycle == neighbour:
                record.spoil(builders.actuation(cycle=cycle), b"{")
        assert unread_in(record) == {}


def test_a_message_on_a_subject_where_it_does_not_belong_is_told_and_not_believed():
    record = around(lambda record: record.spoil(builders.actuation(cycle=2), subject=subject("verdict", builders.NODE)))
    told = gather(lambda: record.items, CYCLE)
    assert told.actuation is None
    assert "it is of kind actuation" in told.unread["actuation"][0]
    elsewhere = around(lambda record: record.spoil(builders.actuation(cycle=2), subject=subject("actuation", "other")))
    assert unread_in(elsewhere) == {}


def test_a_cycle_whose_messages_are_where_they_do_not_belong_is_none():
    record = Record(builders.state(), builders.reward())
    record.spoil(builders.reward(cycle=99), subject=subject("state", builders.NODE))
    assert found("last", record) == (builders.BOOT, 1)


def test_the_first_and_the_last_message_of_a_cycle_may_be_what_cannot_be_read():
    record = Record(builders.state(), builders.reward()).spoil(builders.state(cycle=2), b"{")
    record.keep(builders.action(cycle=2)).spoil(builders.reward(cycle=2), b"{").keep(builders.state(cycle=3))
    assert set(unread_in(record)) == {"state", "reward"}
