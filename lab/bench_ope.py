"""`python -m lab.bench_ope`: how often the 95 % intervals of off-policy evaluation hold the true value. Exit 1 below
90 %.

Simulated logs with carry-over and rewards that have memory (lab/ope/known_truth.py), one policy near the log's and one
far from it. `--block 1` shows what is left of it when cycles are taken as independent.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the work is in many small arrays

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lab.ope.evaluate import evaluate
from lab.ope.known_truth import World, best_policy, make_world, near_policy, simulate, target_on
from lab.ope.logged import Floats
from lab.ope.report import LOGGED, Difference, Estimated, Report

NEEDED: Final = 0.9
"""Part of the intervals that must hold the truth."""

BATCH: Final = 20
"""Logs simulated at once: the steps are done for all together, and 50,000 rows of so many take 20 MiB."""


@dataclass
class Coverage:
    """One estimator of one policy, or of a difference, over the logs so far."""

    truth: float
    values: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    held: int = 0
    refused: int = 0

    def add(self, found: Estimated | Difference) -> None:
        """Takes one log's answer."""
        if found.value is None or found.low is None or found.high is None:
            self.refused += 1
            return
        self.values.append(found.value)
        self.widths.append(found.high - found.low)
        self.held += found.low <= self.truth <= found.high

    @property
    def ratio(self) -> float:
        """Part of the answers whose interval held the truth; 0 where all were refused."""
        return self.held / max(1, len(self.values))


def cover(
    logs: int, rows: int, seed: int, *, resamples: int, block_cycles: int | None = None
) -> dict[tuple[str, str], Coverage]:
    """The coverage of every estimator for both policies and for what they differ by, by (name, estimator)."""
    world = make_world()
    policies = {"near": near_policy(world), "best": best_policy(world)}
    truths = _truths(world, policies)
    found: dict[tuple[str, str], Coverage] = {}
    done = 0
    while done < logs:
        for logged, levels in simulate(world, rows, min(BATCH, logs - done), seed + done):
            targets = {name: target_on(policy, levels) for name, policy in policies.items()}
            report = evaluate(logged, targets, seed=done, resamples=resamples, block_cycles=block_cycles)
            for name, each in _named(report):
                found.setdefault((name, each.estimator), Coverage(truths[name])).add(each)
            done += 1
    return found


def _truths(world: World, policies: dict[str, Floats]) -> dict[str, float]:
    values = {name: world.value(policy) for name, policy in policies.items()} | {LOGGED: world.value(world.pi_b)}
    return values | {f"{one} - {other}": values[one] - values[other] for one in values for other in values}


def _named(report: Report) -> Iterator[tuple[str, Estimated | Difference]]:
    yield LOGGED, report.logged
    for judged in report.policies:
        for estimate in judged.estimates:
            yield estimate.policy, estimate
    for difference in report.differences:
        yield f"{difference.policy} - {difference.other}", difference


def main() -> int:
    """Prints one line for each; 1 if an interval holds the truth too seldom."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench_ope", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--logs", type=int, default=200, help="simulated logs")
    parser.add_argument("--cycles", type=int, default=50_000, help="cycles in each")
    parser.add_argument("--resamples", type=int, default=1000, help="bootstrap draws for each interval")
    parser.add_argument(
        "--block", type=int, help="cycles in a block; 1 takes cycles as independent (default: automatic)"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.monotonic()
    found = cover(args.logs, args.cycles, args.seed, resamples=args.resamples, block_cycles=args.block)
    sys.stdout.write(
        f"{args.logs} logs of {args.cycles} cycles, seed {args.seed}: {time.monotonic() - started:.0f} s\n"
    )
    sys.stdout.write(f"{'':14}  {'':7}   truth     mean  deviation  width/3.92  covered  refused\n")
    for (name, estimator), each in found.items():
        values = np.array(each.values or [np.nan])
        sys.stdout.write(
            f"{name:14}  {estimator:7} {each.truth:+.4f}  {values.mean():+.4f}  {values.std():9.4f}  "
            f"{np.mean(each.widths or [np.nan]) / 3.92:10.4f}  {each.ratio:7.1%}  {each.refused:7d}\n"
        )
    world = make_world()
    for name, policy in (("near", near_policy(world)), ("best", best_policy(world))):
        sys.stdout.write(f"{name} acting for good, in contexts of its own: {world.lasting_value(policy):+.4f}\n")
    return int(any(each.ratio < NEEDED for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
