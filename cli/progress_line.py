"""Owns how long work is told on: a line that renews itself on a terminal, else one every few seconds."""

import time
from collections.abc import Callable
from typing import Final, TextIO

_REWRITE_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 5.0


class ProgressLine:
    """Told at intervals on a stream. `clock` gives seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._told_at = self._started = clock()
        self._width = 0

    @property
    def seconds(self) -> float:
        """From when it was made until it was last due."""
        return self._told_at - self._started

    def is_due(self) -> bool:
        """Whether it is time to tell; the next time is counted from then."""
        now = self._clock()
        if now - self._told_at < (_REWRITE_SECONDS if self._is_terminal else _LINE_SECONDS):
            return False
        self._told_at = now
        return True

    def tell(self, text: str) -> None:
        """Puts the line there."""
        if self._is_terminal:
            self._stream.write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Leaves the cursor on a line of its own."""
        if self._width:
            self._stream.write("\n")
            self._width = 0

    def erase(self) -> None:
        """Leaves the cursor on an empty line."""
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()
            self._width = 0
