"""What the server's permissions did not let us do, told as an event: the caller of a request hears only silence."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

from schemas.subjects import ROOT

WHO_MAY: Final = "`trimtab creds show DIR` lists what each credential may do"
"""The way out where a permission may be what is missing."""

_NOT_PERMITTED: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)", re.IGNORECASE)
_OF_ORDERS: Final = re.compile(
    rf"publish to (?:\S*\.)?(?:{re.escape(ROOT)}\.command\.|\$kv\.trimtab-mode\.|stream\.info\.trimtab_orders$)",
    re.IGNORECASE,
)
"""To give orders, by message or by entry, and to read those that were given."""
_MOST: Final = 100
"""Refusals told in the life of one connection; a subject may hold a random part, so there is no end to them."""


class Refusals:
    """Tells each refusal once a connection. `first` is for those who wait for an answer that will not come."""

    def __init__(self, on_event: Callable[[str, str], None]) -> None:
        self._on_event = on_event
        self._told: dict[str, str] = {}  # by what: to which subject
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, error: Exception) -> bool:
        """Whether it was a refusal; then it is told."""
        found = _NOT_PERMITTED.search(str(error))
        if found is None:
            return False
        what = f"this credential may not {'publish' if found[1].lower() == 'publish' else 'subscribe'} to {found[2]}"
        if what not in self._told and len(self._told) < _MOST:
            self._told[what] = found[2].lower()
            self._on_event("refused", f"{what}; {way_out(what)}")
        if not self.first.done():
            self.first.set_result(what)
        return True

    def about(self, is_meant: Callable[[str], bool]) -> str | None:
        """What was refused on such a subject, in small letters as nats-py tells it, and what helps; None if nothing."""
        return next((f"{what}; {way_out(what)}" for what, subject in self._told.items() if is_meant(subject)), None)

    def forget(self) -> None:
        """After a reconnect the server may have other permissions."""
        self._told.clear()


def way_out(refused: str) -> str:
    """What helps who was refused that: for orders, whose they are to give."""
    if _OF_ORDERS.search(refused):
        return f"orders are given with the operator's credential (operator.seed), by the guard with its own; {WHO_MAY}"
    return WHO_MAY
