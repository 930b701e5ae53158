"""One behaviour on two buses, and what only a bus on a network can do wrong."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

import runtime.nats_bus
import runtime.nats_bus_history
import runtime.nats_bus_readers
from cli.__main__ import main
from runtime.bus import Bus, Entry, Received
from runtime.errors import BusDown, BusError, BusUnreachable, ConfigError
from runtime.memory_bus import MemoryBus
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import EmbeddedServer
from runtime.settings import BusSettings
from runtime.streams import AUDIT, ORDERS, STATE, STREAMS
from schemas.codec import encode
from schemas.messages import Action
from schemas.subjects import KINDS, heartbeat_subject, message_id, subject
from tests.support.heard import DEADLINE_SECONDS, Heard

Event = tuple[str, str]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(runtime.nats_bus_readers, "_FETCH_SECONDS", 0.2)
    for module in (runtime.nats_bus, runtime.nats_bus_readers):
        monkeypatch.setattr(module, "_RETRY_SECONDS", 0.02)


def quick(url: str, **fields) -> BusSettings:
    return BusSettings(**{"url": url, "reconnect_wait_seconds": 0.02, "connect_timeout_seconds": 5.0, **fields})


MODE = "trimtab-mode"


class Values(Heard[Entry]):
    """A handler of entries that remembers them."""

    async def __call__(self, entry: Entry) -> None:
        self.add(entry)

    async def until_values(self, *values: bytes | None) -> list[Entry]:
        return await self.until(lambda got: [entry.value for entry in got] == list(values))


class Inbox(Heard[bytes]):
    """A handler that remembers payloads."""

    async def __call__(self, received: Received) -> None:
        self.add(received.payload)


# ---- what both buses promise --------------------------------------------------------------------------------------


@dataclass
class World:
    """A bus under test and how it tells of drops."""

    bus: Bus
    dropped: Callable[[], int]
    put: Callable[[str, bytes | None], Awaitable[int]]


@pytest.fixture(params=["memory", "nats"])
async def world(request, nats_server) -> AsyncIterator[World]:
    if request.param == "memory":
        memory = MemoryBus()

        async def remember(key: str, value: bytes | None) -> int:
            return memory.put_entry(MODE, key, value).revision

        yield World(memory, lambda: memory.dropped, remember)
        await memory.close()
        return
    events: list[Event] = []
    bus = await connect(quick(nats_server.url), "world", lambda event, detail: events.append((event, detail)))
    yield World(
        bus, lambda: [event for event, _ in events].count("slow_consumer"), lambda key, value: put(bus, key, value)
    )
    await bus.close()


async def put(bus: NatsBus, key: str, value: bytes | None) -> int:
    """What `nats kv put` and `nats kv del` do; the revision, 0 of a deletion."""
    bucket = await bus.jetstream.key_value(MODE)
    if value is not None:
        return await bucket.put(key, value)
    await bucket.delete(key)
    return 0


async def test_a_subscriber_hears_what_is_published_from_now_on_in_order(world, node):
    where, inbox = subject("state", node), Inbox()
    await world.bus.publish(where, b"before")
    await world.bus.subscribe(where, inbox)
    for number in range(5):
        await world.bus.publish(where, b"%d" % number)
    assert await inbox.until(lambda got: len(got) >= 5) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("pattern", ["trimtab.v1.*.{}", "trimtab.v1.state.{}", "*.*.*.{}"])
async def test_patterns_hear_every_subject_that_they_match_and_no_other(world, node, pattern):
    inbox = Inbox()
    await world.bus.subscribe(pattern.format(node.replace(".", "_")), inbox)
    await world.bus.publish(subject("state", "another-node"), b"other")
    await world.bus.publish(heartbeat_subject("guard", node), b"longer")
    await world.bus.publish(subject("state", node), b"mine")
    await inbox.until(lambda got: b"mine" in got)
    assert inbox.items == [b"mine"]


async def test_two_subscribers_each_hear_everything(world, node):
    first, second = Inbox(), Inbox()
    await world.bus.subscribe(subject("state", node), first)
    await world.bus.subscribe(subject("state", node), second)
    await world.bus.publish(subject("state", node), b"x")
    assert await first.until(bool) == await second.until(bool) == [b"x"]


async def test_a_handler_that_fails_costs_its_message_only(world, node):
    inbox = Inbox()

    async def fragile(received: Received) -> None:
        if received.payload == b"bad":
            raise ValueError("nonsense")
        await inbox(received)

    await world.bus.subscribe(subject("state", node), fragile)
    for payload in (b"bad", b"good"):
        await world.bus.publish(subject("state", node), payload)
    assert await inbox.until(bool) == [b"good"]


async def test_na_04_beyond_the_limit_the_newest_are_dropped_and_counted_and_the_connection_stays(world, node):
    where, inbox, entered, leave = subject("state", node), Inbox(), asyncio.Event(), asyncio.Event()

    async def blocked(received: Received) -> None:
        entered.set()
        await leave.wait()
        await inbox(received)

    fence = Inbox()
    await world.bus.subscribe(where, blocked, limit=4)
    await world.bus.publish(where, b"0")
    await entered.wait()
    await world.bus.subscribe(where, fence)
    for number in range(1, 10):
        await world.bus.publish(where, b"%d" % number)
    await fence.until(lambda got: len(got) == 9)
    assert world.dropped() == 5
    leave.set()
    assert await inbox.until(lambda got: len(got) == 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert world.bus.connected
    await world.bus.publish(where, b"fresh")
    assert await inbox.until(lambda got: len(got) == 6) == [b"0", b"1", b"2", b"3", b"4", b"fresh"]


async def test_na_10_a_duplicate_reaches_live_subscribers_twice_but_is_stored_once(world, node):
    where, live, learned = subject("action", node), Inbox(), Inbox()
    await world.bus.subscribe(where, live)
    await world.bus.consume(AUDIT, f"d-{node.replace('.', '_')}", where, learned)
    for payload, name in [(b"a", "1"), (b"a", "1"), (b"b", "2")]:
        await world.bus.publish(where, payload, msg_id=f"{node}.{name}")
    assert await live.until(lambda got: len(got) == 3) == [b"a", b"a", b"b"]
    assert await learned.until(lambda got: b"b" in got) == [b"a", b"b"]
    assert await world.bus.last(AUDIT, where, 10) == [b"a", b"b"]


async def test_na_10_the_same_weights_in_a_later_cycle_are_stored_again(world, node):
    where = subject("action", node)
    cycles = [
        Action(node=node, boot="b", cycle=cycle, at=1, policy="p", arm="a", weights={"batch": 50}) for cycle in (17, 19)
    ]
    for action in cycles:
        await world.bus.publish(where, encode(action), msg_id=message_id(action))
    await until_stored(world.bus, where, encode(cycles[1]))
    assert await world.bus.last(AUDIT, where, 10) == [encode(action) for action in cycles]


async def until_stored(bus: Bus, where: str, payload: bytes) -> None:
    """A stream takes a moment to store what subscribers have already heard."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while payload not in await bus.last(AUDIT, where, 50):
            await asyncio.sleep(0)


