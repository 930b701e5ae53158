"""Time as an argument: the system's clock, and one that tests move by hand."""

import asyncio
import heapq
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for messages, monotonic time for intervals, and waiting."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits at least `seconds`."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits at least `seconds`."""
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until `advance` moves it; sleepers wake in order."""

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._ns = start_ns
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch on this clock."""
        return self._ns

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock was advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        event = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._count, event))
        await event.wait()

    def step_wall(self, seconds: float) -> None:
        """Moves the wall clock alone, as an administrator or NTP does."""
        self._ns += int(seconds * 1e9)

    async def advance(self, seconds: float) -> None:
        """Moves both clocks and lets everything run that was due, sleeper by sleeper."""
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, event = heapq.heappop(self._sleepers)
            self._move_to(max(due, self._elapsed))
            event.set()
            await settle()
        self._move_to(end)
        await settle()

    def _move_to(self, elapsed: float) -> None:
        self._ns += int((elapsed - self._elapsed) * 1e9)
        self._elapsed = elapsed


async def settle(rounds: int = 20) -> None:
    """Lets every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
