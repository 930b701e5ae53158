"""CPU work of a known size: calibrated at the start, then spent in portions that follow the machine's speed."""

import hashlib
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Final

CALIBRATION_CPU_SECONDS: Final = 0.1
"""CPU time one calibration must have used. Long enough for kernels that account CPU time in 10 ms ticks."""

PACE_CPU_SECONDS: Final = 1.0
"""CPU time over which the speed is averaged. Shorter, and what 10 ms ticks add or take shows; longer, and a machine
that slows down is overdriven meanwhile."""

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


class Pace:
    """Units of work that a second of CPU time does, as seen lately, from any thread.

    A shared machine loses and regains half of its speed within seconds. Work of a fixed size would then be another part
    of a CPU than was asked for, and a load that leaves room would leave none.
    """

    def __init__(self, units_per_second: float) -> None:
        self._units = units_per_second * PACE_CPU_SECONDS
        self._cpu_seconds = PACE_CPU_SECONDS
        self._lock = threading.Lock()

    @property
    def units_per_second(self) -> float:
        """Of CPU time."""
        with self._lock:
            return self._units / self._cpu_seconds

    def see(self, units: int, cpu_seconds: float) -> None:
        """So many units took so much CPU time, which may be 0 for less than a tick of the kernel's account."""
        kept = max(0.0, 1.0 - cpu_seconds / PACE_CPU_SECONDS)
        with self._lock:
            self._units = kept * self._units + units
            self._cpu_seconds = kept * self._cpu_seconds + cpu_seconds

    def spend(self, work: Callable[[int], object], units: int) -> None:
        """Do `units` of `work` and see what they took."""
        before = time.thread_time()
        work(units)
        self.see(units, time.thread_time() - before)


class KeyStretching:
    """Spends CPU time in `stretch_key`, from any thread."""

    def __init__(self) -> None:
        self._pace = Pace(units_per_cpu_second(stretch_key))
        self._stopping = False

    def spend(self, cpu_seconds: float) -> None:
        """Use about `cpu_seconds` of CPU time, less once `stop` was called."""
        per_second = self._pace.units_per_second
        left, portion = max(1, round(cpu_seconds * per_second)), max(1, round(per_second * SLICE_CPU_SECONDS))
        while left > 0 and not self._stopping:
            self._pace.spend(stretch_key, min(left, portion))
            left -= portion

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