async def test_a_new_durable_begins_now_and_an_old_one_where_it_stopped(world, node):
    where, durable, inbox = subject("reward", node), f"d-{node.replace('.', '_')}", Inbox()
    await world.bus.publish(where, b"before")
    await until_stored(world.bus, where, b"before")
    first = await world.bus.consume(AUDIT, durable, where, inbox)
    await world.bus.publish(where, b"1")
    await inbox.until(lambda got: got == [b"1"])
    await first.stop()
    await world.bus.publish(where, b"2")
    await world.bus.publish(where, b"3")
    await world.bus.consume(AUDIT, durable, where, inbox)
    await world.bus.publish(where, b"4")
    assert await inbox.until(lambda got: len(got) >= 4) == [b"1", b"2", b"3", b"4"]


async def test_a_stored_message_whose_handler_fails_comes_again_five_times_at_most(world, node):
    where, tries, inbox = subject("reward", node), Inbox(), Inbox()

    async def fragile(received: Received) -> None:
        await tries(received)
        if received.payload == b"hopeless" or len(tries.items) < 3:
            raise ValueError("nonsense")
        await inbox(received)

    await world.bus.consume(AUDIT, f"d-{node.replace('.', '_')}", where, fragile)
    await world.bus.publish(where, b"slow")
    await inbox.until(lambda got: got == [b"slow"])
    assert tries.items == [b"slow"] * 3
    await world.bus.publish(where, b"hopeless")
    await tries.until(lambda got: got.count(b"hopeless") == 5)
    await world.bus.publish(where, b"after")
    assert await inbox.until(lambda got: len(got) == 2) == [b"slow", b"after"]
    assert tries.items.count(b"hopeless") == 5


async def test_what_failed_is_not_taken_for_acknowledged_by_the_next_run(world, node):
    where, durable, inbox, failed = subject("reward", node), f"d-{node.replace('.', '_')}", Inbox(), asyncio.Event()

    async def fragile(received: Received) -> None:
        if received.payload == b"1" and not failed.is_set():
            failed.set()
            raise ValueError("nonsense")
        await inbox(received)

    first = await world.bus.consume(AUDIT, durable, where, fragile)
    await world.bus.publish(where, b"1")
    await failed.wait()
    await world.bus.publish(where, b"2")
    await inbox.until(lambda got: b"2" in got)
    await first.stop()
    await world.bus.consume(AUDIT, durable, where, fragile)
    assert set(await inbox.until(lambda got: b"1" in got)) == {b"1", b"2"}


async def subscribe(world: World, node: str, handler) -> object:
    return await world.bus.subscribe(subject("reward", node), handler)


async def consume(world: World, node: str, handler) -> object:
    return await world.bus.consume(AUDIT, f"d-{node.replace('.', '_')}", subject("reward", node), handler)


@pytest.mark.parametrize("listen", [subscribe, consume])
async def test_stop_leaves_the_handler_at_work_to_finish_and_calls_it_no_more(world, node, listen):
    entered, leave, inbox = asyncio.Event(), asyncio.Event(), Inbox()

    async def slow(received: Received) -> None:
        entered.set()
        await leave.wait()
        await inbox(received)

    subscription = await listen(world, node, slow)
    for payload in (b"1", b"2"):
        await world.bus.publish(subject("reward", node), payload)
    await entered.wait()
    stopping = asyncio.create_task(subscription.stop())
    await asyncio.sleep(0)
    leave.set()
    await stopping
    assert inbox.items == [b"1"]
    fence = Inbox()
    await world.bus.subscribe(subject("reward", node), fence)
    await world.bus.publish(subject("reward", node), b"3")
    await fence.until(bool)
    assert inbox.items == [b"1"]


