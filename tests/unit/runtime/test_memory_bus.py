import pytest

from runtime.bus import Entry, Stored
from runtime.clock import ManualClock, settle
from runtime.errors import BusDown
from runtime.memory_bus import MemoryBus, matches


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a", False),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c.d", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.c", "a.b.c", True),
    ],
)
def test_patterns_match_as_on_nats(pattern, subject, expected):
    assert matches(pattern, subject) is expected


async def test_a_partition_refuses_publishes_and_keeps_none_for_later():
    bus = MemoryBus()
    bus.partition = True
    assert not bus.connected
    with pytest.raises(BusDown, match=r"a\.b: the bus is partitioned"):
        await bus.publish("a.b", b"lost")
    bus.partition = False
    assert await bus.last("any", "a.b", 10) == []
    assert bus.history == []


async def test_what_was_put_during_a_partition_is_heard_after_it_and_each_value_once():
    bus, heard = MemoryBus(), []

    async def hear(entry):
        heard.append(entry.value)

    bus.put_entry("b", "k", b"0")
    await bus.watch_entry("b", "k", hear)
    await settle()
    bus.partition = True
    bus.put_entry("b", "k", b"1")
    await settle()
    assert heard == [b"0"]
    bus.partition = False
    bus.put_entry("b", "k", b"2")
    await settle()
    assert heard == [b"0", b"1", b"2"]
    await bus.close()
    bus.put_entry("b", "k", b"3")
    await settle()
    assert heard == [b"0", b"1", b"2"]


async def test_its_server_has_a_clock_and_may_let_go_of_the_oldest():
    clock = ManualClock()
    bus = MemoryBus(now_ns=clock.now_ns)
    begin = clock.now_ns()
    for payload in (b"1", b"2"):
        await bus.publish_stored("a.b", payload, msg_id=payload.decode(), stream="any")
        await clock.advance(1.0)
    assert await bus.stored("any", "a.b", 10) == [Stored(b"1", begin), Stored(b"2", begin + 10**9)]
    assert await bus.kept_since_ns("any") == 0
    bus.let_go(1)
    assert await bus.stored("any", "a.b", 10) == [Stored(b"2", begin + 10**9)]
    assert await bus.kept_since_ns("any") == begin + 10**9
    assert bus.put_entry("b", "k", b"v") == Entry("k", b"v", 1, begin + 2 * 10**9)
