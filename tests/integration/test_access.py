"""Who may do what, tried against a real server with the generated users and TLS."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from cli.__main__ import main
from lab.record.file import read_recording
from lab.record.items import Stored
from lab.record.recorder import new_header, record_now
from lab.replay.made import Plan, make_recording
from lab.rig import Rig, RigOptions
from lab.sim_stage import SimStage
from runtime.bus import Entry, Received
from runtime.bus_login import log_in
from runtime.errors import BusError, BusUnreachable, ConfigError
from runtime.nats_bus import NatsBus, connect
from runtime.nats_server import EmbeddedServer, find_binary
from runtime.nkeys import new_seed
from runtime.settings import BusSettings
from runtime.streams import AUDIT, MODELS, ORDERS, STATE
from schemas.messages import Actuation, AnyMessage, Reward
from tests.integration.test_record import trimtab
from tests.support.heard import Heard

OURS, OTHERS = "worker-1", "worker-2"
SERVICES = ("collector", "decider", "guard", "actuator", "rewarder")
ROLES = (*SERVICES, "operator", "auditor", "admin")
SUBJECTS = {
    "state": "trimtab.v1.state.{}",
    "action": "trimtab.v1.action.{}",
    "verdict": "trimtab.v1.verdict.{}",
    "actuation": "trimtab.v1.actuation.{}",
    "reward": "trimtab.v1.reward.{}",
    "command": "trimtab.v1.command.{}",
    "collect": "trimtab.v1.rpc.collector.{}.collect",
    **{f"heartbeat.{service}": f"trimtab.v1.heartbeat.{service}.{{}}" for service in SERVICES},
}
MAY_SAY = {
    "collector": {"state", "heartbeat.collector"},
    "decider": {"action", "heartbeat.decider"},
    "guard": {"verdict", "command", "heartbeat.guard"},
    "actuator": {"actuation", "heartbeat.actuator"},
    "rewarder": {"reward", "collect", "heartbeat.rewarder"},
    "operator": {"command"},
    "auditor": set(),
    "admin": set(),
}
MAY_HEAR = {
    "collector": {"actuation", "collect"},
    "decider": {"state", "verdict", "command"},
    "guard": {"state", "action", "actuation", "command"},
    "actuator": {"state", "verdict", "command", "heartbeat.guard"},
    "rewarder": {"state", "action", "verdict", "actuation"},
    "operator": set(SUBJECTS),
    "auditor": set(SUBJECTS),
    "admin": set(),
}
SAID_BY = {kind: next(role for role in SERVICES if kind in MAY_SAY[role]) for kind in SUBJECTS}
MAY_CHANGE_WHAT_IS_STORED = [
    "STREAM.CREATE.{}",
    "STREAM.UPDATE.{}",
    "STREAM.DELETE.{}",
    "STREAM.PURGE.{}",
    "STREAM.MSG.DELETE.{}",
    "STREAM.SNAPSHOT.{}",
    "STREAM.RESTORE.{}",
    "CONSUMER.DELETE.{}.trimtab-decider-worker-1",
    "CONSUMER.PAUSE.{}.trimtab-decider-worker-1",
    "CONSUMER.RESET.{}.trimtab-decider-worker-1",
    "CONSUMER.DURABLE.CREATE.{}.any",
    "CONSUMER.CREATE.{}",
    "CONSUMER.CREATE.{}.any",
    "DIRECT.GET.{}",
]
MODEL_STREAM = f"OBJ_{MODELS}"
STREAMS = (STATE, AUDIT, ORDERS, "KV_trimtab-mode", "KV_trimtab-policy", MODEL_STREAM)


async def fence(client: Client) -> None:
    """Returns when the server has acted on all that was sent before, and its answers to that are here."""
    await client._flush_pending(force_flush=True)  # else the PING would overtake what is pending
    await client.flush()


@dataclass
class Visitor:
    """A connection with one credential, and what the server did not let it do."""

    bus: NatsBus
    events: Heard[tuple[str, str]]

    @property
    def client(self) -> Client:
        return self.bus._client

    async def refused(self) -> set[str]:
        """The subjects refused so far, as nats-py tells them: in small letters."""
        await fence(self.client)
        return {detail.split(" to ")[1].split(";")[0] for event, detail in self.events.items if event == "refused"}


@dataclass
class Realm:
    """A server with users, and the folder of their credentials; of one node each, or of all nodes."""

    folder: Path
    url: str
    of_one_node: bool

    def settings(self, role: str, node: str = OURS) -> BusSettings:
        name = f"{role}_{node}" if self.of_one_node and role in SERVICES else role
        return BusSettings(
            url=self.url,
            nkey_seed_file=str(self.folder / f"{name}.seed"),
            inbox_prefix=f"_INBOX_{name}",
            tls_ca_file=str(self.folder / "ca.pem"),
            declare_streams=False,
            connect_timeout_seconds=5.0,
        )

    @asynccontextmanager
    async def visit(self, role: str, node: str = OURS) -> AsyncIterator[Visitor]:
        events: Heard[tuple[str, str]] = Heard()
        bus = await connect(self.settings(role, node), "test", lambda event, detail: events.add((event, detail)))
        try:
            yield Visitor(bus, events)
        finally:
            await bus.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["of one node", "of all nodes"])
async def realm(request, tmp_path_factory) -> AsyncIterator[Realm]:
    base = tmp_path_factory.mktemp("realm")
    folder = base / "creds"
    of_one_node = request.param == "of one node"
    assert main(["creds", "init", str(folder), *(["--node", OURS, "--node", OTHERS] if of_one_node else [])]) == 0
    server = EmbeddedServer(base / "nats", access=folder / "access.conf")
    url = await server.start()
    made = await asyncio.to_thread(main, ["creds", "declare", str(folder), "--nats-url", url])
    assert made == 0
    yield Realm(folder, url, of_one_node)
    await server.stop()


class Ear:
    """A subscription whose messages wait until they are asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscriptions = []

    async def listen(self, *subjects: str) -> None:
        for subject in subjects:
            self._subscriptions.append(await self._client.subscribe(subject))
        await fence(self._client)

    async def heard(self) -> set[str]:
        """Payloads of all that was routed to it before now."""
        await fence(self._client)
        found = set()
        for subscription in self._subscriptions:
            while subscription.pending_msgs:
                found.add((await subscription.next_msg()).data.decode())
        return found