@pytest.mark.parametrize("listen", [subscribe, consume])
async def test_a_handler_may_end_its_own_subscription(world, node, listen):
    stopped, calls = asyncio.Event(), []

    async def once(received: Received) -> None:
        calls.append(received.payload)
        await holder[0].stop()
        stopped.set()

    holder = [await listen(world, node, once)]
    for payload in (b"1", b"2"):
        await world.bus.publish(subject("reward", node), payload)
    async with asyncio.timeout(3.0):
        await stopped.wait()
    assert calls == [b"1"]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, []), (2, [b"3", b"4"]), (5, [b"0", b"1", b"2", b"3", b"4"]), (9, 5)]
)
async def test_last_gives_the_newest_oldest_first(world, node, limit, expected):
    where = subject("verdict", node)
    for number in range(5):
        await world.bus.publish(where, b"%d" % number)
        await world.bus.publish(subject("action", node), b"other")
    await until_stored(world.bus, where, b"4")
    found = await world.bus.last(AUDIT, where, limit)
    assert found == expected or len(found) == expected


async def test_last_of_nothing_is_empty(world, node):
    assert await world.bus.last(AUDIT, subject("verdict", node), 10) == []


async def test_what_was_published_to_be_stored_is_stored_when_it_returns_and_heard_once(world, node):
    where, inbox = subject("verdict", node), Inbox()
    await world.bus.subscribe(where, inbox)
    for number in range(3):
        await world.bus.publish_stored(where, b"%d" % number, msg_id=f"{node}.{number}", stream=AUDIT)
        assert len(await world.bus.last(AUDIT, where, 10)) == number + 1
    await world.bus.publish_stored(where, b"2", msg_id=f"{node}.2", stream=AUDIT)
    assert await world.bus.last(AUDIT, where, 10) == [b"0", b"1", b"2"]
    assert await inbox.until(lambda got: len(got) == 4) == [b"0", b"1", b"2", b"2"]


async def test_stored_messages_say_when_they_were_stored(world, node):
    where, before = subject("verdict", node), time.time_ns() - 1_000_000_000
    for payload in (b"1", b"2"):
        await world.bus.publish_stored(where, payload, msg_id=f"{node}.{payload!r}", stream=AUDIT)
    found = await world.bus.stored(AUDIT, where, 10)
    assert [item.payload for item in found] == [b"1", b"2"]
    assert before < found[0].stored_ns <= found[1].stored_ns < time.time_ns() + 1_000_000_000
    assert [item.payload for item in await world.bus.stored(AUDIT, where, 1)] == [b"2"]


async def test_a_stream_that_let_go_of_nothing_was_kept_since_ever(world, node):
    await world.bus.publish_stored(subject("verdict", node), b"1", msg_id=f"{node}.1", stream=AUDIT)
    assert await world.bus.kept_since_ns(AUDIT) == 0


async def test_what_a_stream_keeps_is_read_from_a_sequence_on_with_place_time_and_subject(world, node):
    verdicts, rewards, before = subject("verdict", node), subject("reward", node), time.time_ns() - 1_000_000_000
    start = (await world.bus.extent(AUDIT)).last
    for number in range(150):
        where = rewards if number % 3 == 0 else verdicts
        await world.bus.publish_stored(where, b"%d" % number, msg_id=f"{node}.{number}", stream=AUDIT)
    await world.bus.publish(subject("state", node), b"of another stream")
    last = (await world.bus.extent(AUDIT)).last
    assert last == start + 150
    found, end = await world.bus.kept(AUDIT, ">", start + 1, last)
    assert end == last
    assert [(item.sequence, item.payload) for item in found] == [(start + 1 + n, b"%d" % n) for n in range(150)]
    assert {item.subject for item in found} == {verdicts, rewards}
    assert all(before < a.stored_ns <= b.stored_ns for a, b in pairwise(found))
    some, _ = await world.bus.kept(AUDIT, rewards, start + 3, start + 12)
    assert [item.payload for item in some] == [b"3", b"6", b"9"]
    assert (await world.bus.kept(AUDIT, subject("action", node), start, last)).messages == []
    assert (await world.bus.kept(AUDIT, ">", last + 1, last + 500)).messages == []
    assert (await world.bus.kept(AUDIT, ">", last, last - 1)).messages == []
    assert (await world.bus.next_kept(AUDIT, f"trimtab.v1.*.{node.replace('.', '_')}", 0)).sequence == start + 1
    assert (await world.bus.next_kept(AUDIT, rewards, start + 2)).payload == b"3"
    assert await world.bus.next_kept(AUDIT, rewards, last) is None


