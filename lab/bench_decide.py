"""What one decision of the default policy costs, beside a plain matrix product of the same size in the same run.

`python -m lab.bench_decide` prints microseconds, and the ratio to `terms ⊗ context @ covariance` done by numpy at once:
on a slow machine both are slow. With the default context and with 24 context features; fifteen arms.
"""

import os

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # before numpy: as in the service, and threads cost more than they give

import random
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np

from lab.bench_scrape import Figure, show
from schemas.features import feature_names
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.linucb import LinUCB
from services.decider.core.zoo import make_policy

BUDGET_USEC: Final = 200.0
MANY: Final = 24
LESSONS: Final = 50


def measure_decide(rounds: int = 1000) -> list[Figure]:
    """Median of so many decisions, for each context."""
    names = [name for name in feature_names(tuple(Shared().classes)) if name != "bias"]
    figures = []
    for words, context in (("the default context", ()), (f"{MANY} context features", tuple(names[:MANY]))):
        decide_usec, plain_usec = _decide_usec(context, rounds)
        figures.append(Figure(f"one decision, 15 arms, {words}", decide_usec, "us", BUDGET_USEC))
        figures.append(Figure(f"the same to a plain matrix product, {words}", decide_usec / plain_usec, "times"))
    return figures


def _decide_usec(context: tuple[str, ...], rounds: int) -> tuple[float, float]:
    """Microseconds of a decision, and of the plain product of that size."""
    shared = Shared()
    policy = make_policy(DeciderConfig(context_features=context), shared).policy
    assert isinstance(policy, LinUCB)
    arms = [arm for arm in build_arms(shared, {}) if arm.weights is not None]
    rng = random.Random(1)  # noqa: S311 - a benchmark's inputs
    features = {name: rng.random() for name in feature_names(tuple(shared.classes))}
    calm = features | {f"{name}.over_ratio": 0.0 for name in shared.classes}
    for _ in range(LESSONS):
        policy.learn(calm, rng.choice(arms), rng.random())
    vectors = np.ones((len(arms), policy.size))
    covariance = np.ones((policy.size, policy.size))
    decided = _usec(lambda: policy.decide(calm, arms, rng), rounds)
    return decided, _usec(lambda: vectors @ covariance, rounds)


def _usec(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e6


if __name__ == "__main__":
    sys.exit(show(measure_decide(), None))
