"""What the verbs that give orders say, wait for and return, on a bus in memory."""

import json

import msgspec
import pytest

from cli.__main__ import main
from cli.orders import (
    Desk,
    Ear,
    Effect,
    Wish,
    add_order_flags,
    default_by,
    mode_before_freeze,
    printable,
    show,
    show_dry,
)
from runtime.errors import BusError, ConfigError, TrimtabError
from runtime.flags import FlagParser
from runtime.memory_bus import MemoryBus
from schemas.codec import decode, encode
from schemas.messages import Command
from schemas.subjects import subject, subject_of
from tests.support.builders import NODE, actuation, command, heartbeat, write

AUDIT = "TRIMTAB_AUDIT"


def ordered(*modes):
    return [command(verb="mode", mode=mode) for mode in modes]


@pytest.mark.parametrize(
    ("orders", "expected"),
    [
        ([], "shadow"),
        (ordered("frozen"), "shadow"),
        (ordered("active", "frozen"), "active"),
        (ordered("canary", "active", "frozen", "frozen"), "active"),
        ([*ordered("canary", "frozen"), command(verb="restore"), command(verb="rollback")], "canary"),
        (ordered("active", "frozen", "shadow", "frozen"), "shadow"),
    ],
)
def test_a_thaw_goes_back_to_the_mode_before_the_freeze(orders, expected):
    assert mode_before_freeze(orders) == expected


def test_an_order_says_who_and_why_and_no_two_are_the_same():
    first, second = (Wish("frozen", "a trial", "jo@desk").order(NODE) for _ in range(2))
    assert (first.verb, first.mode, first.by, first.reason, first.node) == (
        "mode",
        "frozen",
        "jo@desk",
        "a trial",
        NODE,
    )
    assert first.id != second.id
    assert decode(encode(first)) == first


def test_without_a_mode_the_order_is_to_restore():
    order = Wish(None, "a trial", "jo").order(NODE)
    assert (order.verb, order.mode) == ("restore", None)


@pytest.mark.parametrize(
    ("reason", "by", "word"),
    [
        ("", "jo", "reason"),
        ("  ", "jo", "reason"),
        ("x" * 301, "jo", "reason"),
        ("x", "", "--by"),
        ("\ud800", "jo", "UTF-8"),
    ],
)
def test_a_text_that_the_audit_cannot_keep_is_refused(reason, by, word):
    with pytest.raises(ConfigError, match=word):
        Wish("frozen", reason, by).order(NODE)


def test_who_is_a_user_at_a_host_also_where_the_user_has_no_name(monkeypatch):
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    assert default_by() == "uid-4000000@desk"
    monkeypatch.setenv("LOGNAME", "jo")
    assert default_by() == "jo@desk"


@pytest.mark.parametrize(
    "words", [["--wait", "-1"], ["--wait", "nan"], ["--wait", "x"], ["--wait", "1e9"], ["--all", "--node", "a"]]
)
def test_flags_that_cannot_be_are_one_line(words):
    parser = FlagParser("trimtab mode")
    add_order_flags(parser)
    with pytest.raises(ConfigError, match=r"--wait|--node"):
        parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mode", "Frozen"], "mode"),
        (["mode", "--reason", "why"], "--reason"),
        (["mode", "--dry-run"], "--dry-run"),
        (["freeze"], "reason"),
        (["freeze", ""], "reason"),
        (["freeze", "why", "--node", "Not.A_Node", "--dry-run"], "--node"),
        (["thaw", "--to", "frozen"], "--to"),
        (["thaw", "why", "--by", ""], "--by"),
        (["restore", "x" * 400], "reason"),
    ],
)
def test_what_is_wrong_with_the_command_line_ends_with_2_before_any_server_is_asked(words, expected, capsys):
    assert main([*words, "--nats-url", "nats://127.0.0.1:1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert expected in err


@pytest.mark.parametrize(
    ("words", "verb", "mode"),
    [
        (["mode", "canary", "--reason", "why"], "mode", "canary"),
        (["freeze", "why"], "mode", "frozen"),
        (["restore", "why"], "restore", None),
    ],
)
def test_a_dry_run_shows_the_message_and_its_subject_and_needs_no_server(words, verb, mode, capsys):
    flags = ["--node", "worker-3.eu", "--by", "jo", "--dry-run", "--nats-url", "nats://127.0.0.1:1"]
    assert main([*words, *flags]) == 0
    where, text = capsys.readouterr().out.strip().split("  ", 1)
    message = decode(text.encode())
    assert isinstance(message, Command)
    assert where == "trimtab.v1.command.worker-3_eu"
    assert (message.node, message.verb, message.mode, message.by, message.reason) == (
        "worker-3.eu",
        verb,
        mode,
        "jo",
        "why",
    )
    assert main([*words, *flags, "-o", "jsonl"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["subject"] == where
    assert row["msg_id"].startswith(f"worker-3_eu.operator.0.command.{verb}.")
    assert msgspec.convert(row["message"], Command).mode == mode


def test_a_dry_run_in_json_is_one_list(capsys):
    show_dry([Wish("frozen", "why", "jo").order(node) for node in ("a", "b")], "json")
    assert [row["subject"] for row in json.loads(capsys.readouterr().out)] == [
        "trimtab.v1.command.a",
        "trimtab.v1.command.b",
    ]


# ---- giving orders ---------------------------------------------------------------------------------------------------


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
    assert [decode(raw) for raw in await bus.last(AUDIT, subject("command", NODE), 9)] == [effect.order]


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
    assert len(await bus.last(AUDIT, subject("command", NODE), 9)) == 1


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
    bus.store(subject("command", NODE), encode(ordered("canary")[0]))
    for number in range(250):
        bus.store(subject("command", NODE), encode(command(id=str(number))) if number % 2 else b"{")
    found = await Desk(bus, Ear(), "").orders(NODE)
    assert [order.mode for order, _ in found] == ["canary"]
    assert found[0][1] > 0


# ---- what is said ----------------------------------------------------------------------------------------------------


def effects():
    return [
        Effect(Wish("frozen", "why", "jo").order("worker-3"), "in_force"),
        Effect(Wish("frozen", "why", "jo").order("b"), "no_guard", "nobody\x1b[2J there"),
    ]


def test_rows_go_to_stdout_and_what_is_missing_to_stderr_and_the_code_is_1(capsys):
    assert show(effects(), "table", "freeze") == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "node      verb  mode    outcome",
        "worker-3  mode  frozen  in_force",
        "b         mode  frozen  no_guard",
    ]
    assert err == "trimtab freeze: b: nobody?[2J there\n"
    assert show(effects()[:1], "table", "freeze") == 0


def test_machines_get_every_field(capsys):
    given = effects()
    show(given, "json", "freeze")
    as_list = json.loads(capsys.readouterr().out)
    show(given, "jsonl", "freeze")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == as_list
    assert as_list[1] == {
        "node": "b",
        "verb": "mode",
        "mode": "frozen",
        "outcome": "no_guard",
        "by": "jo",
        "reason": "why",
        "id": given[1].order.id,
        "detail": "nobody\x1b[2J there",
    }


def test_a_terminal_obeys_nothing_that_came_over_the_bus():
    assert printable("a\x1b]0;x\x07é\n") == "a?]0;x?é?"