def where(kind: str, node: str = OURS) -> str:
    return SUBJECTS[kind].format(node)


# ---- replays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
async def test_only_an_operator_says_a_replay_and_no_service_hears_one(realm, role):
    subject = f"trimtabsim.night.verdict.{OURS}"
    async with realm.visit("operator") as operator, realm.visit(role) as visitor:
        ear = Ear(visitor.client)
        await ear.listen(subject)
        assert await visitor.refused() == (set() if role in ("operator", "auditor") else {subject})
    async with realm.visit("operator") as operator, realm.visit(role) as visitor:
        ear = Ear(operator.client)
        await ear.listen("trimtabsim.*.*.*")
        await visitor.client.publish(subject, b"again")
        is_refused = await visitor.refused() == {subject}
        assert is_refused == (role != "operator")
        assert await ear.heard() == (set() if is_refused else {"again"})


# ---- the matrix ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
async def test_each_may_say_its_own_kinds_for_its_own_node_and_nothing_else(realm, role):
    nodes = [OURS] if realm.of_one_node and role in SERVICES else [OURS, OTHERS]
    allowed = {where(kind, node) for kind in MAY_SAY[role] for node in nodes}
    everything = {where(kind, node) for kind in SUBJECTS for node in (OURS, OTHERS)}
    async with realm.visit("auditor") as auditor, realm.visit(role) as visitor:
        ear = Ear(auditor.client)
        await ear.listen("trimtab.v1.>")
        for subject in everything:
            await visitor.client.publish(subject, subject.encode())
        assert await visitor.refused() == everything - allowed
        assert await ear.heard() == allowed


