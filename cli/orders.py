"""What an order is: its flags, what may be wished for, and the one way from a wish to its effect."""

import argparse
import asyncio
import getpass
import math
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cli.order_desk import desk
from cli.order_view import show, show_dry
from cli.tail import add_bus_flags, as_operator, bus_settings, notice_of_waiting
from runtime.config import load
from runtime.errors import ConfigError
from runtime.settings import BusSettings
from schemas.codec import EncodeError, encode
from schemas.messages import Command, CommandVerb, Mode
from schemas.subjects import node_token

MODES: Final[tuple[Mode, ...]] = ("shadow", "canary", "active", "frozen")

_STANDS_STILL: Final[frozenset[Mode | None]] = frozenset({"shadow", "frozen", None})
_LONGEST_WAIT_SECONDS: Final = 3600.0
_LONGEST_TEXT: Final = 300


def add_order_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of every verb that gives an order."""
    add_bus_flags(parser)
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--node", help="the node (default: the configured one)")
    whom.add_argument("--all", action="store_true", help="every node whose guard is heard")
    parser.add_argument("--by", default=default_by(), metavar="WHO", help="who gives the order (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="show the message and its subject, send nothing")
    parser.add_argument(
        "--wait",
        type=wait_seconds,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for the effect (default: 5)",
    )
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")


def default_by() -> str:
    """Who sits here: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def wait_seconds(text: str) -> float:
    """The value of a flag that says how long to wait. Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds <= _LONGEST_WAIT_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {_LONGEST_WAIT_SECONDS:g}")
    return seconds


def node_of(args: argparse.Namespace) -> str:
    """The node that is meant, where it is one. Raises ConfigError."""
    if args.node is None:
        return load({}, path=args.config).shared.node
    try:
        node_token(args.node)
    except ValueError as error:
        raise ConfigError(f"flag --node: {error}; leave it out for the configured node") from error
    return str(args.node)


@dataclass(frozen=True)
class Wish:
    """What is wanted of each node: a mode, or with `None` all originals back, once. Nobody is kept from standing still
    for want of a reason; to let weights move takes one.
    """

    mode: Mode | None
    reason: str | None
    by: str

    def order(self, node: str) -> Command:
        """The order for one node. Raises ConfigError for texts that cannot be sent or are missing."""
        reason = self._reason()
        for flag, text in (("--by", self.by), ("reason", reason)):
            if not text.strip() or len(text) > _LONGEST_TEXT:
                raise ConfigError(f"{flag}: takes 1 to {_LONGEST_TEXT} letters: it is kept in the audit")
        if self.by.strip() == "guard":
            raise ConfigError("--by: guard is the guard's own name; say who you are")
        verb: CommandVerb = "mode" if self.mode is not None else "restore"
        command = Command(
            node=node,
            boot="operator",
            cycle=0,
            at=time.time_ns(),
            verb=verb,
            by=self.by,
            reason=reason,
            mode=self.mode,
            id=secrets.token_hex(8),
        )
        try:
            encode(command)
        except EncodeError as error:
            raise ConfigError(f"--by, reason: not to be sent as text ({error}); write them in UTF-8") from error
        return command

    def _reason(self) -> str:
        if self.reason is not None and self.reason.strip():
            return self.reason
        if self.mode not in _STANDS_STILL:
            raise ConfigError(
                f"reason: is missing, and mode {self.mode} lets weights move; say why, for the audit: "
                f"`trimtab mode {self.mode} --reason TEXT`, or `trimtab thaw TEXT`"
            )
        return "none given"


def mode_before_freeze(orders: Sequence[Command]) -> Mode:
    """The mode that a thaw returns to; `orders` are the audit's, oldest first. `shadow` where nobody ordered one."""
    ordered = [order.mode for order in orders if order.verb == "mode" and order.mode is not None]
    return next((mode for mode in reversed(ordered) if mode != "frozen"), "shadow")


def run_order(args: argparse.Namespace, verb: str, wish: Wish) -> int:
    """Gives one wish to every node that is meant; 0 if it is so everywhere now, else 1."""
    settings = bus_settings(args)
    if args.dry_run and not args.all:
        show_dry([wish.order(node_of(args))], args.output)
        return 0
    wish.order("checked-before-anything-is-sent")
    return asyncio.run(_order(args, as_operator(settings), verb, wish))


async def _order(args: argparse.Namespace, settings: BusSettings, verb: str, wish: Wish) -> int:
    node = None if args.all else node_of(args)
    notice = notice_of_waiting(settings, verb)
    async with desk(settings, verb, node) as made:
        notice.cancel()
        nodes = [node] if node is not None else await made.nodes_heard()
        orders = [wish.order(node) for node in nodes]
        if args.dry_run:
            show_dry(orders, args.output)
            return 0
        return show(await made.give(orders, args.wait), args.output, verb)
