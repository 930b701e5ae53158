"""Owns what a log can answer: how much of the target it supports, and the reasons to refuse, estimator by estimator.

Sources: Kish (Survey Sampling, 1965) for the effective sample size; Sachdeva, Su, Joachims (KDD 2020) for targets that
leave the support.
"""

import math
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from lab.ope.estimators import DR, ESTIMATORS, IPS, REPLAY, SNIPS, Estimate, weights
from lab.ope.logged import SURE, Logged, Target

Share = Annotated[float, Meta(ge=0.0, le=1.0)]

FEW_ROWS: Final = "few_rows"
NO_PROPENSITY: Final = "no_propensity"
DETERMINISTIC: Final = "deterministic"
OUTSIDE: Final = "outside"
WRONG_PROPENSITY: Final = "wrong_propensity"
FEW_EFFECTIVE: Final = "few_effective"
ONE_ROW: Final = "one_row"
FEW_MATCHED: Final = "few_matched"
FEW_BLOCKS: Final = "few_blocks"


class Reason(msgspec.Struct, frozen=True):
    """Why there is no answer: a constant word, and a sentence that says what is wrong and the way out."""

    word: str
    text: str


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where on a log is refused."""

    min_rows: Annotated[int, Meta(ge=100)] = 500
    """Decisions with a reward and a propensity. 500: less than three quarters of an hour of 5 s cycles is one mood of
    the load, however many arms were tried in it."""

    max_unweighable_ratio: Share = 0.05
    """Part of the decisions whose propensity is unknown, 0, or contradicts `pi_b`, and that are left out. 0.05: what is
    missing is seldom missing by chance, and with rewards in [-1, 1] a twentieth moves a mean by 0.1 at most."""

    max_outside_ratio: Share = 0.01
    """Part of the target's choices that the log could not have made, for the estimators that only weigh. 0.01: with
    rewards in [-1, 1] that is an error of at most 0.01 of IPS, beside what the interval says."""

    max_extrapolated_ratio: Share = 0.05
    """The same for doubly robust, whose model fills the gap. 0.05: the model may err by a fifth of the reward's range
    there, and the value by 0.02."""

    deterministic_ratio: Share = 0.99
    """Part of the cycles with one arm at propensity 1 from which on the log is called one of a policy that never drew.
    It changes the words of a refusal, not whether there is one."""

    min_effective_rows: Annotated[float, Meta(ge=10.0)] = 200.0
    """Kish's effective sample size. 200: below it the normal world, in which intervals are made, is far away."""

    max_weight_ratio: Share = 0.05
    """Part of all weight on one row. 0.05: one cycle's luck must not be the answer."""

    min_matched_rows: Annotated[float, Meta(ge=10.0)] = 200.0
    """Rows that replay accepts. 200: as `min_effective_rows`, which it is for replay."""

    max_weight_errors: Annotated[float, Meta(gt=0.0)] = 5.0
    """By how many of its standard errors the mean weight may miss what the propensities promise. 5: never by luck."""


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """How far the log supports one target. Over the weighable rows, except `decisions` and `unweighable`.

    `outside_ratio` is the part of the target's choices with `pi_b` 0, `masked_ratio` the part of them that was masked.
    `matched` is how often the target would have done what was done (expected, where it draws). `ess` is Kish's
    effective sample size. `mean_weight` should be `expected_weight`, which is 1 less what is outside; `weight_errors`
    is by how many standard errors it is not.
    """

    decisions: int
    rows: int
    unweighable: int
    deterministic_ratio: float
    outside_ratio: float
    masked_ratio: float
    matched: float
    ess: float
    largest_weight: float
    largest_weight_ratio: float
    mean_weight: float
    expected_weight: float
    weight_errors: float


def support_of(logged: Logged, target: Target, decisions: int) -> Support:
    """What the weighable rows `logged`, out of so many `decisions` with a reward, say of `target`."""
    pi_e = target.fitting(logged)
    rows = len(logged)
    weight = weights(logged, target)
    total = float(weight.sum())
    possible = logged.pi_b > 0.0
    inside = np.where(possible, pi_e, 0.0).sum(axis=1)
    squares = np.divide(pi_e**2, logged.pi_b, out=np.zeros_like(pi_e), where=possible).sum(axis=1)
    expected = float(inside.mean())
    error = math.sqrt(max(0.0, float((squares - inside**2).sum()))) / rows
    missed = abs(float(weight.mean()) - expected)
    return Support(
        decisions=decisions,
        rows=rows,
        unweighable=decisions - rows,
        deterministic_ratio=float((logged.pi_b.max(axis=1) >= SURE).mean()),
        outside_ratio=max(0.0, 1.0 - expected),
        masked_ratio=float(np.where(logged.masked, pi_e, 0.0).sum(axis=1).mean()),
        matched=float(pi_e[np.arange(rows), logged.action].sum()),
        ess=total**2 / float((weight**2).sum()) if total > 0.0 else 0.0,
        largest_weight=float(weight.max()),
        largest_weight_ratio=float(weight.max()) / total if total > 0.0 else 0.0,
        mean_weight=float(weight.mean()),
        expected_weight=expected,
        weight_errors=missed / error if error > 1e-9 else 0.0,  # noqa: PLR2004 - nothing was drawn, nothing can miss
    )