@pytest.mark.parametrize("role", ROLES)
async def test_each_hears_what_it_listens_to_and_nothing_else(realm, role):
    nodes = [OURS] if realm.of_one_node and role in SERVICES else [OURS, OTHERS]
    allowed = {where(kind, node) for kind in MAY_HEAR[role] for node in nodes}
    everything = {where(kind, node) for kind in SUBJECTS for node in (OURS, OTHERS)}
    async with realm.visit(role) as visitor:
        ear = Ear(visitor.client)
        await ear.listen(*everything)
        assert await visitor.refused() == everything - allowed
        for node in (OURS, OTHERS):
            for kind, speaker in SAID_BY.items():
                async with realm.visit(speaker, node) as other:
                    await other.client.publish(where(kind, node), where(kind, node).encode())
                    assert await other.refused() == set()
        assert await ear.heard() == allowed


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_reads_what_is_sent_to_others(realm, role):
    own = realm.settings(role).inbox_prefix
    inboxes = {str(realm.settings(other, node).inbox_prefix) for other in ROLES for node in (OURS, OTHERS)} - {own}
    wide = {f"{inbox.lower()}.>" for inbox in inboxes} | {">", "_inbox.>", "$js.>", "$js.ack.>", "$kv.>", "$sys.>"}
    wide |= {"trimtabsim.>", "trimtabsim.run-1.verdict.worker-1", "*.>"}
    async with realm.visit(role) as visitor:
        for subject in [f"{inbox}.>" for inbox in inboxes] + [">", "_INBOX.>", "$JS.>", "$JS.ACK.>", "$KV.>", "$SYS.>"]:
            await visitor.client.subscribe(subject)
        for subject in ("trimtabsim.>", "trimtabsim.run-1.verdict.worker-1", "*.>"):
            await visitor.client.subscribe(subject)
        if role in ("operator", "auditor"):  # who may hear the node may hear what is said again of it
            wide.remove("trimtabsim.run-1.verdict.worker-1")
        assert await visitor.refused() == wide


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
async def test_nobody_but_the_admin_changes_or_removes_what_is_stored(realm, role):
    calls = {f"$JS.API.{call.format(stream)}" for call in MAY_CHANGE_WHAT_IS_STORED for stream in STREAMS}
    calls |= {"$JS.API.ACCOUNT.PURGE.any", "$JS.API.STREAM.CREATE.NEW", "trimtabsim.run-1.verdict.worker-1"}
    calls |= {"$KV.trimtab-policy.worker-1", "$O.trimtab-models.C.x"}
    if role == "decider":
        calls.remove(f"$JS.API.STREAM.PURGE.{MODEL_STREAM}")  # it deletes the models beyond `decider.models_kept`
    if role == "operator":
        calls.remove(
            "trimtabsim.run-1.verdict.worker-1"
        )  # `trimtab replay --publish`: nothing stores it, no service hears it
    async with realm.visit(role) as visitor:
        for call in calls:
            await visitor.client.publish(call, b"{}")
        assert await visitor.refused() == {call.lower() for call in calls}


@pytest.mark.parametrize("role", ["auditor", "operator"])
async def test_who_may_look_may_record_all_that_is_stored(realm, role, tmp_path):
    async with realm.visit("guard") as guard, realm.visit(role) as visitor:
        await guard.bus.publish_stored(where("verdict"), b"judged", msg_id=f"rec.{role}.1", stream=AUDIT)
        await guard.bus.publish_stored(where("command"), b"ordered", msg_id=f"rec.{role}.2", stream=ORDERS)
        for node in (None, OURS):
            path = tmp_path / f"{node}"
            await record_now(visitor.bus, path, new_header(1, [], node=node, since_ns=1))
            recorded = [item.payload for item in read_recording(path).items() if isinstance(item, Stored)]
            assert recorded.count(b"judged") >= 1
            assert recorded.count(b"ordered") >= 1
        assert await visitor.refused() == set()


@pytest.mark.parametrize("role", ["collector", "rewarder"])
async def test_who_may_not_look_is_told_so_when_recording(realm, role, tmp_path):
    async with realm.visit(role) as visitor:
        with pytest.raises(BusError, match=r"this credential may not publish to \S*stream\.info"):
            await record_now(visitor.bus, tmp_path / "a", new_header(1, []))


@pytest.mark.parametrize(("role", "code"), [("operator", 0), ("auditor", 1)])
async def test_a_replay_that_the_server_refuses_to_say_is_no_success(realm, role, code, tmp_path):
    path, config = tmp_path / "made.recording", tmp_path / "trimtab.json"
    await asyncio.to_thread(make_recording, path, Plan(4))
    config.write_text(json.dumps({"bus": msgspec.to_builtins(realm.settings(role))}))
    said = sum(isinstance(item, Stored) for item in read_recording(path).items())
    found, out, err = await trimtab("replay", path, "--publish", "night", "--config", config)
    assert found == code
    assert out.splitlines()[-1].endswith("rewards agree")
    if code == 0:
        assert f"{said} messages published under trimtabsim.night\n" in err
    else:
        words = (
            f"0 messages published under trimtabsim.night; the server REFUSED {said}: this credential may not publish"
        )
        assert words in err