@pytest.mark.parametrize("most_bytes", [1, 3000, 10_000, 50_000])
async def test_no_more_is_read_at_once_than_was_asked_for_and_at_least_one_message(world, node, most_bytes):
    start = (await world.bus.extent(AUDIT)).last
    for number in range(100):
        await world.bus.publish_stored(subject("verdict", node), b"x" * 1000, msg_id=f"{node}.{number}", stream=AUDIT)
    at, sizes = start + 1, []
    while at <= start + 100:
        messages, end = await world.bus.kept(AUDIT, ">", at, start + 100, most_bytes=most_bytes)
        assert [item.sequence for item in messages] == list(range(at, end + 1))
        sizes.append(len(messages))
        at = end + 1
    assert sum(sizes) == 100
    assert min(sizes) >= 1
    assert max(sizes) <= max(1, most_bytes // 1000) + 64  # what is under way comes in any case


async def test_a_stream_that_is_not_there_has_no_extent(world):
    assert await world.bus.extent("NOSUCH") is None


async def test_a_watcher_hears_the_present_value_and_every_later_one_and_no_earlier_one(world, node):
    key, values = node.replace(".", "_"), Values()
    await world.put(key, b"past")
    present = await world.put(key, b"present")
    await world.bus.watch_entry(MODE, key, values)
    await values.until_values(b"present")
    await world.put("another-node", b"other")
    later = [await world.put(key, b"%d" % number) for number in range(3)]
    found = await values.until_values(b"present", b"0", b"1", b"2")
    assert [entry.revision for entry in found] == [present, *later]
    assert {entry.key for entry in found} == {key}
    assert found == sorted(found, key=lambda entry: entry.created_ns)
    assert abs(found[0].created_ns - time.time_ns()) < 60 * 10**9


async def test_a_watcher_of_nothing_hears_the_first_value(world, node):
    values = Values()
    await world.bus.watch_entry(MODE, node.replace(".", "_"), values)
    await world.put(node.replace(".", "_"), b"first")
    await values.until_values(b"first")


async def test_a_deleted_key_is_a_value_of_none_and_life_goes_on(world, node):
    key, values = node.replace(".", "_"), Values()
    await world.bus.watch_entry(MODE, key, values)
    for value in (b"1", None, b"2"):
        await world.put(key, value)
    await values.until_values(b"1", None, b"2")


async def test_two_watchers_of_a_key_each_hear_everything(world, node):
    key, first, second = node.replace(".", "_"), Values(), Values()
    await world.bus.watch_entry(MODE, key, first)
    await world.bus.watch_entry(MODE, key, second)
    await world.put(key, b"x")
    await first.until_values(b"x")
    await second.until_values(b"x")


async def test_a_value_is_handed_again_while_the_bus_fails_its_handler_and_none_overtakes_it(world, node):
    key, values, refusals = node.replace(".", "_"), Values(), [BusError("no audit")] * 2

    async def fragile(entry: Entry) -> None:
        if refusals:
            raise refusals.pop()
        await values(entry)

    await world.bus.watch_entry(MODE, key, fragile)
    for value in (b"1", b"2"):
        await world.put(key, value)
    await values.until_values(b"1", b"2")


async def test_a_value_whose_handler_fails_otherwise_costs_itself_only(world, node):
    key, values = node.replace(".", "_"), Values()

    async def fragile(entry: Entry) -> None:
        if entry.value == b"bad":
            raise ValueError("nonsense")
        await values(entry)

    await world.bus.watch_entry(MODE, key, fragile)
    for value in (b"bad", b"good"):
        await world.put(key, value)
    await values.until_values(b"good")


async def test_a_stopped_watcher_finishes_the_value_at_work_and_hears_no_more(world, node):
    key, values, entered, leave = node.replace(".", "_"), Values(), asyncio.Event(), asyncio.Event()

    async def slow(entry: Entry) -> None:
        entered.set()
        await leave.wait()
        await values(entry)

    watcher = await world.bus.watch_entry(MODE, key, slow)
    await world.put(key, b"1")
    await entered.wait()
    stopping = asyncio.create_task(watcher.stop())
    await asyncio.sleep(0)
    leave.set()
    await stopping
    fence = Values()
    await world.put(key, b"2")
    await world.bus.watch_entry(MODE, key, fence)
    await fence.until_values(b"2")
    await values.until_values(b"1")


async def test_a_closed_bus_is_down(world, node):
    await world.bus.close()
    assert not world.bus.connected
    with pytest.raises(BusDown):
        await world.bus.publish(subject("state", node), b"x")


# ---- NATS only: sizes, subjects, streams --------------------------------------------------------------------------


@pytest.fixture
async def bus(nats_server) -> AsyncIterator[NatsBus]:
    made = await connect(quick(nats_server.url), "one", ignore_events)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("name", "size", "msg_id"),
    [("a", 1_048_577, None), ("b", 1_048_576, "node.boot.1.action")],
)
async def test_na_05_a_message_that_would_end_the_connection_is_refused_here(bus, node, name, size, msg_id):
    where, inbox = subject("action", node), Inbox()
    await bus.subscribe(where, inbox)
    with pytest.raises(BusError, match="the server takes 1048576; raise max_payload"):
        await bus.publish(where, b"x" * size, msg_id=msg_id)
    assert bus.connected
    await bus.publish(where, b"small")
    assert await inbox.until(bool) == [b"small"]


async def test_na_05_the_largest_message_of_the_codec_fits_with_its_id(bus, node):
    where, inbox = subject("action", node), Inbox()
    await bus.subscribe(where, inbox)
    await bus.publish(where, b"x" * 1_000_000, msg_id="i" * 300)
    assert len((await inbox.until(bool))[0]) == 1_000_000


@pytest.mark.parametrize("kind", KINDS)
async def test_na_07_every_kind_of_the_loop_is_captured_by_one_stream(bus, node, kind):
    name = await bus.jetstream.find_stream_name_by_subject(subject(kind, node))
    assert [stream.name for stream in STREAMS if kind in stream.kinds] == [name]


async def test_na_07_what_no_stream_covers_is_heard_and_counted_as_stored_nowhere(bus, node):
    where, inbox = heartbeat_subject("guard", node), Inbox()
    await bus.subscribe(where, inbox)
    before = [(await bus.jetstream.stream_info(stream.name)).state.last_seq for stream in STREAMS]
    await bus.publish(where, b"alive", msg_id="1")
    assert await inbox.until(bool) == [b"alive"]
    assert [(await bus.jetstream.stream_info(stream.name)).state.last_seq for stream in STREAMS] == before
    assert await bus.last(AUDIT, where, 5) == await bus.last(STATE, where, 5) == []


async def test_last_reaches_back_past_what_others_wrote(bus, node, monkeypatch):
    monkeypatch.setattr(runtime.nats_bus_history, "_SHARED_BY", 2)
    mine, others = subject("verdict", node), subject("action", node)
    for number in range(4):
        await bus.publish(mine, b"%d" % number)
    for number in range(40):
        await bus.publish(others, b"%d" % number)
    await until_stored(bus, others, b"39")
    assert await bus.last(AUDIT, mine, 3) == [b"1", b"2", b"3"]


