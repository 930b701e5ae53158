"""Whether a process is alive and ready, as Kubernetes asks it. Pure: the time is an argument."""

from dataclasses import dataclass, field


@dataclass
class Health:
    """`beat` is called once a loop; `not_ready` holds reasons that go away again, by name."""

    stall_seconds: float
    last_beat: float
    not_ready: dict[str, str] = field(default_factory=dict)

    def beat(self, now: float) -> None:
        """The loop ticked at this monotonic time."""
        self.last_beat = now

    def require(self, name: str, reason: str | None) -> None:
        """Records that `name` is not ready for this reason, or with None that it is."""
        if reason is None:
            self.not_ready.pop(name, None)
        else:
            self.not_ready[name] = reason

    def alive(self, now: float) -> tuple[bool, str]:
        """Whether the loop ticked lately."""
        age = now - self.last_beat
        if age > self.stall_seconds:
            return False, f"last tick {age:.1f} s ago, limit {self.stall_seconds:.1f} s"
        return True, f"last tick {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Whether it does its whole work, and else why not."""
        if self.not_ready:
            return False, "; ".join(f"{name}: {reason}" for name, reason in sorted(self.not_ready.items()))
        return True, "ready"
