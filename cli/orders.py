"""What the verbs that give orders share: flags, the order itself, storing it, and hearing that it has taken effect.

An order goes to `trimtab.v1.command.<node>` and counts as given when `TRIMTAB_AUDIT` has it. Then the verb listens, for
a bounded time, until the guard's heartbeat shows the mode or the actuator says `restored`.
"""

import argparse
import asyncio
import getpass
import json
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cli.tail import add_bus_flags, bus_settings
from runtime.bus import Bus, Received, Stored
from runtime.config import load
from runtime.errors import BusError, ConfigError, TrimtabError
from runtime.nats_bus import connect
from runtime.settings import BusSettings, mask_url
from runtime.streams import AUDIT
from schemas.codec import DecodeError, EncodeError, decode, decode_as, encode
from schemas.messages import Actuation, Command, CommandVerb, Heartbeat, Mode
from schemas.subjects import ROOT, message_id, node_token, subject, subject_of

MODES: Final[tuple[Mode, ...]] = ("shadow", "canary", "active", "frozen")
LISTEN_SECONDS: Final = 3.0
"""Seconds to listen for guards. 3: each beats at least every 2 s, whatever its tick."""

_LONGEST_WAIT_SECONDS: Final = 3600.0
_LONGEST_TEXT: Final = 300
_RECENT, _ALL = 200, 100_000
_ALL_GUARDS: Final = f"{ROOT}.heartbeat.guard.*"


# ---- flags -----------------------------------------------------------------------------------------------------------


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
        type=_wait_seconds,
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


def _wait_seconds(text: str) -> float:
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


# ---- the order -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """What is wanted of each node: a mode, or with `None` all originals back, once."""

    mode: Mode | None
    reason: str
    by: str

    def order(self, node: str) -> Command:
        """The order for one node. Raises ConfigError for texts that cannot be sent."""
        for flag, text in (("--by", self.by), ("reason", self.reason)):
            if not text.strip() or len(text) > _LONGEST_TEXT:
                raise ConfigError(f"{flag}: takes 1 to {_LONGEST_TEXT} letters: it is kept in the audit")
        verb: CommandVerb = "mode" if self.mode is not None else "restore"
        command = Command(
            node=node,
            boot="operator",
            cycle=0,
            at=time.time_ns(),
            verb=verb,
            by=self.by,
            reason=self.reason,
            mode=self.mode,
            id=secrets.token_hex(8),
        )
        try:
            encode(command)
        except EncodeError as error:
            raise ConfigError(f"--by, reason: not to be sent as text ({error}); write them in UTF-8") from error
        return command


def mode_before_freeze(orders: Sequence[Command]) -> Mode:
    """The mode that a thaw returns to; `orders` are the audit's, oldest first. `shadow` where nobody ordered one."""
    ordered = [order.mode for order in orders if order.verb == "mode" and order.mode is not None]
    return next((mode for mode in reversed(ordered) if mode != "frozen"), "shadow")


# ---- the bus ---------------------------------------------------------------------------------------------------------


class Ear:
    """What guards and actuators say, by node."""

    def __init__(self) -> None:
        self.modes: dict[str, Mode | None] = {}
        self.actuators: set[str] = set()
        self.restored: dict[str, Actuation] = {}
        self._changed = asyncio.Event()

    async def hear(self, received: Received) -> None:
        """One message of any kind."""
        try:
            message = decode(received.payload)
        except DecodeError:
            return
        if isinstance(message, Heartbeat) and message.service == "guard":
            self.modes[message.node] = message.mode
        elif isinstance(message, Heartbeat) and message.service == "actuator":
            self.actuators.add(message.node)
        elif isinstance(message, Actuation) and message.outcome == "restored":
            self.restored[message.node] = message
        self._changed.set()

    def forget(self, node: str) -> None:
        """What was said before does not count."""
        self.modes.pop(node, None)
        self.restored.pop(node, None)

    async def until(self, claim: Callable[[], bool], seconds: float) -> None:
        """Waits until the claim is true, or that long."""
        try:
            async with asyncio.timeout(seconds):
                while not claim():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


