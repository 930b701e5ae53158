"""How people change the mode: the verbs and the key-value entry as real processes, against a real guard and server."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from lab.rig import NODE, Rig, RigOptions
from lab.sim_stage import SimStage
from runtime.access import access_of
from runtime.bus import Received
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import EmbeddedServer
from runtime.settings import BusSettings
from runtime.streams import ORDERS
from schemas.codec import decode
from schemas.messages import Actuation, AnyMessage, Command, Heartbeat
from schemas.subjects import heartbeat_subject, node_token, subject
from services.guard.mode_entry import BUCKET
from tests.support.heard import Heard

DEADLINE_SECONDS = 45.0
WAIT = ("--wait", "30")
"""Longer than a busy machine needs: an effect that comes ends the wait."""

GUARD = """
import sys
from runtime.lifecycle import ServiceDefinition, run_service
from services.guard.config import GuardConfig
from services.guard.mode_entry import ModeEntries
from services.guard.service import GuardService

class Guard(GuardService):
    def __init__(self, context):
        super().__init__(context)
        self._entries = ModeEntries(context)

    async def start(self):
        await super().start()
        await self._entries.start()

sys.exit(run_service(ServiceDefinition("guard", GuardConfig, Guard)))
"""
QUICK = (
    "loop.tick_seconds=1",
    "loop.settle_seconds=0.45",
    "guard.apply_within_seconds=0.25",
    "bus.reconnect_wait_seconds=0.05",
)


def environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB_")}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


async def trimtab(*words: str) -> Ended:
    """A verb, run to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(process.returncode or 0, out.decode(), err.decode())


@dataclass
class Guard:
    """A guard process: its log's events, and its mode by its heartbeats."""

    process: asyncio.subprocess.Process
    events: Heard[dict[str, Any]] = field(default_factory=Heard)

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.events.add(json.loads(line))

    async def until_event(self, name: str) -> dict[str, Any]:
        found = await self.events.until(lambda events: any(event["event"] == name for event in events))
        return next(event for event in found if event["event"] == name)


@dataclass
class Site:
    """A server, a node's name, and our own ear."""

    url: str
    node: str
    bus: NatsBus
    beats: Heard[Heartbeat] = field(default_factory=Heard)

    async def hear(self, received: Received) -> None:
        message = decode(received.payload)
        assert isinstance(message, Heartbeat)
        self.beats.add(message)

    async def until_mode(self, mode: str, boot: str | None = None) -> None:
        await self.beats.until(lambda beats: bool(beats) and beats[-1].mode == mode and boot in (None, beats[-1].boot))

    @asynccontextmanager
    async def guard(
        self, mode: str = "shadow", node: str | None = None, settings: tuple[str, ...] = ()
    ) -> AsyncIterator[Guard]:
        """A guard that has started; it is ended with SIGKILL."""
        flags = ["--nats-url", self.url, "--node", node or self.node, "--mode", mode, "--http-port", "0"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", GUARD, *flags),
            *(word for setting in (*QUICK, *settings) for word in ("--set", setting)),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
        )
        made = Guard(process)
        reading = asyncio.create_task(made.read())
        try:
            await made.until_event("started")
            yield made
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading

    async def order(self, *words: str) -> Ended:
        return await trimtab(*words, "--nats-url", self.url, "--node", self.node)

    async def put(self, **value: str) -> None:
        """What `nats kv put trimtab-mode <node>` does."""
        bucket = await self.bus.jetstream.key_value(BUCKET)
        await bucket.put(node_token(self.node), json.dumps(value).encode())

    async def audit(self) -> list[tuple[str | None, str, str]]:
        """The orders of a mode in the audit: mode, by, reason. (A guard without states orders restores, too.)"""
        raw = await self.bus.last(ORDERS, subject("command", self.node), 100)
        orders = [order for item in raw if isinstance(order := decode(item), Command)]
        return [(order.mode, order.by, order.reason) for order in orders if order.verb == "mode"]


@asynccontextmanager
async def site_at(url: str, node: str) -> AsyncIterator[Site]:
    bus = await connect(BusSettings(url=url, reconnect_wait_seconds=0.05), "site", ignore_events)
    made = Site(url, node, bus)
    await bus.subscribe(heartbeat_subject("guard", node), made.hear)
    yield made
    await bus.close()


@pytest.fixture
async def site(nats_server, node) -> AsyncIterator[Site]:
    async with site_at(nats_server.url, node) as made:
        yield made


# ---- verbs -----------------------------------------------------------------------------------------------------------


