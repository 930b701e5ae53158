"""Owns the evaluation of policies on one log: every estimator that the log supports, intervals, and differences.

Pure: a log, policies and a seed in, a report out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from lab.ope.bootstrap import MIN_BLOCKS, RESAMPLES, STRETCH, Interval, block_interval, wanted_block_rows
from lab.ope.estimators import (
    DR,
    ESTIMATORS,
    IPS,
    REPLAY,
    SNIPS,
    Estimate,
    doubly_robust,
    ips,
    logged_mean,
    replay,
    snips,
)
from lab.ope.logged import SURE, Floats, Logged, Target
from lab.ope.report import LOGGED, Difference, Estimated, Judged, Report
from lab.ope.reward_model import fit_rewards
from lab.ope.support import FEW_BLOCKS, Limits, Reason, Support, log_reasons, reasons_to_refuse, support_of

MAX_TARGETS: Final = 16
"""Policies in one report: it compares every pair."""

MEAN: Final = "mean"
"""The estimator of what was logged: nothing to weigh."""


@dataclass(frozen=True)
class _Answer:
    """What one estimator says of one policy, before its interval."""

    estimate: Estimate
    ess: float
    refused: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Resampling:
    """How intervals are made over the rows of one log."""

    logged: Logged
    seed: int
    resamples: int
    block_cycles: int | None

    def interval(self, *terms: tuple[float, Estimate]) -> Interval | Reason:
        """The interval of the sum of signed estimates, or why the log has too few blocks for one."""
        rows = len(self.logged)
        pull = np.sum([sign * estimate.influence for sign, estimate in terms], axis=0)
        series = (pull, self.logged.reward)
        wanted = self.block_cycles or max(wanted_block_rows(each, self.logged.run) for each in series)
        most = rows // MIN_BLOCKS
        if wanted > most:
            return Reason(
                FEW_BLOCKS,
                f"blocks of {wanted} cycles, over which rewards hang together, fit fewer than {MIN_BLOCKS} times into "
                f"{rows} cycles: how sure the value is cannot be told. Record for longer",
            )
        block = self.block_cycles or min(most, STRETCH * wanted)
        return block_interval(terms, block, seed=self.seed, resamples=self.resamples)


def evaluate(
    logged: Logged,
    targets: Mapping[str, Target],
    *,
    seed: int,
    limits: Limits | None = None,
    resamples: int = RESAMPLES,
    block_cycles: int | None = None,
    arm_terms: Floats | None = None,
) -> Report:
    """What `logged` says of each of `targets`, of every pair of them, and of each against what was logged.

    `block_cycles` is the bootstrap's block; None takes what the estimate or the rewards themselves want, the longer
    (`wanted_block_rows`), since noisy weights hide a memory of the rewards that is there all the same. `arm_terms` (k
    x m) describe the arms to the reward model, if there is more to say of them than which is which (`fit_rewards`).
    Raises ValueError for no targets or too many, for one named `logged`, for a target of another shape than the log,
    for too few resamples and for a block below one cycle.
    """
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise ValueError(f"targets must be 1 to {MAX_TARGETS} policies")
    if LOGGED in targets:
        raise ValueError(f"{LOGGED} is the name of what the log itself earned; give the policy another one")
    if resamples < 100:  # noqa: PLR2004 - the 2.5 % point of fewer is one of two values
        raise ValueError("resamples must be 100 or more")
    if block_cycles is not None and block_cycles < 1:
        raise ValueError("block_cycles must be 1 or more, or None to let the rewards say")
    for target in targets.values():
        target.fitting(logged)
    limits = limits or Limits()
    rows = logged.weighable
    kept = int(rows.sum())
    of_log = log_reasons(len(logged), kept, limits)
    if of_log:
        own = Estimated(policy=LOGGED, estimator=MEAN, refused=of_log)
        judged = tuple(_refused(name, of_log) for name in targets)
        differences: tuple[Difference, ...] = ()
    else:
        log = logged.take(rows)
        resampling = _Resampling(log, seed, resamples, block_cycles)
        q_hat = fit_rewards(log, arm_terms=arm_terms)
        mean = _Answer(logged_mean(log), float(kept))
        answers: dict[str, dict[str, _Answer]] = {}
        supports: dict[str, Support] = {}
        for name, target in targets.items():
            kept_target = Target(target.pi_e[rows])
            supports[name] = support_of(log, kept_target, len(logged))
            answers[name] = _answers(log, kept_target, q_hat, supports[name], limits=limits, seed=seed)
        own = _estimated(LOGGED, MEAN, mean, resampling)
        judged = tuple(
            Judged(
                policy=name,
                support=supports[name],
                estimates=tuple(_estimated(name, each, answers[name][each], resampling) for each in ESTIMATORS),
            )
            for name in targets
        )
        answers[LOGGED] = dict.fromkeys(ESTIMATORS, mean)
        differences = tuple(_differences(answers, resampling))
    return Report(
        decisions=len(logged),
        rows=kept,
        censored=logged.censored,
        runs=len(np.unique(logged.run)),
        seed=seed,
        resamples=resamples,
        limits=limits,
        logged=own,
        policies=judged,
        differences=differences,
        notes=tuple(_log_notes(logged, kept)),
    )


def _answers(
    log: Logged, target: Target, q_hat: Floats, support: Support, *, limits: Limits, seed: int
) -> dict[str, _Answer]:
    replayed = replay(log, target, seed)
    refused = reasons_to_refuse(support, replayed, limits)
    estimates = {
        REPLAY: replayed,
        IPS: ips(log, target),
        SNIPS: snips(log, target),
        DR: doubly_robust(log, target, q_hat),
    }
    accepted = float(replayed.denominator.sum())
    return {
        name: _Answer(
            estimates[name],
            accepted if name == REPLAY else support.ess,
            refused[name],
            tuple(_notes(name, support)),
        )
        for name in ESTIMATORS
    }


def _notes(name: str, support: Support) -> Iterator[str]:
    if support.outside_ratio > 1e-9:  # noqa: PLR2004 - what sums of decimals leave over
        outside = f"{support.outside_ratio:.2%} of its choices have propensity 0 in the log: "
        if name == IPS:
            yield outside + "they count as reward 0"
        elif name == DR:
            yield outside + "there the model's extrapolation speaks alone"
        else:
            yield outside + "the value is that of the others"


def _estimated(policy: str, name: str, answer: _Answer, resampling: _Resampling) -> Estimated:
    if answer.refused:
        return Estimated(policy=policy, estimator=name, ess=answer.ess, refused=answer.refused)
    found = resampling.interval((1.0, answer.estimate))
    if isinstance(found, Reason):
        return Estimated(policy=policy, estimator=name, ess=answer.ess, refused=(found,))
    return Estimated(
        policy=policy,
        estimator=name,
        value=found.value,
        low=found.low,
        high=found.high,
        ess=answer.ess,
        block_cycles=found.block_rows,
        notes=answer.notes,
    )


def _differences(answers: Mapping[str, Mapping[str, _Answer]], resampling: _Resampling) -> Iterator[Difference]:
    for (policy, ours), (other, theirs) in combinations(answers.items(), 2):
        for name in ESTIMATORS:
            refused = tuple(dict.fromkeys(ours[name].refused + theirs[name].refused))
            found: Interval | Reason | None = None
            if not refused:
                found = resampling.interval((1.0, ours[name].estimate), (-1.0, theirs[name].estimate))
            if isinstance(found, Interval):
                yield Difference(
                    policy=policy,
                    other=other,
                    estimator=name,
                    value=found.value,
                    low=found.low,
                    high=found.high,
                    block_cycles=found.block_rows,
                )
            else:
                yield Difference(
                    policy=policy, other=other, estimator=name, refused=refused if found is None else (found,)
                )


def _refused(name: str, reasons: tuple[Reason, ...]) -> Judged:
    estimates = tuple(Estimated(policy=name, estimator=each, refused=reasons) for each in ESTIMATORS)
    return Judged(policy=name, support=None, estimates=estimates)


def _log_notes(logged: Logged, kept: int) -> Iterator[str]:
    yield "Values are of one decision in each recorded context, with the log's own decisions before it"
    if logged.censored:
        everything = logged.censored + len(logged)
        yield (
            f"{logged.censored} of {everything} decisions have no reward and are not judged; where that depends on the "
            f"arm, the values are of the rest only"
        )
    if kept < len(logged):
        yield f"{len(logged) - kept} of {len(logged)} decisions with a reward have no usable propensity: left out"
    sure = float((logged.pi_b.max(axis=1) >= SURE).mean())
    if sure > 0.0:
        yield f"In {sure:.1%} of the cycles one arm had propensity 1: there the log supports no other choice"