async def test_last_of_a_missing_stream_is_empty(bus, node):
    assert await bus.last("NOSUCH", subject("verdict", node), 3) == []


# ---- NATS only: the connection ------------------------------------------------------------------------------------


async def lose(server: EmbeddedServer, *, keep_store: bool) -> None:
    """Kills the server as the OOM killer does."""
    assert server.child is not None
    server.child.process.kill()
    await server.child.process.wait()
    if not keep_store:
        shutil.rmtree(server._directory / "jetstream")


def heard_event(name: str) -> Callable[[list[Event]], bool]:
    return lambda events: any(event == name for event, _ in events)


@pytest.fixture
async def told(fresh_server) -> AsyncIterator[tuple[NatsBus, Heard[Event]]]:
    """A bus on a server of its own, and its events."""
    events: Heard[Event] = Heard()
    bus = await connect(quick(fresh_server.url), "told", lambda event, detail: events.add((event, detail)))
    yield bus, events
    await bus.close()


async def test_while_disconnected_a_publish_is_refused_and_nothing_arrives_later(told, fresh_server, node):
    bus, events = told
    where, inbox = subject("verdict", node), Inbox()
    await bus.subscribe(where, inbox)
    await lose(fresh_server, keep_store=True)
    await events.until(heard_event("disconnected"))
    assert not bus.connected
    for number in range(20):
        with pytest.raises(BusDown, match=r"not connected to nats://127\.0\.0\.1"):
            await bus.publish(where, b"stale %d" % number, msg_id=str(number))
    await fresh_server.start()
    await events.until(heard_event("reconnected"))
    await bus.publish(where, b"fresh")
    assert await inbox.until(bool) == [b"fresh"]
    assert set(await stored(bus, where, b"fresh")) == {b"fresh"}


async def stored(bus: NatsBus, where: str, payload: bytes) -> list[bytes]:
    async with asyncio.timeout(10.0):
        while payload not in (found := await bus.last(AUDIT, where, 50)):
            await bus.publish(where, payload, msg_id="again")
    return found


async def fill(bus: NatsBus, where: str) -> None:
    for _ in range(100):
        async with asyncio.timeout(5.0):  # refused, not blocked
            await bus.publish(where, b"stale" + bytes(900_000))
        await asyncio.sleep(0)


async def test_what_a_dead_connection_did_not_take_is_not_sent_by_the_next_one(told, fresh_server, node):
    bus, events = told
    where, inbox = subject("verdict", node), Inbox()
    await bus.subscribe(where, inbox)
    child = fresh_server.child.process
    child.send_signal(signal.SIGSTOP)  # a server that hangs: the socket fills up
    with pytest.raises(BusDown, match="does not take what was sent before"):
        await fill(bus, where)
    assert bus._client.pending_data_size > 0
    await lose(fresh_server, keep_store=False)
    await events.until(heard_event("disconnected"))
    await fresh_server.start()
    await events.until(heard_event("reconnected"))
    await bus.publish(where, b"fresh")
    assert (await inbox.until(bool))[0] == b"fresh"


async def test_an_outage_is_told_once_and_not_at_every_attempt(told, fresh_server):
    bus, events = told
    await lose(fresh_server, keep_store=True)
    await events.until(heard_event("disconnected"))
    attempts = bus._client._server_pool[0].reconnects
    async with asyncio.timeout(10.0):
        while bus._client._server_pool[0].reconnects < attempts + 5:
            await asyncio.sleep(0.02)
    assert sum("ConnectionRefused" in detail for _, detail in events.items) <= 1
    assert [event for event, _ in events.items].count("disconnected") == 1


@pytest.mark.parametrize("keep_store", [True, False])
async def test_na_01_learning_goes_on_after_the_server_was_killed(told, fresh_server, node, keep_store):
    bus, events = told
    where, inbox = subject("reward", node), Inbox()
    await bus.consume(AUDIT, "learner", where, inbox)
    await bus.publish(where, b"1", msg_id="1")
    await inbox.until(lambda got: got == [b"1"])
    await lose(fresh_server, keep_store=keep_store)
    await events.until(heard_event("disconnected"))
    await fresh_server.start()
    await events.until(heard_event("reconnected"))
    await stored(bus, where, b"2")
    await bus.publish(where, b"3", msg_id="3")
    await inbox.until(lambda got: b"3" in got)
    assert list(dict.fromkeys(inbox.items)) == [b"1", b"2", b"3"]
    gaps = [detail for event, detail in events.items if event == "gap"]
    assert len(gaps) == (0 if keep_store else 1)
    assert all("learner was lost and is made again" in detail for detail in gaps)


@pytest.mark.parametrize("keep_store", [True, False])
async def test_a_watcher_goes_on_after_the_server_was_killed(told, fresh_server, node, keep_store):
    bus, events = told
    values = Values()
    await bus.watch_entry(MODE, "k", values)
    for value in (b"0", b"1"):
        await put(bus, "k", value)
    await values.until_values(b"0", b"1")
    await lose(fresh_server, keep_store=keep_store)
    await events.until(heard_event("disconnected"))
    await fresh_server.start()
    other = await connect(quick(fresh_server.url), "gitops", ignore_events)  # declares the bucket where it was lost
    await put(other, "k", b"2")
    await values.until_values(b"0", b"1", b"2")
    await put(other, "k", b"3")
    await values.until_values(b"0", b"1", b"2", b"3")
    await other.close()


async def test_a_watcher_hears_what_was_put_while_its_connection_was_down(told, fresh_server, node):
    """The server lives; the watcher's connection is cut and comes back."""
    bus, events = told
    values = Values()
    await bus.watch_entry(MODE, "k", values)
    await put(bus, "k", b"1")
    await values.until_values(b"1")
    other = await connect(quick(fresh_server.url), "gitops", ignore_events)
    bus._client._transport.close()
    for value in (b"2", b"3"):
        await put(other, "k", value)
    await events.until(heard_event("reconnected"))
    await values.until_values(b"1", b"2", b"3")
    await other.close()