async def test_an_order_changes_the_mode_and_the_audit_says_who_and_why(site):
    async with site.guard():
        ended = await site.order("mode", "active", "--reason", "a trial", "--by", "jo", "-o", "json", *WAIT)
        assert (ended.code, ended.err) == (0, "")
        (row,) = json.loads(ended.out)
        assert (row["node"], row["mode"], row["outcome"]) == (site.node, "active", "in_force")
        assert await site.audit() == [("active", "jo", "a trial")]
        await site.until_mode("active")
        shown = await site.order("mode", "-o", "json")
        assert shown.code == 0
        (row,) = json.loads(shown.out)
        assert (row["node"], row["mode"], row["ordered"], row["by"]) == (site.node, "active", "active", "jo")
        assert row["reason"] == "a trial"
        assert row["at"].startswith("20")


async def test_a_thaw_goes_back_to_the_mode_before_the_freeze_and_a_second_one_sends_nothing(site):
    async with site.guard():
        assert (await site.order("mode", "canary", "--reason", "a trial", *WAIT)).code == 0
        assert (await site.order("freeze", "it burns", "--by", "jo", *WAIT)).code == 0
        await site.until_mode("frozen")
        thawed = await site.order("thaw", "it is out", "--by", "jo", *WAIT)
        assert (thawed.code, thawed.err) == (0, "")
        await site.until_mode("canary")
        again = await site.order("thaw", *WAIT)
        assert (again.code, "not frozen (its mode is canary); nothing sent" in again.err) == (0, True)
        assert [order for order in await site.audit() if order[1] == "jo"] == [
            ("frozen", "jo", "it burns"),
            ("canary", "jo", "it is out"),
        ]
        assert len(await site.audit()) == 3


async def test_what_was_frozen_by_its_file_thaws_to_shadow_or_to_where_it_is_told(site):
    async with site.guard("frozen"):
        assert (await site.order("thaw", *WAIT)).code == 0
        await site.until_mode("shadow")
        assert (await site.order("freeze", "again", *WAIT)).code == 0
        refused = await site.order("thaw", "--to", "active", *WAIT)
        assert (refused.code, "mode active lets weights move; say why" in refused.err) == (2, True)
        assert (await site.order("thaw", "it is out", "--to", "active", *WAIT)).code == 0
        await site.until_mode("active")


async def test_of_two_orders_at_once_both_are_kept_and_the_last_of_the_audit_holds(site):
    async with site.guard():
        both = await asyncio.gather(
            site.order("mode", "active", "--by", "ann", "--reason", "a trial", "--wait", "3"),
            site.order("freeze", "no", "--by", "bob", "--wait", "3"),
        )
        orders = await site.audit()
        assert {by for _, by, _ in orders} == {"ann", "bob"}
        assert len(orders) == 2
        await site.until_mode(orders[-1][0])
        by_name = dict(zip(("ann", "bob"), both, strict=True))
        assert by_name[orders[-1][1]].code == 0


async def test_an_order_while_the_guard_is_down_says_so_and_holds_when_it_starts(site):
    ended = await site.order("freeze", "before it starts", "--wait", "0.2")
    assert ended.code == 1
    assert "no_guard" in ended.out
    assert len(ended.err.splitlines()) == 1
    assert "no guard was heard within 0.2 s" in ended.err
    assert "the order holds when one starts" in ended.err
    shown = await site.order("mode")
    assert shown.code == 1
    assert shown.out.splitlines()[1].split()[:3] == [site.node, "-", "frozen"]
    assert "the last order holds when one starts" in shown.err
    async with site.guard("active"):
        await site.until_mode("frozen")


async def test_all_means_every_node_whose_guard_is_heard(fresh_server):
    async with site_at(fresh_server.url, "a") as site, site.guard(), site.guard(node="b.eu"):
        ended = await trimtab("freeze", "all of you", "--all", "--nats-url", site.url, "-o", "jsonl", *WAIT)
        assert (ended.code, ended.err) == (0, "")
        rows = [json.loads(line) for line in ended.out.splitlines()]
        assert [(row["node"], row["outcome"]) for row in rows] == [("a", "in_force"), ("b.eu", "in_force")]
        shown = await trimtab("mode", "--nats-url", site.url, "-o", "jsonl")
        assert [json.loads(line)["mode"] for line in shown.out.splitlines()] == ["frozen", "frozen"]
        dry = await trimtab("thaw", "--all", "--dry-run", "--nats-url", site.url, "-o", "json")
        assert [row["subject"] for row in json.loads(dry.out)] == ["trimtab.v1.command.a", "trimtab.v1.command.b_eu"]
        assert len(await site.audit()) == 1


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["mode"], 3, ("no NATS server", "--nats-url")),
        (["mode", "active", "--reason", "why"], 3, ("no NATS server", "--nats-url")),
        (["mode", "active"], 2, ("reason: is missing", "--reason TEXT")),
        (["freeze", "why"], 3, ("no NATS server", "--nats-url")),
        (["thaw"], 3, ("no NATS server", "--nats-url")),
        (["restore", "--all"], 3, ("no NATS server", "--nats-url")),
        (["mode", "activ"], 2, ("'activ'", "shadow", "--help")),
    ],
)
async def test_what_cannot_be_is_one_line_with_the_way_out(words, code, parts, tmp_path):
    config = tmp_path / "trimtab.yaml"
    config.write_text("version: 1\nbus: {url: 'nats://127.0.0.1:1', connect_timeout_seconds: 0.2}\n")
    ended = await trimtab(*words, "--config", str(config))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (code, "", 1)
    assert all(part in ended.err for part in parts), ended.err


