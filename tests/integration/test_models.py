"""A decider on a real server that starts anew goes on from its stored model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from cli.__main__ import main
from runtime.bus import Received
from runtime.clock import SystemClock
from runtime.health import Health
from runtime.lifecycle import Context
from runtime.logs import get_log
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import AUDIT, MODELS, ORDERS
from schemas.codec import decode_as, encode
from schemas.messages import Action, AnyMessage, Command
from schemas.subjects import message_id, node_token, subject, subject_of
from services.decider.config import DeciderConfig
from services.decider.core.model import Model, decode_model, encode_model
from services.decider.service import DeciderService
from tests.support import builders
from tests.support.builders import BATCH, CRITICAL, DEFAULT, class_state
from tests.support.harness import config_of
from tests.support.heard import DEADLINE_SECONDS, Heard

OF_ARM = {CRITICAL: 1000, DEFAULT: 316, BATCH: 100}
NEED = {f"{CRITICAL}.{name}": value for name, value in (("cpu_ratio", 0.3), ("latency_missing", 0.0))}


class Stage:
    """One node on a real server, and a visitor that plays the others."""

    def __init__(self, url: str, node: str, bus: NatsBus) -> None:
        self.url, self.node, self.bus = url, node, bus
        self.actions: Heard[Action] = Heard()

    @asynccontextmanager
    async def decider(self, run: str) -> AsyncIterator[Context]:
        """A decider's whole life, from its connection to its orderly end."""
        config = config_of("decider", DeciderConfig, {"node": self.node, "decider.seed": 7})
        bus = await connect(BusSettings(url=self.url), "decider", ignore_events)
        metrics, log, clock = CommonMetrics("decider"), get_log("decider", node=self.node), SystemClock()
        health = Health(stall_seconds=60.0, last_beat=clock.monotonic())
        context = Context(config, Messenger(bus, self.node, metrics, clock, log), metrics, health, clock, log, run)
        service = DeciderService(context)
        await service.start()
        await bus._client._flush_pending(force_flush=True)  # else the PING would overtake the subscriptions
        await bus._client.flush()
        running = asyncio.create_task(service.run())
        try:
            yield context
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await service.stop()
            await context.messenger.stop()
            await bus.close()

    async def store(self, message: AnyMessage, stream: str) -> None:
        await self.bus.publish_stored(subject_of(message), encode(message), msg_id=message_id(message), stream=stream)

    async def teach(self, *cycles: int) -> None:
        for cycle in cycles:
            made = builders.reward(cycle=cycle, arm="lc10-d3-b1", weights=OF_ARM, value=0.1 * cycle, features=NEED)
            await self.store(msgspec.structs.replace(made, node=self.node), AUDIT)

    async def ask(self, cycle: int) -> Action:
        """What the decider makes of a cycle."""
        classes = {name: class_state(weight=weight) for name, weight in OF_ARM.items()}
        made = builders.state(cycle=cycle, features=NEED, classes=classes)
        await self.bus.publish(subject("state", self.node), encode(msgspec.structs.replace(made, node=self.node)))
        return (await self.actions.until(lambda got: bool(got) and got[-1].cycle == cycle))[-1]

    async def models(self) -> list[Model]:
        """What is stored, oldest first."""
        names = await self.bus.list_objects(MODELS, node_token(self.node))
        raw = [(await self.bus.get_object(MODELS, name) or b"", name.partition("/")[2]) for name in names]
        return [decode_model(payload, digest) for payload, digest in raw]


