"""Owns what the page says of one scenario: its figures and its table, behind one line that says how it went. Pure."""

from collections.abc import Sequence
from html import escape
from typing import Final

from lab.arena.report import bars, timelines
from lab.arena.report.parts import best_score, cell, figure, plural, swatch
from lab.arena.report.summary import BEST_STATIC, OURS, Line, cells, columns_of
from lab.arena.results import Curves, Results

_SCORE: Final = "score [95 %]"


def section(
    results: Results,
    pair: tuple[str, str],
    lines: Sequence[Line],
    colours: dict[str, int],
    subject: str | None,
    *,
    is_open: bool,
) -> str:
    """One scenario. `lines` are its own; `subject` is the policy that the report is about."""
    scenario, queue = pair
    about = results.about.get(scenario)
    phases = results.phases.get(scenario, ())
    curves = _one_seed([curve for curve in results.curves if (curve.scenario, curve.queue) == pair])
    bands = [band for band in results.bands if (band.scenario, band.queue) == pair]
    best = [found for found in results.best_static if (found.scenario, found.queue) == pair]
    mine = next((line for line in lines if line.policy == subject), None)
    seed = curves[0].seed if curves else None
    step = -(-results.cycles // 150)
    each = "each point the worst of its cycles" if step > 1 else "each point one cycle"
    time_figure = timelines.p99_over_time(curves, phases, about.objectives if about else {}, colours)
    sum_figure = timelines.cumulative(bands, best, results.cycles, phases, colours)
    maps = "".join(_arm_figure(curve, phases) for curve in curves)
    policies_only = [line for line in lines if not line.is_search]
    parts = [
        f"<p>{escape(about.text)}</p>" if about else "",
        "" if about is None or about.matters else '<p class="note">Weights are not expected to matter here.</p>',
        figure(time_figure, f"P99 over time with seed {seed}, {each}; shaded: phases; dashed: the objective."),
        figure(
            sum_figure,
            f"Cumulative score, mean over the seeds with 95 % interval. {swatch(colours[BEST_STATIC])} diamond at the "
            "end: the best static profile in hindsight.",
        ),
        f"<h3>Arms in force, seed {seed}</h3>{maps}"
        '<p class="note">A row per arm (letters and ratios where no arm has these weights); darker: for more of these '
        "cycles.</p>"
        if maps
        else "",
        '<div class="pair">',
        figure(
            bars.regret(policies_only, colours),
            "Bars: score below the best static profile in hindsight; diamonds: below the best one per phase. "
            "Whiskers: 95 % intervals over the seeds.",
        ),
        figure(
            bars.violations(policies_only, colours),
            "Requests that missed their objective: latency-critical (full), default (pale). Whiskers: 95 % intervals.",
        ),
        "</div>",
        _table(lines),
        _profiles(results, pair),
    ]
    return (
        f'<details class="scenario"{" open" if is_open else ""}><summary><b>{escape(scenario)}</b>'
        f'<span class="soft">{escape(queue)} queue</span>{_summary_end(mine)}</summary>{"".join(parts)}</details>'
    )


def _summary_end(line: Line | None) -> str:
    if line is None:
        return ""
    parts = [f"{escape(line.policy)} {line.score.mean:.3f}"]
    for found, what in ((line.over_baseline, "request-derived"), (line.over_static, "best static")):
        if found is not None:
            css = "plus" if found.ends[0] > 0.0 else "minus" if found.ends[1] < 0.0 else "soft"
            parts.append(f'<span class="{css}">{found.mean:+.3f}</span> to {what}')
    return f'<span class="end">{" · ".join(parts)}</span>'


def _one_seed(curves: Sequence[Curves]) -> list[Curves]:
    """Those of the first seed: lines of several seeds hide each other."""
    return [curve for curve in curves if curve.seed == curves[0].seed]


def _arm_figure(curve: Curves, phases: timelines.Phases) -> str:
    """The map of one policy, or a line of text where one arm was in force from first to last."""
    arms = set(curve.arms)
    if not arms:
        return ""
    if len(arms) == 1:
        return f'<p class="note"><b>{escape(curve.policy)}</b>: {escape(curve.arms[0])} from first to last.</p>'
    drawing = timelines.arm_map(curve, phases)
    return f'<figure><figcaption><b>{escape(curve.policy)}</b></figcaption><div class="scroll">{drawing}</div></figure>'


def _table(lines: Sequence[Line]) -> str:
    names = [name for name in columns_of(lines) if name not in ("scenario", "queue", "seeds")]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    top = best_score(lines)
    body: list[str] = []
    for line in lines:
        shown = cells(line)
        kind = ' class="search"' if line.is_search else ' class="ours"' if line.policy in OURS else ""
        columns = [
            cell(shown[name] or "", is_best=name == _SCORE and line.score.mean == top and not line.is_search)
            for name in names
        ]
        body.append(f"<tr{kind}>{''.join(columns)}</tr>")
    return f'<h3>All figures</h3><div class="scroll"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _profiles(results: Results, pair: tuple[str, str]) -> str:
    """Which profiles hindsight found, and with how many of the seeds."""
    best = [found for found in results.best_static if (found.scenario, found.queue) == pair]
    if not best:
        return ""
    counts: dict[str, int] = {}
    for found in best:
        name = ", ".join(f"{cls} {weight}" for cls, weight in found.profile.items())
        counts[name] = counts.get(name, 0) + 1
    words = "; ".join(
        f"{escape(name)} ({plural(count, 'seed')})" for name, count in sorted(counts.items(), key=lambda item: -item[1])
    )
    return f'<p class="note">Best static profile of {best[0].tried} tried: {words}.</p>'