async def test_a_node_of_which_nobody_ever_heard_is_one_line_with_those_that_are_heard(fresh_server):
    async with site_at(fresh_server.url, "a") as site, site.guard():
        ended = await trimtab("mode", "--node", "typo", "--nats-url", site.url)
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
        assert "node typo: no guard was heard" in ended.err
        assert "heard: a" in ended.err


async def test_without_any_guard_all_is_nobody(fresh_server):
    ended = await trimtab("freeze", "why", "--all", "--nats-url", fresh_server.url)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
    assert "no guard was heard" in ended.err


async def test_without_a_stream_an_order_is_not_given(tmp_path):
    server = EmbeddedServer(tmp_path)
    try:
        ended = await trimtab("freeze", "why", "--node", "a", "--nats-url", await server.start(), "--wait", "0.1")
    finally:
        await server.stop()
    assert ended.code == 1
    assert ended.out.splitlines()[1].split() == ["a", "mode", "frozen", "not_stored"]
    assert f"{ORDERS}: trimtab.v1.command.a was not stored" in ended.err


PASSWORD = "x"


class ServerWithUsers(EmbeddedServer):
    """Knows an operator and a guard of the node `a`, who may do what they must, and `root`, who may do everything."""

    def _config(self) -> str:
        users: list[dict[str, object]] = [{"user": "root", "password": PASSWORD}]
        for role in ("operator", "guard"):
            access = access_of(role, "a")
            may = {"publish": {"allow": access.publish}, "subscribe": {"allow": access.subscribe}}
            users.append({"user": role, "password": PASSWORD, "permissions": may})
        return super()._config() + f"authorization {{ users: {json.dumps(users)} }}\n"


async def test_with_the_credentials_of_one_node_orders_and_entries_work_there_and_elsewhere_it_is_told_why_not(
    tmp_path,
):
    server, config = ServerWithUsers(tmp_path / "nats"), tmp_path / "jo.yaml"
    try:
        url = await server.start()
        bus = await connect(BusSettings(url=url, user="root", password=PASSWORD), "site", ignore_events)
        await bus.subscribe(heartbeat_subject("guard", "a"), (site := Site(url, "a", bus)).hear)
        guard = ("bus.user=guard", f"bus.password={PASSWORD}", "bus.declare_streams=false")
        guard += (f"bus.inbox_prefix={access_of('guard', 'a').inbox_prefix}",)
        config.write_text(
            f"{{version: 1, bus: {{url: '{url}', user: operator, password: {PASSWORD}, request_timeout_seconds: 1.0, "
            f"inbox_prefix: {access_of('operator', 'a').inbox_prefix}}}}}"
        )
        async with site.guard(settings=guard):
            here = await trimtab("freeze", "why", "--node", "a", "--config", str(config), *WAIT)
            assert (here.code, here.err) == (0, "")
            assert [mode for mode, *_ in await site.audit()] == ["frozen"]
            shown = await trimtab("mode", "--node", "a", "--config", str(config))
            assert (shown.code, shown.err) == (0, "")
            thawed = await trimtab("thaw", "--node", "a", "--config", str(config), *WAIT)
            assert (thawed.code, thawed.err) == (0, "")
            restored = await trimtab("restore", "--node", "a", "--config", str(config), "--wait", "0.1")
            assert "no actuator was heard" in restored.err
            there = await trimtab("freeze", "why", "--node", "b", "--config", str(config), "--wait", "0.1")
            assert there.code == 1
            assert "may not publish to trimtab.v1.command.b" in there.err
            await site.put(mode="canary", by="jo", reason="by git")
            await site.until_mode("canary")
        await bus.close()
    finally:
        await server.stop()


