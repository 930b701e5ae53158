"""Owns the figures of one number per policy: regret, violations, and what is won over the others; intervals always."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lab.arena.report import svg
from lab.arena.report.summary import Line, percent
from lab.arena.statistics import Interval

WIDTH: Final = 430.0
_ROW: Final = 24.0
_TOP: Final = 8.0
_FOOT: Final = 38.0
_LETTER: Final = 6.6


def regret(lines: Sequence[Line], slots: dict[str, int]) -> str:
    """Bars: how far a score lies below that of the best static profile; diamonds: below the best one per phase."""
    known = [(line, line.regret_static) for line in lines if line.regret_static is not None]
    if not known:
        return ""
    phase = [line.regret_phase for line, _ in known if line.regret_phase is not None]
    values = [end for found in [*[own for _, own in known], *phase] for end in found.ends]
    left = _room(line.policy for line, _ in known)
    x = svg.linear(values, left, WIDTH - 12, with_zero=True)
    body = [_grid(x, len(known), "regret, score per cycle (right is worse)", "")]
    for index, (line, own) in enumerate(known):
        middle = _TOP + index * _ROW + _ROW / 2
        body.append(svg.text(left - 8, middle + 4, line.policy, "name", "end"))
        body.append(_bar(x, own.mean, middle, 13.0, f"bar s{slots[line.policy]}", title=f"{line.policy}: {own}"))
        if own.low is not None:
            body.append(svg.whisker(middle, x.at(own.ends[0]), x.at(own.ends[1]), across=True))
        if line.regret_phase is not None:
            title = f"against the best per phase: {line.regret_phase}"
            body.append(svg.diamond(x.at(line.regret_phase.mean), middle, "hollow", title, 4.0))
    return svg.figure(WIDTH, _height(len(known)), "".join(body), "regret by policy")


def violations(lines: Sequence[Line], slots: dict[str, int]) -> str:
    """Two bars a policy: the part of the requests that missed the objective; latency-critical full, default pale."""
    known = [line for line in lines if line.violation_lc is not None or line.violation_default is not None]
    if not known:
        return ""
    pairs = [(line, line.violation_lc, line.violation_default) for line in known]
    values = [end * 100.0 for _, *both in pairs for found in both if found is not None for end in found.ends]
    left = _room(line.policy for line in known)
    x = svg.linear([0.0, *[min(100.0, max(0.0, value)) for value in values], 1.0], left, WIDTH - 12, with_zero=True)
    body = [_grid(x, len(known), "requests over their objective", " %")]
    for index, (line, *both) in enumerate(pairs):
        middle = _TOP + index * _ROW + _ROW / 2
        body.append(svg.text(left - 8, middle + 4, line.policy, "name", "end"))
        for found, offset, pale, cls in zip(
            both, (-4.5, 4.5), ("", " pale"), ("latency-critical", "default"), strict=True
        ):
            if found is None:
                continue
            title = f"{line.policy}, {cls}: {percent(found.mean)}"
            css = f"bar{pale} s{slots[line.policy]}"
            body.append(_bar(x, found.mean * 100.0, middle + offset, 8.0, css, title=title))
            if found.low is not None:
                low, high = (min(1.0, max(0.0, end)) * 100.0 for end in found.ends)
                body.append(svg.whisker(middle + offset, x.at(low), x.at(high), across=True))
    return svg.figure(WIDTH, _height(len(known)), "".join(body), "violations by policy")


@dataclass(frozen=True)
class Won:
    """What a policy scores above two others in one scenario."""

    name: str
    over_baseline: Interval | None
    over_static: Interval | None


def forest(rows: Sequence[Won], slots: tuple[int, int]) -> str:
    """Two marks a scenario, with intervals: the score above request-derived weights, and above the best static profile;
    right of zero the policy is better. `slots` are their colours.
    """
    both = [found for row in rows for found in (row.over_baseline, row.over_static) if found is not None]
    if not both:
        return ""
    width = 880.0
    left = _room(row.name for row in rows)
    x = svg.linear([end for found in both for end in found.ends], left, width - 16, with_zero=True)
    body = [_grid(x, len(rows), "difference of scores per cycle, paired by seed (right is better)", "")]
    for index, row in enumerate(rows):
        middle = _TOP + index * _ROW + _ROW / 2
        body.append(svg.text(left - 8, middle + 4, row.name, "name", "end"))
        marks = (
            (row.over_baseline, -4.5, slots[0], "over request-derived"),
            (row.over_static, 4.5, slots[1], "over best static"),
        )
        for found, offset, slot, what in marks:
            if found is None:
                continue
            if found.low is not None:
                ends = found.ends
                body.append(svg.whisker(middle + offset, x.at(ends[0]), x.at(ends[1]), f"whisker s{slot}", across=True))
            body.append(
                svg.diamond(x.at(found.mean), middle + offset, f"mark s{slot}", f"{row.name}, {what}: {found}", 4.5)
            )
    return svg.figure(width, _height(len(rows)), "".join(body), "score above other policies, by scenario")


def _room(names: Iterable[str]) -> float:
    return 18.0 + _LETTER * max(len(name) for name in names)


def _height(rows: int) -> float:
    return _TOP + rows * _ROW + _FOOT


def _grid(x: svg.Scale, rows: int, axis_name: str, unit: str) -> str:
    bottom = _TOP + rows * _ROW
    parts: list[str] = []
    for tick in x.ticks(max(2, round((x.end - x.start) / 55))):
        at = x.at(tick)
        parts.append(svg.line(at, _TOP, at, bottom, "axis" if abs(tick) < 1e-9 else "grid"))  # noqa: PLR2004 - as label()
        parts.append(svg.text(at, bottom + 15, svg.label(tick) + unit, "tick", "middle"))
    parts.append(svg.text((x.start + x.end) / 2, bottom + 32, axis_name, "axis-name", "middle"))
    return "".join(parts)


def _bar(x: svg.Scale, value: float, middle: float, height: float, css: str, *, title: str) -> str:
    left, right = sorted((x.at(0.0), x.at(value)))
    return svg.rect(left, middle - height / 2, max(1.0, right - left), height, css, title=title)
