"""What holds outlives a server that was full, lost its store, or was flooded: the guard gives it back to the stream, or
finds it there.
"""

from runtime.bus import Received
from runtime.clock import settle
from runtime.memory_bus import MemoryBus
from runtime.streams import ORDERS
from schemas.codec import decode, encode
from schemas.messages import Command
from schemas.subjects import subject
from tests.support.builders import NODE, START_NS, command, state
from tests.support.services import guard_in

WHERE = subject("command", NODE)
EVERY = 1000


def mode(value, **fields):
    return command(verb="mode", mode=value, **{"id": f"m-{value}", **fields})


class Server(MemoryBus):
    """A bus whose server hands orders on, and stores them only while it has room."""

    def __init__(self):
        super().__init__(lambda: START_NS)
        self.has_room = True

    async def publish(self, subject, payload, *, msg_id=None):
        if self.has_room or subject != WHERE:
            await super().publish(subject, payload, msg_id=msg_id)
            return
        for subscription in list(self.subscriptions):
            if subscription.pattern == subject:
                subscription.offer(Received(subject, payload), 0)

    def loses_its_store(self):
        self.let_go(len(self._stored))

    async def modes(self):
        """Who ordered what, as stored."""
        found = [decode(payload) for payload in await self.last(ORDERS, WHERE, EVERY)]
        return [(order.by, order.mode) for order in found if isinstance(order, Command) and order.verb == "mode"]


async def regained(guard):
    """The bus was lost and is there again; the next state shows it to the guard."""
    guard.bus.ended_partitions += 1
    await guard.inject(state(cycle=7, at=guard.at()))


async def mode_of_the_next_guard(bus):
    left = MemoryBus(lambda: START_NS)
    for payload in await bus.last(ORDERS, WHERE, EVERY):
        left.store(WHERE, payload)
    async with guard_in("active", bus=left) as guard:
        return guard.service.mode


async def test_a_stop_that_a_full_store_did_not_take_is_stored_when_there_is_room_again():
    bus = Server()
    async with guard_in("active", bus=bus) as guard:
        await guard.inject(mode("active"))
        bus.has_room = False
        await bus.publish(WHERE, encode(mode("frozen")))
        await settle()
        assert await bus.modes() == [("operator", "active")]
        bus.has_room = True
        await regained(guard)
        await guard.advance(2.0)
        assert await bus.modes() == [("operator", "active"), ("operator", "frozen")]
    assert await mode_of_the_next_guard(bus) == "frozen"


async def test_a_server_that_lost_its_store_is_told_what_holds():
    bus = Server()
    bus.store(WHERE, encode(mode("frozen")))
    async with guard_in("active", bus=bus) as guard:
        bus.loses_its_store()
        await regained(guard)
        await guard.advance(2.0)
        assert await bus.modes() == [("guard", "frozen")]
    assert await mode_of_the_next_guard(bus) == "frozen"


async def test_a_stream_that_has_what_holds_is_told_nothing():
    bus = Server()
    async with guard_in("active", bus=bus) as guard:
        await guard.inject(mode("frozen"))
        await regained(guard)
        await guard.advance(100.0)
        assert await bus.modes() == [("operator", "frozen")]


async def test_an_order_that_comes_before_anything_is_given_back_stands_alone():
    bus = Server()
    bus.store(WHERE, encode(mode("frozen")))
    async with guard_in("active", bus=bus) as guard:
        bus.loses_its_store()
        await regained(guard)
        await guard.inject(mode("canary"))
        await guard.advance(100.0)
        assert await bus.modes() == [("operator", "canary")]
        assert guard.service.mode == "canary"


async def test_a_stop_that_a_flood_pushed_out_before_it_was_said_again_is_said_again_from_memory():
    bus = Server()
    async with guard_in("active", bus=bus) as guard:
        await guard.inject(mode("frozen"))
        bus.loses_its_store()
        await guard.inject(*(command(verb="rollback", id=f"{n}") for n in range(160)))
        assert await bus.modes() == [("guard", "frozen")]
    assert await mode_of_the_next_guard(bus) == "frozen"


async def test_a_stop_that_was_not_heard_in_a_flood_is_found_in_the_stream():
    bus = Server()
    async with guard_in("active", bus=bus) as guard:
        await guard.inject(mode("active"))
        bus.store(WHERE, encode(mode("frozen")))  # an inbox that is full drops what comes
        await guard.inject(*(command(verb="rollback", id=f"{n}") for n in range(160)))
        assert guard.service.mode == "frozen"
