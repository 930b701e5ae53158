"""What the guard knows of one cycle."""

from dataclasses import dataclass

from schemas.messages import State, Verdict


@dataclass
class Cycle:
    """`age_seconds` is that of its state when it came, at `seen_at`.

    `settled`: the change was compared, or taken back before that. Nothing is judged twice, whatever is delivered twice.
    """

    state: State
    seen_at: float
    age_seconds: float
    verdict: Verdict | None = None
    applied: bool = False
    after: State | None = None
    settled: bool = False
