"""Which order of a mode holds: the fold over the stream of orders, in the order in which the server stored them.

An order counts once, under its first storing: one that comes again under an id that is known is a replay. One that lets
weights move must also carry the time of the moment: an old one that is stored again, or one from the future, lets
nothing move. To stand still needs no right time: nobody is kept from a freeze by a wrong clock.
"""

import re
from collections.abc import Container, Iterable
from typing import Final, TypeAlias

from schemas.messages import Command, Mode

STANDS_STILL: Final[frozenset[Mode]] = frozenset({"shadow", "frozen"})
"""The modes in which nothing is written."""

Stored: TypeAlias = tuple[Command, int]
"""An order, and the server's wall time in nanoseconds when it was stored."""

_AGAIN: Final = "again-"
_AGAIN_ID: Final = re.compile(r"again-[0-9]{1,19}-")
_SECOND: Final = 1_000_000_000
_BY: Final = "guard"


def sets_mode(order: Command) -> bool:
    """Whether it is an order of a mode."""
    return order.verb == "mode" and order.mode is not None


def key_of(order: Command) -> str:
    """What tells two orders apart: the id, or where there is none, everything."""
    return order.id or f"{order.by}/{order.at}/{order.verb}/{order.mode}/{order.reason}"


def refusal(order: Command, stored_ns: int, known: Container[str], max_skew_seconds: float) -> str | None:
    """Why an order of a mode does not count: `duplicate`, `stale` or `future`, else None."""
    if key_of(order) in known:
        return "duplicate"
    if order.mode in STANDS_STILL:
        return None
    skew_seconds = (stored_ns - order.at) / _SECOND
    if skew_seconds > max_skew_seconds:
        return "stale"
    return "future" if skew_seconds < -max_skew_seconds else None


def in_force(orders: Iterable[Stored], max_skew_seconds: float) -> Stored | None:
    """The order that holds, oldest first given; None if none does.

    A guard says again what holds, before it is too far back to be found (`said_again`): that counts where the order
    itself is no longer there, and never against another one that came in between.
    """
    held: Stored | None = None
    known: set[str] = set()
    for order, stored_ns in orders:
        if not sets_mode(order):
            continue
        if is_again(order):
            if held is None and refusal(order, stored_ns, (), max_skew_seconds) is None:
                held = (order, first_stored_ns(order, stored_ns))
            continue
        if refusal(order, stored_ns, known, max_skew_seconds) is None:
            held = (order, stored_ns)
        known.add(key_of(order))
    return held


def said_again(order: Command, stored_ns: int, now_ns: int) -> Command:
    """The same order by the guard's word now. Its id says when the first was stored (`stored_ns`), and which it was."""
    first = key_of(order).split("-", 2)[2] if is_again(order) else key_of(order)
    reason = order.reason if is_again(order) else f"still in force, ordered by {order.by}: {order.reason}"
    return Command(
        node=order.node,
        boot=order.boot,
        cycle=order.cycle,
        at=now_ns,
        verb="mode",
        by=_BY,
        reason=reason[:300],
        mode=order.mode,
        id=f"{_AGAIN}{stored_ns}-{first}"[:300],
    )


def first_stored_ns(order: Command, stored_ns: int) -> int:
    """When an order was first stored; `stored_ns` is when it was stored this time."""
    return int((order.id or "").split("-", 2)[1]) if is_again(order) else stored_ns


def is_again(order: Command) -> bool:
    """Whether it only says again what holds."""
    return order.by == _BY and _AGAIN_ID.match(order.id or "") is not None