@pytest.mark.parametrize("role", ["collector", "actuator", "rewarder"])
async def test_who_needs_nothing_stored_may_ask_for_nothing(realm, role):
    async with realm.visit(role) as visitor:
        calls = ["INFO", f"STREAM.INFO.{AUDIT}", f"STREAM.MSG.GET.{AUDIT}", f"CONSUMER.MSG.NEXT.{AUDIT}.any"]
        calls += [f"CONSUMER.CREATE.{AUDIT}.any.trimtab.v1.{kind}.{OURS}" for kind in ("verdict", "reward", "command")]
        for call in calls:
            await visitor.client.publish(f"$JS.API.{call}", b"{}")
        assert await visitor.refused() == {f"$js.api.{call}".lower() for call in calls}


async def test_the_admin_makes_changes_and_removes_streams(realm):
    async with realm.visit("admin") as admin:
        js = admin.bus.jetstream
        await js.add_stream(name="OTHER", subjects=["other"])
        await js.update_stream(name="OTHER", subjects=["other", "another"])
        await js.purge_stream("OTHER")
        assert await js.delete_stream("OTHER")
        assert {info.config.name for info in await js.streams_info()} == set(STREAMS)
        assert await admin.refused() == set()


# ---- what each needs works -------------------------------------------------------------------------------------------


async def test_a_decider_learns_from_rewards_and_reads_their_history(realm):
    inbox: Heard[bytes] = Heard()

    async def hear(received: Received) -> None:
        inbox.add(received.payload)

    async with realm.visit("rewarder") as rewarder, realm.visit("decider") as decider:
        consumer = await decider.bus.consume(AUDIT, f"trimtab-decider-{OURS}", where("reward"), hear)
        await rewarder.bus.publish(where("reward"), b"1")
        assert (await inbox.until(bool))[-1] == b"1"
        assert (await decider.bus.last(AUDIT, where("reward"), 1)) == [b"1"]
        await consumer.stop()
        assert await decider.refused() == set()
    async with realm.visit("admin") as admin:  # it was acknowledged, and is not delivered again
        left = await admin.bus.jetstream.consumer_info(AUDIT, f"trimtab-decider-{OURS}")
        assert (left.num_ack_pending, left.num_pending) == (0, 0)
        await admin.bus.jetstream.delete_consumer(AUDIT, f"trimtab-decider-{OURS}")


async def store(visitor: Visitor, kind: str, payload: bytes) -> None:
    """Publishes, and returns when its stream has it."""
    stream = ORDERS if kind == "command" else AUDIT
    await visitor.bus.publish_stored(where(kind), payload, msg_id=os.urandom(8).hex(), stream=stream)


async def test_a_guard_reads_orders_and_verdicts_and_watches_its_entry(realm):
    entries: Heard[bytes | None] = Heard()

    async def see(entry: Entry) -> None:
        entries.add(entry.value)

    async with realm.visit("guard") as guard, realm.visit("operator") as operator:
        watcher = await guard.bus.watch_entry("trimtab-mode", OURS, see)
        await operator.bus.jetstream.publish(f"$KV.trimtab-mode.{OURS}", b"frozen")
        await entries.until(lambda seen: b"frozen" in seen)
        await watcher.stop()
        await store(operator, "command", b"order")
        await store(guard, "verdict", b"verdict")
        assert await guard.bus.last(ORDERS, where("command"), 1) == [b"order"]
        assert await guard.bus.last(AUDIT, where("verdict"), 1) == [b"verdict"]
        assert await guard.bus.kept_since_ns(ORDERS) == 0  # nothing has grown too old yet
        assert (await guard.bus.jetstream.get_last_msg(ORDERS, where("command"))).data == b"order"
        assert await guard.refused() == set()


