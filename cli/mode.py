"""`trimtab mode`: the mode in force, who ordered it, when and why; or orders another."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

from cli.order_desk import LISTEN_SECONDS, Desk, desk
from cli.order_view import show_rows
from cli.orders import MODES, Wish, add_order_flags, node_of, run_order
from cli.tail import as_operator, bus_settings, notice_of_waiting
from runtime.errors import ConfigError, TrimtabError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("mode", nargs="?", choices=MODES, help="the mode to order; left out: show what is in force")
    parser.add_argument("--reason", metavar="TEXT", help="why, for the audit; `active` and `canary` take one")
    add_order_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows (1 if a node's guard is not heard), or orders (1 if the mode is not seen in force)."""
    if args.mode is not None:
        return run_order(args, "mode", Wish(args.mode, args.reason, args.by))
    for flag, given in (("--reason", args.reason is not None), ("--dry-run", args.dry_run)):
        if given:
            raise ConfigError(f"flag {flag}: there is no order to give; name a mode ({', '.join(MODES)})")
    return asyncio.run(_show(args))


async def _show(args: argparse.Namespace) -> int:
    configured, settings = node_of(args), as_operator(bus_settings(args))
    notice = notice_of_waiting(settings, "mode")
    async with desk(settings, "mode", configured if args.node is not None else None) as made:
        notice.cancel()
        if args.node is None:
            await made.ear.until(lambda: False, LISTEN_SECONDS)
        else:
            await made.ear.until(lambda: configured in made.ear.modes, LISTEN_SECONDS)
        nodes = sorted(made.ear.modes) if args.node is None and made.ear.modes else [configured]
        rows = [await _row(made, node) for node in nodes]
        if not any(row["heard"] or row["ordered"] for row in rows):
            others = ", ".join(sorted(made.ear.modes)[:5])
            raise TrimtabError(
                f"node {configured}: no guard was heard at {made.where} within {LISTEN_SECONDS:g} s and no mode was "
                f"ever ordered there; " + (f"heard: {others}" if others else "start one (trimtab up)")
            )
    show_rows(rows, args.output, ("node", "mode", "ordered", "by", "at", "reason"))
    silent = [row["node"] for row in rows if not row["heard"]]
    for node in silent:
        print(f"trimtab mode: {node}: no guard was heard; the last order holds when one starts", file=sys.stderr)
    return 1 if silent else 0


async def _row(made: Desk, node: str) -> dict[str, Any]:
    """The mode of one node, and the last order of one; `None` for what is not known."""
    orders = await made.orders(node)
    order, stored_ns = orders[-1] if orders else (None, 0)
    at = datetime.fromtimestamp(stored_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if order else None
    return {
        "node": node,
        "mode": made.ear.modes.get(node),
        "heard": node in made.ear.modes,
        "ordered": order.mode if order else None,
        "by": order.by if order else None,
        "at": at,
        "reason": order.reason if order else None,
    }
