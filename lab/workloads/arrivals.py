"""When requests are due: a seeded Poisson process whose rate changes in steps. Pure."""

import bisect
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """From `at_seconds` after the start on, `rate_per_second` requests a second, until the next step."""

    at_seconds: float
    rate_per_second: float


def parse_schedule(text: str, *, max_rate_per_second: float) -> tuple[Step, ...]:
    """The steps of `"0:100,30:250"`: 100 requests/s at once, 250 from second 30 on.

    The first step is at 0, times rise, rates are from 0 to `max_rate_per_second`; ValueError says what is wrong.
    """
    steps: list[Step] = []
    for part in text.split(","):
        at, separator, rate = part.partition(":")
        try:
            step = Step(float(at), float(rate))
        except ValueError:
            separator = ""
        if not separator:
            raise ValueError(f"{part!r} is not SECONDS:RATE")
        if not 0.0 <= step.rate_per_second <= max_rate_per_second:
            raise ValueError(f"rate {rate} is not within 0 to {max_rate_per_second:g} requests/s")
        if not (step.at_seconds > steps[-1].at_seconds if steps else step.at_seconds == 0.0):
            raise ValueError(f"the first step must be at 0 and later ones after it, {part!r} is not")
        steps.append(step)
    return tuple(steps)


def poisson_arrivals(steps: Sequence[Step], duration_seconds: float, seed: int) -> Iterator[float]:
    """Times of arrivals in seconds after the start, rising, below `duration_seconds`; the same for the same seed.

    An inhomogeneous Poisson process by time rescaling (Çinlar 1975): a unit-rate process on the scale of expected
    arrivals, mapped back through the rate's integral. So a step takes effect exactly when it is due.
    """
    rng = random.Random(seed)  # noqa: S311  # load, not secrets
    expected_at_step = [0.0]
    for here, following in itertools.pairwise(steps):
        expected_at_step.append(expected_at_step[-1] + here.rate_per_second * (following.at_seconds - here.at_seconds))
    expected = 0.0
    while True:
        expected += rng.expovariate(1.0)
        step = max(bisect.bisect_left(expected_at_step, expected) - 1, 0)
        at, rate = steps[step]
        if rate == 0.0:
            return
        due = at + (expected - expected_at_step[step]) / rate
        if due >= duration_seconds:
            return
        yield due
