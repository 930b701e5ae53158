"""Objects of a bucket, on both buses and for the standard client."""

import base64
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import runtime.nats_bus_objects
from runtime.bus import Bus, split_name
from runtime.errors import BusError
from runtime.memory_bus import MemoryBus
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import MODELS

STREAM = f"OBJ_{MODELS}"


@pytest_asyncio.fixture
async def nats_bus(nats_server) -> AsyncIterator[NatsBus]:
    made = await connect(BusSettings(url=nats_server.url), "test", ignore_events)
    yield made
    await made.close()


@pytest_asyncio.fixture(params=["memory", "nats"])
async def bus(request, nats_server) -> AsyncIterator[Bus]:
    on_nats = request.param == "nats"
    made = await connect(BusSettings(url=nats_server.url), "test", ignore_events) if on_nats else MemoryBus()
    yield made
    await made.close()


@pytest.fixture
def folder() -> str:
    return f"f{os.urandom(4).hex()}"


async def test_what_was_put_is_there_by_its_name_in_the_order_in_which_it_was_put(bus, folder):
    for name, payload in (("b", b"first"), ("a", b"second"), ("c", b"third")):
        await bus.put_object(MODELS, f"{folder}/{name}", payload)
    await bus.put_object(MODELS, f"{folder}x/a", b"another's")
    assert await bus.list_objects(MODELS, folder) == [f"{folder}/{name}" for name in "bac"]
    assert set(await bus.list_objects(MODELS, "")) >= {f"{folder}/a", f"{folder}x/a"}
    assert await bus.get_object(MODELS, f"{folder}/a") == b"second"
    await bus.put_object(MODELS, f"{folder}/b", b"first, again")
    assert await bus.list_objects(MODELS, folder) == [f"{folder}/{name}" for name in "acb"]
    assert await bus.get_object(MODELS, f"{folder}/b") == b"first, again"


async def test_what_was_deleted_is_gone_and_nothing_else(bus, folder):
    for name in "abb":
        await bus.put_object(MODELS, f"{folder}/{name}", name.encode())
    for name in ("b", "never"):
        await bus.delete_object(MODELS, f"{folder}/{name}")
    assert await bus.list_objects(MODELS, folder) == [f"{folder}/a"]
    assert await bus.get_object(MODELS, f"{folder}/b") is None
    assert await bus.list_objects(MODELS, f"{folder}y") == []


async def test_the_standard_client_reads_what_we_put_in_several_chunks(nats_bus, folder):
    payload = os.urandom(3 * runtime.nats_bus_objects.CHUNK_BYTES - 1)
    await nats_bus.put_object(MODELS, f"{folder}/big", payload)
    assert await nats_bus.get_object(MODELS, f"{folder}/big") == payload
    standard = await nats_bus.jetstream.object_store(MODELS)
    found = await standard.get(f"{folder}/big")
    assert (found.data, found.info.size, found.info.chunks) == (payload, len(payload), 3)
    await nats_bus.delete_object(MODELS, f"{folder}/big")
    assert f"{folder}/big" not in {info.name for info in await standard.list(ignore_deletes=True)}
    info = await nats_bus.jetstream.stream_info(STREAM, subjects_filter=f"$O.{MODELS}.C.{folder}.>")
    assert not info.state.subjects  # nothing of it is left behind


async def test_what_others_put_and_describe_changes_nothing_of_ours(nats_bus, folder):
    await nats_bus.put_object(MODELS, f"{folder}/a", b"ours")
    js = nats_bus.jetstream
    described = f"$O.{MODELS}.M.{base64.urlsafe_b64encode(f'{folder}/a'.encode()).decode()}"
    for subject in (described, f"$O.{MODELS}.C.{folder}.word.a", f"$O.{MODELS}.C.{os.urandom(4).hex()}"):
        await js.publish(subject, b"{}")
    assert await nats_bus.list_objects(MODELS, folder) == [f"{folder}/a"]
    assert await nats_bus.get_object(MODELS, f"{folder}/a") == b"ours"


async def test_a_bucket_that_is_not_there_is_empty_and_takes_nothing(nats_bus):
    assert await nats_bus.list_objects("no-bucket", "f") == []
    assert await nats_bus.get_object("no-bucket", "f/a") is None
    with pytest.raises(BusError, match=r"no-bucket: f/a was not stored \(NotFoundError"):
        await nats_bus.put_object("no-bucket", "f/a", b"x")


@pytest.mark.parametrize("name", ["", "a", "/a", "a/", "a/b/c", "a.b/c", "a/*", ">/a", "a b/c"])
def test_a_name_that_is_no_two_tokens_is_refused(name):
    with pytest.raises(ValueError, match="is not <folder>/<name>"):
        split_name(name)
