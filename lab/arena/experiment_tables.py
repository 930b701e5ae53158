"""Owns what the runs of an experiment say: means, their 95 % intervals over the seeds, and tables in Markdown. Pure.

A seed is one draw: its scores are averaged over the scenarios first, and the interval is Student's over these means.
Differences are between runs with the same scenario and seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from lab.arena.statistics import Interval, mean_interval

NO_NUMBER: Final = "-"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as the tables need it. `changes` and `taken_back` are counts, the rest is as in the bench."""

    variant: str
    scenario: str
    queue: str
    seed: int
    score: float
    violation_lc: float | None
    violation_default: float | None
    batch_share: float
    changes_per_minute: float
    changes: int
    taken_back: int
    rollbacks: int
    worst_shortfall: float | None = None

    @property
    def place(self) -> str:
        """The scenario, and its queue where that is not the bounded one."""
        return self.scenario if self.queue == "bounded" else f"{self.scenario}, {self.queue}"


Runs = Mapping[str, Sequence[Run]]
"""By variant."""


def by_variant(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each variant, in the order in which they come."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.variant, []).append(run)
    return found


def over_seeds(runs: Iterable[Run]) -> Interval:
    """The score: mean over the scenarios for each seed, then over the seeds. ValueError without runs."""
    return mean_interval(_per_seed({(run.place, run.seed): run.score for run in runs}))


def difference(ours: Iterable[Run], theirs: Iterable[Run]) -> Interval | None:
    """How much more we score, over the pairs with the same scenario and seed; None if there is no pair."""
    pairs = _pairs(ours, theirs)
    return mean_interval(_per_seed(pairs)) if pairs else None


def by_place(ours: Iterable[Run], theirs: Iterable[Run]) -> dict[str, float]:
    """The mean difference in each scenario."""
    found: dict[str, list[float]] = {}
    for (place, _), value in _pairs(ours, theirs).items():
        found.setdefault(place, []).append(value)
    return {place: sum(values) / len(values) for place, values in found.items()}


def best_over_all(runs: Runs) -> str:
    """The variant with the highest score over all scenarios and seeds. ValueError without runs."""
    return max(runs, key=lambda variant: over_seeds(runs[variant]).mean)


def in_hindsight(runs: Runs, name: str) -> list[Run]:
    """Of each scenario and seed the run with the highest score, whichever variant's, under one name."""
    best: dict[tuple[str, int], Run] = {}
    for run in (run for of_one in runs.values() for run in of_one):
        key = (run.place, run.seed)
        if key not in best or run.score > best[key].score:
            best[key] = run
    return [msgspec.structs.replace(run, variant=name) for run in best.values()]


def comparison(runs: Runs, variants: Sequence[str], base: str) -> str:
    """One row a variant: score, difference from `base`, where it is worst and best, and what it did."""
    heads = (
        "variant", "score", f"more than {base}", "worst in", "best in", "lc late", "default late", "batch CPU",
        "changes/min", "taken back", "rollbacks", "worst shortfall",
    )  # fmt: skip
    rows = [_compared(variant, runs[variant], runs.get(base, ()), base) for variant in variants if runs.get(variant)]
    return table(heads, rows)


def static_table(runs: Runs, statics: Runs, ours: str, baseline: str) -> str:
    """One row a scenario: ours against the best static profile of each run in hindsight, against the one profile that
    is best over all that was played, and against `baseline`.
    """
    hindsight, single = in_hindsight(statics, "in hindsight"), best_over_all(statics)
    heads = ("scenario", ours, "best static, in hindsight", single, baseline, f"{ours} - best static",
             f"{ours} - {single}", f"{ours} - {baseline}")  # fmt: skip
    rows = []
    for place in [*dict.fromkeys(run.place for run in runs[ours]), None]:
        mine, best, one, base = (
            [run for run in of_one if place in (None, run.place)]
            for of_one in (runs[ours], hindsight, statics[single], runs[baseline])
        )
        if not (mine and best and one and base):
            continue
        scores = (f"{over_seeds(of_one).mean:.3f}" for of_one in (mine, best, one, base))
        deltas = (_signed(difference(mine, other)) for other in (best, one, base))
        rows.append((place or "all", *scores, *deltas))
    return table(heads, rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns as wide as what is in them."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    shown = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines]
    return "\n".join([shown[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *shown[1:]])


def _compared(variant: str, runs: Sequence[Run], base_runs: Sequence[Run], base: str) -> tuple[str, ...]:
    places = by_place(runs, base_runs)
    ordered = sorted(places, key=places.__getitem__) if variant != base else []
    ends = [f"{place} {places[place]:+.3f}" for place in (ordered[:1] + ordered[-1:])] or [NO_NUMBER, NO_NUMBER]
    changes = sum(run.changes for run in runs)
    shortfalls = [run.worst_shortfall for run in runs if run.worst_shortfall is not None]
    return (
        variant,
        str(over_seeds(runs)),
        NO_NUMBER if variant == base else _signed(difference(runs, base_runs)),
        *ends,
        _percent([run.violation_lc for run in runs]),
        _percent([run.violation_default for run in runs]),
        _percent([run.batch_share for run in runs]),
        f"{_mean([run.changes_per_minute for run in runs]):.2f}",
        f"{100.0 * sum(run.taken_back for run in runs) / changes:.0f} %" if changes else NO_NUMBER,
        f"{_mean([float(run.rollbacks) for run in runs]):.1f}",
        f"{max(shortfalls):.2f}" if shortfalls else NO_NUMBER,
    )


def _pairs(ours: Iterable[Run], theirs: Iterable[Run]) -> dict[tuple[str, int], float]:
    others = {(run.place, run.seed): run.score for run in theirs}
    return {key: run.score - others[key] for run in ours if (key := (run.place, run.seed)) in others}


def _per_seed(values: Mapping[tuple[str, int], float]) -> list[float]:
    """Of seeds that lack a scenario which others have, the mean would not compare: only whole seeds count, if any."""
    seeds: dict[int, list[float]] = {}
    for (_, seed), value in values.items():
        seeds.setdefault(seed, []).append(value)
    most = max((len(of_seed) for of_seed in seeds.values()), default=0)
    return [_mean(of_seed) for of_seed in seeds.values() if len(of_seed) == most]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100.0 * _mean(known):.1f} %" if known else NO_NUMBER


def _signed(interval: Interval | None) -> str:
    if interval is None:
        return NO_NUMBER
    if interval.low is None or interval.high is None:
        return f"{interval.mean:+.3f}"
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