# ---- the entry -------------------------------------------------------------------------------------------------------


async def test_an_entry_is_obeyed_and_the_audit_says_who_and_why(site):
    async with site.guard("active"):
        await site.put(mode="frozen", by="jo", reason="by git")
        await site.until_mode("frozen")
        assert await site.audit() == [("frozen", "kv: jo", "by git")]


async def test_an_entry_put_before_the_guard_starts_is_obeyed(site):
    await site.put(mode="frozen", by="jo", reason="by git")
    async with site.guard("active") as guard:
        await guard.until_event("mode_entry_obeyed")
        await site.until_mode("frozen")


async def test_an_old_entry_is_not_revived_over_a_newer_order_by_a_guard_that_starts(site):
    async with site.guard():
        await site.put(mode="active", by="jo", reason="by git")
        await site.until_mode("active")
    assert (await site.order("freeze", "it burns", "--by", "ann", "--wait", "0")).code == 1
    async with site.guard() as guard:
        passed_over = await guard.until_event("mode_entry_passed_over")
        assert passed_over["why"] == "obeyed before"
        started = await guard.until_event("started")
        await site.until_mode("frozen", started["boot"])
        assert await site.audit() == [("active", "kv: jo", "by git"), ("frozen", "ann", "it burns")]


async def test_an_entry_that_no_guard_saw_gives_way_to_a_newer_order(site):
    await site.put(mode="active", by="jo", reason="by git")
    assert (await site.order("freeze", "it burns", "--by", "ann", "--wait", "0")).code == 1
    async with site.guard() as guard:
        passed_over = await guard.until_event("mode_entry_passed_over")
        assert passed_over["why"] == "older than the order frozen by ann"
        await site.until_mode("frozen")
        assert await site.audit() == [("frozen", "ann", "it burns")]


async def test_a_malformed_entry_is_said_and_ignored(site):
    async with site.guard("active") as guard:
        await site.put(mode="Frozen")
        refused = await guard.until_event("mode_entry_refused")
        assert (refused["level"], "Frozen" in refused["detail"]) == ("warning", True)
        await site.put(mode="frozen")
        await site.until_mode("frozen")
        assert await site.audit() == [("frozen", "kv: unknown", "none given")]


async def test_an_entry_put_before_the_guard_is_back_on_its_lost_bus_is_obeyed(fresh_server, node):
    async with site_at(fresh_server.url, node) as site, site.guard("active") as guard:
        assert fresh_server.child is not None
        fresh_server.child.process.kill()
        await guard.until_event("bus_disconnected")
        guard.process.send_signal(signal.SIGSTOP)  # it cannot come back before the entry is there
        await fresh_server.start()
        async with site_at(fresh_server.url, node) as back:
            await back.put(mode="frozen", by="jo", reason="by git")
            guard.process.send_signal(signal.SIGCONT)
            await back.until_mode("frozen")
            assert await back.audit() == [("frozen", "kv: jo", "by git")]


# ---- the whole loop --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
async def test_in_a_running_loop_freeze_and_restore_return_originals_and_a_thaw_lets_the_loop_go_on(tmp_path):
    heard: Heard[AnyMessage] = Heard()
    rig = Rig(SimStage(seed=1), RigOptions(tmp_path, tick_seconds=2.0), on_message=heard.add)

    def count(outcome: str) -> int:
        return sum(isinstance(message, Actuation) and message.outcome == outcome for message in heard.items)

    async def until(claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not claim():
                await heard.until(_longer_than(len(heard.items)))

    async def say(*words: str) -> Ended:
        return await trimtab(*words, "--nats-url", rig.url, "--node", NODE, *WAIT)

    try:
        await rig.start()
        await rig.stage.start_batch()
        assert (await say("mode", "active", "--reason", "a test")).code == 0
        await until(lambda: count("applied") > 0)
        restored = await say("restore", "a test")
        assert (restored.code, restored.err) == (0, "")
        assert "restored" in restored.out
        before = count("applied")
        await until(lambda: count("applied") > before and rig.stage.weights() != rig.originals)  # the loop goes on
        assert (await say("freeze", "a test")).code == 0
        await until(lambda: rig.stage.weights() == rig.originals)
        frozen_at = count("applied")
        assert (await say("thaw", "a test")).code == 0
        await until(lambda: count("applied") > frozen_at)
    finally:
        assert await rig.close(), rig.troubles


def _longer_than(length: int) -> Callable[[list[AnyMessage]], bool]:
    return lambda items: len(items) > length
