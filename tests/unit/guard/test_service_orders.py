"""Orders of a mode as the guard hears them: what is obeyed at once, what when it is stored, and what never."""

import pytest

from runtime.bus import Received
from runtime.clock import settle
from runtime.memory_bus import MemoryBus
from schemas.codec import encode
from schemas.messages import Command
from schemas.subjects import message_id, subject, subject_of
from tests.support.builders import NODE, START_NS, command
from tests.support.services import guard_in

SECOND = 1_000_000_000
WHERE = subject("command", NODE)


def mode(value, **fields):
    return command(verb="mode", mode=value, **{"id": f"m-{value}", **fields})


class Forgetful(MemoryBus):
    """A bus whose server hands orders on and stores only what the test says is stored."""

    def __init__(self):
        super().__init__(lambda: START_NS)

    async def publish(self, subject, payload, *, msg_id=None):
        for subscription in list(self.subscriptions):
            if subscription.pattern == subject == WHERE:
                subscription.offer(Received(subject, payload), 0)
        if subject != WHERE:
            await super().publish(subject, payload, msg_id=msg_id)


# ---- stored ----


async def test_an_order_to_move_is_obeyed_when_it_is_stored_and_not_before():
    bus = Forgetful()
    async with guard_in("shadow", bus=bus) as guard:
        await bus.publish(WHERE, encode(mode("active")))
        await settle()
        assert guard.service.mode == "shadow"
        bus.store(WHERE, encode(mode("active")))
        await guard.advance(0.1)
        assert guard.service.mode == "active"
        assert guard.dropped("command", "not_stored") == 0


async def test_an_order_to_move_that_is_never_stored_is_never_obeyed():
    bus = Forgetful()
    async with guard_in("shadow", bus=bus) as guard:
        await bus.publish(WHERE, encode(mode("active")))
        await guard.advance(10.0)
        assert guard.service.mode == "shadow"
        assert guard.dropped("command", "not_stored") == 1


async def test_an_order_to_stand_still_is_obeyed_though_the_store_is_full():
    bus = Forgetful()
    async with guard_in("active", bus=bus) as guard:
        await bus.publish(WHERE, encode(mode("frozen")))
        await settle()
        assert guard.service.mode == "frozen"


async def test_a_stop_that_was_never_stored_is_not_lifted_by_an_older_order_that_was():
    bus = Forgetful()
    bus.store(WHERE, encode(mode("active")))
    async with guard_in("shadow", bus=bus) as guard:
        assert guard.service.mode == "active"
        await bus.publish(WHERE, encode(mode("frozen")))
        bus.ended_partitions += 1
        await guard.inject_raw(subject("state", NODE), b"{}")
        await guard.service._modes.hear_missed()
        assert guard.service.mode == "frozen"
        bus.store(WHERE, encode(mode("canary")))
        await bus.publish(WHERE, encode(mode("canary")))
        await settle()
        assert guard.service.mode == "canary"  # given after the stop


async def test_an_order_to_move_that_is_stored_late_does_not_lift_a_stop_that_came_after_it():
    bus = Forgetful()
    async with guard_in("shadow", bus=bus) as guard:
        await bus.publish(WHERE, encode(mode("active")))
        await bus.publish(WHERE, encode(mode("frozen")))
        await settle()
        bus.store(WHERE, encode(mode("active")))
        await guard.advance(10.0)
        assert guard.service.mode == "frozen"


# ---- again, old, from the future ----


async def test_an_order_that_is_replayed_is_dropped_and_counted():
    async with guard_in("shadow") as guard:
        await guard.inject(mode("active"), mode("shadow"))
        await guard.inject_raw(WHERE, encode(mode("active")))
        assert guard.service.mode == "shadow"
        assert guard.dropped("command", "duplicate") == 1


async def test_a_freeze_that_is_replayed_after_a_thaw_is_dropped():
    async with guard_in("active") as guard:
        await guard.inject(mode("frozen"), mode("active"))
        await guard.inject_raw(WHERE, encode(mode("frozen")))
        assert guard.service.mode == "active"


async def test_what_was_replayed_does_not_hold_after_a_restart_either():
    bus = MemoryBus(lambda: START_NS)
    for order in (mode("active"), mode("frozen"), mode("active")):
        await bus.publish(WHERE, encode(order))
    async with guard_in("shadow", bus=bus) as guard:
        assert guard.service.mode == "frozen"


