"""What the desk stores, waits for and hears, on a bus in memory."""

import pytest

from cli.order_desk import Desk, Ear
from cli.orders import Wish
from runtime.errors import BusError, TrimtabError
from runtime.memory_bus import MemoryBus
from schemas.codec import decode, encode
from schemas.messages import Command
from schemas.subjects import subject, subject_of
from tests.support.builders import NODE, actuation, command, heartbeat, write

ORDERS = "TRIMTAB_ORDERS"


class Answering(MemoryBus):
    """A node whose guard and actuator answer an order with these messages, of its own node."""

    def __init__(self, *answers) -> None:
        super().__init__()
        self._answers = answers

    async def publish(self, subject, payload, *, msg_id=None):
        await super().publish(subject, payload, msg_id=msg_id)
        if isinstance(decode(payload), Command):
            for answer in self._answers:
                await super().publish(subject_of(answer), encode(answer))


async def give(bus, *wishes, wait_seconds=0.05, nodes=(NODE,)):
    made = Desk(bus, Ear(), "nats://here")
    await made.listen()
    orders = [wish.order(node) for wish in wishes for node in nodes]
    effects = await made.give(orders, wait_seconds)
    await bus.close()
    return effects


FREEZE, RESTORE = Wish("frozen", "why", "jo"), Wish(None, "why", "jo")
LONG_SECONDS = 60.0


async def test_an_order_is_in_force_when_the_guard_shows_it_and_waits_no_longer():
    bus = Answering(heartbeat(mode="active"), heartbeat(service="actuator", mode="frozen"), heartbeat(mode="frozen"))
    (effect,) = await give(bus, FREEZE, wait_seconds=LONG_SECONDS)
    assert (effect.outcome, effect.detail, effect.is_good) == ("in_force", None, True)
    assert [decode(raw) for raw in await bus.last(ORDERS, subject("command", NODE), 9)] == [effect.order]


async def test_what_a_guard_said_before_the_order_does_not_count():
    bus = MemoryBus()
    made = Desk(bus, Ear(), "nats://here")
    await made.listen()
    await bus.publish(subject_of(heartbeat()), encode(heartbeat(mode="frozen")))
    await made.ear.until(lambda: NODE in made.ear.modes, 5.0)
    (effect,) = await made.give([FREEZE.order(NODE)], 0.05)
    assert effect.outcome == "no_guard"
    await bus.close()


async def test_what_an_actuator_restored_before_the_order_does_not_count():
    bus = MemoryBus()
    made = Desk(bus, Ear(), "nats://here")
    await made.listen()
    said = actuation(outcome="restored")
    await bus.publish(subject_of(said), encode(said))
    await made.ear.until(lambda: NODE in made.ear.restored, 5.0)
    (effect,) = await made.give([RESTORE.order(NODE)], 0.05)
    assert effect.outcome == "no_actuator"
    await bus.close()


async def test_without_a_guard_the_order_is_stored_and_holds_later():
    bus = Answering(heartbeat(node="node-2", mode="frozen"))
    (effect,) = await give(bus, FREEZE)
    assert (effect.outcome, effect.is_good) == ("no_guard", False)
    assert effect.detail == "no guard was heard within 0.05 s (heard: node-2); the order holds when one starts"
    assert len(await bus.last(ORDERS, subject("command", NODE), 9)) == 1


async def test_a_guard_that_shows_another_mode_in_the_end_is_no_success():
    (effect,) = await give(Answering(heartbeat(mode="active")), FREEZE)
    assert (effect.outcome, effect.is_good) == ("other_mode", False)
    assert "the mode is active" in effect.detail


async def test_every_node_is_ordered_and_one_that_fails_keeps_no_other():
    class Picky(Answering):
        async def publish_stored(self, subject, payload, *, msg_id, stream):
            if subject.endswith("node-2"):
                raise BusError("no room")
            await super().publish_stored(subject, payload, msg_id=msg_id, stream=stream)

    bus = Picky(heartbeat(mode="frozen"), heartbeat(node="node-3", mode="frozen"))
    effects = await give(bus, FREEZE, nodes=(NODE, "node-2", "node-3"), wait_seconds=LONG_SECONDS)
    assert [(effect.order.node, effect.outcome) for effect in effects] == [
        (NODE, "in_force"),
        ("node-2", "not_stored"),
        ("node-3", "in_force"),
    ]
    assert effects[1].detail == "no room"