async def test_an_operator_gives_orders_both_ways_and_reads_what_came_of_them(realm):
    async with realm.visit("actuator") as actuator, realm.visit("operator") as operator:
        await store(operator, "command", b"order")
        await store(actuator, "actuation", b"back")
        assert await operator.bus.last(ORDERS, where("command"), 1) == [b"order"]
        assert await operator.bus.last(AUDIT, where("actuation"), 1) == [b"back"]
        modes = await operator.bus.jetstream.key_value("trimtab-mode")
        await modes.put(OURS, b"shadow")
        assert (await modes.get(OURS)).value == b"shadow"
        assert await actuator.refused() == await operator.refused() == set()


async def test_an_auditor_reads_what_is_stored_and_may_not_have_it_sent_anywhere(realm):
    async with realm.visit("actuator") as actuator, realm.visit("auditor") as auditor:
        js = auditor.bus.jetstream
        await store(actuator, "actuation", b"done")
        assert (await js.get_last_msg(AUDIT, where("actuation"))).data == b"done"
        assert (await js.stream_info(AUDIT)).config.deny_purge
        assert await js.consumers_info(STATE) == []
        assert await auditor.refused() == set()
        call = f"$JS.API.CONSUMER.CREATE.{ORDERS}.any.{where('command')}"
        await auditor.client.publish(call, b"{}")
        await auditor.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{ORDERS}.any", b"1", reply=where("command"))
        assert await auditor.refused() == {call.lower(), f"$js.api.consumer.msg.next.{ORDERS}.any".lower()}


@pytest.mark.parametrize("reader", ["operator", "auditor", "decider"])
async def test_a_decider_keeps_models_that_people_read_and_nobody_else_writes(realm, reader):
    name = f"{OURS}/{os.urandom(8).hex()}"
    async with realm.visit("decider") as decider, realm.visit(reader) as other:
        await decider.bus.put_object(MODELS, name, b"model")
        assert await other.bus.list_objects(MODELS, OURS) == [name]
        assert await other.bus.get_object(MODELS, name) == b"model"
        if reader != "decider":
            chunk = f"$O.{MODELS}.C.{OURS}.0.{os.urandom(4).hex()}"
            for subject in (chunk, f"$O.{MODELS}.M.bmFtZQ=="):
                await other.client.publish(subject, b"forged")
            assert await other.refused() == {chunk.lower(), f"$O.{MODELS}.M.bmFtZQ==".lower()}
        await decider.bus.delete_object(MODELS, name)
        assert await other.bus.list_objects(MODELS, OURS) == []
        assert await decider.refused() == set()


@pytest.mark.parametrize("role", ["collector", "guard", "actuator", "rewarder"])
async def test_other_services_have_no_part_in_models(realm, role):
    calls = {f"$O.{MODELS}.C.{OURS}.1.a", f"$O.{MODELS}.M.YQ=="}
    calls |= {f"$JS.API.{call}.{MODEL_STREAM}" for call in ("STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE")}
    async with realm.visit(role) as visitor:
        for call in calls:
            await visitor.client.publish(call, b"{}")
        assert await visitor.refused() == {call.lower() for call in calls}


async def test_a_decider_writes_no_other_nodes_model_but_one_for_all_nodes_does(realm):
    chunk = f"$O.{MODELS}.C.{OTHERS}.0.{os.urandom(4).hex()}"
    async with realm.visit("decider") as decider:
        await decider.client.publish(chunk, b"poison")
        assert await decider.refused() == ({chunk.lower()} if realm.of_one_node else set())


async def test_a_decider_reads_the_orders_of_its_node(realm):
    async with realm.visit("decider") as decider, realm.visit("operator") as operator:
        await store(operator, "command", b"order")
        assert await decider.bus.last(ORDERS, where("command"), 1) == [b"order"]
        assert await decider.refused() == set()


# ---- stolen subjects -------------------------------------------------------------------------------------------------


async def test_a_decider_that_knows_the_guards_subject_moves_nothing(realm):
    async with realm.visit("actuator") as actuator, realm.visit("decider") as decider:
        heard: Heard[bytes] = Heard()

        async def hear(received: Received) -> None:
            heard.add(received.payload)

        await actuator.bus.subscribe(where("verdict"), hear)
        await fence(actuator.client)
        await decider.bus.publish(where("verdict"), b"forged")
        assert await decider.refused() == {where("verdict")}
        async with realm.visit("guard") as guard:
            await guard.bus.publish(where("verdict"), b"real")
        assert await heard.until(bool) == [b"real"]


