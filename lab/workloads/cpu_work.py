"""CPU work of a known size: calibrated once, then spent in measured portions."""

import hashlib
import math
import random
import time
from collections.abc import Callable
from typing import Final

CALIBRATION_CPU_SECONDS: Final = 0.1
"""CPU time one calibration must have used. Long enough for kernels that account CPU time in 10 ms ticks."""

MAX_JITTER_FACTOR: Final = 20.0
"""Largest multiple of the mean that jitter makes of one request's work, so that no request is without end."""

SLICE_CPU_SECONDS: Final = 0.02
"""Longest single call into C, so that a worker notices within that CPU time that it should stop."""


def units_per_cpu_second(
    work: Callable[[int], object],
    *,
    min_cpu_seconds: float = CALIBRATION_CPU_SECONDS,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> float:
    """How many units of `work` one second of this thread's CPU time does.

    Doubles the portion until it has used `min_cpu_seconds`. CPU time and not wall time: a thread that has to wait for
    its CPU must not look like slow work.
    """
    units = 1
    while True:
        before = cpu_clock()
        work(units)
        used = cpu_clock() - before
        if used >= min_cpu_seconds:
            return units / used
        units *= 2


def stretch_key(iterations: int) -> bytes:
    """Work whose size is `iterations`: PBKDF2-HMAC-SHA256, one C call that runs without the interpreter lock."""
    return hashlib.pbkdf2_hmac("sha256", b"trimtab", b"workload", iterations)


class KeyStretching:
    """Spends CPU time in `stretch_key`, from any thread, at a rate measured when it is made."""

    def __init__(self) -> None:
        self._iterations_per_second = units_per_cpu_second(stretch_key)
        self._slice = max(1, round(self._iterations_per_second * SLICE_CPU_SECONDS))
        self._stopping = False

    def spend(self, cpu_seconds: float) -> None:
        """Use about `cpu_seconds` of CPU time, less once `stop` was called."""
        left = max(1, round(cpu_seconds * self._iterations_per_second))
        while left > 0 and not self._stopping:
            stretch_key(min(left, self._slice))
            left -= self._slice

    def stop(self) -> None:
        """Let every spending thread return within SLICE_CPU_SECONDS."""
        self._stopping = True


def jitter_factor(rng: random.Random, sigma: float) -> float:
    """A lognormal factor with mean 1: exp(sigma Z - sigma²/2), Z standard normal; at most MAX_JITTER_FACTOR."""
    if sigma == 0.0:
        return 1.0
    return min(math.exp(rng.gauss(0.0, sigma) - sigma * sigma / 2.0), MAX_JITTER_FACTOR)


def exponential_factor(rng: random.Random, sigma: float) -> float:  # noqa: ARG001 - factors share one signature
    """An exponential factor with mean 1; at most MAX_JITTER_FACTOR."""
    return min(rng.expovariate(1.0), MAX_JITTER_FACTOR)


FACTORS: Final[dict[str, Callable[[random.Random, float], float]]] = {
    "exponential": exponential_factor,
    "lognormal": jitter_factor,
}
"""How one request's work spreads, by name: what its mean is multiplied with."""