async def test_a_watcher_that_found_no_value_misses_none_that_came_while_its_connection_was_down(told, fresh_server):
    bus, events = told
    values = Values()
    await put(bus, "another", b"0")
    await bus.watch_entry(MODE, "k", values)
    while not await bus.jetstream.consumers_info(f"KV_{MODE}"):
        await asyncio.sleep(0.01)
    other = await connect(quick(fresh_server.url), "gitops", ignore_events)
    bus._client._transport.close()
    for value in (b"1", b"2"):
        await put(other, "k", value)
    await events.until(heard_event("reconnected"))
    await values.until_values(b"1", b"2")
    await other.close()


async def test_what_fails_a_watchers_handler_again_and_again_is_told_once(told):
    bus, events = told
    values, refusals = Values(), [BusError("no audit")] * 5

    async def fragile(entry: Entry) -> None:
        if refusals:
            raise refusals.pop()
        await values(entry)

    await bus.watch_entry(MODE, "k", fragile)
    await put(bus, "k", b"1")
    await values.until_values(b"1")
    errors = [detail for event, detail in events.items if event == "error"]
    assert errors == [f"entry {MODE}/k: BusError: no audit"]
    assert len(await bus.jetstream.consumers_info(f"KV_{MODE}")) == 1


async def test_a_watcher_whose_consumer_was_deleted_makes_another_and_misses_nothing(told, node):
    bus, _ = told
    values = Values()
    await bus.watch_entry(MODE, "k", values)
    await put(bus, "k", b"1")
    await values.until_values(b"1")
    for consumer in await bus.jetstream.consumers_info(f"KV_{MODE}"):
        await bus.jetstream.delete_consumer(f"KV_{MODE}", consumer.name)
    for value in (b"2", b"3"):
        await put(bus, "k", value)
    await values.until_values(b"1", b"2", b"3")


async def test_a_watcher_waits_for_a_bucket_that_is_not_there_yet_and_says_so_once(told, node):
    bus, events = told
    values = Values()
    await bus.watch_entry("later", "k", values)
    await events.until(heard_event("error"))
    await bus.jetstream.create_key_value(bucket="later")
    await (await bus.jetstream.key_value("later")).put("k", b"1")
    await values.until_values(b"1")
    errors = [detail for event, detail in events.items if event == "error"]
    assert len(errors) == 1
    assert errors[0].startswith("entry later/k: NotFoundError")


async def test_what_no_stream_stores_is_told_to_who_wants_it_stored(told, node):
    bus, _ = told
    with pytest.raises(BusError, match=rf"{AUDIT}: nowhere\.at\.all was not stored \(NoStreamResponseError"):
        await bus.publish_stored("nowhere.at.all", b"x", msg_id="1", stream=AUDIT)
    with pytest.raises(BusError, match=f"{AUDIT}: .* was not stored .*expected stream does not match"):
        await bus.publish_stored(subject("state", node), b"x", msg_id="2", stream=AUDIT)


async def test_while_disconnected_nothing_is_stored_and_nothing_arrives_later(told, fresh_server, node):
    bus, events = told
    await lose(fresh_server, keep_store=True)
    await events.until(heard_event("disconnected"))
    with pytest.raises(BusDown, match=r"not connected to nats://127\.0\.0\.1"):
        await bus.publish_stored(subject("verdict", node), b"stale", msg_id="1", stream=AUDIT)


async def test_a_stream_that_let_go_of_its_oldest_says_since_when_it_is_whole(told, node):
    bus, _ = told
    where = subject("state", node)
    for number in range(3):
        await bus.publish_stored(where, b"%d" % number, msg_id=str(number), stream=STATE)
    times = [item.stored_ns for item in await bus.stored(STATE, where, 3)]
    await bus.jetstream.purge_stream(STATE, seq=2)
    assert abs(await bus.kept_since_ns(STATE) - times[1]) < 10_000
    await bus.jetstream.purge_stream(STATE)
    assert abs(time.time_ns() - 7 * 86_400 * 10**9 - await bus.kept_since_ns(STATE)) < 60 * 10**9
    with pytest.raises(BusError, match="NOSUCH: its oldest message cannot be read"):
        await bus.kept_since_ns("NOSUCH")


async def test_what_a_stream_has_let_go_of_is_not_read(told, node):
    bus, _ = told
    where = subject("state", node)
    assert await bus.extent(STATE) == (1, 0)
    for number in range(1, 11):
        await bus.publish_stored(where, b"%d" % number, msg_id=str(number), stream=STATE)
    await bus.jetstream.purge_stream(STATE, seq=4)
    await bus.jetstream.delete_msg(STATE, 7)
    assert await bus.extent(STATE) == (4, 10)
    assert [item.sequence for item in (await bus.kept(STATE, ">", 1, 10)).messages] == [4, 5, 6, 8, 9, 10]
    assert [item.sequence for item in (await bus.kept(STATE, where, 2, 8)).messages] == [4, 5, 6, 8]
    assert (await bus.next_kept(STATE, ">", 7)).sequence == 8
    await bus.jetstream.purge_stream(STATE)
    assert await bus.extent(STATE) == (11, 10)
    assert await bus.kept(STATE, ">", 1, 10) == ([], 10)
    assert await bus.next_kept(STATE, ">", 1) is None


