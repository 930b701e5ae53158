"""Owns what the tables say: one line per scenario x policy, over its seeds. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lab.arena.results import Results, Row
from lab.arena.statistics import Interval, mean_interval, median, paired_difference

BASELINE: Final = "request-derived"
BEST_STATIC: Final = "best-static"
BEST_PER_PHASE: Final = "best-per-phase"
ALONE: Final = "alone"
OURS: Final = ("trimtab", "trimtab-cold")


@dataclass(frozen=True)
class Line:
    """One policy in one scenario. Ratios are 0-1, means over the seeds; `worst_shortfall` is the worst of the seeds and
    `plateau_cycle` their median. `over_baseline` and `over_static` are differences of scores, paired by seed. The grid
    searches' own lines have a score and nothing else.

    `recovered` is how much of the way from the latency-critical P99 with request-derived weights to that of the service
    alone was gone; known where `alone` was played. `batch_kept` is what batch had of what the load left: of all that
    batch, services and clients had under request-derived weights together, less what services and clients have under
    this policy. Both, as all `_settled`, are of the second halves of the runs.
    """

    scenario: str
    queue: str
    policy: str
    score: Interval
    violation_lc: Interval | None = None
    violation_default: Interval | None = None
    p99_lc_ms: float | None = None
    p99_default_ms: float | None = None
    batch_share: float | None = None
    changes_per_minute: float | None = None
    rollbacks: float | None = None
    violation_seconds: float | None = None
    regret_static: Interval | None = None
    regret_phase: Interval | None = None
    over_baseline: Interval | None = None
    over_static: Interval | None = None
    worst_shortfall: float | None = None
    plateau_cycle: float | None = None
    recovered: float | None = None
    p99_lc_settled_ms: float | None = None
    batch_share_settled: float | None = None
    services_share_settled: float | None = None
    clients_share_settled: float | None = None
    agent_share_settled: float | None = None
    batch_kept: float | None = None

    @property
    def is_search(self) -> bool:
        """Whether this is what hindsight found, and no policy."""
        return self.policy in (BEST_STATIC, BEST_PER_PHASE)


def scenarios_of(results: Results) -> tuple[tuple[str, str], ...]:
    """(scenario, queue), in the order of the file."""
    rows = [(row.scenario, row.queue) for row in results.results]
    return tuple(dict.fromkeys([*rows, *((best.scenario, best.queue) for best in results.best_static)]))


def policies_of(results: Results) -> tuple[str, ...]:
    """The policies that anything is known of, in the order of the file."""
    rows = [row.policy for row in results.results]
    others = [*(curve.policy for curve in results.curves), *(band.policy for band in results.bands)]
    return tuple(dict.fromkeys([*rows, *others]))


def summarise(results: Results) -> tuple[Line, ...]:
    """Every line, scenario by scenario: the policies in the order of the file, then what hindsight found."""
    lines: list[Line] = []
    for scenario, queue in scenarios_of(results):
        rows = [row for row in results.results if (row.scenario, row.queue) == (scenario, queue)]
        best = {b.seed: b for b in results.best_static if (b.scenario, b.queue) == (scenario, queue)}
        baseline = {row.seed: row.score for row in rows if row.policy == BASELINE}
        static = {seed: found.score for seed, found in best.items()}
        ours = [
            _line([row for row in rows if row.policy == policy], baseline, static)
            for policy in dict.fromkeys(row.policy for row in rows)
        ]
        lines += _with_settled(ours)
        if best:
            per_phase = [found.per_phase_score for found in best.values()]
            lines.append(Line(scenario, queue, BEST_STATIC, mean_interval(list(static.values()))))
            lines.append(Line(scenario, queue, BEST_PER_PHASE, mean_interval(per_phase)))
    return tuple(lines)


def _line(rows: Sequence[Row], baseline: dict[int, float], static: dict[int, float]) -> Line:
    first = rows[0]
    return Line(
        scenario=first.scenario,
        queue=first.queue,
        policy=first.policy,
        score=mean_interval([row.score for row in rows]),
        violation_lc=_interval([row.violation_lc for row in rows]),
        violation_default=_interval([row.violation_default for row in rows]),
        p99_lc_ms=_mean(rows, lambda row: row.p99_lc_ms),
        p99_default_ms=_mean(rows, lambda row: row.p99_default_ms),
        batch_share=_mean(rows, lambda row: row.batch_share),
        changes_per_minute=_mean(rows, lambda row: row.changes_per_minute),
        rollbacks=_mean(rows, lambda row: row.rollbacks),
        violation_seconds=_mean(rows, lambda row: row.violation_seconds),
        regret_static=_interval([row.regret_static for row in rows]),
        regret_phase=_interval([row.regret_phase for row in rows]),
        over_baseline=None if first.policy == BASELINE else _over(rows, baseline),
        over_static=_over(rows, static),
        worst_shortfall=max(row.worst_shortfall for row in rows),
        plateau_cycle=_middle([row.plateau_cycle for row in rows]),
        p99_lc_settled_ms=_mean(rows, lambda row: row.p99_lc_settled_ms),
        batch_share_settled=_mean(rows, lambda row: row.batch_share_settled),
        services_share_settled=_mean(rows, lambda row: row.services_share_settled),
        clients_share_settled=_mean(rows, lambda row: row.clients_share_settled),
        agent_share_settled=_mean(rows, lambda row: row.agent_share_settled),
    )


def _with_settled(lines: Sequence[Line]) -> list[Line]:
    """The lines with what takes two to tell: a policy beside the baseline and the service alone."""
    by_policy = {line.policy: line for line in lines}
    baseline, alone = by_policy.get(BASELINE), by_policy.get(ALONE)
    if baseline is None or alone is None:
        return list(lines)
    return [
        replace(line, recovered=_recovered(line, baseline, alone), batch_kept=_batch_kept(line, baseline))
        for line in lines
    ]


def _recovered(line: Line, baseline: Line, alone: Line) -> float | None:
    start, goal, here = baseline.p99_lc_settled_ms, alone.p99_lc_settled_ms, line.p99_lc_settled_ms
    if start is None or goal is None or here is None or start <= goal:
        return None
    return (start - here) / (start - goal)


def _batch_kept(line: Line, baseline: Line) -> float | None:
    if line.policy == ALONE or line.batch_share_settled is None or baseline.batch_share_settled is None:
        return None
    left = baseline.batch_share_settled + _load(baseline) - _load(line)
    return line.batch_share_settled / left if left > 0.0 else None


def _load(line: Line) -> float:
    return (line.services_share_settled or 0.0) + (line.clients_share_settled or 0.0)


def _over(rows: Sequence[Row], others: dict[int, float]) -> Interval | None:
    pairs = [(row.score, others[row.seed]) for row in rows if row.seed in others]
    return paired_difference([ours for ours, _ in pairs], [theirs for _, theirs in pairs]) if pairs else None


def _mean(rows: Sequence[Row], field: Callable[[Row], float | None]) -> float | None:
    known = [value for row in rows if (value := field(row)) is not None]
    return sum(known) / len(known) if known else None


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None


def _middle(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


COLUMNS: Final = (
    "scenario",
    "queue",
    "policy",
    "seeds",
    "score [95 %]",
    "lc late",
    "default late",
    "lc P99 ms",
    "batch CPU",
    "changes/min",
    "rollbacks",
    "regret [95 %]",
    "worst shortfall",
)
"""What the table on a terminal shows."""

SETTLED: Final = "settled P99 ms"
RECOVERED: Final = "P99 recovered"
KEPT: Final = "batch of what is left"
AGENT: Final = "agent CPU"


def columns_of(lines: Sequence[Line]) -> tuple[str, ...]:
    """The columns, with what the second halves tell where `alone` was played."""
    if all(line.recovered is None and line.batch_kept is None for line in lines):
        return COLUMNS
    return (*COLUMNS, SETTLED, RECOVERED, KEPT, AGENT)


def cells(line: Line) -> dict[str, str | None]:
    """The line as the table shows it, by column; None where there is nothing to say."""
    return {
        "scenario": line.scenario,
        "queue": line.queue,
        "policy": line.policy,
        "seeds": str(line.score.count),
        "score [95 %]": str(line.score),
        "lc late": _mean_percent(line.violation_lc),
        "default late": _mean_percent(line.violation_default),
        "lc P99 ms": milliseconds(line.p99_lc_ms),
        "batch CPU": percent(line.batch_share),
        "changes/min": _rounded(line.changes_per_minute),
        "rollbacks": _rounded(line.rollbacks),
        "regret [95 %]": None if line.regret_static is None else str(line.regret_static),
        "worst shortfall": percent(line.worst_shortfall),
        SETTLED: milliseconds(line.p99_lc_settled_ms),
        RECOVERED: percent(line.recovered),
        KEPT: percent(line.batch_kept),
        AGENT: percent(line.agent_share_settled),
    }


def as_record(line: Line) -> dict[str, Any]:
    """The line in full, for JSON: an interval is its mean, with `_low` and `_high` beside it."""
    record: dict[str, Any] = {"scenario": line.scenario, "queue": line.queue, "policy": line.policy}
    record["seeds"] = line.score.count
    for name, value in vars(line).items():
        if isinstance(value, Interval):
            record |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
        elif name not in record:
            record[name] = value
    return record


def percent(ratio: float | None) -> str | None:
    """A ratio of 0-1 for people: three digits that count, never `0.0 %` for what is above zero."""
    if ratio is None:
        return None
    value = 100.0 * ratio
    if 0.0 < value < 0.05:  # noqa: PLR2004 - what one digit would round to zero
        return "<0.1 %"
    return f"{value:.1f} %"


def _mean_percent(interval: Interval | None) -> str | None:
    return None if interval is None else percent(interval.mean)


def milliseconds(value: float | None) -> str | None:
    """Milliseconds for people: one decimal below a hundred, thousands set apart."""
    if value is None:
        return None
    return f"{value:.1f}" if value < 100.0 else f"{value:,.0f}"  # noqa: PLR2004 - three digits that count


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
