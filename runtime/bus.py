"""The bus as the services see it: a protocol of five calls, so that tests run offline and NATS stays at one edge.

Control path: `publish` and `subscribe`, fresh or nothing. Learning path: `consume`, durable with explicit ack.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias


class Received(NamedTuple):
    """One message as it came off the wire."""

    subject: str
    payload: bytes


Handler: TypeAlias = Callable[[Received], Awaitable[None]]


class Subscription(Protocol):
    """A running subscription."""

    async def stop(self) -> None:
        """Ends it; a handler that runs is left to finish."""
        ...


class Bus(Protocol):
    """A connection to the message bus."""

    @property
    def connected(self) -> bool:
        """Whether a publish would leave the process now."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and regained: what was said meanwhile was not heard."""
        ...

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        """Sends at once or raises BusDown: nothing is kept for a later connection. `msg_id` is for the stream's
        duplicate window; a duplicate still reaches live subscribers twice.
        """
        ...

    async def subscribe(self, subject: str, handler: Handler, *, limit: int = 256) -> Subscription:
        """Calls `handler` for each message, one at a time; beyond `limit` waiting ones the newest are dropped and
        counted.
        """
        ...

    async def consume(self, stream: str, durable: str, subject: str, handler: Handler) -> Subscription:
        """Calls `handler` for each stored message from where this durable consumer stopped, a new one from now on;
        acknowledged when the handler returns, delivered again when it raises, five times at most.
        """
        ...

    async def last(self, stream: str, subject: str, limit: int) -> list[bytes]:
        """Up to `limit` newest stored payloads of `subject`, oldest first; BusError when the stream does not answer."""
        ...

    async def close(self) -> None:
        """Sends what is under way and closes."""
        ...