@pytest.mark.parametrize(("seconds", "word"), [(-301, "stale"), (301, "future")])
async def test_an_order_to_move_with_another_time_is_dropped_and_counted(seconds, word):
    async with guard_in("shadow") as guard:
        await guard.inject(mode("active", at=START_NS + seconds * SECOND))
        assert guard.service.mode == "shadow"
        assert guard.dropped("command", word) == 1


@pytest.mark.parametrize("seconds", [-100_000, 100_000])
async def test_a_freeze_holds_whatever_time_it_carries(seconds):
    async with guard_in("active") as guard:
        await guard.inject(mode("frozen", at=START_NS + seconds * SECOND))
        assert guard.service.mode == "frozen"


async def test_an_order_to_move_under_a_message_id_that_keeps_it_out_of_the_store_is_not_obeyed():
    async with guard_in("shadow") as guard:
        await guard.bus.publish(subject("verdict", NODE), b"{}", msg_id="same")
        await guard.bus.publish(WHERE, encode(mode("active")), msg_id="same")
        await guard.advance(10.0)
        assert guard.service.mode == "shadow"
        assert guard.dropped("command", "not_stored") == 1


# ---- never out of reach ----


async def test_an_order_is_said_again_before_it_is_too_far_back_to_be_found():
    async with guard_in("shadow") as guard:
        await guard.inject(mode("active"))
        await guard.inject(*(command(verb="rollback", cycle=cycle, id=f"r{cycle}") for cycle in range(160)))
        said = [order for order in guard.sent(Command) if order.verb == "mode"]
        assert [(order.by, order.mode) for order in said] == [("guard", "active")]
        assert said[0].reason == "still in force, ordered by operator: because"
        assert guard.service.mode == "active"


async def test_after_the_order_itself_is_gone_what_was_said_again_holds():
    bus = MemoryBus(lambda: START_NS)
    async with guard_in("shadow", bus=bus) as guard:
        await guard.inject(mode("frozen", by="ann"))
        for first in (0, 100, 200, 300):  # as many at once as an inbox holds
            await guard.inject(*(command(verb="rollback", id=f"{n}") for n in range(first, first + 100)))
    left = MemoryBus(lambda: START_NS)
    for item in bus.history[100:]:
        left.store(item.subject, item.payload)
    async with guard_in("active", bus=left) as guard:
        assert guard.service.mode == "frozen"


async def test_an_order_found_far_back_at_start_is_said_again_at_once():
    bus = MemoryBus(lambda: START_NS)
    for order in (mode("canary"), *(command(verb="rollback", cycle=cycle, id=f"r{cycle}") for cycle in range(450))):
        await bus.publish(subject_of(order), encode(order), msg_id=message_id(order))
    async with guard_in("active", bus=bus) as guard:
        assert guard.service.mode == "canary"
        assert [(order.by, order.mode) for order in guard.sent(Command)] == [("guard", "canary")]


async def test_without_an_order_nothing_is_said_again():
    async with guard_in("active") as guard:
        await guard.inject(*(command(verb="rollback", cycle=cycle, id=f"r{cycle}") for cycle in range(160)))
        assert guard.sent(Command) == []


async def test_rubbish_on_the_orders_subject_makes_the_guard_say_again_what_holds():
    async with guard_in("shadow") as guard:
        await guard.inject(mode("active"))
        await guard.inject_raw(WHERE, *([b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}'] * 155))
        assert [(order.by, order.mode) for order in guard.sent(Command)] == [("guard", "active")]


async def test_rubbish_hides_no_freeze_from_the_next_guard():
    bus = MemoryBus(lambda: START_NS)
    bus.store(WHERE, encode(mode("frozen")))
    for _ in range(250):
        bus.store(WHERE, b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}')
    async with guard_in("active", bus=bus) as guard:
        assert guard.service.mode == "frozen"


async def test_an_order_for_another_node_on_this_nodes_subject_is_not_taken_up():
    bus = MemoryBus(lambda: START_NS)
    bus.store(WHERE, encode(mode("frozen")))
    bus.store(WHERE, encode(mode("active", node="other")))
    async with guard_in("active", bus=bus) as guard:
        assert guard.service.mode == "frozen"
        assert guard.dropped("command", "other_node") > 0


async def test_an_order_that_many_others_follow_at_once_is_obeyed_and_not_called_missing():
    bus = Forgetful()
    async with guard_in("shadow", bus=bus) as guard:
        bus.store(WHERE, encode(mode("active")))
        for number in range(230):
            bus.store(WHERE, encode(command(verb="restore", id=f"{number}")))
        await bus.publish(WHERE, encode(mode("active")))
        await guard.advance(10.0)
        assert guard.service.mode == "active"
        assert guard.dropped("command", "not_stored") == 0
