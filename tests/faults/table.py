"""What came of each fault, and the table that says so. Pure: results in, text out."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["ok", "RED", "not run"]

LEGEND = """\
seen in       the message, log line, metric or file that showed the fault or the answer to it
safe after    seconds from the fault until the expected end state was seen
originals     every pod's cpu.weight byte-equal to what it was, after the row (mode shadow) and after the processes' end
once          no cycle was applied twice, none without a verdict that allows it, none after its deadline
lost          messages that the cycles begun during the row owed (six each) and nobody heard
left          processes, mounts, files and folders left behind by the row's rig"""


@dataclass
class Result:
    """One row. None: not known, since the row did not get that far."""

    family: str
    fault: str
    expected: str
    seen_in: str = ""
    safe_seconds: float | None = None
    originals: bool | None = None
    once: bool | None = None
    lost: int | None = None
    left: str = ""
    trouble: str = ""
    not_run: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """`ok` only where everything that a row promises was seen."""
        if self.trouble:
            return "RED"
        if self.not_run:
            return "not run"
        whole = self.seen_in and self.safe_seconds is not None and self.originals and self.once and not self.left
        return "ok" if whole else "RED"


def as_records(results: Iterable[Result]) -> list[dict[str, object]]:
    """The rows for a file."""
    return [{**asdict(result), "verdict": result.verdict} for result in results]


def exit_code(results: Sequence[Result]) -> int:
    """0 if at least one row ran and none is red."""
    verdicts = {result.verdict for result in results}
    return 0 if "ok" in verdicts and "RED" not in verdicts else 1


def render(results: Sequence[Result]) -> str:
    """The table, grouped by family, with a line of why below every row that is not ok."""
    head = ("fault", "seen in", "safe after", "originals", "once", "lost", "left", "verdict")
    rows = [_cells(result) for result in results]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [_line(head, widths)]
    family = ""
    for result, row in zip(results, rows, strict=True):
        if result.family != family:
            family = result.family
            lines += ["", f"{family}:"]
        lines.append(_line(row, widths))
        why = result.trouble or result.not_run
        if why:
            lines.append(f"    {why}; expected: {result.expected}" if result.trouble else f"    {why}")
        if result.left:
            lines.append(f"    left behind: {result.left}")
    return "\n".join([*lines, "", summary(results), "", LEGEND])


def summary(results: Sequence[Result]) -> str:
    """How many of each verdict."""
    found = [result.verdict for result in results]
    return f"{found.count('ok')} ok, {found.count('RED')} red, {found.count('not run')} not run"


def _cells(result: Result) -> tuple[str, ...]:
    if result.verdict == "not run":
        return (result.fault, "", "", "", "", "", "", "not run")
    return (
        result.fault,
        result.seen_in,
        "" if result.safe_seconds is None else f"{result.safe_seconds:.1f} s",
        _claim(result.originals, "intact", "CHANGED"),
        _claim(result.once, "yes", "NO"),
        "" if result.lost is None else str(result.lost),
        "SEE BELOW" if result.left else "none",
        result.verdict,
    )


def _claim(known: bool | None, yes: str, no: str) -> str:
    return "?" if known is None else yes if known else no


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
