"""What an order says and takes, and what is wrong with a command line before any server is asked."""

import json

import msgspec
import pytest

from cli.__main__ import main
from cli.orders import Wish, add_order_flags, default_by, mode_before_freeze
from runtime.errors import ConfigError
from runtime.flags import FlagParser
from schemas.codec import decode, encode
from schemas.messages import Command
from tests.support.builders import NODE, command


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
        ("x" * 301, "jo", "reason"),
        ("x", "", "--by"),
        ("\ud800", "jo", "UTF-8"),
    ],
)
def test_a_text_that_the_audit_cannot_keep_is_refused(reason, by, word):
    with pytest.raises(ConfigError, match=word):
        Wish("frozen", reason, by).order(NODE)


@pytest.mark.parametrize("reason", [None, "", " \n"])
@pytest.mark.parametrize("mode", ["active", "canary"])
def test_to_let_weights_move_takes_a_reason(mode, reason):
    with pytest.raises(ConfigError) as told:
        Wish(mode, reason, "jo").order(NODE)
    assert str(told.value) == (
        f"reason: is missing, and mode {mode} lets weights move; say why, for the audit: "
        f"`trimtab mode {mode} --reason TEXT`, or `trimtab thaw TEXT`"
    )


@pytest.mark.parametrize("reason", [None, "", " \n"])
@pytest.mark.parametrize("mode", ["shadow", "frozen", None])
def test_nobody_is_kept_from_standing_still_for_want_of_a_reason(mode, reason):
    order = Wish(mode, reason, "jo").order(NODE)
    assert (order.mode, order.reason) == (mode, "none given")


@pytest.mark.parametrize(
    ("words", "mode"),
    [(["mode", "shadow"], "shadow"), (["mode", "frozen"], "frozen"), (["freeze"], "frozen"), (["restore"], None)],
)
def test_the_verbs_that_stand_still_need_no_reason(words, mode, capsys):
    assert main([*words, "--node", "a", "--dry-run"]) == 0
    order = decode(capsys.readouterr().out.split("  ", 1)[1].encode())
    assert isinstance(order, Command)
    assert (order.mode, order.reason) == (mode, "none given")


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
        (["mode", "active"], "--reason TEXT"),
        (["mode", "canary", "--reason", " "], "--reason TEXT"),
        (["mode", "active", "--node", "a", "--dry-run"], "--reason TEXT"),
        (["thaw", "--to", "active"], "trimtab thaw TEXT"),
        (["thaw", "", "--to", "canary"], "trimtab thaw TEXT"),
        (["freeze", "x" * 400], "reason"),
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


def test_nobody_gives_orders_in_the_guards_name():
    with pytest.raises(ConfigError, match="guard is the guard's own name"):
        Wish("frozen", "why", " guard").order("n")
