"""Repeated rollbacks open a breaker: originals return, a cool-down passes, then one change is tried."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.messages import BreakerState


@dataclass
class Breaker:
    """Counts rollbacks in a sliding window. Times are monotonic seconds and are arguments.

    Half open it lets one change through. What then comes of it closes the breaker or opens it again, and so does
    nothing: a change of which nothing good is known after `trial_seconds` counts as one that failed.
    """

    rollbacks_to_open: int
    window_seconds: float
    cool_down_seconds: float
    trial_seconds: float
    _rollbacks: deque[float] = field(default_factory=deque)
    _opened_at: float | None = None
    _tried_at: float | None = None

    def resume(self, rollbacks: Iterable[float], opened_at: float | None) -> None:
        """Takes up where an earlier run stood: the times of its rollbacks, oldest first, and when it opened, if it has
        not closed since. Nobody can judge a change that was under trial any more: its maker takes it back.
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
        """Why no change may be tried now, or None. Half-open lets one change through."""
        if self._opened_at is None:
            return None
        left = self.cool_down_seconds - (now - self._opened_at)
        if left > 0:
            return f"the breaker is open for another {left:.0f} s: {len(self._rollbacks)} rollbacks"
        if self._tried_at is not None:
            return "the breaker is half open: the one change under trial has not been judged"
        return None

    def tried(self, now: float) -> None:
        """A change was let through."""
        if self.state(now) == "half_open":
            self._tried_at = now

    def not_tried(self) -> None:
        """The change under trial was not carried out: one more may be tried."""
        self._tried_at = None

    @property
    def is_trying(self) -> bool:
        """Whether one change is under trial."""
        return self._tried_at is not None

    def kept(self, now: float) -> None:
        """A change was judged and kept: a half-open breaker closes."""
        if self.state(now) == "half_open" and self._tried_at is not None:
            self._opened_at = self._tried_at = None
            self._rollbacks.clear()

    def is_due(self, now: float) -> bool:
        """Whether a change has been under trial for as long as it may."""
        return self._tried_at is not None and now - self._tried_at >= self.trial_seconds

    def gives_up(self, now: float) -> bool:
        """Whether the trial has lasted too long without evidence; True opens it again, for another cool-down."""
        if not self.is_due(now):
            return False
        self.reopen(now)
        return True

    def reopen(self, now: float) -> None:
        """The change under trial came to nothing: another cool-down begins."""
        self._opened_at, self._tried_at = now, None

    def rolled_back(self, now: float) -> bool:
        """A change was rolled back; True when this opens the breaker."""
        self._rollbacks.append(now)
        while self._rollbacks and now - self._rollbacks[0] > self.window_seconds:
            self._rollbacks.popleft()
        again = self.state(now) == "half_open"
        self._tried_at = None
        if again or (self._opened_at is None and len(self._rollbacks) >= self.rollbacks_to_open):
            self._opened_at = now
            return True
        return False