async def test_a_decider_cannot_have_a_stream_send_its_actions_as_verdicts(realm):
    async with realm.visit("decider") as decider:
        create = f"$JS.API.CONSUMER.CREATE.{AUDIT}.forger.{where('reward')}"
        for filters in ({"filter_subject": where("action")}, {"filter_subjects": [where("action")]}):
            request = {"stream_name": AUDIT, "config": {"name": "forger", "ack_policy": "none", **filters}}
            answer = await decider.client.request(create, json.dumps(request).encode(), timeout=5)
            assert json.loads(answer.data)["error"]["err_code"] in (10131, 10137)
        await decider.client.publish(f"$JS.API.CONSUMER.CREATE.{AUDIT}.forger.{where('action')}", b"{}")
        assert await decider.refused() == {f"$js.api.consumer.create.{AUDIT}.forger.{where('action')}".lower()}
    async with realm.visit("admin") as admin:
        with pytest.raises(NotFoundError):
            await admin.bus.jetstream.consumer_info(AUDIT, "forger")


async def test_a_decider_cannot_have_a_verdict_that_it_stored_as_an_object_sent_as_one(realm):
    """By no way of making a consumer of the models, nor by the one call that sends a stored message as it is."""
    name, chunks = f"{OURS}/{os.urandom(8).hex()}", f"$O.{MODELS}.C.{OURS}.*.*"
    filters = {"filter_subject": chunks}
    config = {"name": "forger", "ack_policy": "none", "deliver_subject": where("verdict"), **filters}
    request = json.dumps({"stream_name": MODEL_STREAM, "config": config}).encode()
    calls = [f"CONSUMER.CREATE.{MODEL_STREAM}{rest}" for rest in ("", ".forger", f".forger.{chunks}")]
    calls += [f"CONSUMER.DURABLE.CREATE.{MODEL_STREAM}.forger", f"CONSUMER.MSG.NEXT.{MODEL_STREAM}.forger"]
    calls += [f"DIRECT.GET.{MODEL_STREAM}", f"DIRECT.GET.{MODEL_STREAM}.{chunks}"]
    async with realm.visit("actuator") as actuator, realm.visit("decider") as decider:
        ear = Ear(actuator.client)
        await ear.listen(where("verdict"))
        await decider.bus.put_object(MODELS, name, b"forged")
        for call in calls:
            await decider.client.publish(f"$JS.API.{call}", request, reply=where("verdict"))
        assert await decider.refused() == {f"$js.api.{call}".lower() for call in calls}
        assert await ear.heard() == set()
        for stream, held in ((AUDIT, where("reward")), (ORDERS, where("command"))):  # with what it may make of others
            create = f"$JS.API.CONSUMER.CREATE.{stream}.forger.{held}"
            answer = await decider.client.request(
                create, json.dumps({"stream_name": stream, "config": config}).encode(), timeout=5
            )
            assert "error" in json.loads(answer.data)
        read = json.dumps({"last_by_subj": chunks}).encode()  # a read is answered to any subject, but wrapped
        await decider.client.publish(f"$JS.API.STREAM.MSG.GET.{MODEL_STREAM}", read, reply=where("verdict"))
        await fence(decider.client)
        (wrapped,) = await ear.heard()
        assert json.loads(wrapped)["type"].startswith("io.nats.jetstream")
        await decider.bus.delete_object(MODELS, name)
    async with realm.visit("admin") as admin:
        assert await admin.bus.jetstream.consumers_info(MODEL_STREAM) == []


async def test_an_order_that_a_stream_sends_as_a_verdict_is_not_taken(realm):
    heard: Heard[bytes] = Heard()

    async def hear(received: Received) -> None:
        heard.add(received.payload)

    async with realm.visit("operator") as operator, realm.visit("actuator") as actuator:
        await store(operator, "command", b"forged")
        await actuator.bus.subscribe(where("verdict"), hear)
        raw = Ear(actuator.client)
        await raw.listen(where("verdict"))
        config = ConsumerConfig(name="sly", filter_subject=where("command"), deliver_policy="last", ack_policy="none")
        await operator.bus.jetstream.add_consumer(ORDERS, config)
        await operator.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{ORDERS}.sly", b"1", reply=where("verdict"))
        told = await actuator.events.until(lambda events: any(event == "replayed" for event, _ in events))
        assert ("replayed", f"{where('command')}: out of a stream, on {where('verdict')}: not taken") in told
        assert await raw.heard() == {"forged"}  # it did arrive
        assert heard.items == []
    async with realm.visit("admin") as admin:
        await admin.bus.jetstream.delete_consumer(ORDERS, "sly")


