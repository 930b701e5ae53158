"""One cycle is found in a record by what a person calls it, and everything about it is taken out."""

import pytest

from lab.explain.gather import CycleId, find_cycle, gather
from runtime.errors import ConfigError, TrimtabError
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
