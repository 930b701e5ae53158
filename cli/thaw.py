"""`trimtab thaw`: back to the mode from before the freeze, as the audit tells it; `shadow` if it tells of none."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from cli.order_desk import LISTEN_SECONDS, Desk, Effect, desk
from cli.order_view import show, show_dry
from cli.orders import MODES, Wish, add_order_flags, mode_before_freeze, node_of
from cli.tail import as_operator, bus_settings, notice_of_waiting
from schemas.messages import Command, Mode


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("reason", nargs="?", help="why, for the audit; back to `active` or `canary` takes one")
    parser.add_argument(
        "--to", choices=[mode for mode in MODES if mode != "frozen"], help="the mode (default: that before the freeze)"
    )
    add_order_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Orders the mode of before; 0 if it is in force or nothing was frozen, else 1."""
    Wish(args.to or "shadow", args.reason, args.by).order("checked-before-anything-is-sent")
    return asyncio.run(_thaw(args))


async def _thaw(args: argparse.Namespace) -> int:
    node, settings = None if args.all else node_of(args), as_operator(bus_settings(args))
    notice = notice_of_waiting(settings, "thaw")
    async with desk(settings, "thaw", node) as made:
        notice.cancel()
        if node is None:
            nodes = await made.nodes_heard()
        else:
            nodes = [node]
            await made.ear.until(lambda: node in made.ear.modes, LISTEN_SECONDS)
        orders = await thawing(made, nodes, args.to, args.reason, args.by)
        if args.dry_run:
            show_dry(orders, args.output)
            return 0
        effects: list[Effect] = await made.give(orders, args.wait)
    return show(effects, args.output, "thaw")


async def thawing(made: Desk, nodes: Sequence[str], to: Mode | None, reason: str | None, by: str) -> list[Command]:
    """The orders that thaw those nodes that are frozen; of the others it is said that they are not. Raises ConfigError
    where one would let weights move and nobody says why.
    """
    orders = []
    for node in nodes:
        history = [order for order, _ in await made.orders(node)]
        if made.ear.modes.get(node) == "frozen" or (history and history[-1].mode == "frozen"):
            orders.append(Wish(to or mode_before_freeze(history), reason, by).order(node))
        else:
            _say_not_frozen(made, node)
    return orders


def _say_not_frozen(made: Desk, node: str) -> None:
    mode = made.ear.modes.get(node)
    what = f"its mode is {mode}" if mode else "no guard was heard, and the last order is none to freeze"
    print(f"trimtab thaw: {node}: not frozen ({what}); nothing sent", file=sys.stderr)
