"""A mode given as a key-value entry: the entry becomes an order in the stream of orders, which alone says what holds.

`nats kv put trimtab-mode worker-3 '{"mode":"frozen","by":"jo","reason":"..."}'` (docs/adr/0011-modes-by-key-value.md).
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from runtime.bus import Entry
from runtime.lifecycle import Context
from runtime.messenger import Dated
from runtime.streams import ORDERS
from schemas.messages import Command, Mode
from services.guard.core.mode_order import STANDS_STILL, first_stored_ns, sets_mode

BUCKET = "trimtab-mode"
_RECENT, _ALL = 200, 10_000
_LONGEST = 300
_BOOT = "kv"
"""What stands in place of a run's id in the orders that come of entries."""


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in an entry. Fields that are not known are ignored, as in messages."""

    mode: Mode
    by: Annotated[str, Meta(max_length=100_000)] = ""
    reason: Annotated[str, Meta(max_length=100_000)] = ""


class NotAnOrder(ValueError):
    """An entry that orders nothing; the text says what is wrong with it."""


def order_of(entry: Entry, node: str, now_ns: int) -> Command:
    """The order that an entry gives. The same entry gives an order of the same id, whoever reads it and when; a bucket
    that was made anew counts from 1 again, so the time is part of the id. Raises NotAnOrder.

    Nobody is kept from standing still for want of a name or a reason; to let weights move takes both.
    """
    try:
        wish = msgspec.json.decode(entry.value or b"", type=_Wish)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotAnOrder(f'{error}; write {{"mode": "frozen", "by": "jo", "reason": "why"}}') from error
    by, reason = _printable(wish.by), _printable(wish.reason)
    if wish.mode not in STANDS_STILL and not (by and reason):
        raise NotAnOrder(f"the mode {wish.mode!r} takes `by` and `reason`: who wants it, and why")
    return Command(
        node=node,
        boot=_BOOT,
        cycle=0,
        at=now_ns,
        verb="mode",
        by=f"kv: {by or 'unknown'}"[:_LONGEST],
        reason=(reason or "none given")[:_LONGEST],
        mode=wish.mode,
        id=f"kv-{entry.revision}-{entry.created_ns}",
    )


def _printable(text: str) -> str:
    """One line for logs and terminals, whatever somebody put there."""
    return "".join(letter if letter.isprintable() else " " for letter in text[: 10 * _LONGEST]).strip()


def newest_mode_order(orders: Sequence[Dated[Command]]) -> Dated[Command] | None:
    """The newest order that sets a mode; `orders` are oldest first."""
    return max((_as_first(dated) for dated in orders if sets_mode(dated.message)), key=_stored_ns, default=None)


def _as_first(dated: Dated[Command]) -> Dated[Command]:
    """What a guard says again is dated as the order that it repeats."""
    return Dated(dated.message, first_stored_ns(dated.message, dated.stored_ns))


def _stored_ns(dated: Dated[Command]) -> int:
    return dated.stored_ns


def objection(order: Command, created_ns: int, orders: Sequence[Dated[Command]], kept_since_ns: int) -> str | None:
    """Why an entry's order is not given (again): it was, or something newer was, or may have been; else None.

    `orders` are the stored ones, oldest first; those from before `kept_since_ns` may have been let go of. Where that is
    all there is to know, an order to stand still is given: it is the one that cannot hurt. A tool that puts the same
    value every few minutes lifts no freeze that somebody ordered since.
    """
    if any(dated.message.id == order.id for dated in orders):
        return "obeyed before"
    newest = newest_mode_order(orders)
    if newest is not None and created_ns <= newest.stored_ns:
        return f"older than the order {newest.message.mode} by {newest.message.by}"
    if order.mode in STANDS_STILL:
        return None
    if newest is None and created_ns < kept_since_ns:
        return "older than all orders that are still stored"
    last = next((dated.message for dated in reversed(orders) if dated.message.boot == _BOOT), None)
    if last is not None and (last.mode, last.by, last.reason) == (order.mode, order.by, order.reason):
        return "the same as the entry before; give another reason to order it anew"
    return None


class ModeEntries:
    """Watches this node's entry and gives its orders."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def start(self) -> None:
        """Watches from now on, beginning with the entry that is there. Call it when the stored orders were taken up."""
        await self._context.messenger.watch_entry(BUCKET, self._on_entry)

    async def _on_entry(self, entry: Entry) -> None:
        """One entry. A BusError is not ours to end: the bus hands the entry again."""
        if entry.value is None:
            return  # what held goes on to hold
        try:
            order = order_of(entry, self._context.shared.node, self._context.clock.now_ns())
            why_not = await self._objection(order, entry.created_ns)
            if why_not is None:
                await self._context.messenger.send_stored(order, ORDERS)
        except NotAnOrder as error:
            self._context.metrics.dropped.labels("mode_entry", "decode").inc()
            self._context.log.warning("mode_entry_refused", revision=entry.revision, detail=str(error)[:_LONGEST])
            return
        event = "mode_entry_obeyed" if why_not is None else "mode_entry_passed_over"
        self._context.log.info(event, revision=entry.revision, mode=order.mode, by=order.by, why=why_not)

    async def _objection(self, order: Command, created_ns: int) -> str | None:
        messenger = self._context.messenger
        orders = await messenger.dated_history(ORDERS, Command, _RECENT)
        if newest_mode_order(orders) is None:
            orders = await messenger.dated_history(ORDERS, Command, _ALL)
        kept_since_ns = await messenger.kept_since_ns(ORDERS) if newest_mode_order(orders) is None else 0
        return objection(order, created_ns, orders, kept_since_ns)
