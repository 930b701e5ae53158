"""How the demo is shown: a live table on a terminal, plain lines elsewhere, and the closing table."""

import sys
import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.story import line_of
from lab.demo import Watcher
from lab.demo_report import BatchFigures, LatencyFigures, PhaseFigures, Report, is_disturbed
from schemas.messages import AnyMessage, ClassState, Reward, State

_TITLES = {
    "solo": "solo: the API and the monitor alone",
    "baseline": "baseline: batch joins, weights from requests (4000m : 250m = 16 : 1), nobody steers",
    "learning": "controlled: mode active, the loop finds its way",
    "controlled": "controlled: measured",
}


class PlainView(Watcher):
    """Lines on stderr, one a cycle."""

    def say(self, line: str) -> None:
        """A line of talk."""
        print(f"trimtab demo: {line}", file=sys.stderr, flush=True)

    def phase(self, name: str, seconds: float) -> None:
        """A phase begins."""
        print(f"--- {_TITLES[name]} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def message(self, message: AnyMessage) -> None:
        """States before a decision, changes, and rewards."""
        if (
            (isinstance(message, State) and message.phase == "before")
            or message.__struct_config__.tag in ("actuation", "command")
            or isinstance(message, Reward)
        ):
            print(line_of(message), file=sys.stderr, flush=True)


class LiveView(Watcher):
    """A table that is redrawn in place, on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._state: State | None = None
        self._lines: deque[str] = deque(maxlen=12)
        self._phase = ("", 0.0, 0.0)
        self._live.start()

    def say(self, line: str) -> None:
        """A line of talk, above the table."""
        self._live.console.print(f"trimtab demo: {line}", highlight=False, markup=False)

    def phase(self, name: str, seconds: float) -> None:
        """A phase begins."""
        self._phase = (name, time.monotonic(), seconds)
        self._draw()

    def message(self, message: AnyMessage) -> None:
        """Every message is a line; a state also fills the table."""
        if isinstance(message, State):
            self._state = message
        self._lines.append(line_of(message))
        self._draw()

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self._live.stop()

    def _draw(self) -> None:
        name, started, seconds = self._phase
        spent = time.monotonic() - started
        head = Text(f"{_TITLES.get(name, 'starting')}  {spent:.0f} of {seconds:.0f} s", style="bold")
        table = class_table(self._state)
        width = self._console.width
        story = Text("\n".join(line[: width - 1] for line in self._lines), style="dim")
        self._live.update(Group(head, table, story))


def class_table(state: State | None) -> Table:
    """The classes as last seen, one a row, each with what judges it."""
    columns = ("class", "judged by", "P99", "over objective", "waited", "CPU", "share by weight", "weight")
    table = Table(*columns, expand=True)
    for cls, seen in (state.classes if state else {}).items():
        latency = seen.latency
        table.add_row(
            cls,
            _judged_by(seen),
            _milliseconds(latency.p99_seconds, saturated="p99" in latency.saturated),
            _percent(latency.over_ratio),
            _percent(seen.waited_ratio),
            "" if seen.cpu_cores is None else f"{seen.cpu_cores:.2f} cores",
            _percent(seen.share),
            "" if seen.weight is None else str(seen.weight),
        )
    return table


def _judged_by(seen: ClassState) -> str:
    if seen.judged_by == "pressure" and seen.objective_pressure_ratio is not None:
        return f"wait ≤ {seen.objective_pressure_ratio * 100:.3g} %"
    if seen.judged_by == "latency" and seen.objective_seconds is not None:
        return f"P99 ≤ {seen.objective_seconds * 1000:,.0f} ms"
    return ""


def view_for(stream_is_terminal: bool) -> PlainView | LiveView:  # noqa: FBT001 - one argument, named by the caller
    """The view that fits where it is shown."""
    return LiveView() if stream_is_terminal else PlainView()


def closing_table(report: Report) -> str:
    """The table that the demo ends with, as plain text. The batch work of a phase stands in the API's row."""
    told = {**report.phases, "learning": report.learning}
    phases = {name: told[name] for name in ("solo", "baseline", "learning", "controlled") if told.get(name)}
    rows = [
        ("", "P50", "P95", "P99", "requests", "over objective", "batch work/s"),
        *(_row("API", "latency-critical", name, figures) for name, figures in phases.items()),
        *(_row("monitor", "default", name, figures) for name, figures in phases.items()),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    counts = report.counts
    lines.append("")
    if is_disturbed(report.phases):
        lines.append("ALONE the API missed its objective: this machine was too slow or too busy; run it again")
    where = "real cgroups" if report.backend == "cgroup" else "a SIMULATED node"
    lines.append(
        f"{report.cycles} cycles on {where}, {report.cpus} CPU{'s' if report.cpus != 1 else ''}, "
        f"{counts['shadow']} of them in shadow before the loop was switched on:"
    )
    lines.append(
        f"{counts['applied']} applied, {counts['held']} held, {counts['refused']} refused, {counts['late']} late, "
        f"{counts['rolled_back']} rolled back; {counts['censored']} cycles not learned from"
    )
    lines.append("every weight is what it was" if report.restored else "NOT every weight is what it was: see the logs")
    lines.append(f"the bus, message by message: {report.recording}")
    return "\n".join(lines)


def _row(pod: str, cls: str, phase: str, figures: PhaseFigures) -> tuple[str, ...]:
    seen, batch = figures[cls], figures["batch"]
    assert isinstance(seen, LatencyFigures)
    assert isinstance(batch, BatchFigures)
    return (
        f"{pod}, {phase}",
        _ms(seen.p50_ms),
        _ms(seen.p95_ms),
        _ms(seen.p99_ms),
        str(seen.requests),
        _percent(seen.violation_ratio),
        f"{batch.work_per_second:.0f}" if pod == "API" else "",
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _milliseconds(seconds: float | None, *, saturated: bool) -> str:
    return "" if seconds is None else f"{'>' if saturated else ''}{seconds * 1000:,.0f} ms"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f} %"
