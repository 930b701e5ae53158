"""Owns the figures over time: P99 with its phases, the cumulative score, and which arm was in force. Pure."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from lab.arena.report import svg
from lab.arena.results import Band, BestStatic, Curves

WIDTH: Final = 880.0
_LEFT, _RIGHT, _TOP = 66.0, 16.0, 40.0
_MAP_TOP: Final = 20.0
_PANEL: Final = 150.0
_GAP: Final = 44.0
_BINS: Final = 150
"""Points of a line: one for every five pixels or so, which is what an eye can follow."""

_LABEL_PIXELS: Final = 6.2
_ROW: Final = 15.0
_MOST_ROWS: Final = 12
_SHADES: Final = 4

Phases = Sequence[tuple[str, int]]


def p99_over_time(curves: Sequence[Curves], phases: Phases, objectives: dict[str, float], slots: dict[str, int]) -> str:
    """P99 of the latency-critical and of the default class, one panel each on a logarithmic scale; a point is the worst
    of its cycles. Phases are shaded, the objective is the dashed line.
    """
    cycles = max([1, *(len(curve.scores) for curve in curves)])
    panels: list[tuple[str, str, Callable[[Curves], Sequence[float | None]]]] = [
        ("latency-critical", "P99, ms", lambda curve: curve.p99_lc_ms),
        ("default", "P99, ms", lambda curve: curve.p99_default_ms),
    ]
    body: list[str] = []
    top = _TOP
    for cls, unit, field in panels:
        lines = [(curve, field(curve)) for curve in curves]
        values = [value for _, series in lines for value in series if value is not None]
        if not values:
            continue
        objective_ms = objectives[cls] * 1000.0 if cls in objectives else None
        y = svg.logarithmic([*values, *([] if objective_ms is None else [objective_ms])], top + _PANEL, top)
        x = svg.Scale(0.0, float(cycles), _LEFT, WIDTH - _RIGHT)
        body.append(_shading(phases, x, top, _PANEL, with_names=top == _TOP))
        body.append(_axes(x, y, top, _PANEL))
        body.append(svg.text(4, top - (26 if top == _TOP else 9), f"{cls}: {unit}", "panel"))
        if objective_ms is not None:
            at = y.at(objective_ms)
            body.append(svg.line(_LEFT, at, WIDTH - _RIGHT, at, "objective"))
            words = f"objective {svg.label(objective_ms)} ms"
            body.append(svg.text(WIDTH - _RIGHT - 4, at - 4, words, "objective-name", "end"))
        for curve, series in lines:
            points = [None if worst is None else (x.at(middle), y.at(worst)) for middle, worst in _worst(series)]
            body.append(svg.polyline(points, _line_class(curve.policy, slots)))
        top += _PANEL + _GAP
    if not body:
        return ""
    body.append(svg.text((WIDTH + _LEFT) / 2, top - 14, "cycle", "axis-name", "middle"))
    return svg.figure(WIDTH, top - 8, "".join(body), "P99 over time by policy")


def cumulative(
    bands: Sequence[Band], best: Sequence[BestStatic], cycles: int, phases: Phases, slots: dict[str, int]
) -> str:
    """The cumulative score, mean over the seeds with its 95 % interval; at the end, what the best static profile of
    each seed came to.
    """
    if not bands:
        return ""
    cycles = max(1, cycles)
    ends = [found.score * cycles for found in best]
    values = [value for band in bands for value in (*band.mean, *band.low, *band.high)]
    height = 240.0
    y = svg.linear([*values, *ends], _TOP + height, _TOP, with_zero=True)
    x = svg.Scale(0.0, float(cycles), _LEFT, WIDTH - _RIGHT - 8)
    body = [_shading(phases, x, _TOP, height, with_names=True), _axes(x, y, _TOP, height)]
    for band in bands:
        pixels = [x.at(float(cycle)) for cycle in band.cycle]
        if band.low and band.high:
            upper = [(at, y.at(value)) for at, value in zip(pixels, band.high, strict=False)]
            lower = [(at, y.at(value)) for at, value in zip(pixels, band.low, strict=False)]
            body.append(svg.area(upper, lower, f"band s{slots[band.policy]} t{slots[band.policy]}"))
    for band in bands:
        points = [(x.at(float(at)), y.at(value)) for at, value in zip(band.cycle, band.mean, strict=False)]
        body.append(svg.polyline([(x.at(0.0), y.at(0.0)), *points], _line_class(band.policy, slots)))
    if ends:
        mean = sum(ends) / len(ends)
        title = f"best static profile in hindsight: {mean:.1f}"
        body.append(svg.diamond(x.at(float(cycles)), y.at(mean), f"mark s{slots['best-static']}", title))
    body.append(svg.text(4, _TOP - 26, "cumulative score", "panel"))
    body.append(svg.text((WIDTH + _LEFT) / 2, _TOP + height + 32, "cycle", "axis-name", "middle"))
    return svg.figure(WIDTH, _TOP + height + 38, "".join(body), "cumulative score by policy")


def arm_map(curve: Curves, phases: Phases) -> str:
    """Which arm was in force when: a row per arm, darker where it was for more of the cycles. Rare arms share a row."""
    cycles = len(curve.arms)
    if cycles == 0:
        return ""
    counts = Counter(curve.arms)
    kept = [arm for arm, _ in counts.most_common(_MOST_ROWS if len(counts) <= _MOST_ROWS else _MOST_ROWS - 1)]
    rows = sorted(kept, key=_natural) + ([f"{len(counts) - len(kept)} others"] if len(counts) > len(kept) else [])
    row_of = {arm: index for index, arm in enumerate(rows)}
    left = 8.0 + _LABEL_PIXELS * max(len(_short(row)) for row in rows)
    x = svg.Scale(0.0, float(cycles), max(_LEFT, left), WIDTH - _RIGHT)
    top, height = _MAP_TOP, _ROW * len(rows)
    body = [_shading(phases, x, top, height, with_names=True)]
    for arm, index in row_of.items():
        body.append(svg.text(x.start - 6, top + index * _ROW + 11, _short(arm), "tick", "end"))
    shades: list[list[str]] = [[] for _ in range(_SHADES)]
    for start, end in _bins(cycles):
        here = Counter(row_of.get(arm, len(rows) - 1) for arm in curve.arms[start:end])
        for index, count in here.items():
            shade = math.ceil(_SHADES * count / (end - start)) - 1
            left_px, width = x.at(start), x.at(end) - x.at(start)
            at = f"M{svg.number(left_px)} {svg.number(top + index * _ROW + 1)}"
            shades[shade].append(f"{at}h{svg.number(width + 0.2)}v{_ROW - 2:g}h{svg.number(-width - 0.2)}z")
    for shade, cells in enumerate(shades):
        if cells:
            body.append(f'<path class="cell h{shade}" d="{"".join(cells)}"/>')
    body.append(svg.line(x.start, top + height, x.end, top + height, "axis"))
    body += [svg.text(x.at(tick), top + height + 14, svg.label(tick), "tick", "middle") for tick in x.ticks(8)]
    return svg.figure(WIDTH, top + height + 20, "".join(body), f"arms of {curve.policy} over time")


def _line_class(policy: str, slots: dict[str, int]) -> str:
    slot = slots[policy]
    return f"line s{slot} t{slot}" + (" main" if policy == "trimtab" else "")


def _bins(cycles: int) -> list[tuple[int, int]]:
    step = max(1, math.ceil(cycles / _BINS))
    return [(start, min(cycles, start + step)) for start in range(0, cycles, step)]


def _worst(series: Sequence[float | None]) -> list[tuple[float, float | None]]:
    """(middle of some cycles, the largest value in them), None where nothing was known."""
    found: list[tuple[float, float | None]] = []
    for start, end in _bins(len(series)):
        known = [value for value in series[start:end] if value is not None]
        found.append(((start + end) / 2, max(known) if known else None))
    return found


def _shading(phases: Phases, x: svg.Scale, top: float, height: float, *, with_names: bool) -> str:
    """The phases as stripes, one tint per name, with the names above where there is room."""
    names = list(dict.fromkeys(name for name, _ in phases))
    parts: list[str] = []
    for index, (name, start) in enumerate(phases):
        end = phases[index + 1][1] if index + 1 < len(phases) else x.high
        left, right = x.at(float(start)), x.at(float(end))
        tint = names.index(name) % 3
        if tint:
            parts.append(svg.rect(left, top, right - left, height, f"phase{tint}", title=name))
        if with_names and len(names) > 1 and right - left > _LABEL_PIXELS * len(name):
            parts.append(svg.text((left + right) / 2, top - 7, name, "phase-name", "middle"))
    return "".join(parts)


def _axes(x: svg.Scale, y: svg.Scale, top: float, height: float) -> str:
    parts: list[str] = []
    for tick in y.ticks():
        parts.append(svg.line(x.start, y.at(tick), x.end, y.at(tick), "axis" if tick == 0.0 else "grid"))
        parts.append(svg.text(x.start - 6, y.at(tick) + 4, svg.label(tick), "tick", "end"))
    bottom = top + height
    parts.append(svg.line(x.start, bottom, x.end, bottom, "axis"))
    parts += [svg.text(x.at(tick), bottom + 15, svg.label(tick), "tick", "middle") for tick in x.ticks(8)]
    return "".join(parts)


def _natural(text: str) -> list[tuple[bool, float, str]]:
    """A key by which numbers within texts are ordered as numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(index % 2 == 0, float(part) if index % 2 else 0.0, part) for index, part in enumerate(parts)]


def _short(arm: str) -> str:
    longest = 22
    return arm if len(arm) <= longest else f"{arm[: longest - 1]}…"
