"""A mode given as a key-value entry becomes one order in the audit, and no old one comes back to life."""

import json
from contextlib import asynccontextmanager

import pytest

from runtime.bus import Entry
from runtime.clock import ManualClock, settle
from runtime.errors import BusError
from runtime.memory_bus import MemoryBus
from runtime.streams import KEY_VALUES
from schemas.codec import decode, encode
from schemas.messages import Command
from schemas.subjects import message_id, subject, subject_of
from services.guard.config import GuardConfig
from services.guard.mode_entry import BUCKET, ModeEntries, NotAnOrder, order_of
from tests.support.builders import NODE, command
from tests.support.harness import harness
from tests.support.heard import Heard

KEY = "node-1"


class Watching:
    """A service that does nothing but watch its entry."""

    paces_itself = False
    cycle = 0
    mode = None

    def __init__(self, context) -> None:
        self._entries = ModeEntries(context)

    async def start(self) -> None:
        await self._entries.start()

    async def run(self) -> None:
        await settle()

    async def stop(self) -> None:
        pass


class Lasting(MemoryBus):
    """It outlives every guard."""

    async def close(self) -> None:
        pass


class World:
    """One bus and its server's clock; guards come and go."""

    def __init__(self, bus_type=Lasting) -> None:
        self.clock = ManualClock()
        self.bus = bus_type(now_ns=self.clock.now_ns)

    async def put(self, seconds: float = 1.0, *, raw: bytes | None = None, **fields) -> Entry:
        """An entry, `seconds` after what was before."""
        await self.clock.advance(seconds)
        value = {"mode": "frozen", "by": "jo", "reason": "a trial", **fields}
        entry = self.bus.put_entry(BUCKET, KEY, json.dumps(value).encode() if raw is None else raw)
        await settle()
        return entry

    async def order(self, mode: str, seconds: float = 1.0) -> None:
        """An order by message, `seconds` after what was before."""
        await self.clock.advance(seconds)
        order = command(verb="mode", mode=mode, id=f"cli-{mode}-{self.clock.now_ns()}")
        await self.bus.publish(subject_of(order), encode(order), msg_id=message_id(order))

    @asynccontextmanager
    async def guard(self):
        async with harness("guard", GuardConfig, Watching, bus=self.bus, clock=self.clock) as made:
            await settle(100)
            yield made

    async def modes(self) -> list[tuple[str | None, str, str]]:
        """The audit's orders of a mode: mode, by, reason."""
        raw = await self.bus.last("TRIMTAB_AUDIT", subject("command", NODE), 1000)
        orders = [order for item in raw if isinstance(order := decode(item), Command)]
        return [(order.mode, order.by, order.reason) for order in orders if order.verb == "mode"]


FROZEN = ("frozen", "kv: jo", "a trial")
BY_CLI = ("operator", "because")


def test_the_bucket_is_one_that_is_declared():
    assert BUCKET in KEY_VALUES


async def test_an_entry_becomes_an_order_that_says_who_and_why():
    world = World()
    async with world.guard():
        await world.put()
        assert await world.modes() == [FROZEN]


async def test_an_entry_put_while_no_guard_ran_is_obeyed_by_the_next():
    world = World()
    await world.order("active")
    await world.put()
    async with world.guard():
        assert await world.modes() == [("active", *BY_CLI), FROZEN]


async def test_every_later_entry_is_obeyed_in_its_turn():
    world = World()
    async with world.guard():
        await world.put()
        await world.put(mode="active", reason="over")
        await world.put()
        assert await world.modes() == [FROZEN, ("active", "kv: jo", "over"), FROZEN]


async def test_an_obeyed_entry_is_not_obeyed_again_by_the_next_guard():
    world = World()
    async with world.guard():
        await world.put()
    for _ in range(2):
        async with world.guard():
            assert await world.modes() == [FROZEN]


async def test_an_old_entry_is_not_revived_over_a_newer_order():
    world = World()
    async with world.guard():
        await world.put()
    await world.order("active")
    async with world.guard():
        assert await world.modes() == [FROZEN, ("active", *BY_CLI)]


