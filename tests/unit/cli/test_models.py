"""The desk for models, and a decider that obeys it, on a bus in memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from cli.model_desk import ModelDesk, newest_first
from runtime.clock import settle
from runtime.errors import TrimtabError
from runtime.memory_bus import MemoryBus
from runtime.streams import MODELS
from schemas.messages import Command
from schemas.subjects import node_token
from services.decider.config import DeciderConfig
from services.decider.service import DeciderService
from tests.support import builders
from tests.support.builders import BATCH, CRITICAL, DEFAULT, NODE, state
from tests.support.harness import harness

FOLDER = node_token(NODE)
SETTINGS = {"decider.seed": 1, "decider.shadows": {"calm": {"policy": "hold"}}}


def reward(cycle):
    weights = {CRITICAL: 1000, DEFAULT: 316, BATCH: 100}
    return builders.reward(arm="lc10-d3-b1", weights=weights, cycle=cycle, value=0.5)


def order(word, id_="o1"):
    fields = {"node": NODE, "boot": "operator", "cycle": 0, "at": 1, "verb": "model", "by": "jo", "reason": "a trial"}
    return Command(**fields, id=id_, model=word)


@asynccontextmanager
async def node_and_desk():
    bus = MemoryBus()
    async with harness("decider", DeciderConfig, DeciderService, SETTINGS, bus=bus) as decider:
        desk = ModelDesk(bus, NODE, "nats://here")
        await desk.listen()
        yield decider, desk


async def give(decider, desk, word, id_="o1"):
    """Gives an order while the loop goes on."""
    giving = asyncio.create_task(desk.give(order(word, id_), 5.0))
    await settle(100)
    await decider.inject(state(cycle=int(id_[1:])))
    return await giving


async def test_an_order_is_in_force_when_an_action_says_that_it_was_obeyed():
    async with node_and_desk() as (decider, desk):
        (first,) = await desk.digests()
        await decider.inject(reward(1))
        assert await give(decider, desk, first) == ("in_force", None)
        newest = (await desk.newest()).model
        assert (newest.why, newest.parent, newest.order) == ("order", first, "o1")


async def test_an_order_that_was_refused_says_why():
    async with node_and_desk() as (decider, desk):
        outcome, detail = await give(decider, desk, "f" * 64)
        assert (outcome, detail) == ("refused", "missing: no model ffffffffffff is stored for this node")


async def test_without_a_decider_or_without_its_word_the_order_is_stored_and_that_is_said():
    bus = MemoryBus()
    desk = ModelDesk(bus, NODE, "nats://here")
    await desk.listen()
    outcome, detail = await desk.give(order("calm"), 0.01)
    assert (outcome, detail) == (
        "no_decider",
        "no action was heard within 0.01 s; the order holds when a decider starts",
    )
    assert len(bus.history) == 1
    await bus.close()


async def test_a_model_is_named_by_how_its_digest_begins_and_a_policy_by_its_name():
    async with node_and_desk() as (_, desk):
        (first,) = await desk.digests()
        assert await desk.word_for(first[:6]) == first
        assert await desk.word_for("calm") == "calm"
        desk.bus.objects[MODELS, f"{FOLDER}/{first[:6]}{'0' * 58}"] = b"x"
        with pytest.raises(TrimtabError, match=r"2 digests begin so; write more of it"):
            await desk.word_for(first[:6])
        with pytest.raises(TrimtabError, match=r"no policy of that name \(calm, linucb\)"):
            await desk.word_for("nobody")


async def test_a_rollback_leads_to_what_was_in_force_before_the_last_order_however_long_ago():
    async with node_and_desk() as (decider, desk):
        (first,) = await desk.digests()
        await decider.inject(reward(1))
        await give(decider, desk, first, "o1")
        ordered = (await desk.newest()).model
        await decider.inject(reward(2))
        await decider.service.stop()  # and more is stored
        assert (await desk.newest()).model.why == "stop"
        target = await desk.before_last_order()
        assert target == ordered.replaced
        assert (await desk.fetch(target)).model.mind.policies["linucb"].updates == 1


async def test_without_an_order_it_leads_to_the_parent_and_without_one_that_is_said():
    async with node_and_desk() as (decider, desk):
        (first,) = await desk.digests()
        with pytest.raises(TrimtabError, match="there was no order of a model"):
            await desk.before_last_order()
        await decider.inject(reward(1))
        await decider.service.stop()
        assert await desk.before_last_order() == first
        del desk.bus.objects[MODELS, f"{FOLDER}/{first}"]
        with pytest.raises(TrimtabError, match="none before the newest one is stored"):
            await desk.before_last_order()


async def test_what_is_damaged_is_passed_over_and_said():
    async with node_and_desk() as (_, desk):
        (first,) = await desk.digests()
        desk.bus.objects[MODELS, f"{FOLDER}/{'a' * 64}"] = b"{"
        assert (await desk.newest()).digest == first
        assert (await desk.fetch("a" * 64)).error.startswith("damaged: its bytes have the digest")
        assert (await desk.fetch("b" * 64)).error == "missing: it is not stored any more"


async def test_a_node_that_has_stored_nothing_is_told():
    desk = ModelDesk(MemoryBus(), "node-9", "nats://here")
    with pytest.raises(TrimtabError, match="node node-9: no model is stored at nats://here"):
        await desk.digests()


def test_the_newest_come_first():
    assert newest_first(["a", "b", "c"], 2) == ["c", "b"]
    assert newest_first(["a", "b", "c"], 9) == ["c", "b", "a"]