def log_reasons(decisions: int, rows: int, limits: Limits) -> tuple[Reason, ...]:
    """Why a log with so many `decisions` with rewards, of which `rows` can be weighed, answers no question."""
    found = []
    if decisions - rows > limits.max_unweighable_ratio * decisions:
        found.append(
            Reason(
                NO_PROPENSITY,
                f"{decisions - rows} of {decisions} decisions have no propensity, one of 0, or one that contradicts "
                f"their pi_b: what was recorded is not how the arms were drawn. Judge cycles that a policy decided and "
                f"the guard let through unchanged",
            )
        )
    if rows < limits.min_rows:
        found.append(Reason(FEW_ROWS, f"{rows} decisions to judge by, {limits.min_rows} are needed. Record for longer"))
    return tuple(found)


def reasons_to_refuse(support: Support, replayed: Estimate, limits: Limits) -> dict[str, tuple[Reason, ...]]:
    """For each estimator why the log cannot support its answer; nothing where it can. `replayed` is replay's estimate.

    Replay never accepts more rows than the effective sample size on average, so it is the first to be refused for want
    of rows. Doubly robust bears more choices outside the support, where its model extrapolates, and needs overlap all
    the same: else nothing in the log could contradict the model.
    """
    of_log = log_reasons(support.decisions, support.rows, limits)
    found = {name: list(of_log) for name in ESTIMATORS}
    for name in ESTIMATORS:
        limit = limits.max_extrapolated_ratio if name == DR else limits.max_outside_ratio
        if support.outside_ratio > limit:
            found[name].append(_outside(support, limits, limit))
        if support.weight_errors > limits.max_weight_errors:
            found[name].append(
                Reason(
                    WRONG_PROPENSITY,
                    f"the weights average {support.mean_weight:.3f} and not {support.expected_weight:.3f}, "
                    f"{support.weight_errors:.0f} standard errors away: the recorded propensities are not those "
                    f"that the arms were drawn with, or rewards are missing for some arms more than for others",
                )
            )
    for name in (IPS, SNIPS, DR):
        found[name] += _weight_reasons(support, limits)
    accepted = float(replayed.denominator.sum())
    if accepted < limits.min_matched_rows:
        found[REPLAY].append(
            Reason(
                FEW_MATCHED,
                f"{accepted:.0f} decisions could be replayed, {limits.min_matched_rows:.0f} are needed. Record for "
                f"longer, or with more exploration",
            )
        )
    return {name: tuple(reasons) for name, reasons in found.items()}


def _outside(support: Support, limits: Limits, limit: float) -> Reason:
    share = f"{support.outside_ratio:.1%} of this policy's choices have propensity 0 in the log (limit {limit:.1%})"
    if support.deterministic_ratio >= limits.deterministic_ratio:
        return Reason(
            DETERMINISTIC,
            f"the logging policy did not draw: one arm had propensity 1 in {support.deterministic_ratio:.1%} of the "
            f"cycles, and {share}. Nobody knows what they would have earned; record with exploration",
        )
    masked = f", {support.masked_ratio:.1%} were masked" if support.masked_ratio > 0.0 else ""
    return Reason(
        OUTSIDE, f"{share}{masked}. Nobody knows what they would have earned; record with exploration over those arms"
    )


def _weight_reasons(support: Support, limits: Limits) -> list[Reason]:
    found = []
    if support.ess < limits.min_effective_rows:
        found.append(
            Reason(
                FEW_EFFECTIVE,
                f"{support.rows} decisions are worth {support.ess:.0f} of this policy's own, "
                f"{limits.min_effective_rows:.0f} are needed. Record for longer, or judge a policy nearer to the log's",
            )
        )
    if support.largest_weight_ratio > limits.max_weight_ratio:
        found.append(
            Reason(
                ONE_ROW,
                f"one decision carries {support.largest_weight_ratio:.1%} of all weight (limit "
                f"{limits.max_weight_ratio:.1%}): the answer would be that cycle's luck. Record for longer",
            )
        )
    return found
