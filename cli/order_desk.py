"""The desk at which orders are given: it stores them, and hears that they have taken effect.

An order goes to `trimtab.v1.command.<node>` and counts as given when `TRIMTAB_ORDERS` has it. Then the desk listens,
for a bounded time, until the guard's heartbeat shows the mode or the actuator says `restored`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from runtime.bus import Bus, Received, Stored
from runtime.errors import BusError, TrimtabError
from runtime.nats_bus import connect
from runtime.settings import BusSettings, mask_url
from runtime.streams import AUDIT, ORDERS
from schemas.codec import DecodeError, decode_as, decode_on, encode
from schemas.messages import Actuation, Command, Heartbeat, Mode
from schemas.subjects import ROOT, message_id, node_token, subject, subject_of

LISTEN_SECONDS: Final = 3.0
"""Seconds to listen for guards. 3: each beats at least every 2 s, whatever its tick."""

_GOOD: Final = frozenset({"in_force", "restored", "nothing_to_restore"})
_RECENT, _ALL = 200, 100_000
_ALL_GUARDS: Final = f"{ROOT}.heartbeat.guard.*"


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
            message = decode_on(received.subject, received.payload)
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
        """The orders of modes that a node was given, oldest first, and when each was stored."""
        found = _mode_orders(await self.bus.stored(ORDERS, subject("command", node), _RECENT))
        return found or _mode_orders(await self.bus.stored(ORDERS, subject("command", node), _ALL))

    async def give(self, orders: Sequence[Command], wait_seconds: float) -> list[Effect]:
        """Stores the orders, then listens for what they do. One that cannot be stored keeps none of the others."""
        failed: dict[str, str] = {}
        for order in orders:
            self.ear.forget(order.node)
            try:
                await self.bus.publish_stored(subject_of(order), encode(order), msg_id=message_id(order), stream=ORDERS)
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

    async def _effect(self, order: Command, wait_seconds: float) -> Effect:
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

    async def _effect_of_restore(self, order: Command, wait_seconds: float) -> Effect:
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
