"""`trimtab thaw`: back to the mode from before the freeze, as the audit tells it; `shadow` if it tells of none."""

import argparse
import asyncio
import sys

from cli.orders import (
    LISTEN_SECONDS,
    MODES,
    Desk,
    Effect,
    Wish,
    add_order_flags,
    desk,
    mode_before_freeze,
    node_of,
    show,
    show_dry,
)
from cli.tail import bus_settings
from schemas.messages import Command, Mode


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("reason", nargs="?", default="thawed", help="why, for the audit")
    parser.add_argument(
        "--to", choices=[mode for mode in MODES if mode != "frozen"], help="the mode (default: that before the freeze)"
    )
    add_order_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Orders the mode of before; 0 if it is in force or nothing was frozen, else 1."""
    _wish(args, "shadow").order("checked-before-anything-is-sent")
    return asyncio.run(_thaw(args))


def _wish(args: argparse.Namespace, before: Mode) -> Wish:
    return Wish(args.to or before, args.reason, args.by)


async def _thaw(args: argparse.Namespace) -> int:
    node = None if args.all else node_of(args)
    async with desk(bus_settings(args), "thaw", node) as made:
        if node is None:
            nodes = await made.nodes_heard()
        else:
            nodes = [node]
            await made.ear.until(lambda: node in made.ear.modes, LISTEN_SECONDS)
        orders: list[Command] = []
        for node in nodes:
            history = [order for order, _ in await made.orders(node)]
            order = _wish(args, mode_before_freeze(history)).order(node)
            if made.ear.modes.get(node) == "frozen" or (history and history[-1].mode == "frozen"):
                orders.append(order)
            else:
                _say_not_frozen(made, node)
        if args.dry_run:
            show_dry(orders, args.output)
            return 0
        effects: list[Effect] = await made.give(orders, args.wait)
    return show(effects, args.output, "thaw")


def _say_not_frozen(made: Desk, node: str) -> None:
    mode = made.ear.modes.get(node)
    what = f"its mode is {mode}" if mode else "no guard was heard, and the last order is none to freeze"
    print(f"trimtab thaw: {node}: not frozen ({what}); nothing sent", file=sys.stderr)