async def test_a_refusal_is_told_once_a_connection_and_names_the_subject(realm):
    async with realm.visit("collector") as collector:
        for _ in range(3):
            await collector.bus.publish(where("verdict"), b"")
        await fence(collector.client)
        ((event, detail),) = collector.events.items[1:]
        assert collector.events.items[0][0] == "connected"
        assert (event, detail.partition("; ")[0]) == (
            "refused",
            f"this credential may not publish to {where('verdict')}",
        )
        assert collector.bus.connected


# ---- getting in ------------------------------------------------------------------------------------------------------


async def attempt(settings: BusSettings, **changes: object) -> str:
    """The one line of an attempt to connect that must fail."""
    fields = {field: getattr(settings, field) for field in settings.__struct_fields__}
    wanted = BusSettings(**{**fields, "connect_timeout_seconds": 1.5, "reconnect_wait_seconds": 0.1, **changes})
    with pytest.raises((BusError, ConfigError)) as caught:
        await connect(wanted, "trimtab-guard-worker-1", lambda _event, _detail: None)
    text = str(caught.value)
    assert "\n" not in text
    return text


async def test_a_stranger_is_told_which_key_the_server_does_not_know(realm, tmp_path):
    seed = tmp_path / "stranger.seed"
    seed.write_text(new_seed())
    settings = realm.settings("guard")
    text = await attempt(settings, nkey_seed_file=str(seed))
    known = log_in(BusSettings(nkey_seed_file=str(seed)), "x").public_key
    assert text == (
        f"bus.nkey_seed_file: {realm.url} does not know the key {known}; give the server this user, or name the file "
        f"that the server's configuration was made with"
    )


async def test_after_a_restart_of_the_server_it_is_the_same_visitor_by_the_same_rules(tmp_path):
    folder = tmp_path / "creds"
    assert main(["creds", "init", str(folder)]) == 0
    server = EmbeddedServer(tmp_path / "nats", access=folder / "access.conf")
    realm = Realm(folder, await server.start(), of_one_node=False)
    try:
        async with realm.visit("guard") as guard, realm.visit("auditor") as auditor:
            await server.stop()
            await server.start()
            for visitor in (guard, auditor):
                await visitor.events.until(lambda events: any(event == "reconnected" for event, _ in events))
            ear = Ear(auditor.client)
            await ear.listen("trimtab.v1.>")
            for kind in ("verdict", "action"):
                await guard.bus.publish(where(kind), kind.encode())
            assert await guard.refused() == {where("action")}
            assert await ear.heard() == {"verdict"}
    finally:
        await server.stop()


async def test_without_a_key_nobody_gets_in(realm):
    text = await attempt(realm.settings("guard"), nkey_seed_file=None)
    assert text.startswith(f"bus.url: {realm.url} refuses these credentials (")
    assert text.endswith("set bus.nkey_seed_file, bus.credentials_file, bus.user and bus.password, or bus.token")


async def test_another_inbox_than_ones_own_is_said_at_once(realm):
    text = await attempt(realm.settings("guard"), inbox_prefix="_INBOX_decider")
    assert text.startswith(
        "bus.inbox_prefix: answers cannot arrive: this credential may not subscribe to _inbox_decider."
    )
    assert text.endswith("; set it to the prefix that belongs to this credential (`trimtab creds show DIR`)")


async def test_declaring_streams_without_the_right_is_said_at_once(realm):
    assert await attempt(realm.settings("collector"), declare_streams=True) == (
        "bus.declare_streams: this credential may not publish to $js.api.stream.info.trimtab_state; set it to false, "
        "and let `trimtab creds declare DIR` make the streams"
    )


async def test_a_server_that_another_ca_vouches_for_is_not_trusted(realm, tmp_path):
    assert main(["creds", "init", str(tmp_path / "other")]) == 0
    assert await attempt(realm.settings("guard"), tls_ca_file=str(tmp_path / "other" / "ca.pem")) == (
        f"bus.tls_ca_file: {realm.url} is not trusted (unable to get local issuer certificate); name the CA that signed "
        f"its certificate, and in bus.url (or bus.tls_server_name) a name that the certificate bears"
    )