async def until_learned(context: Context, lessons: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        name, labels = "trimtab_decider_updates_total", {"policy": "linucb"}
        while context.metrics.registry.get_sample_value(name, labels) != lessons:
            await asyncio.sleep(0)


@asynccontextmanager
async def stage(url: str, node: str) -> AsyncIterator[Stage]:
    bus = await connect(BusSettings(url=url), "visitor", ignore_events)
    made = Stage(url, node, bus)

    async def hear(received: Received) -> None:
        made.actions.add(decode_as(received.payload, Action))

    await bus.subscribe(subject("action", node), hear)
    try:
        yield made
    finally:
        await bus.close()


def told(action: Action) -> tuple[object, ...]:
    return action.arm, action.scores, action.propensities, action.context, action.policy_updates


async def test_a_decider_that_starts_anew_decides_as_one_that_never_stopped(nats_server, node):
    async with stage(nats_server.url, node) as restarted, stage(nats_server.url, f"whole.{node}") as whole:
        async with whole.decider("whole") as running:
            await whole.ask(1)
            await whole.teach(*range(1, 7))
            await until_learned(running, 6)
            expected = [await whole.ask(cycle) for cycle in (2, 3)]
        async with restarted.decider("first") as running:
            await restarted.ask(1)
            await restarted.teach(1, 2, 3)
            await until_learned(running, 3)
        await restarted.teach(4, 5)  # while nobody listens
        async with restarted.decider("second") as running:
            await until_learned(running, 2)
            await restarted.teach(6)
            await until_learned(running, 3)
            found = [await restarted.ask(cycle) for cycle in (2, 3)]
        assert [told(action) for action in found] == [told(action) for action in expected]
        (begun, *_) = [model for model in await restarted.models() if model.run == "second"]
        assert (found[0].model, found[0].lessons) == (encode_model(begun)[0], 1)
        assert (begun.why, begun.lessons) == ("start", 2)


async def test_an_order_is_obeyed_live_and_is_not_obeyed_again_after_a_restart(nats_server, node):
    async with stage(nats_server.url, node) as made:
        async with made.decider("first") as running:
            fresh = encode_model((await made.models())[0])[0]
            await made.teach(1, 2)
            await until_learned(running, 2)
            fields = {"node": node, "boot": "operator", "cycle": 0, "at": 1, "verb": "model", "id": "o1"}
            await made.store(Command(**fields, by="jo", reason="it learned rubbish", model=fresh), ORDERS)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while [model.why for model in await made.models()][-1] != "order":
                    await asyncio.sleep(0)
            action = await made.ask(1)
            assert (action.policy_updates, action.lessons) == (0, 0)
            assert action.event == f"goes on from {fresh[:12]} on the word of jo: it learned rubbish"
        async with made.decider("second"):
            action = await made.ask(2)
            assert (action.policy_updates, action.event) == (0, None)


async def test_people_list_show_promote_and_roll_back(nats_server, node, capsys):
    flags = ["--nats-url", nats_server.url, "--node", node]

    async def verb(*words: str, code: int = 0) -> str:
        asking = asyncio.create_task(asyncio.to_thread(main, ["models", *words, *flags]))
        while not asking.done():  # the loop goes on meanwhile
            await made.ask(len(made.actions.items) + 1)
        told = capsys.readouterr()
        assert await asking == code, told.err
        return told.out

    async with stage(nats_server.url, node) as made, made.decider("first") as running:
        fresh = encode_model((await made.models())[0])[0]
        await made.teach(1, 2)
        await until_learned(running, 2)
        listed = json.loads(await verb("list", "-o", "json"))
        assert [(row["digest"], row["why"], row["fits"]) for row in listed] == [(fresh, "start", "yes")]
        dry = await verb("promote", fresh[:8], "--reason", "a test", "--dry-run")
        assert fresh in dry
        assert len(await made.models()) == 1
        assert "in_force" in await verb("promote", fresh[:8], "--reason", "a test")
        assert (await made.ask(len(made.actions.items) + 1)).policy_updates == 0
        assert "in_force" in await verb("rollback", "--reason", "it was better")
        assert (await made.ask(len(made.actions.items) + 1)).policy_updates == 2
        shown = json.loads(await verb("show", fresh[:8], "-o", "json"))[0]
        assert (shown["digest"], shown["policies"][0]["policy"]) == (fresh, "linucb")
        assert "refused" not in await verb("list")
    assert await asyncio.to_thread(main, ["models", "list", *flags[:2], "--node", "nobody.test"]) == 1
    assert "no model is stored" in capsys.readouterr().err