async def test_the_largest_message_is_read_whole(told, node):
    bus, _ = told
    payload = os.urandom(1_000_000)
    await bus.publish_stored(subject("state", node), payload, msg_id="1", stream=STATE)
    assert (await bus.kept(STATE, ">", 1, 1)).messages[0].payload == payload


async def test_a_server_that_does_not_answer_is_no_empty_stream(told, fresh_server, node):
    bus, events = told
    await bus.publish_stored(subject("state", node), b"1", msg_id="1", stream=STATE)
    await lose(fresh_server, keep_store=True)
    await events.until(heard_event("disconnected"))
    for reading in (bus.extent(STATE), bus.kept(STATE, ">", 1, 1), bus.next_kept(STATE, ">", 1)):
        with pytest.raises(BusError, match=f"{STATE}: .*check that the server answers"):
            await reading


async def test_na_01_a_consumer_that_was_deleted_comes_back_and_misses_nothing(told, node):
    bus, events = told
    where, inbox = subject("reward", node), Inbox()
    await bus.consume(AUDIT, "learner", where, inbox)
    await bus.publish(where, b"1")
    await inbox.until(lambda got: got == [b"1"])
    await bus.jetstream.delete_consumer(AUDIT, "learner")
    for number in range(2, 6):
        await bus.publish(where, b"%d" % number)
    await inbox.until(lambda got: b"5" in got)
    assert list(dict.fromkeys(inbox.items)) == [b"1", b"2", b"3", b"4", b"5"]
    assert heard_event("gap")(events.items)


async def test_na_01_streams_come_back_even_if_jetstream_is_not_ready_at_once(told, fresh_server, node, monkeypatch):
    bus, events = told
    real, refusals = runtime.nats_bus.ensure_streams, [BusError("streams: not yet"), BusError("streams: not yet")]

    async def slow_to_wake(js) -> None:
        if refusals:
            raise refusals.pop()
        await real(js)

    monkeypatch.setattr(runtime.nats_bus, "ensure_streams", slow_to_wake)
    await lose(fresh_server, keep_store=False)
    await fresh_server.start()
    await events.until(heard_event("reconnected"))
    await stored(bus, subject("reward", node), b"x")
    assert ("error", "streams: not yet") in events.items


async def test_no_answer_is_not_an_empty_history(fresh_server, node):
    bus = await connect(quick(fresh_server.url, request_timeout_seconds=0.2), "asker", ignore_events)
    fresh_server.child.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, fresh_server.child.process.pid, os.WSTOPPED | os.WNOWAIT)  # until its last thread stands still
    try:
        with pytest.raises(BusError, match=f"{AUDIT}: .* cannot be read"):
            await bus.last(AUDIT, subject("verdict", node), 200)
    finally:
        fresh_server.child.process.send_signal(signal.SIGCONT)
        await bus.close()


async def test_one_of_several_addresses_is_enough(nats_server, node):
    bus = await connect(quick(f"nats://127.0.0.1:{free_port()}, {nats_server.url}"), "several", ignore_events)
    assert bus.connected
    await bus.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


# ---- NATS only: connections that never come to be -----------------------------------------------------------------


class ServerWithUser(EmbeddedServer):
    """Wants a user and a password."""

    def _config(self) -> str:
        return super()._config() + "authorization { user: me, password: hunter2 }\n"


async def refusal(settings: BusSettings, kind: type[BusError] | type[ConfigError] = BusUnreachable) -> str:
    with pytest.raises(kind) as caught:
        await connect(settings, "refused", ignore_events)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


async def test_no_server_is_one_line_with_address_time_reason_and_way_out():
    port = free_port()
    text = await refusal(quick(f"nats://me:hunter2@127.0.0.1:{port}", connect_timeout_seconds=0.1))
    assert text.startswith(f"bus.url: no NATS server at nats://***@127.0.0.1:{port} within 0.1 s (ConnectionRefused")
    assert text.endswith("start one (nats-server -js), or set --nats-url")


async def test_a_listener_that_never_speaks_is_no_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = await refusal(quick(f"nats://127.0.0.1:{silent.getsockname()[1]}", connect_timeout_seconds=0.1))
    assert "within 0.1 s (no answer)" in text


@pytest.mark.parametrize("url", ["nats://[::1", "nats://h:port", "nats://", "http://127.0.0.1:1,ws://127.0.0.1:1"])
async def test_an_address_that_is_none_is_told_at_once(url):
    assert url in await refusal(quick(url))


@pytest.mark.parametrize("credentials", [{}, {"user": "me", "password": "wrong"}, {"token": "wrong"}])
@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_wrong_credentials_are_told_without_being_shown(tmp_path, credentials):
    server = ServerWithUser(tmp_path)
    try:
        url = await server.start()
        text = await refusal(quick(url, connect_timeout_seconds=0.3, **credentials))
        assert "wrong" not in text
        if credentials:
            assert "refuses these credentials" in text
            assert "set bus.nkey_seed_file, bus.credentials_file, bus.user and bus.password, or bus.token" in text
        right = {"user": "me", "password": "hunter2"}
        bus = await connect(quick(url, **right), "right", ignore_events)
        await bus.close()
    finally:
        await server.stop()


@pytest.mark.parametrize("setting", ["nkey_seed_file", "credentials_file"])
async def test_a_missing_credentials_file_or_package_is_told(nats_server, setting):
    with pytest.raises((ConfigError, BusUnreachable)) as caught:
        await connect(quick(nats_server.url, **{setting: "/no/such/file"}), "nkeys", ignore_events)
    assert len(str(caught.value).splitlines()) == 1


