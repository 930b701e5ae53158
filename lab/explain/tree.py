"""A tree of texts as lines for a terminal: wrapped to its width, coloured if it wants that."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

Tone = Literal["", "head", "good", "bad", "dim"]

_SGR: Final[dict[Tone, str]] = {"head": "1", "good": "32", "bad": "31", "dim": "2"}
_LEAST_WIDTH: Final = 40


class Branch(msgspec.Struct, frozen=True):
    """A text and what belongs under it. The lines of a table are `fixed`: they are cut, not wrapped."""

    text: str
    below: tuple["Branch", ...] = ()
    tone: Tone = ""
    fixed: bool = False


def draw(root: Branch, width: int = 100, *, colour: bool = False) -> Iterator[str]:
    """The lines of a tree, none of more than `width` signs."""
    yield from _lines(root, "", "", width, colour=colour)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], tones: Sequence[Tone] = ()) -> tuple[Branch, ...]:
    """Rows under a head, in columns."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    return tuple(
        Branch(line, tone=tone, fixed=True)
        for line, tone in zip(lines, ("dim", *(tones or [""] * len(rows))), strict=True)
    )


def _lines(branch: Branch, first: str, rest: str, width: int, *, colour: bool) -> Iterator[str]:
    text = "".join(sign if sign.isprintable() else "?" for sign in branch.text)
    room = max(_LEAST_WIDTH, width - len(first))
    under = "│  " if branch.below else "   "
    if branch.fixed:
        parts = [text if len(text) <= room else f"{text[: room - 1]}…"]
    else:
        parts = textwrap.wrap(text, room, subsequent_indent="" if not first else "  ", break_on_hyphens=False) or [""]
    yield first + _toned(parts[0], branch.tone, colour=colour)
    for part in parts[1:]:
        yield rest + (under if branch.below and first else "") + _toned(part.strip(), branch.tone, colour=colour)
    for index, child in enumerate(branch.below):
        is_last = index == len(branch.below) - 1
        yield from _lines(
            child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "), width, colour=colour
        )


def _toned(text: str, tone: Tone, *, colour: bool) -> str:
    return f"\x1b[{_SGR[tone]}m{text}\x1b[0m" if colour and tone else text
