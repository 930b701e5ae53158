"""The dead man's switch: how long there has been no sign of the guard."""

from dataclasses import dataclass


@dataclass
class DeadMan:
    """`fires` once per silence; any sign of life arms it again. Times are monotonic seconds."""

    limit_seconds: float
    last_sign: float
    fired: bool = False

    def sign(self, now: float) -> None:
        """The guard was heard."""
        self.last_sign = now
        self.fired = False

    def fires(self, now: float) -> bool:
        """True once, when the silence has lasted too long."""
        if self.fired or now - self.last_sign < self.limit_seconds:
            return False
        self.fired = True
        return True
