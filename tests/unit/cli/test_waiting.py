"""How long a verb waits for NATS, and what a person at a terminal is told meanwhile."""

import asyncio

import pytest

from cli import tail
from cli.__main__ import main
from cli.tail import add_bus_flags, as_operator, bus_settings, notice_of_waiting
from runtime.errors import ConfigError
from runtime.flags import FlagParser
from runtime.settings import BusSettings


def settings(tmp_path, *flags, bus=""):
    (tmp_path / "trimtab.yaml").write_text(f"bus: {{{bus}}}\n")
    parser = FlagParser("trimtab tail")
    add_bus_flags(parser)
    return bus_settings(parser.parse_args(["--config", str(tmp_path / "trimtab.yaml"), *flags]))


@pytest.mark.parametrize(
    ("configured", "flags", "connect_seconds", "request_seconds"),
    [
        ("", [], 10.0, 5.0),
        ("connect_timeout_seconds: 300", [], 10.0, 5.0),
        ("connect_timeout_seconds: 2", [], 2.0, 5.0),
        ("connect_timeout_seconds: 300, request_timeout_seconds: 7", [], 10.0, 7.0),
        ("connect_timeout_seconds: 2", ["--timeout", "60"], 60.0, 60.0),
        ("", ["--timeout", "0.5"], 0.5, 0.5),
    ],
)
def test_a_verb_waits_ten_seconds_or_what_it_is_told(tmp_path, configured, flags, connect_seconds, request_seconds):
    found = settings(tmp_path, *flags, bus=configured)
    assert (found.connect_timeout_seconds, found.request_timeout_seconds) == (connect_seconds, request_seconds)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "x", "1e9", "inf"])
def test_a_time_that_cannot_be_waited_is_one_line(tmp_path, text):
    with pytest.raises(ConfigError, match="--timeout"):
        settings(tmp_path, "--timeout", text)


@pytest.mark.parametrize(
    "words",
    [
        ["tail"],
        ["mode"],
        ["mode", "frozen", "--node", "a"],
        ["freeze", "--node", "a"],
        ["thaw", "--node", "a"],
        ["restore", "--node", "a"],
    ],
)
def test_every_verb_that_talks_to_nats_gives_up_after_the_time_it_was_given(words, capsys):
    assert main([*words, "--nats-url", "nats://127.0.0.1:1", "--timeout", "0.2"]) == 3
    assert "no NATS server at nats://127.0.0.1:1 within 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [(True, "trimtab mode: waiting up to 7 s for NATS at nats://***@here:4222 (--timeout)\n"), (False, "")],
)
async def test_who_sits_at_a_terminal_is_told_what_is_waited_for(terminal, expected, capsys, monkeypatch):
    monkeypatch.setattr(tail, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    notice_of_waiting(BusSettings(url="nats://me:hush@here:4222", connect_timeout_seconds=7.0), "mode")
    await _next_turns()
    assert capsys.readouterr().err == expected


async def test_who_is_answered_in_time_is_told_nothing(capsys, monkeypatch):
    monkeypatch.setattr(tail, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    notice_of_waiting(BusSettings(), "mode").cancel()
    await _next_turns()
    assert capsys.readouterr().err == ""


async def _next_turns():
    """Returns when all timers that were due are served."""
    due = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, due.set)
    await due.wait()


def test_a_verb_in_a_service_s_container_says_whose_seed_it_misses(tmp_path):
    bus = BusSettings(nkey_seed_file=f"{tmp_path}/{{service}}.seed")
    with pytest.raises(ConfigError, match=r"operator\.seed: No such file .*=/dev/stdin trimtab mode < operator\.seed"):
        as_operator(bus)
    (tmp_path / "operator.seed").write_text("any")
    assert as_operator(bus) is bus


@pytest.mark.parametrize("named", [None, "/nowhere/jo.seed"])
def test_a_seed_that_is_named_outright_is_judged_by_whoever_reads_it(named):
    bus = BusSettings(nkey_seed_file=named)
    assert as_operator(bus) is bus


@pytest.mark.parametrize("words", [["tail"], ["mode"], ["freeze", "--node", "a"]])
def test_the_verbs_say_so_before_they_ask_a_server(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TRIMTAB_BUS__NKEY_SEED_FILE", f"{tmp_path}/{{service}}.seed")
    assert main([*words, "--nats-url", "nats://127.0.0.1:1"]) == 2
    assert "verbs speak as the operator" in capsys.readouterr().err
