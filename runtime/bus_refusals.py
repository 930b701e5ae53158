"""What the server's permissions did not let us do, told as an event: the caller of a request hears only silence."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

_NOT_PERMITTED: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)", re.IGNORECASE)
_MOST: Final = 100
"""Refusals told in the life of one connection; a subject may hold a random part, so there is no end to them."""


class Refusals:
    """Tells each refusal once a connection. `first` is for those who wait for an answer that will not come."""

    def __init__(self, on_event: Callable[[str, str], None]) -> None:
        self._on_event = on_event
        self._told: set[str] = set()
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, error: Exception) -> bool:
        """Whether it was a refusal; then it is told."""
        found = _NOT_PERMITTED.search(str(error))
        if found is None:
            return False
        what = f"this credential may not {'publish' if found[1].lower() == 'publish' else 'subscribe'} to {found[2]}"
        if what not in self._told and len(self._told) < _MOST:
            self._told.add(what)
            self._on_event("refused", f"{what}; see the permissions of its user in the server's configuration")
        if not self.first.done():
            self.first.set_result(what)
        return True

    def forget(self) -> None:
        """After a reconnect the server may have other permissions."""
        self._told.clear()
