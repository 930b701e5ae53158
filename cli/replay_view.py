"""What is shown of a replay: differences with both messages, counts, and what could not be replayed and why."""

import json
from typing import Final, Literal

from cli.order_view import printable, show_rows
from cli.progress_line import ProgressLine
from lab.replay.compare import Difference
from lab.replay.decider import Links
from lab.replay.other import Comparison, Otherwise
from lab.replay.replayer import KINDS, Report

Output = Literal["table", "json", "jsonl"]

_LONGEST: Final = 100
_MOST_FIELDS: Final = 40


class ReplayView:
    """Results on stdout as they come, in one of the three forms; with `json` all of it at the end."""

    def __init__(self, output: Output, first: int) -> None:
        self._output = output
        self._first = first
        self._rows: list[dict[str, object]] = []
        self._shown = 0

    def difference(self, found: Difference) -> None:
        """Both messages, and the fields that differ."""
        if self._output != "table":
            self._row({"type": "difference", **_as_row(found)})
            return
        print(printable(f"DIFFERS: {found}"))
        for path, recorded, replayed in found.fields[:_MOST_FIELDS]:
            print(printable(f"  {path}"))
            print(printable(f"    recorded  {_short(recorded)}"))
            print(printable(f"    replayed  {_short(replayed)}"))
        if len(found.fields) > _MOST_FIELDS:
            print(f"  and {len(found.fields) - _MOST_FIELDS} more fields")
        print(printable(f"  recorded: {found.recorded}"))
        print(printable(f"  replayed: {found.replayed}"))

    def otherwise(self, found: Otherwise) -> None:
        """A cycle in which another policy chose otherwise, if it is one of the first."""
        self._shown += 1
        if self._output == "table":
            if self._shown <= self._first:
                chance = "not offered" if found.propensity is None else f"with probability {found.propensity:.3f}"
                text = f"cycle {found.cycle} of {found.node}: {found.other}; recorded: {found.recorded} ({chance})"
                print(printable(text))
        elif self._output == "jsonl" or self._shown <= self._first:
            self._row({"type": "otherwise", **found._asdict()})

    def report(self, report: Report, *, stopped: bool) -> None:
        """The counts, what is missing, and the sum of it."""
        if self._output != "table":
            self._summary(_report_row(report, stopped=stopped))
            return
        rows = [
            {
                "kind": kind,
                "recorded": count.recorded,
                "agree": count.agree,
                "differ": count.differ,
                "not_replayed": count.not_replayed.total(),
                "cut_off": count.cut_off,
            }
            for kind, count in report.counts.items()
        ]
        show_rows(rows, "table", tuple(rows[0]))
        print(_models_line(report))
        print(_links_line(report))
        for line in _trouble_lines(report):
            print(printable(line))
        print(_sum_of(report, stopped=stopped))

    def comparison(self, report: Comparison) -> None:
        """How far another policy agrees with what was recorded."""
        if self._output != "table":
            self._summary(_comparison_row(report))
            return
        if self._shown > self._first:
            print(f"... and {self._shown - self._first} more cycles; -o jsonl shows all")
        rows: list[dict[str, object]] = [
            {"arm": arm, "recorded": counts[0], report.policy or "other": counts[1]}
            for arm, counts in sorted(report.arms.items(), key=lambda item: (-max(item[1]), item[0]))
        ]
        if rows:
            show_rows(rows, "table", tuple(rows[0]))
        for reason, count in report.not_decided.items():
            print(printable(f"not decided: {count} cycles: {reason}"))
        for text in report.troubles:
            print(printable(f"trouble: {text}"))
        for text in report.notes:
            print(printable(f"note: {text}"))
        if report.cycles:
            print(
                f"{report.policy} chooses as recorded in {report.same} of {report.cycles} cycles "
                f"({report.agreement_ratio:.1%}); its mean probability of what was recorded is "
                f"{report.propensity_mean:.3f}"
            )
        else:
            print("no cycle of this recording can be decided again")

    def _summary(self, row: dict[str, object]) -> None:
        if self._output == "jsonl":
            print(json.dumps({"type": "summary", **row}))
        else:
            print(json.dumps({**row, "found": self._rows}, indent=2))

    def _row(self, row: dict[str, object]) -> None:
        if self._output == "jsonl":
            print(json.dumps(row))
        else:
            self._rows.append(row)


class Progress(ProgressLine):
    """How far a replay is."""

    def show(self, cycles: int) -> None:
        """Tells how many cycles are done, if it is time to."""
        if self.is_due():
            self.tell(f"trimtab replay: {cycles} cycles, {cycles / self.seconds:.0f} a second")

    def close(self) -> None:
        """What follows begins where the line stood."""
        self.erase()


