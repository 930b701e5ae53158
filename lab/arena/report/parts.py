"""Owns the small pieces that page and sections share: words, cells, swatches, figures with captions. Pure."""

from collections.abc import Sequence
from html import escape

from lab.arena.report.summary import Line


def plural(count: int, what: str) -> str:
    """A number of things: `1 policy`, `2 policies`."""
    return f"{count} {what}" if count == 1 else f"{count} {what.removesuffix('y')}{'ies' if what[-1] == 'y' else 's'}"


def swatch(slot: int) -> str:
    """A piece of a policy's line, for legends."""
    style = 'style="display:inline-block;width:26px;height:10px;min-width:0"'
    return f'<svg viewBox="0 0 26 10" {style}><path class="line s{slot} main" d="M1 5h24"/></svg>'


def figure(drawing: str, caption: str) -> str:
    """A drawing with a caption that is HTML already; nothing without a drawing."""
    return f'<figure><div class="scroll">{drawing}</div><figcaption>{caption}</figcaption></figure>' if drawing else ""


def cell(shown: str, *, is_best: bool = False) -> str:
    """A cell of a table; the best is underlined."""
    return f'<td class="best">{escape(shown)}</td>' if is_best else f"<td>{escape(shown)}</td>"


def best_score(lines: Sequence[Line]) -> float | None:
    """The best mean score of a policy; None where all have the same, so that none stands out."""
    scores = {line.score.mean for line in lines if not line.is_search}
    return max(scores) if len(scores) > 1 else None
