"""Owns the page: one HTML file of everything a bench found, without any other resource. Pure.

Whatever a file says is escaped: a report is forwarded, and its file may come from anywhere.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from lab.arena.report import bars
from lab.arena.report.palette import colour_rules, slots
from lab.arena.report.parts import best_score, cell, figure, plural, swatch
from lab.arena.report.section import section
from lab.arena.report.style import CSS, SCRIPT, toggles
from lab.arena.report.summary import (
    BASELINE,
    BEST_STATIC,
    OURS,
    Line,
    policies_of,
    scenarios_of,
    summarise,
)
from lab.arena.results import Results

CLOSE: Final = 0.03
"""A score that is less than this below another counts as good as that: what issue and findings ask of the policy."""

_SHOWN_AT_FIRST: Final = 5
_MOST_NOTES: Final = 50


def render(results: Results) -> str:
    """The whole page."""
    lines = summarise(results)
    policies = policies_of(results)
    colours = slots(policies)
    subject = next((name for name in (*OURS, *policies) if name in policies and name != BASELINE), None)
    pairs = scenarios_of(results)
    used = sorted({colours[name] for name in policies})
    first = next((pair for pair in pairs if _matters(results, pair[0])), pairs[0] if pairs else None)
    sections = [
        section(
            results,
            pair,
            [line for line in lines if (line.scenario, line.queue) == pair],
            colours,
            subject,
            is_open=pair == first,
        )
        for pair in pairs
    ]
    empty = "" if pairs else "<p>No run ended, so there is nothing to show. The notes below say why.</p>"
    head = f"<style>{CSS}{colour_rules([*policies, BEST_STATIC])}{toggles(used)}</style>"
    body = [
        _heading(results, lines, subject),
        _overview(lines, pairs, subject, colours),
        "<h2>Scenario by scenario</h2>" if pairs else "",
        _legend(lines, policies, colours) if pairs else "",
        *sections,
        empty,
        _provenance(results),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        f"<title>{escape(_title(results))}</title>{head}</head><body><main>{''.join(body)}</main>"
        f"<script>{SCRIPT if pairs else ''}</script></body></html>\n"
    )


def _matters(results: Results, scenario: str) -> bool:
    about = results.about.get(scenario)
    return about is None or about.matters


def _title(results: Results) -> str:
    where = "real cgroups" if results.backend == "cgroup" else "the simulator"
    return f"Trimtab bench on {where}"


def _heading(results: Results, lines: Sequence[Line], subject: str | None) -> str:
    minutes = results.cycles * results.cycle_seconds / 60.0
    size = (
        f"{plural(len(scenarios_of(results)), 'scenario')}, {plural(len(policies_of(results)), 'policy')}, "
        f"{plural(len(results.seeds), 'seed')}, {results.cycles} cycles of {results.cycle_seconds:g} s "
        f"({minutes:.0f} min) each"
    )
    verdict = _verdict(lines, subject) if subject is not None else ""
    warning = "" if not results.notes else f'<p class="minus">{plural(len(results.notes), "note")} at the end.</p>'
    return f'<h1>{escape(_title(results))}</h1><p class="soft">{escape(size)}</p>{verdict}{warning}'


def _verdict(lines: Sequence[Line], subject: str) -> str:
    """What came out, counted: better, as good, worse."""
    mine = [line for line in lines if line.policy == subject]
    base = [line.over_baseline for line in mine if line.over_baseline is not None]
    best = [line.over_static for line in mine if line.over_static is not None]
    words: list[str] = []
    if base:
        better = sum(found.ends[0] > 0.0 for found in base)
        worse = sum(found.ends[1] < 0.0 for found in base)
        has_spread = all(found.low is not None for found in base)
        how = "95 % intervals beyond zero" if has_spread else "one seed: without intervals"
        words.append(
            f"scores above request-derived weights in <b>{better} of {len(base)}</b> scenarios and below in "
            f"<b>{worse}</b> ({how})"
        )
    if best:
        above = sum(found.ends[0] > 0.0 for found in best)
        close = sum(found.mean >= -CLOSE for found in best)
        words.append(
            f"against the best static profile in hindsight it is at most {CLOSE:g} below in <b>{close} of {len(best)}"
            f"</b>, and above in <b>{above}</b>"
        )
    worst = max((line.worst_shortfall for line in mine if line.worst_shortfall is not None), default=None)
    if worst is not None and base:
        words.append(f"its cumulative score was never more than <b>{100 * worst:.1f} %</b> below request-derived's")
    return f'<p class="lead"><b>{escape(subject)}</b> {"; ".join(words)}.</p>' if words else ""


def _overview(
    lines: Sequence[Line], pairs: Sequence[tuple[str, str]], subject: str | None, colours: dict[str, int]
) -> str:
    if not pairs:
        return ""
    parts: list[str] = []
    won = [
        bars.Won(f"{line.scenario}, {line.queue}", line.over_baseline, line.over_static)
        for line in lines
        if line.policy == subject
    ]
    forest = bars.forest(won, (colours[BASELINE], colours[BEST_STATIC]))
    if forest and subject is not None:
        keys = swatch(colours[BASELINE]) + " over request-derived weights&ensp;" + swatch(colours[BEST_STATIC])
        caption = f"{keys} over the best static profile in hindsight. Lines are 95 % intervals over the seeds."
        parts.append(f"<h2>What {escape(subject)} wins, and where it does not</h2>{figure(forest, caption)}")
    names = list(dict.fromkeys(line.policy for line in lines))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(_matrix_row(pair, [ln for ln in lines if (ln.scenario, ln.queue) == pair], names) for pair in pairs)
    parts.append(
        "<h2>Mean score per cycle</h2>"
        f'<div class="scroll"><table><tr><th>scenario</th>{head}</tr>{body}</table></div>'
        '<p class="note">From -1.5 (every request late) to 0.3 (all in time, batch has every CPU). Underlined: the '
        "best policy of the row. best-static and best-per-phase are found in hindsight: no policy knows them.</p>"
    )
    return "".join(parts)


def _matrix_row(pair: tuple[str, str], lines: Sequence[Line], names: Sequence[str]) -> str:
    by_policy = {line.policy: line for line in lines}
    top = best_score(lines)
    found: list[str] = []
    for name in names:
        line = by_policy.get(name)
        is_best = line is not None and not line.is_search and line.score.mean == top
        shown = "" if line is None else f"{line.score.mean:.3f}"
        found.append(cell(shown, is_best=is_best))
    return f"<tr><td>{escape(pair[0])}, {escape(pair[1])}</td>{''.join(found)}</tr>"


def _legend(lines: Sequence[Line], policies: Sequence[str], colours: dict[str, int]) -> str:
    """One box per policy; when there are many, ours, the baseline and the best of the others are shown at first."""
    shown = set(policies)
    if len(policies) > _SHOWN_AT_FIRST:
        means = {
            name: sum(scores) / len(scores)
            for name in policies
            if name not in (*OURS, BASELINE) and (scores := [ln.score.mean for ln in lines if ln.policy == name])
        }
        rest = sorted(means, key=lambda name: means[name])[-1:]
        shown = {*OURS, BASELINE, *rest}
    boxes = "".join(
        f'<label><input type="checkbox" id="b{colours[name]}"{" checked" if name in shown else ""}>'
        f"{swatch(colours[name])}{escape(name)}</label>"
        for name in policies
    )
    return f'<div class="legend">{boxes}<button id="all" type="button">open / close all</button></div>'


def _provenance(results: Results) -> str:
    seeds = ", ".join(map(str, results.seeds))
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    rows = [
        ("command", f"<code>{escape(results.made_by)}</code>"),
        ("made at", escape(results.made_at)),
        ("trimtab", escape(f"{results.trimtab}, commit {results.commit}" if results.commit else results.trimtab)),
        ("machine", escape(results.machine)),
        ("versions", escape(versions)),
        ("seeds", escape(seeds)),
        ("runs", f"{len(results.results)} of policies, {len(results.best_static)} grid searches"),
    ]
    shown = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows if text and text != "<code></code>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in results.notes[:_MOST_NOTES])
    more = len(results.notes) - _MOST_NOTES
    notes += f"<li>and {more} more in the file</li>" if more > 0 else ""
    how = (
        '<p class="note">Runs are drawn in random order within blocks of one seed, so that drift of the machine hits '
        "all policies alike. Intervals of means are Student's t over the seeds; those of differences are bootstrapped "
        "over pairs of one seed. P99s in tables are means over the seeds; the worst shortfall is the worst seed's. "
        "docs/bench.md explains every column.</p>"
    )
    listed = f"<h3>Notes</h3><ul>{notes}</ul>" if notes else ""
    return f"<h2>How it was made</h2><dl>{shown}</dl>{how}{listed}"
