"""What a demo run says in the end: phases, counts and percentiles, from records and messages. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from lab.latency_records import RequestRecord, WorkRecord, summarise, work_per_second
from schemas.messages import Actuation, AnyMessage, Reward, State, Verdict

PHASES = ("solo", "baseline", "controlled")

MISSED_ALONE_RATIO = 0.1
"""Requests over the objective with nobody beside the API, from which on the machine itself was too slow or too busy for
the figures to say anything. An undisturbed one stays below a few per cent, also on a single slow CPU."""


@dataclass(frozen=True)
class Window:
    """A phase's measured part, in Unix seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """How the whole length is divided. Each phase begins with a part that is not measured: queues fill or drain, and
    in the controlled phase the loop finds its way; that part is reported by itself as `learning`.
    """

    solo_seconds: float
    baseline_seconds: float
    learning_seconds: float
    controlled_seconds: float
    settle_seconds: float


def schedule(duration_seconds: float) -> Schedule:
    """The division of a run of this length: a fifth alone, a quarter uncontrolled, the rest controlled."""
    controlled = 0.55 * duration_seconds
    learning = min(30.0, 0.4 * controlled)
    return Schedule(
        solo_seconds=0.2 * duration_seconds,
        baseline_seconds=0.25 * duration_seconds,
        learning_seconds=learning,
        controlled_seconds=controlled - learning,
        settle_seconds=min(3.0, 0.03 * duration_seconds),
    )


@dataclass
class Counts:
    """How the cycles ended, from the messages."""

    cycles: set[tuple[str, int]] = field(default_factory=set)
    complete: int = 0
    tally: Counter[str] = field(default_factory=Counter)

    def add(self, message: AnyMessage) -> None:
        """Takes in one message."""
        match message:
            case State(phase="before"):
                self.cycles.add((message.boot, message.cycle))
            case Verdict(outcome="refuse"):
                self.tally["refused"] += 1
            case Verdict(outcome="late"):
                self.tally["late"] += 1
            case Actuation(outcome="skipped", rule="shadow"):
                self.tally["shadow"] += 1
            case Actuation(outcome="applied" | "held" | "rolled_back" | "failed" as outcome):
                self.tally[outcome] += 1
            case Reward():
                self.complete += 1
                self.tally["censored" if message.outcome == "censored" else "learned"] += 1
            case _:
                pass

    def as_dict(self) -> dict[str, int]:
        """The counts that every report has, and those beyond them that occurred."""
        fixed = ("applied", "held", "refused", "late", "rolled_back", "censored", "learned", "failed", "shadow")
        return {name: self.tally[name] for name in fixed}


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One class in one phase. Latencies count from when a request was due."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    requests: int
    violation_ratio: float | None


class BatchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The batch class in one phase: units of work a second (compressed blocks; simulated: CPU milliseconds)."""

    work_per_second: float


PhaseFigures = dict[str, LatencyFigures | BatchFigures]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run, as `--json` writes it."""

    backend: str
    backend_reason: str | None
    duration_seconds: float
    cpus: int
    pids: dict[str, int]
    restarts: dict[str, int]
    cycles: int
    complete_cycles: int
    counts: dict[str, int]
    phases: dict[str, PhaseFigures]
    learning: PhaseFigures
    initial_weights: dict[str, str]
    final_class_weights: dict[str, int]
    restored: bool
    recording: str
    run_dir: str


def phase_figures(
    window: Window,
    requests: Mapping[str, Sequence[RequestRecord]],
    work: Sequence[WorkRecord],
    objectives_seconds: Mapping[str, float],
) -> PhaseFigures:
    """One phase's figures by class. `requests` and the objectives are by class."""
    figures: PhaseFigures = {}
    for name, records in requests.items():
        summary = summarise(records, window.start, window.end, objectives_seconds[name])
        figures[name] = LatencyFigures(
            p50_ms=summary.p50_ms,
            p95_ms=summary.p95_ms,
            p99_ms=summary.p99_ms,
            requests=summary.requests,
            violation_ratio=summary.violation_ratio,
        )
    figures["batch"] = BatchFigures(work_per_second=work_per_second(work, window.start, window.end) or 0.0)
    return figures


def is_disturbed(phases: Mapping[str, PhaseFigures]) -> bool:
    """Whether the API missed its objective when it had the machine for itself."""
    alone = phases["solo"]["latency-critical"]
    return isinstance(alone, LatencyFigures) and (alone.violation_ratio or 0.0) > MISSED_ALONE_RATIO
