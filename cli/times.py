"""Moments as people write them: so long ago, or a date and a time."""

import math
import re
from datetime import UTC, datetime
from typing import Final

from runtime.errors import ConfigError

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|m|h|d)")
_LATEST_SECONDS: Final = 1 << 33


def moment_ns(text: str, flag: str, now_ns: int) -> int:
    """`90s`, `20m`, `2h`, `7d` before now, or `2026-12-01T03:00Z` (without a zone: UTC), in nanoseconds since the Unix
    epoch. Raises ConfigError.
    """
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return now_ns - int(float(ago[1]) * _UNIT_SECONDS[ago[2]] * 1e9)
    try:
        at = datetime.fromisoformat(text.strip())
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ConfigError(f"flag {flag}: {text!r} is no moment; write 90s, 20m, 2h or 7d (ago), or 2026-12-01T03:00Z")
    return round(seconds * 1_000_000) * 1000


def moment_text(ns: int) -> str:
    """A moment for people, to the second, in UTC."""
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