def _as_row(found: Difference) -> dict[str, object]:
    return {
        "kind": found.kind,
        "node": found.node,
        "boot": found.boot,
        "cycle": found.cycle,
        "fields": [path for path, _, _ in found.fields],
        "words": found.words,
        "recorded": json.loads(found.recorded),
        "replayed": json.loads(found.replayed),
    }


def _report_row(report: Report, *, stopped: bool) -> dict[str, object]:
    return {
        "agrees": report.agrees,
        "stopped_at_first_difference": stopped,
        "cycles": report.cycles,
        "kinds": {
            kind: {
                "recorded": count.recorded,
                "agree": count.agree,
                "differ": count.differ,
                "not_replayed": dict(count.not_replayed),
                "cut_off": count.cut_off,
            }
            for kind, count in report.counts.items()
        },
        "models": {
            "verified": report.models_verified,
            "differ": report.models_differ,
            "unverified": report.models_unverified,
        },
        "restarts": _links_row(report.restarts),
        "orders": _links_row(report.orders),
        "incomplete_cycles": report.incomplete_cycles,
        "incomplete": report.incomplete,
        "troubles": report.troubles,
        "edges": dict(report.edges),
    }


def _comparison_row(report: Comparison) -> dict[str, object]:
    return {
        "policy": report.policy,
        "cycles": report.cycles,
        "same": report.same,
        "agreement_ratio": report.agreement_ratio,
        "propensity_mean": report.propensity_mean,
        "arms": {arm: {"recorded": counts[0], "other": counts[1]} for arm, counts in report.arms.items()},
        "not_decided": dict(report.not_decided),
        "troubles": report.troubles,
        "notes": report.notes,
    }


def _links_row(links: Links) -> dict[str, object]:
    return {
        "verified": links.verified,
        "differ": links.differ,
        "not_verified": links.unverified,
        "reasons": links.reasons,
        "forgotten": links.forgotten,
    }


def _links_line(report: Report) -> str:
    told = []
    for name, links in (("restarts", report.restarts), ("orders of a model", report.orders)):
        if name == "restarts" or links != Links():
            differ = f", NOT as before: {links.differ}" if links.differ else ""
            told.append(f"{name} verified: {links.verified}{differ}, not verified: {links.unverified}")
    return "; ".join(told)


def _models_line(report: Report) -> str:
    text = f"stored models reached to the byte: {report.models_verified}"
    if report.models_differ:
        text += f"; NOT: {report.models_differ}"
    if report.models_unverified:
        text += f"; not looked at, for they or rewards before them are missing: {report.models_unverified}"
    return text


def _trouble_lines(report: Report) -> list[str]:
    lines = [f"lost: {text}" for text in report.troubles]
    if report.trouble_count > len(report.troubles):
        lines.append(f"lost: and {report.trouble_count - len(report.troubles)} more")
    lines += [f"incomplete: {text}" for text in report.incomplete]
    if report.incomplete_cycles > len(report.incomplete):
        lines.append(f"incomplete: and {report.incomplete_cycles - len(report.incomplete)} more cycles")
    for kind, counted in report.counts.items():
        lines += [f"not replayed: {count} {kind}s: {reason}" for reason, count in counted.not_replayed.items()]
    for name, links in (("restart", report.restarts), ("order", report.orders)):
        lines += [f"note: {name}: {text}" for text in links.forgotten]
        lines += [f"note: {name} not verified: {text}" for text in links.reasons]
        if links.unverified > len(links.reasons):
            lines.append(f"note: {name} not verified: and {links.unverified - len(links.reasons)} more")
    lines += [f"cut off: {count} cycles {edge}" for edge, count in report.edges.items()]
    return lines


def _sum_of(report: Report, *, stopped: bool) -> str:
    told = ", ".join(
        f"{report.counts[kind].agree} of {report.counts[kind].recorded - report.counts[kind].cut_off} {kind}s"
        for kind in KINDS
    )
    if stopped:
        return f"{told} agree up to the first difference; --all goes on"
    if not any(count.recorded for count in report.counts.values()):
        return "nothing to replay: the recording has no cycle"
    end = "" if report.agrees else ": NOT ALL was there, was replayed and came out the same"
    told_of = (("restarts", report.restarts.unverified), ("orders", report.orders.unverified))
    links = "".join(f"; {name} not verified: {count}" for name, count in told_of if count)
    return f"{told} agree{end}{links}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
