"""How far a long piece of work is: one line that renews itself on a terminal, else a line each tenth of the way."""

import time
from collections.abc import Callable
from typing import TextIO


class Progress:
    """Counts ended runs and says so on `stream`. `each`: off a terminal, a line for every run (they take minutes)."""

    def __init__(
        self,
        total: int,
        stream: TextIO,
        *,
        each: bool = False,
        what: str = "trimtab bench",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._stream = stream
        self._each = each
        self._what = what
        self._clock = clock
        self._started = clock()
        self._ended = self._failed = self._tenths = 0
        self._is_terminal = stream.isatty()
        self._width = 0

    def ended(self, name: str, failed: str | None = None) -> None:
        """One more has ended; `failed` is why it gave nothing."""
        self._ended += 1
        if failed is not None:
            self._failed += 1
            self._line(f"{self._what}: failed: {name}: {failed}")
        self._show(name)

    def reached(self, done: int) -> None:
        """So many have ended."""
        self._ended = done
        self._show("")

    def close(self) -> None:
        """Leaves the cursor on a line of its own."""
        if self._width:
            self._line("")

    def _show(self, name: str) -> None:
        text = f"{self._what}: {self._ended} of {self._total}{self._left()}"
        if self._failed:
            text += f", {self._failed} failed"
        if self._is_terminal:
            shown = f"{text}  {name}"[:110]
            self._stream.write(f"\r{shown.ljust(self._width)}")
            self._stream.flush()
            self._width = len(shown)
            return
        tenths = 10 * self._ended // max(1, self._total)
        if self._each or tenths > self._tenths:
            self._line(f"{text}{f': {name}' if self._each and name else ''}")
        self._tenths = tenths

    def _left(self) -> str:
        if self._ended >= self._total:
            return f", took {duration(self._clock() - self._started)}"
        return f", about {duration((self._clock() - self._started) / self._ended * (self._total - self._ended))} left"

    def _line(self, text: str) -> None:
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._width = 0
        if text:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """A time for people: `40 s`, `12 min`, `3 h 5 min`."""
    minutes = round(seconds / 60.0)
    if seconds < 90.0:  # noqa: PLR2004 - up to there seconds are easier to grasp
        return f"{seconds:.0f} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"
