import pytest

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