async def test_an_entry_that_no_guard_saw_does_not_override_a_newer_order():
    world = World()
    await world.put(mode="active")
    await world.order("frozen")
    async with world.guard():
        assert await world.modes() == [("frozen", *BY_CLI)]


async def test_an_obeyed_entry_stays_obeyed_where_the_two_clocks_differ():
    """The entry's server is ahead: by the clocks alone the entry would be newer than the order that followed it."""
    world = World()
    ahead = Entry(KEY, b'{"mode": "frozen", "by": "jo", "reason": "x"}', 1, world.clock.now_ns() + 60 * 10**9)
    world.bus._entries.append((BUCKET, ahead))
    async with world.guard():
        pass
    await world.order("active")
    async with world.guard():
        pass
    assert [decode(published.payload).mode for published in world.bus.history] == ["frozen", "active"]


async def test_hundreds_of_other_orders_do_not_hide_a_newer_order_of_a_mode():
    world = World()
    await world.put(mode="active")
    await world.order("frozen")
    for number in range(250):
        world.bus.store(subject("command", NODE), encode(command(id=str(number))))
    async with world.guard():
        assert await world.modes() == [("frozen", *BY_CLI)]


@pytest.mark.parametrize(
    ("mode", "expected"), [("active", []), ("canary", []), ("shadow", ["shadow"]), ("frozen", ["frozen"])]
)
async def test_an_entry_older_than_all_that_the_audit_holds_lets_no_weight_move(mode, expected):
    """A newer order may have been let go of; to stand still can be obeyed all the same."""
    world = World()
    await world.put(mode=mode)
    await world.order("frozen")
    world.bus.let_go(1)
    async with world.guard():
        assert [found for found, *_ in await world.modes()] == expected


async def test_an_entry_newer_than_what_the_audit_has_let_go_of_is_obeyed():
    world = World()
    await world.order("frozen")
    world.bus.let_go(1)
    world.bus.store(subject("command", NODE), encode(command()))
    await world.put(mode="active")
    async with world.guard():
        assert [mode for mode, *_ in await world.modes()] == ["active"]


async def test_in_a_bucket_that_was_made_anew_the_first_entry_is_not_the_old_first():
    world = World()
    async with world.guard():
        await world.put()
    await world.order("active")
    world.bus._entries.clear()
    entry = await world.put()
    assert entry.revision == 1
    async with world.guard():
        assert [mode for mode, *_ in await world.modes()] == ["frozen", "active", "frozen"]


async def test_a_tool_that_puts_the_same_value_again_lifts_no_freeze():
    world = World()
    async with world.guard():
        await world.put(mode="active")
        await world.order("frozen")
        await world.put(mode="active")
        assert [mode for mode, *_ in await world.modes()] == ["active", "frozen"]
        await world.put(mode="active", reason="the fire is out")
        assert [mode for mode, *_ in await world.modes()] == ["active", "frozen", "active"]


async def test_a_tool_that_puts_a_freeze_again_freezes_again():
    world = World()
    async with world.guard():
        await world.put()
        await world.order("active")
        await world.put()
        assert [mode for mode, *_ in await world.modes()] == ["frozen", "active", "frozen"]


async def test_going_back_to_an_earlier_value_orders_it_again():
    world = World()
    async with world.guard():
        for mode in ("active", "frozen", "active"):
            await world.put(mode=mode)
        assert [mode for mode, *_ in await world.modes()] == ["active", "frozen", "active"]


async def test_a_deleted_entry_does_nothing():
    world = World()
    async with world.guard() as guard:
        await world.put()
        world.bus.put_entry(BUCKET, KEY, None)
        await settle()
        assert await world.modes() == [FROZEN]
        assert guard.dropped("mode_entry", "decode") == 0


async def test_the_entry_of_another_node_does_nothing():
    world = World()
    async with world.guard():
        world.bus.put_entry(BUCKET, "node-2", b'{"mode": "frozen"}')
        await settle()
        assert await world.modes() == []


