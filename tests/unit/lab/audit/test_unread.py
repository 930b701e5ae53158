"""What cannot be read is told in its place, and nobody is blamed for what it may have told."""

import msgspec
import pytest

from schemas.subjects import subject
from tests.support import builders
from tests.support.builders import write
from tests.support.records import Record, at_of
from tests.unit.lab.audit.test_timeline import events_of, of_kind, seen, whole

ON = subject("actuation", builders.NODE)
ELSEWHERE = subject("verdict", builders.NODE)


def moved(cycle=2):
    return builders.actuation(cycle=cycle, at=at_of(cycle), writes=(write("api", 2000, 4000),))


def looks(*cycles, weight=4000):
    return [seen(cycle, weight, phase) for cycle in cycles for phase in ("before", "after")]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"payload": b'{"type":"actuation"'}, "Input data was truncated"),
        ({"payload": msgspec.json.encode(moved()).replace(b'"schema":1', b'"schema":2')}, "schema version 2"),
        ({"subject": ELSEWHERE}, f"it is of kind actuation and of node {builders.NODE}, which belongs on {ON}"),
    ],
)
def test_it_is_told_in_its_place_and_may_tell_of_what_is_found_behind_it(fields, why):
    record = Record(*whole()).spoil(moved(), **fields).keep(*looks(3))
    change, gap, found = events_of(record)
    assert (change.kind, gap.kind, found.kind) == ("change", "gap", "unexplained")
    assert gap.text.startswith(f"TRIMTAB_AUDIT 4 on {fields.get('subject', ON)} cannot be read: {why}")
    assert (gap.node, gap.cycle, gap.from_ns) == (builders.NODE, 3, at_of(1))
    assert (found.before, found.after) == (2000, 4000)
    assert "found so: TRIMTAB_AUDIT 4, which cannot be read, may tell of it; if it does not, no message" in found.text
    assert found.cause.reason.startswith("TRIMTAB_AUDIT 4")


def test_a_weight_that_is_seen_as_it_was_twice_is_not_what_it_told_of():
    """Once is not enough: a look from before the write may be stored behind it."""
    once = Record(*whole()).spoil(moved(), b"{").keep(seen(3, 2000), *looks(4))
    twice = Record(*whole()).spoil(moved(), b"{").keep(*looks(3, weight=2000), *looks(4))
    assert "cannot be read" in of_kind(once, "unexplained")[0].text
    assert "cannot be read" not in of_kind(twice, "unexplained")[0].text


def test_what_the_actuator_meets_is_somebody_elses_or_what_cannot_be_read_tells_of_it():
    over = builders.actuation(
        cycle=3, at=at_of(3), overridden=("pod-api",), writes=(write("api", before=50, after=2000),)
    )
    assert "cannot be read" not in of_kind(Record(*whole(), over), "foreign")[0].text
    (event,) = of_kind(Record(*whole()).spoil(moved(), b"{").keep(over), "foreign")
    assert event.text.endswith("at the next write, but TRIMTAB_AUDIT 4, which cannot be read, may tell of it")


def test_a_mode_without_an_order_may_have_one_that_cannot_be_read():
    order = builders.command(boot="operator", cycle=0, verb="mode", mode="frozen")
    record = Record(builders.verdict()).spoil(order, b"{").keep(builders.verdict(cycle=2, mode="frozen"))
    (event,) = of_kind(record, "mode")
    assert event.text == (
        "mode active → frozen, no order in the record says so, but TRIMTAB_ORDERS 1, which cannot be read, may tell of it"
    )


def test_it_is_its_nodes_alone_by_its_subject():
    other = builders.state(node="b", at=at_of(3))
    record = Record(*whole()).spoil(builders.actuation(node="b"), b"{").keep(*looks(3), other)
    (gap,) = of_kind(record, "gap")
    assert (gap.node, gap.from_ns) == ("b", None)
    assert "cannot be read" not in of_kind(record, "unexplained")[0].text
    assert [event.kind for event in events_of(record, builders.NODE)] == ["change", "unexplained"]


def test_behind_all_and_where_nothing_can_be_read_it_is_told_too():
    (last,) = of_kind(Record(*whole()).spoil(moved(), b"{"), "gap")
    assert (last.at_ns, last.cycle) == (at_of(1), 1)
    record = Record()
    for cycle in range(1, 9):
        record.spoil(moved(cycle), b"{")
    (only,) = events_of(record)
    assert (only.node, only.cycle) == (builders.NODE, 0)
    assert only.text.count("cannot be read:") == 3
    assert only.text.endswith("; and 5 more cannot be read")
