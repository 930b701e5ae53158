"""What is shown of orders: rows on stdout, what is missing on stderr, and what a dry run would send."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from cli.order_desk import Effect
from schemas.codec import encode
from schemas.messages import Command
from schemas.subjects import message_id, subject_of


def show(effects: Sequence[Effect], output: str, verb: str) -> int:
    """Rows on stdout, what is missing on stderr; the exit code."""
    rows = [effect.row() for effect in effects]
    show_rows(rows, output, ("node", "verb", "mode", "outcome"))
    for effect in effects:
        if effect.detail is not None:
            print(f"trimtab {verb}: {printable(f'{effect.order.node}: {effect.detail}')}", file=sys.stderr)
    return 0 if all(effect.is_good for effect in effects) else 1


def show_dry(orders: Sequence[Command], output: str) -> None:
    """What would be sent, and where."""
    for order in orders:
        if output == "table":
            print(f"{subject_of(order)}  {encode(order).decode()}")
    if output != "table":
        rows = [
            {"subject": subject_of(order), "msg_id": message_id(order), "message": msgspec.to_builtins(order)}
            for order in orders
        ]
        show_rows(rows, output, ())


def show_rows(rows: Sequence[dict[str, Any]], output: str, columns: Sequence[str]) -> None:
    """A table of some columns, or everything as JSON."""
    if output == "json":
        print(json.dumps(rows, indent=2))
    elif output == "jsonl":
        for row in rows:
            print(json.dumps(row))
    else:
        table = [list(columns)] + [
            ["-" if row[name] is None else printable(str(row[name])) for name in columns] for row in rows
        ]
        widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """The text, with `?` for what a terminal would obey."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