async def test_a_restore_is_done_when_the_actuator_says_so():
    (effect,) = await give(Answering(actuation(outcome="restored")), RESTORE, wait_seconds=LONG_SECONDS)
    assert (effect.outcome, effect.is_good) == ("restored", True)


async def test_a_restore_that_failed_for_a_group_is_not_done():
    said = actuation(outcome="restored", writes=(write("api"), write("job", result="failed")))
    (effect,) = await give(Answering(said), RESTORE)
    assert (effect.outcome, effect.is_good) == ("not_restored", False)
    assert effect.detail == "not all originals are back: pod-job"


@pytest.mark.parametrize(
    ("earlier", "outcome", "is_good"),
    [
        ((), "nothing_to_restore", True),
        (("applied", "restored", "skipped"), "nothing_to_restore", True),
        (("restored", "applied", "held"), "not_restored", False),
        (("restored", "rolled_back"), "not_restored", False),
    ],
)
async def test_an_actuator_that_says_nothing_had_nothing_to_restore_or_failed(earlier, outcome, is_good):
    bus = Answering(heartbeat(service="actuator"))
    for done in earlier:
        bus.store(subject("actuation", NODE), encode(actuation(outcome=done)))
    (effect,) = await give(bus, RESTORE)
    assert (effect.outcome, effect.is_good) == (outcome, is_good)


async def test_a_restore_that_no_actuator_heard_is_said():
    (effect,) = await give(Answering(heartbeat(mode="active")), RESTORE)
    assert (effect.outcome, effect.is_good) == ("no_actuator", False)
    assert "one that starts returns every original by itself" in effect.detail


async def test_all_nodes_are_those_whose_guard_is_heard():
    bus = MemoryBus()
    made = Desk(bus, Ear(), "nats://here")
    await made.listen()
    with pytest.raises(TrimtabError, match=r"no guard was heard at nats://here within 0\.01 s; .*--node"):
        await made.nodes_heard(0.01)
    for node, service in [("b", "guard"), ("a", "guard"), ("c", "actuator")]:
        message = heartbeat(node=node, service=service, mode="active")
        await bus.publish(subject_of(message), encode(message))
    await bus.publish("trimtab.v1.heartbeat.guard.d", b"{")
    await made.ear.until(lambda: {"a", "b"} <= set(made.ear.modes) and "c" in made.ear.actuators, 5.0)
    assert await made.nodes_heard(0.01) == ["a", "b"]
    await bus.close()


async def test_orders_of_a_mode_are_found_behind_hundreds_of_others_and_what_is_no_order_is_left_out():
    bus = MemoryBus()
    bus.store(subject("command", NODE), encode(command(verb="mode", mode="canary")))
    for number in range(250):
        bus.store(subject("command", NODE), encode(command(id=str(number))) if number % 2 else b"{")
    found = await Desk(bus, Ear(), "").orders(NODE)
    assert [order.mode for order, _ in found] == ["canary"]
    assert found[0][1] > 0


class Filing(Answering):
    """Notes what is stored in, and read from, which stream."""

    def __init__(self, *answers) -> None:
        super().__init__(*answers)
        self.used = []

    async def publish_stored(self, subject, payload, *, msg_id, stream):
        self.used.append(("into", stream, subject))
        await super().publish_stored(subject, payload, msg_id=msg_id, stream=stream)

    async def stored(self, stream, subject, limit):
        self.used.append(("from", stream, subject))
        return await super().stored(stream, subject, limit)


async def test_orders_have_a_stream_of_their_own_and_what_was_done_is_in_the_audit():
    bus = Filing(heartbeat(service="actuator"))
    await give(bus, RESTORE)
    await Desk(bus, Ear(), "").orders(NODE)
    assert set(bus.used) == {
        ("into", "TRIMTAB_ORDERS", subject("command", NODE)),
        ("from", "TRIMTAB_AUDIT", subject("actuation", NODE)),
        ("from", "TRIMTAB_ORDERS", subject("command", NODE)),
    }