async def test_an_entry_put_while_the_bus_is_down_is_obeyed_when_it_is_back():
    world = World()
    async with world.guard():
        world.bus.partition = True
        await world.put()
        assert await world.modes() == []
        world.bus.partition = False
        await settle(100)
        assert await world.modes() == [FROZEN]


class Deaf(Lasting):
    """Its audit cannot be read for a while."""

    refusals = 2

    async def stored(self, stream, subject, limit):
        if self.refusals:
            self.refusals -= 1
            raise BusError("no answer")
        return await super().stored(stream, subject, limit)


async def test_without_the_audit_nothing_is_ordered_and_then_it_is():
    world, heard = World(Deaf), Heard()
    async with world.guard() as guard:

        async def hear(order: Command) -> None:
            heard.add((order.mode, world.bus.refusals))

        await guard.context.messenger.listen(Command, hear)
        await world.put()
        assert await heard.until(bool) == [("frozen", 0)]


MALFORMED = {
    "no_json": b"frozen",
    "no_mode": b'{"by": "jo", "reason": "x"}',
    "unknown_mode": b'{"mode": "Frozen", "by": "jo", "reason": "x"}',
    "a_list": b'["frozen"]',
    "a_number_for_a_name": b'{"mode": "frozen", "by": 7, "reason": "x"}',
    "no_name_to_let_weights_move": b'{"mode": "active", "reason": "x"}',
    "no_reason_to_let_weights_move": b'{"mode": "canary", "by": "jo", "reason": " "}',
    "half_a_pair": b'{"mode": "frozen", "by": "\\ud800", "reason": "x"}',
    "no_unicode": b'{"mode": "frozen", "by": "\xff", "reason": "x"}',
    "nothing": b"",
    "deep": b'{"mode": "frozen", "more": ' + b"[" * 100_000,
    "huge": b'{"mode": "frozen", "by": "' + b"x" * 200_000 + b'"}',
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_entry_is_counted_said_once_and_ignored_and_the_next_is_obeyed(case, caplog):
    world = World()
    async with world.guard() as guard:
        await world.put(raw=MALFORMED[case])
        assert await world.modes() == []
        assert guard.dropped("mode_entry", "decode") == 1
        await world.put()
        assert await world.modes() == [FROZEN]
        assert guard.dropped("mode_entry", "decode") == 1
    said = [record for record in caplog.records if record.getMessage() == "mode_entry_refused"]
    assert [(record.levelname, record.trimtab_fields["revision"]) for record in said] == [("WARNING", 1)]
    assert len(said[0].trimtab_fields["detail"]) <= 300


@pytest.mark.parametrize("mode", ["frozen", "shadow"])
async def test_standing_still_needs_neither_a_name_nor_a_reason(mode):
    world = World()
    async with world.guard():
        await world.put(raw=b'{"mode": "%s"}' % mode.encode())
        assert await world.modes() == [(mode, "kv: unknown", "none given")]


async def test_fields_that_are_not_known_are_ignored_and_long_texts_cut():
    world = World()
    async with world.guard():
        await world.put(ticket="OPS-1", reason="x" * 1000)
        assert await world.modes() == [("frozen", "kv: jo", "x" * 300)]


def test_the_same_entry_gives_the_same_order_whoever_reads_it_and_when():
    entry = Entry(KEY, b'{"mode": "frozen"}', 7, 42)
    first, second = order_of(entry, NODE, 1), order_of(entry, NODE, 2)
    assert message_id(first) == message_id(second) == "node-1.kv.0.command.mode.kv-7-42"
    assert message_id(order_of(entry._replace(revision=8), NODE, 1)) != message_id(first)
    assert message_id(order_of(entry._replace(created_ns=43), NODE, 1)) != message_id(first)


def test_what_is_wrong_with_an_entry_is_said_with_the_way_out():
    with pytest.raises(NotAnOrder, match=r'write \{"mode": "frozen", "by": "jo", "reason": "why"\}'):
        order_of(Entry(KEY, b"frozen", 1, 1), NODE, 1)
    with pytest.raises(NotAnOrder, match="'active' takes `by` and `reason`"):
        order_of(Entry(KEY, b'{"mode": "active"}', 1, 1), NODE, 1)
