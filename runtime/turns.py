"""Ending what runs: a handler at work is left to finish, everything else is cancelled until it is gone."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

FINISH_SECONDS = 5.0
"""Seconds that a handler gets to finish. 5: half of what a service has to stop (`runtime.lifecycle.STOP_SECONDS`)."""


async def end(task: asyncio.Task[T]) -> None:
    """Cancels a task and waits until it is gone.

    More than one cancellation may be needed: `asyncio.wait_for` of Python 3.11 swallows one that comes together with
    its result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)


async def within(seconds: float, call: Coroutine[object, object, T]) -> T:
    """The call's result, or TimeoutError. Unlike `asyncio.timeout` it ends a call that swallows a cancellation."""
    task = asyncio.create_task(call)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        await end(task)


class Turns:
    """Runs each call in a task of its own, so that cancelling the caller does not cut the call in two."""

    def __init__(self) -> None:
        self._running: asyncio.Task[None] | None = None

    async def take(self, call: Coroutine[object, object, None]) -> None:
        """Runs one call and waits for it."""
        self._running = asyncio.create_task(call)
        await asyncio.shield(self._running)

    async def finish(self) -> None:
        """Waits for the call at work, unless it is the one that asks; cancels it after FINISH_SECONDS."""
        running = self._running
        if running is None or running.done() or running is asyncio.current_task():
            return
        if (await asyncio.wait({running}, timeout=FINISH_SECONDS))[1]:
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
