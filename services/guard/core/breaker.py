"""Repeated rollbacks open a breaker: originals return, a cool-down passes, then one change is tried."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.messages import BreakerState


@dataclass
class Breaker:
    """Counts rollbacks in a sliding window. Times are monotonic seconds and are arguments."""

    rollbacks_to_open: int
    window_seconds: float
    cool_down_seconds: float
    _rollbacks: deque[float] = field(default_factory=deque)
    _opened_at: float | None = None
    _trying: bool = False

    def resume(self, rollbacks: Iterable[float], opened_at: float | None) -> None:
        """Takes up where an earlier run stood: the times of its rollbacks, oldest first, and when it opened, if it has
        not closed since. A change that was under trial counts as inconclusive: nobody can judge it any more.
        """
        self._opened_at = opened_at
        for at in rollbacks:
            if opened_at is None:
                self.rolled_back(at)
            else:
                self._rollbacks.append(at)

    def state(self, now: float) -> BreakerState:
        """Where it stands at this moment."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if now - self._opened_at >= self.cool_down_seconds else "open"

    def blocks(self, now: float) -> str | None:
        """Why no change may be tried now, or None. Half-open lets one change through at a time."""
        if self._opened_at is None:
            return None
        left = self.cool_down_seconds - (now - self._opened_at)
        if left > 0:
            return f"the breaker is open for another {left:.0f} s: {len(self._rollbacks)} rollbacks"
        if self._trying:
            return "the breaker is half open: the one change under trial has not been judged"
        return None

    def tried(self, now: float) -> None:
        """A change was let through."""
        if self.state(now) == "half_open":
            self._trying = True

    def kept(self, now: float) -> None:
        """A change was judged and kept: a half-open breaker closes."""
        if self.state(now) == "half_open" and self._trying:
            self._opened_at = None
            self._trying = False
            self._rollbacks.clear()

    def inconclusive(self) -> None:
        """The change under trial could not be judged: another may be tried."""
        self._trying = False

    def rolled_back(self, now: float) -> bool:
        """A change was rolled back; True when this opens the breaker."""
        self._rollbacks.append(now)
        while self._rollbacks and now - self._rollbacks[0] > self.window_seconds:
            self._rollbacks.popleft()
        again = self.state(now) == "half_open"
        self._trying = False
        if again or (self._opened_at is None and len(self._rollbacks) >= self.rollbacks_to_open):
            self._opened_at = now
            return True
        return False
