"""Owns how a figure is drawn: scales, ticks, axes and marks as SVG text. Pure; colours come from the page's classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

Anchor = Literal["start", "middle", "end"]

_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_LOG_PER_DECADE: Final = (1.0, 2.0, 5.0)
_FEW_DECADES: Final = 2.0


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `end`; values outside are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        inside = min(max(value, self.low), self.high)
        if self.is_log:
            part = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            part = (inside - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the scale: multiples of 1, 2 or 5 (log: of 1, 2 and 5 per decade, or of 1 if many)."""
        if self.is_log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / max(1, about))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((step * power for step in _STEPS if step * power >= rough * 0.999), 10.0 * power)


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = _LOG_PER_DECADE if math.log10(high / low) <= _FEW_DECADES else (1.0,)
    values = [factor * 10.0**power for power in decades for factor in factors]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def linear(values: Sequence[float], start: float, end: float, *, with_zero: bool = False) -> Scale:
    """A scale with a little room around the values; with zero in it if asked for."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if with_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - (0.0 if with_zero else 1.0), high + 1.0
    room = (high - low) * 0.06
    low = low if with_zero and low == 0.0 else low - room
    high = high if with_zero and high == 0.0 else high + room
    return Scale(low, high, start, end)


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """A logarithmic scale around the positive ones of the values."""
    known = [value for value in values if math.isfinite(value) and value > 0.0] or [1.0, 10.0]
    low, high = min(known) / 1.25, max(known) * 1.25
    return Scale(low, high, start, end, is_log=True)


def number(value: float) -> str:
    """A coordinate: one decimal, and no more characters than that needs."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def label(value: float) -> str:
    """A tick's value."""
    if abs(value) < 1e-9:  # noqa: PLR2004 - a sum of steps that should be zero
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"  # noqa: PLR2004 - thousands are set apart


def text(x: float, y: float, words: str, css: str = "", anchor: Anchor = "start") -> str:
    """A piece of text; what stands in it is escaped."""
    at = f' text-anchor="{anchor}"' if anchor != "start" else ""
    kind = f' class="{css}"' if css else ""
    return f'<text x="{number(x)}" y="{number(y)}"{kind}{at}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<path class="{css}" d="M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"/>'


def rect(x: float, y: float, width: float, height: float, css: str, *, title: str = "") -> str:
    """A rectangle; `title` is shown when one points at it."""
    shape = f'<rect class="{css}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def polyline(points: Sequence[tuple[float, float] | None], css: str) -> str:
    """A line through points in pixels; None is a gap. Written as short relative steps: pages have hundreds of them."""
    parts: list[str] = []
    before: tuple[float, float] | None = None
    for point in points:
        if point is None:
            before = None
            continue
        here = (round(point[0], 1), round(point[1], 1))
        if before is None:
            parts.append(f"M{number(here[0])} {number(here[1])}h0l")
        else:
            parts.append(f"{number(here[0] - before[0])} {number(here[1] - before[1])} ")
        before = here
    path = "".join(parts).replace("lM", "M").replace(" M", "M").strip().removesuffix("l")
    return f'<path class="{css}" d="{path}"/>' if path else ""


def area(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], css: str) -> str:
    """The surface between two lines."""
    outline = [*upper, *reversed(lower)]
    path = "L".join(f"{number(x)} {number(y)}" for x, y in outline)
    return f'<path class="{css}" d="M{path}Z"/>' if outline else ""


def whisker(x: float, low: float, high: float, css: str = "whisker", *, across: bool = False) -> str:
    """An interval with end caps: upright at `x`, or with `across` level at height `x`."""
    cap = 3.0
    if across:
        ends = "".join(f"M{number(end)} {number(x - cap)}v{number(2 * cap)}" for end in (low, high))
        return f'<path class="{css}" d="M{number(low)} {number(x)}H{number(high)}{ends}"/>'
    ends = "".join(f"M{number(x - cap)} {number(end)}h{number(2 * cap)}" for end in (low, high))
    return f'<path class="{css}" d="M{number(x)} {number(low)}V{number(high)}{ends}"/>'


def diamond(x: float, y: float, css: str, title: str = "", size: float = 5.0) -> str:
    """A point that is no bar."""
    path = f"M{number(x)} {number(y - size)}l{number(size)} {number(size)}l{number(-size)} {number(size)}"
    shape = f'<path class="{css}" d="{path}l{number(-size)} {number(-size)}Z"'
    return f"{shape}><title>{escape(title)}</title></path>" if title else f"{shape}/>"


def figure(width: float, height: float, body: str, name: str) -> str:
    """The whole figure; `name` is read out to who cannot see it."""
    size = f'viewBox="0 0 {number(width)} {number(height)}"'
    return f'<svg {size} role="img" aria-label="{escape(name, quote=True)}">{body}</svg>'
