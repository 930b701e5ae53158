"""Conversions between CPU requests, cgroup v1 shares and `cpu.weight`, as the field does them.

They explain and test what is found on a node. An original weight is never computed with them but read: newer container
runtimes convert shares by another curve, and nobody can tell from a request which one was at work.
"""

import math
from typing import Final

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 10_000
"""The range that `cpu.weight` takes; anything else is refused with ERANGE (kernel: admin-guide/cgroup-v2.rst)."""

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
"""The range of v1 `cpu.shares` (kernel: kernel/sched/sched.h, MIN_SHARES and MAX_SHARES)."""

SHARES_PER_CPU: Final = 1024


def shares_from_millicpu(millicpu: int) -> int:
    """v1 shares of a CPU request: 1024 per CPU, rounded down, within 2-262144; no request is 2.

    Source: kubelet, `MilliCPUToShares` (pkg/kubelet/cm).
    """
    return max(MIN_SHARES, min(MAX_SHARES, millicpu * SHARES_PER_CPU // 1000))


def weight_from_shares(shares: int) -> int | None:
    """`cpu.weight` of v1 shares by the linear rule; 0 shares mean "unset" and give None. Raises ValueError below 0.

    2 maps to 1 and 262144 to 10000, rounded down; what lies outside is clamped. Source: `1 + (shares - 2) * 9999 /
    262142` of KEP-2254, in kubelet and in runc up to 1.1. There a share of 1 wraps around, and 300000 overshoots.
    """
    if shares < 0:
        raise ValueError(f"{shares} shares: a share is not negative")
    if shares == 0:
        return None
    within = max(MIN_SHARES, min(MAX_SHARES, shares))
    return MIN_WEIGHT + (within - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT) // (MAX_SHARES - MIN_SHARES)


def kernel_weight(value: object) -> int:
    """The nearest weight that the kernel takes: rounded to a whole number (half to even), clamped to 1-10000.

    Raises ValueError for what is no finite number: NaN, infinity, text, booleans, None.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no weight: a number from {MIN_WEIGHT} to {MAX_WEIGHT} is wanted")  # noqa: TRY004 - callers handle one error for every bad weight
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is no weight: it is not finite")
    return max(MIN_WEIGHT, min(MAX_WEIGHT, round(value)))
