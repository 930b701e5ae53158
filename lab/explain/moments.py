"""A moment as a person asks for it in a record: a date and a time, or a time of day."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from runtime.errors import ConfigError

_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?Z?")
_HAS_SECONDS: Final = re.compile(r"T\d\d:?\d\d:?\d\d", re.IGNORECASE)
_MINUTE_NS: Final = 60 * 10**9
_SECOND_NS: Final = 10**9
_LATEST_SECONDS: Final = 1 << 33


class Moment(NamedTuple):
    """A stretch of wall time in Unix nanoseconds, `end_ns` not in it: as long as what was said is exact."""

    start_ns: int
    end_ns: int


def is_moment(text: str) -> bool:
    """Whether it is meant as a time at all."""
    return ":" in text


def moment_of(text: str, newest_ns: int, flag: str) -> Moment:
    """The moment: `03:12` is all of that minute, `03:12:07` that second; of a time of day, the last one that is not
    after `newest_ns`. With a date it is `2026-12-01T03:12Z`, in UTC where no zone is named. Raises ConfigError.
    """
    text = text.strip()
    if (found := _TIME.fullmatch(text)) is not None:
        newest = datetime.fromtimestamp(newest_ns // 10**9, UTC)
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        at = newest.replace(hour=hour, minute=minute, second=second, microsecond=0)
        if at > newest:
            at -= timedelta(days=1)
        return _moment(int(at.timestamp()), _MINUTE_NS if found[3] is None else _SECOND_NS)
    try:
        at = datetime.fromisoformat(text.upper())
        seconds = int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        seconds = -1
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ConfigError(f"flag {flag}: {text!r} is no time; write 03:12, 03:12:07 or 2026-12-01T03:12Z (UTC)")
    return _moment(seconds, _SECOND_NS if _HAS_SECONDS.search(text) else _MINUTE_NS)


def _moment(seconds: int, length_ns: int) -> Moment:
    return Moment(seconds * 10**9, seconds * 10**9 + length_ns)


def at_text(ns: int) -> str:
    """For people and for JSON: UTC to the millisecond. `?` for what no calendar has."""
    try:
        at = datetime.fromtimestamp(ns // 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return "?"
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ns // 10**6 % 1000:03d}Z"
