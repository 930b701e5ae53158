"""Collects what callbacks and handlers are called with, and waits for a claim about it to come true."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 15.0


class Heard(Generic[T]):
    """`add` is a callback; `until` waits without polling."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._changed = asyncio.Event()

    def add(self, item: T) -> None:
        self.items.append(item)
        self._changed.set()

    async def until(self, claim: Callable[[list[T]], bool]) -> list[T]:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not claim(self.items):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never came true; heard {self.items}") from None
        return self.items