async def test_a_server_without_jetstream_is_told_with_the_way_out(tmp_path):
    class Plain(EmbeddedServer):
        def _config(self) -> str:
            return re.sub(r"jetstream \{.*?\}\n", "", super()._config(), flags=re.DOTALL)

    server = Plain(tmp_path)
    try:
        url = await server.start()
        text = await refusal(quick(url), BusError)
        assert text.startswith("streams: ")
        assert "JetStream" in text
        bus = await connect(quick(url, declare_streams=False), "plain", ignore_events)
        assert await bus.last(AUDIT, subject("verdict", "n"), 3) == []
        await bus.close()
    finally:
        await server.stop()


async def test_a_server_that_ends_it_for_good_is_told_as_closed():
    expire = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true}\r\n')
        while (await reader.readline()).strip() != b"PING":
            pass
        writer.write(b"PONG\r\n")
        await expire.wait()
        writer.write(b"-ERR 'User Authentication Expired'\r\n")
        await reader.read()
        writer.close()

    events: Heard[Event] = Heard()
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    bus = await connect(quick(url, declare_streams=False), "x", lambda event, detail: events.add((event, detail)))
    expire.set()
    await events.until(heard_event("closed"))
    assert not bus.connected
    assert "user authentication expired" in dict(events.items)["closed"].lower()
    await bus.close()
    listener.close()
    await listener.wait_closed()


# ---- NATS only: users and TLS --------------------------------------------------------------------------------------


@dataclass
class Realm:
    """A server that knows the generated users and speaks TLS only."""

    url: str
    folder: Path

    def settings(self, role: str) -> BusSettings:
        fields = {name: value for name, value in self.fields(role).items() if name != "url"}
        return quick(self.url, **fields)

    def fields(self, role: str) -> dict[str, object]:
        return {
            "url": self.url,
            "nkey_seed_file": str(self.folder / f"{role}.seed"),
            "inbox_prefix": f"_INBOX_{role}",
            "tls_ca_file": str(self.folder / "ca.pem"),
            "declare_streams": False,
            "request_timeout_seconds": 0.5,
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def realm(tmp_path_factory) -> AsyncIterator[Realm]:
    base = tmp_path_factory.mktemp("realm")
    assert await asyncio.to_thread(main, ["creds", "init", str(base / "creds")]) == 0
    server = EmbeddedServer(base / "nats", access=base / "creds" / "access.conf")
    url = await server.start()
    assert await asyncio.to_thread(main, ["creds", "declare", str(base / "creds"), "--nats-url", url]) == 0
    yield Realm(url, base / "creds")
    await server.stop()


ORDERS_ARE_THE_OPERATORS = (
    "orders are given with the operator's credential (operator.seed), by the guard with its own; "
    "`trimtab creds show DIR` lists what each credential may do"
)


@pytest.mark.parametrize("role", ["auditor", "collector", "decider", "actuator", "rewarder", "admin"])
async def test_an_order_that_is_not_permitted_says_whose_orders_are(realm, role):
    bus = await connect(realm.settings(role), "orders", ignore_events)
    where = subject("command", "a")
    with pytest.raises(BusError) as told:
        await bus.publish_stored(where, b"x", msg_id=role, stream=ORDERS)
    assert str(told.value) == (
        f"{ORDERS}: {where} was not stored: this credential may not publish to {where}; {ORDERS_ARE_THE_OPERATORS}"
    )
    await bus.close()


async def test_orders_that_may_not_be_read_are_told_with_whose_they_are_and_without_all_of_the_api(realm):
    operator = await connect(realm.settings("operator"), "orders", ignore_events)
    await operator.publish_stored(subject("command", "a"), b"x", msg_id="1", stream=ORDERS)
    await operator.close()
    for role, refused in (("auditor", r"consumer\.create\.\S+"), ("rewarder", r"stream\.info\.trimtab_orders")):
        bus = await connect(realm.settings(role), "orders", ignore_events)
        with pytest.raises(BusError) as told:
            await bus.stored(ORDERS, subject("command", "a"), 1)
        assert re.fullmatch(
            rf"{ORDERS}: trimtab\.v1\.command\.a cannot be read \(\S*TimeoutError: nats: timeout\); "
            rf"this credential may not publish to \$js\.api\.{refused}; {re.escape(ORDERS_ARE_THE_OPERATORS)}",
            str(told.value),
        )
        await bus.close()


async def test_what_else_may_not_be_read_names_the_list_of_permissions(realm):
    bus = await connect(realm.settings("rewarder"), "reader", ignore_events)
    for read in (bus.stored(AUDIT, subject("verdict", "a"), 1), bus.kept_since_ns(AUDIT)):
        with pytest.raises(BusError) as told:
            await read
        assert str(told.value).endswith(
            "; this credential may not publish to $js.api.stream.info.trimtab_audit; "
            "`trimtab creds show DIR` lists what each credential may do"
        )
    await bus.close()


async def test_verbs_over_tls_say_what_they_have_to_say_and_nothing_of_asyncio(realm, tmp_path):
    config = tmp_path / "trimtab.yaml"
    config.write_text(json.dumps({"version": 1, "bus": realm.fields("operator")}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "freeze", "why", "--node", "b", "--wait", "0", "--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert err.decode() == ("trimtab freeze: b: no guard was heard within 0 s; the order holds when one starts\n")


async def test_what_else_asyncio_warns_of_is_still_said(realm, caplog):
    bus = await connect(realm.settings("operator"), "quiet", ignore_events)
    await bus.close()
    logging.getLogger("asyncio").warning("Executing %s took 3 seconds", "something")
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == [
        "Executing something took 3 seconds"
    ]


async def test_importing_the_bus_leaves_aiohttp_to_those_who_want_it():
    code = "import runtime.nats_bus, sys; assert not sys.modules.get('aiohttp'); import aiohttp"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
