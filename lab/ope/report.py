"""Owns the report of an evaluation: plain structs for any output, and the same as lines of a table."""

from collections.abc import Sequence

import msgspec

from lab.ope.support import Limits, Reason, Support

LOGGED = "logged"
"""The name of what the log itself earned, beside the policies' names."""

_HEAD = ("policy", "estimator", "value [95 %]", "ess")


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's mean reward by one estimator, with its 95 % interval; None and `refused` where the log cannot say.

    `ess` is the effective number of rows: Kish's for the weighing estimators, the accepted rows for replay, all for
    what was logged. `block_cycles` is the bootstrap's block. `notes` are what to keep in mind with the value.
    """

    policy: str
    estimator: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    ess: float | None = None
    block_cycles: int | None = None
    refused: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`policy` less `other` by one estimator on the same cycles, with a paired interval, or `refused`."""

    policy: str
    other: str
    estimator: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    block_cycles: int | None = None
    refused: tuple[Reason, ...] = ()

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `not told apart`, or `refused`."""
        if self.low is None or self.high is None:
            return "refused"
        return "better" if self.low > 0.0 else "worse" if self.high < 0.0 else "not told apart"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One policy: how far the log supports it (None where the log supports nothing), and what each estimator says."""

    policy: str
    support: Support | None
    estimates: tuple[Estimated, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of some policies. `decisions` have a reward, `rows` of them a propensity too, and only these are
    judged; `censored` decisions have no reward. `logged` is what the judged rows earned.
    """

    decisions: int
    rows: int
    censored: int
    runs: int
    seed: int
    resamples: int
    limits: Limits
    logged: Estimated
    policies: tuple[Judged, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


def table_lines(report: Report) -> list[str]:
    """The report for a person: the estimates, the differences, then each reason and note once, with whom it is of."""
    estimates = [report.logged, *(estimate for judged in report.policies for estimate in judged.estimates)]
    lines = _columns(
        _HEAD,
        [
            (each.policy, each.estimator, _value(each), "" if each.ess is None else f"{each.ess:.0f}")
            for each in estimates
        ],
    )
    if report.differences:
        rows = [
            (f"{each.policy} - {each.other}", each.estimator, _value(each), each.verdict) for each in report.differences
        ]
        lines += ["", *_columns(("difference", "estimator", "value [95 %]", "verdict"), rows)]
    said: dict[str, list[str]] = {}
    for estimate in estimates:
        for reason in estimate.refused:
            said.setdefault(f"refused: {reason.text}.", []).append(f"{estimate.policy} {estimate.estimator}")
        for note in estimate.notes:
            said.setdefault(f"{note}.", []).append(f"{estimate.policy} {estimate.estimator}")
    lines += [""] if said or report.notes else []
    lines += [f"{', '.join(whose)}: {text}" for text, whose in said.items()]
    return lines + [f"{note}." for note in report.notes]


def _value(each: Estimated | Difference) -> str:
    if each.value is None:
        return "refused: " + ", ".join(dict.fromkeys(reason.word for reason in each.refused))
    return f"{each.value:+.4f} [{each.low:+.4f}, {each.high:+.4f}]"


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
