"""The change budget: how many more changes the rate allows (I2)."""

from collections import deque

_MINUTE = 60.0


class ChangeBudget:
    """Counts changes in a sliding window. Times are monotonic seconds and are arguments.

    In no window of a minute are there more than `max_per_minute` changes; a rate below one a minute stretches the
    window to the time that one change takes.
    """

    def __init__(self, max_per_minute: float) -> None:
        self._most = max(1, int(max_per_minute))
        self._window_seconds = _MINUTE * max(1.0, 1.0 / max_per_minute)
        self._changes: deque[float] = deque()

    @property
    def window_seconds(self) -> float:
        """Seconds for which a change counts."""
        return self._window_seconds

    def left(self, now: float) -> int:
        """Changes that may still be made now."""
        while self._changes and now - self._changes[0] >= self._window_seconds:
            self._changes.popleft()
        return max(0, self._most - len(self._changes))

    def spend(self, now: float) -> None:
        """A change was let through. Times must not go back."""
        self._changes.append(now)