@dataclass(frozen=True)
class Desk:
    """A connection by which orders are given and their effects heard."""

    bus: Bus
    ear: Ear
    where: str

    async def listen(self, node: str | None = None) -> None:
        """Hears guards and actuators of one node, or of all. All guards are listened to in any case: to say who is
        there where a node is not.
        """
        token = "*" if node is None else node_token(node)
        told = (f"{ROOT}.heartbeat.guard.{token}", f"{ROOT}.heartbeat.actuator.{token}", f"{ROOT}.actuation.{token}")
        for pattern in dict.fromkeys((*told, _ALL_GUARDS)):
            await self.bus.subscribe(pattern, self.ear.hear, limit=10_000)

    async def nodes_heard(self, seconds: float = LISTEN_SECONDS) -> list[str]:
        """Every node whose guard is heard. Raises TrimtabError if none is."""
        await self.ear.until(lambda: False, seconds)
        if not self.ear.modes:
            raise TrimtabError(
                f"no guard was heard at {self.where} within {seconds:g} s; start one (trimtab up), or name a node with "
                f"--node: an order holds when its guard starts"
            )
        return sorted(self.ear.modes)

    async def orders(self, node: str) -> list[tuple[Command, int]]:
        """The orders of modes in a node's audit, oldest first, and when each was stored."""
        found = _mode_orders(await self.bus.stored(AUDIT, subject("command", node), _RECENT))
        return found or _mode_orders(await self.bus.stored(AUDIT, subject("command", node), _ALL))

    async def give(self, orders: Sequence[Command], wait_seconds: float) -> list["Effect"]:
        """Stores the orders, then listens for what they do. One that cannot be stored keeps none of the others."""
        failed: dict[str, str] = {}
        for order in orders:
            self.ear.forget(order.node)
            try:
                await self.bus.publish_stored(subject_of(order), encode(order), msg_id=message_id(order), stream=AUDIT)
            except BusError as error:
                failed[order.node] = str(error)
        given = [order for order in orders if order.node not in failed]
        await self.ear.until(lambda: all(self._is_done(order) for order in given), wait_seconds)
        return [
            Effect(order, "not_stored", failed[order.node])
            if order.node in failed
            else await self._effect(order, wait_seconds)
            for order in orders
        ]

    def _is_done(self, order: Command) -> bool:
        if order.mode is None:
            return order.node in self.ear.restored
        return self.ear.modes.get(order.node) == order.mode

    async def _effect(self, order: Command, wait_seconds: float) -> "Effect":
        node, ear = order.node, self.ear
        if order.mode is None:
            return await self._effect_of_restore(order, wait_seconds)
        if self._is_done(order):
            return Effect(order, "in_force")
        if node in ear.modes:
            return Effect(
                order, "other_mode", f"the order is stored, and after {wait_seconds:g} s the mode is {ear.modes[node]}"
            )
        others = ", ".join(sorted(ear.modes)[:5])
        heard = f" (heard: {others})" if others else ""
        return Effect(
            order, "no_guard", f"no guard was heard within {wait_seconds:g} s{heard}; the order holds when one starts"
        )

    async def _effect_of_restore(self, order: Command, wait_seconds: float) -> "Effect":
        node, said = order.node, self.ear.restored.get(order.node)
        if said is not None:
            failed = [write.group for write in said.writes if write.result == "failed"]
            if failed:
                return Effect(order, "not_restored", f"not all originals are back: {', '.join(failed)}")
            return Effect(order, "restored")
        if node not in self.ear.actuators:
            return Effect(
                order,
                "no_actuator",
                f"no actuator was heard within {wait_seconds:g} s; one that starts returns every original by itself",
            )
        if await self._is_touched(node):
            return Effect(order, "not_restored", f"the actuator did not say `restored` within {wait_seconds:g} s")
        return Effect(order, "nothing_to_restore")

    async def _is_touched(self, node: str) -> bool:
        """Whether the last thing that an actuator did was to change a weight."""
        for item in reversed(await self.bus.stored(AUDIT, subject("actuation", node), _RECENT)):
            try:
                outcome = decode_as(item.payload, Actuation).outcome
            except DecodeError:
                continue
            if outcome in ("applied", "rolled_back", "restored"):
                return outcome != "restored"
        return False


def _mode_orders(stored: Sequence[Stored]) -> list[tuple[Command, int]]:
    found = []
    for item in stored:
        try:
            order = decode_as(item.payload, Command)
        except DecodeError:
            continue
        if order.verb == "mode" and order.mode is not None:
            found.append((order, item.stored_ns))
    return found


@asynccontextmanager
async def desk(settings: BusSettings, verb: str, node: str | None) -> AsyncIterator[Desk]:
    """A connected desk that listens to one node, or to all. Raises BusUnreachable."""

    def on_event(event: str, detail: str) -> None:
        if event == "refused" and node is not None and _ALL_GUARDS in detail:
            return  # a credential for one node hears no other: only a hint is missing
        if event in ("disconnected", "closed", "refused"):
            print(f"trimtab {verb}: {event} {detail}", file=sys.stderr, flush=True)

    bus = await connect(settings, f"trimtab-{verb}", on_event)
    try:
        made = Desk(bus, Ear(), mask_url(settings.url))
        await made.listen(node)
        yield made
    finally:
        await bus.close()


# ---- what is said ----------------------------------------------------------------------------------------------------

_GOOD: Final = frozenset({"in_force", "restored", "nothing_to_restore"})


@dataclass(frozen=True)
class Effect:
    """What became of one order; `detail` says what is missing, where something is."""

    order: Command
    outcome: str
    detail: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether what was wanted is so now."""
        return self.outcome in _GOOD

    def row(self) -> dict[str, Any]:
        """For machines."""
        order = self.order
        return {
            "node": order.node,
            "verb": order.verb,
            "mode": order.mode,
            "outcome": self.outcome,
            "by": order.by,
            "reason": order.reason,
            "id": order.id,
            "detail": self.detail,
        }


def run_order(args: argparse.Namespace, verb: str, wish: Wish) -> int:
    """Gives one wish to every node that is meant; 0 if it is so everywhere now, else 1."""
    settings = bus_settings(args)
    if args.dry_run and not args.all:
        show_dry([wish.order(node_of(args))], args.output)
        return 0
    wish.order("checked-before-anything-is-sent")
    return asyncio.run(_order(args, settings, verb, wish))


async def _order(args: argparse.Namespace, settings: BusSettings, verb: str, wish: Wish) -> int:
    node = None if args.all else node_of(args)
    async with desk(settings, verb, node) as made:
        nodes = [node] if node is not None else await made.nodes_heard()
        orders = [wish.order(node) for node in nodes]
        if args.dry_run:
            show_dry(orders, args.output)
            return 0
        return show(await made.give(orders, args.wait), args.output, verb)


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
