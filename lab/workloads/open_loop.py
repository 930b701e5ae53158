"""The open loop: starts every request when it is due, whatever became of the earlier ones."""

import asyncio
from collections.abc import Callable, Iterator


class OpenLoop:
    """Calls `start_request(due)` for each arrival, `due` on the loop's clock in seconds.

    Arrivals that come late, since this process was kept from its CPU, are started at once with the time they were due,
    so that the delay is counted and not omitted. `max_lag_seconds` is the worst such delay: when it is not small
    against the latencies, the generator itself was starved.
    """

    def __init__(self, arrivals: Iterator[float], start_request: Callable[[float], None]) -> None:
        self.finished = asyncio.Event()
        self.started_requests = 0
        self.max_lag_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._arrivals = arrivals
        self._start_request = start_request
        self._is_paused = False
        self._origin = 0.0
        self._next_due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin: arrival times count from now."""
        self._origin = self._loop.time()
        self._advance()
        self._fire()

    def pause(self) -> None:
        """Leave arrivals out from now on. The schedule goes on: what falls into the pause is never sent."""
        self._fire()
        self._is_paused = True

    def resume(self) -> None:
        """Take arrivals in again, from now on."""
        self._fire()
        self._is_paused = False

    def stop(self) -> None:
        """No more arrivals."""
        if self._timer is not None:
            self._timer.cancel()
        self.finished.set()

    def _fire(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while not self.finished.is_set():
            lag = self._loop.time() - self._next_due
            if lag < 0.0:
                self._timer = self._loop.call_at(self._next_due, self._fire)
                return
            if not self._is_paused:
                self.started_requests += 1
                self.max_lag_seconds = max(self.max_lag_seconds, lag)
                self._start_request(self._next_due)
            self._advance()

    def _advance(self) -> None:
        offset = next(self._arrivals, None)
        if offset is None:
            self.finished.set()
        else:
            self._next_due = self._origin + offset
