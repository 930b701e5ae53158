"""What of a record is lost, beside any other reading of it."""

from lab.explain.losses import Losses
from lab.record.items import Damage
from tests.support import builders
from tests.support.records import Loop, Record, header_of


def losses_of(record: Record, node=None) -> Losses:
    losses = Losses(header_of(), node)
    assert list(losses.through(record.items)) == record.items
    return losses


def test_of_a_whole_record_nothing_is_said():
    losses = losses_of(Loop().record(5))
    assert (losses.line, losses.told, losses.count) == (None, (), 0)


def test_the_first_are_told_in_a_line_and_the_others_counted():
    record = Record(builders.state())
    for number in range(30):
        record.lose(count=number + 1)
    record.items.append(Damage(kind="unclosed", block=4, offset=120, reason="not closed"))
    losses = losses_of(record)
    assert (losses.count, len(losses.told)) == (31, 20)
    assert losses.line == (
        "the record is not whole: TRIMTAB_AUDIT 1 are not in the recording: they had aged; "
        "TRIMTAB_AUDIT 2 to 3 are not in the recording: they had aged; "
        "TRIMTAB_AUDIT 4 to 6 are not in the recording: they had aged; and 28 more (trimtab replay)"
    )


def test_what_shows_at_the_end_alone_is_told_too():
    record = Record(*(builders.state(cycle=cycle) for cycle in (1, 2, 9)))
    assert losses_of(record).told == (f"cycles 3 to 8 of {builders.NODE} (boot {builders.BOOT}) not in the recording",)


def test_of_one_node_what_is_of_another_is_not_said():
    record = Record(*(builders.state(node="b", cycle=cycle) for cycle in (1, 9)))
    assert losses_of(record, builders.NODE).count == 0
    assert losses_of(record, "b").count == 1
