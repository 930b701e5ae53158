"""What the guard knows of one cycle."""

from dataclasses import dataclass, field

from schemas.messages import State, Verdict


@dataclass
class Cycle:
    """`age_seconds` is that of its state when it came, at `seen_at`.

    `settled`: the change was compared, or taken back before that. Nothing is judged twice, whatever is delivered twice.
    `written` are the weights that its change left, by group.
    """

    state: State
    seen_at: float
    age_seconds: float
    verdict: Verdict | None = None
    applied: bool = False
    after: State | None = None
    settled: bool = False
    written: dict[str, int] = field(default_factory=dict)

    def is_undone_in(self, state: State) -> bool:
        """Whether a pod there has another weight than its change gave it: somebody has taken it back since."""
        return any(pod.weight != self.written[pod.group] for pod in state.pods if pod.group in self.written)
