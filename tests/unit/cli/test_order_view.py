"""How orders and their effects are shown."""

import json

from cli.order_desk import Effect
from cli.order_view import printable, show, show_dry
from cli.orders import Wish


def test_a_dry_run_in_json_is_one_list(capsys):
    show_dry([Wish("frozen", "why", "jo").order(node) for node in ("a", "b")], "json")
    assert [row["subject"] for row in json.loads(capsys.readouterr().out)] == [
        "trimtab.v1.command.a",
        "trimtab.v1.command.b",
    ]


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