async def test_a_server_with_another_name_is_not_trusted(realm):
    text = await attempt(realm.settings("guard"), tls_server_name="nats.elsewhere")
    assert "is not trusted (Hostname mismatch, certificate is not valid for 'nats.elsewhere'.)" in text


async def test_a_server_without_tls_hears_nothing_from_who_wants_it(nats_server, realm):
    assert await attempt(realm.settings("guard"), url=nats_server.url) == (
        f"bus.tls_ca_file: {nats_server.url} offers no TLS, and nothing was said to it; configure TLS there, or unset "
        f"bus.tls_*"
    )


async def test_the_server_demands_tls_and_a_key_of_everybody(realm):
    reader, writer = await asyncio.open_connection(*realm.url.removeprefix("nats://").split(":"))
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.close()
    assert (info["tls_required"], info["auth_required"]) == (True, True)


async def test_a_jwt_is_shown_and_its_nonce_signed(tmp_path):
    seed = new_seed()
    path = tmp_path / "guard.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\nhead.body.tail\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    said: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.15.1", "max_payload": 1 << 20, "auth_required": True, "nonce": "n0nce"}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        said.set_result(json.loads((await reader.readline()).removeprefix(b"CONNECT ")))
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        writer.close()

    async with await asyncio.start_server(play, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"nats://127.0.0.1:{port}"
        settings = BusSettings(url=url, credentials_file=str(path), connect_timeout_seconds=0.5)
        with pytest.raises(BusUnreachable):
            await connect(settings, "x", lambda _event, _detail: None)
    sign = log_in(settings, "x").sign
    assert sign is not None
    heard = await said
    assert (heard["jwt"], heard["sig"]) == ("head.body.tail", sign("n0nce").decode())
    assert "nkey" not in heard


def test_the_generated_configuration_is_one_that_the_server_takes(tmp_path):
    for flags in ([], ["--no-tls"], ["--node", "a.b", "--host", "nats.internal", "--host", "10.0.0.1"]):
        folder = tmp_path / f'it\'s "{len(flags)}"'
        assert main(["creds", "init", str(folder), *flags]) == 0
        checked = subprocess.run(
            [find_binary(), "-t", "-c", str(folder / "nats-server.conf")], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


# ---- the whole loop --------------------------------------------------------------------------------------------------


class Story:
    """What the rig hears, until something about it comes true."""

    def __init__(self) -> None:
        self.heard: Heard[AnyMessage] = Heard()

    def __call__(self, message: AnyMessage) -> None:
        self.heard.add(message)

    async def until(self, claim: Callable[[list[AnyMessage]], bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.heard.until(claim)
                except AssertionError:
                    continue
                return


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    made = tmp_path / "creds"
    assert main(["creds", "init", str(made)]) == 0
    yield made
    shutil.rmtree(made)


@pytest.mark.timeout(150)
async def test_the_whole_loop_runs_on_these_credentials_and_nothing_is_refused(folder, tmp_path):
    story = Story()
    bus = BusSettings(
        nkey_seed_file=str(folder / "{service}.seed"),
        inbox_prefix="_INBOX_{service}",
        tls_ca_file=str(folder / "ca.pem"),
        declare_streams=False,
    )
    options = RigOptions(tmp_path / "run", tick_seconds=2.0, access=folder / "access.conf", bus=bus)
    rig = Rig(SimStage(seed=1), options, on_message=story)
    try:
        url = await rig.start_server()
        assert await asyncio.to_thread(main, ["creds", "declare", str(folder), "--nats-url", url]) == 0
        await rig.start()
        await rig.stage.start_batch()
        await rig.order("active", "a test")
        await story.until(
            lambda heard: (
                sum(isinstance(message, Actuation) and message.outcome == "applied" for message in heard) >= 2
                and any(isinstance(message, Reward) and message.outcome == "joined" for message in heard)
            )
        )
    finally:
        assert await rig.close(), rig.troubles
    for service in SERVICES:
        log = (tmp_path / "run" / "logs" / f"{service}.log").read_text()
        assert "started" in log
        assert "bus_refused" not in log
        assert "bus_error" not in log
