"""Streams and buckets on a real server: declared once, by whoever comes first, and kept as declared."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import APIError

import runtime.streams
from runtime.errors import BusError
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import (
    AUDIT,
    KEY_VALUES,
    MODELS,
    MOST_OBJECT_BYTES,
    OBJECTS,
    ORDERS,
    STATE,
    STREAMS,
    ensure_streams,
)
from schemas.subjects import KINDS, subject

DAY = 86_400.0


@pytest.fixture
async def bus(fresh_server) -> AsyncIterator[NatsBus]:
    made = await connect(BusSettings(url=fresh_server.url, declare_streams=False), "owner", ignore_events)
    yield made
    await made.close()


async def names(bus: NatsBus) -> set[str]:
    return {str(info.config.name) for info in await bus.jetstream.streams_info()}


EVERYTHING = {STATE, AUDIT, ORDERS, *(f"KV_{name}" for name in KEY_VALUES), *(f"OBJ_{name}" for name in OBJECTS)}


async def test_connecting_declares_nothing_where_an_operator_owns_the_streams(bus):
    assert await names(bus) == set()


async def test_many_processes_at_once_declare_everything_once(fresh_server, bus):
    buses = await asyncio.gather(
        *(connect(BusSettings(url=fresh_server.url), f"service-{i}", ignore_events) for i in range(6))
    )
    assert await names(bus) == EVERYTHING
    await asyncio.gather(*(ensure_streams(one.jetstream) for one in buses))
    assert await names(bus) == EVERYTHING
    await asyncio.gather(*(one.close() for one in buses))


async def test_the_limits_are_as_declared(bus):
    await ensure_streams(bus.jetstream)
    state = (await bus.jetstream.stream_info(STATE)).config
    audit = (await bus.jetstream.stream_info(AUDIT)).config
    orders = (await bus.jetstream.stream_info(ORDERS)).config
    assert state.subjects == ["trimtab.v1.state.*"]
    assert set(audit.subjects) == {f"trimtab.v1.{kind}.*" for kind in KINDS if kind not in ("state", "command")}
    assert orders.subjects == ["trimtab.v1.command.*"]
    assert (orders.max_age or 0, orders.max_bytes, orders.max_msgs_per_subject) == (0, -1, 10_000)
    assert (state.max_age, state.max_bytes) == (7 * DAY, 1 << 30)
    assert (audit.max_age, audit.max_bytes) == (90 * DAY, 2 << 30)
    for config in (state, audit, orders):
        assert config.storage == StorageType.FILE
        assert config.discard == DiscardPolicy.OLD
        assert config.duplicate_window == 120.0
        assert config.metadata["schema"] == "v1"
    assert (state.deny_delete, state.deny_purge) == (False, False)
    assert (audit.deny_delete, audit.deny_purge) == (True, True)
    assert (orders.deny_delete, orders.deny_purge) == (True, True)


def test_every_kind_belongs_to_exactly_one_stream():
    assert sorted(kind for stream in STREAMS for kind in stream.kinds) == sorted(KINDS)


async def test_the_audit_refuses_purge_and_delete_and_keeps_what_it_has(bus, node):
    await ensure_streams(bus.jetstream)
    js = bus.jetstream
    await js.publish(subject("verdict", node), b"evidence")
    with pytest.raises(APIError):
        await js.purge_stream(AUDIT)
    with pytest.raises(APIError):
        await js.purge_stream(AUDIT, subject=subject("verdict", node))
    with pytest.raises(APIError):
        await js.delete_msg(AUDIT, 1)
    assert await bus.last(AUDIT, subject("verdict", node), 5) == [b"evidence"]


async def test_the_audit_stays_append_only_for_good(bus):
    await ensure_streams(bus.jetstream)
    config = (await bus.jetstream.stream_info(AUDIT)).config
    with pytest.raises(APIError):
        await bus.jetstream.update_stream(config.evolve(deny_purge=False, deny_delete=False))


async def test_limits_that_differ_are_set_again_and_what_the_operator_added_stays(bus):
    await bus.jetstream.add_stream(
        StreamConfig(
            name=AUDIT,
            description="ours",
            subjects=["trimtab.v1.action.*"],
            max_bytes=1 << 20,
            max_age=60.0,
            max_msg_size=2_000_000,
            metadata={"team": "sre"},
        )
    )
    await ensure_streams(bus.jetstream)
    config = (await bus.jetstream.stream_info(AUDIT)).config
    assert len(config.subjects) == 4
    assert (config.max_age, config.max_bytes) == (90 * DAY, 2 << 30)
    assert (config.deny_delete, config.deny_purge) == (True, True)
    assert (config.description, config.max_msg_size, config.metadata["team"]) == ("ours", 2_000_000, "sre")


async def test_an_audit_that_had_the_orders_once_gives_them_to_their_own_stream(bus, node):
    old = STREAMS[1].config()
    await bus.jetstream.add_stream(old.evolve(subjects=[*(old.subjects or []), "trimtab.v1.command.*"]))
    await ensure_streams(bus.jetstream)
    await bus.publish_stored(subject("command", node), b"order", msg_id="1", stream=ORDERS)
    assert await bus.last(ORDERS, subject("command", node), 5) == [b"order"]
    assert "trimtab.v1.command.*" not in (await bus.jetstream.stream_info(AUDIT)).config.subjects


async def test_a_busy_node_pushes_no_order_of_a_quiet_one_out(bus):
    js = bus.jetstream
    await js.add_stream(STREAMS[2].config().evolve(max_msgs_per_subject=3))
    await bus.publish_stored(subject("command", "quiet"), b"freeze", msg_id="q", stream=ORDERS)
    for number in range(10):
        await bus.publish_stored(subject("command", "busy"), b"%d" % number, msg_id=f"{number}", stream=ORDERS)
    assert await bus.last(ORDERS, subject("command", "quiet"), 5) == [b"freeze"]
    assert await bus.last(ORDERS, subject("command", "busy"), 5) == [b"7", b"8", b"9"]


async def test_a_second_declaration_changes_nothing(bus):
    await ensure_streams(bus.jetstream)
    before = [(await bus.jetstream.stream_info(name)).config for name in (STATE, AUDIT, ORDERS)]
    await ensure_streams(bus.jetstream)
    assert [(await bus.jetstream.stream_info(name)).config for name in (STATE, AUDIT, ORDERS)] == before


async def test_a_refusal_is_one_line_with_the_servers_words_and_the_way_out(bus, monkeypatch):
    monkeypatch.setattr(runtime.streams, "_PAUSES_SECONDS", (0.0,))
    await bus.jetstream.add_stream(StreamConfig(name="OTHER", subjects=["trimtab.v1.>"]))
    with pytest.raises(BusError) as caught:
        await ensure_streams(bus.jetstream)
    text = str(caught.value)
    assert text.startswith("streams: the server refused: ")
    assert "overlap" in text
    assert len(text.splitlines()) == 1


async def test_the_mode_and_the_models_have_a_place(bus):
    await ensure_streams(bus.jetstream)
    mode = await bus.jetstream.key_value("trimtab-mode")
    await mode.put("node-1", b"frozen")
    assert (await mode.get("node-1")).value == b"frozen"
    models = await bus.jetstream.object_store("trimtab-models")
    await models.put("m", b"weights")
    assert (await models.get("m")).data == b"weights"


async def test_models_have_their_own_room_unless_an_operator_gave_them_another(bus):
    js, stream = bus.jetstream, f"OBJ_{MODELS}"
    await ensure_streams(js)
    assert (await js.stream_info(stream)).config.max_bytes == MOST_OBJECT_BYTES
    for before, after in ((-1, MOST_OBJECT_BYTES), (4096, 4096)):
        config = (await js.stream_info(stream)).config
        await js.update_stream(config.evolve(max_bytes=before))
        await ensure_streams(js)
        assert (await js.stream_info(stream)).config.max_bytes == after
    with pytest.raises(BusError, match=r"was not stored \(\w+"):
        await bus.put_object(MODELS, "node-1/a", b"x" * 5000)
    await bus.publish_stored("trimtab.v1.command.node-1", b"order", msg_id="1", stream=ORDERS)  # has its own
