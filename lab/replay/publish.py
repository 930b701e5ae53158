"""What was recorded, said again on the bus at the spacing asked for: under the root of replays, never on a live one."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from lab.record.items import Entry, Stored
from runtime.errors import BusDown, TrimtabError
from schemas.codec import decode_on
from schemas.subjects import replay_subject

PATIENCE_SECONDS: Final = 10.0
"""How long a server may not take what is sent. 10: a reconnection takes a few."""

_RETRY_SECONDS: Final = 0.05
_TURN: Final = 64


class Voice(Protocol):
    """What is needed of a bus."""

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None: ...  # noqa: D102


class Server(Protocol):
    """Who knows what became of what was said."""

    async def flush(self) -> None: ...  # noqa: D102 - as in runtime/nats_bus.py

    def refusal_of(self, subject: str) -> str | None: ...  # noqa: D102


class Pace:
    """Waits before each message so that they follow each other as recorded, `speed` times as fast; None: at once."""

    def __init__(
        self, speed: float | None, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._begin: tuple[float, int] | None = None

    async def wait_for(self, entry: Entry) -> None:
        """Returns when it is time for this entry."""
        if self._speed is None or not isinstance(entry, Stored):
            return
        if self._begin is None:
            self._begin = self._clock(), entry.stored_ns
        started, first_ns = self._begin
        due = started + (entry.stored_ns - first_ns) / 1e9 / self._speed
        if (left := due - self._clock()) > 0:
            await self._sleep(left)


class Publisher:
    """Says the messages of a recording under `trimtabsim.<run>`. `said` and `left_out` count them, `refused` those of
    the said that the server did not take, as far as it was asked.
    """

    def __init__(self, bus: Voice, run: str, *, node: str | None = None) -> None:
        self.said = 0
        self.left_out = 0
        self.refused = 0
        self._said_on: Counter[str] = Counter()
        self._bus = bus
        self._run = run
        self._node = node

    async def say(self, entry: Entry) -> None:
        """Publishes one entry, if it is a message. What is no message of ours is left out: nobody could say whose it
        is. Raises TrimtabError where the server takes nothing for a while.
        """
        if not isinstance(entry, Stored):
            return
        try:
            message = decode_on(entry.subject, entry.payload)
            subject = replay_subject(self._run, message)
        except ValueError:  # a DecodeError is one
            self.left_out += 1
            return
        if self._node is not None and message.node != self._node:
            return
        await self._send(subject, entry.payload)
        self.said += 1
        self._said_on[subject] += 1
        if self.said % _TURN == 0:
            await asyncio.sleep(0)  # so that the connection is served, however fast we are

    async def finish(self, server: Server) -> str | None:
        """Waits until the server has looked at all that was said, and counts what it refused; the reason of the first,
        with the way out. Raises BusDown where it does not answer.
        """
        await server.flush()
        first: str | None = None
        for subject, count in self._said_on.items():
            if (reason := server.refusal_of(subject)) is not None:
                self.refused += count
                first = first or reason
        return first

    async def _send(self, subject: str, payload: bytes) -> None:
        for _ in range(int(PATIENCE_SECONDS / _RETRY_SECONDS)):
            try:
                await self._bus.publish(subject, payload)
            except BusDown as error:
                last = error
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
        raise TrimtabError(f"{last}; not for {PATIENCE_SECONDS:g} s: check the server, and give a lower --speed")
