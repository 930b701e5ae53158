"""Records of the workloads and the arithmetic over them: percentiles, violations, work per second.

Request records (`loadgen --record`, `monitor --record`), one line per request in order of completion:

    [scheduled_unix_seconds, latency_seconds, "status"]

Latency counts from the scheduled time. The status is `"ok"` for a 2xx answer and for a run that was completed. Every
other one is a failure: the HTTP code (`"503"`), `"timeout"` (its latency is the timeout), `"shed"` (never sent, since
too many were in flight; its latency is the timeout as well), `"error"` (connection lost or refused, or no HTTP) and
`"cut"` (in flight when the generator was ended). The latency of the last two is the time until then.

Work records (`batch --record`), one line every 0.5 s: `{"at": unix_seconds, "work": blocks}`, cumulative since that
process's start; a value below the one before it means a restart.

Files are appended to and may be read while they grow: only whole lines count, the last one may be cut.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class RequestRecord(NamedTuple):
    """One request."""

    scheduled_unix_seconds: float
    latency_seconds: float
    status: str

    @property
    def is_ok(self) -> bool:
        """Whether it was answered as wanted."""
        return self.status == "ok"


class WorkRecord(NamedTuple):
    """Work done until a time."""

    at_unix_seconds: float
    work: float


class RequestLog(NamedTuple):
    """What was read; `next_byte` is where to read on, `skipped_lines` counts whole lines that are no record."""

    records: list[RequestRecord]
    next_byte: int
    skipped_lines: int


class WorkLog(NamedTuple):
    """What was read; `next_byte` is where to read on, `skipped_lines` counts whole lines that are no record."""

    records: list[WorkRecord]
    next_byte: int
    skipped_lines: int


class Summary(NamedTuple):
    """Requests scheduled within a window. The numbers are None when there were none."""

    requests: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    violation_ratio: float | None


def parse_request(line: bytes) -> RequestRecord | None:
    """The record in one line, or None when it is none: cut, not JSON, not finite, negative latency."""
    match _json(line):
        case [scheduled, latency, str(status)]:
            at, duration = _finite(scheduled), _finite(latency)
            if at is not None and duration is not None and duration >= 0.0:
                return RequestRecord(at, duration, status)
    return None


def parse_work(line: bytes) -> WorkRecord | None:
    """The record in one line, or None when it is none."""
    match _json(line):
        case {"at": at, "work": work}:
            when, done = _finite(at), _finite(work)
            if when is not None and done is not None and done >= 0.0:
                return WorkRecord(when, done)
    return None


def read_requests(path: Path, from_byte: int = 0) -> RequestLog:
    """The request records from `from_byte` on; an absent file is an empty one. Raises OSError for others."""
    lines, next_byte = _whole_lines(path, from_byte)
    records = [record for line in lines if (record := parse_request(line)) is not None]
    return RequestLog(records, next_byte, len(lines) - len(records))


def read_work(path: Path, from_byte: int = 0) -> WorkLog:
    """The work records from `from_byte` on; an absent file is an empty one. Raises OSError for others."""
    lines, next_byte = _whole_lines(path, from_byte)
    records = [record for line in lines if (record := parse_work(line)) is not None]
    return WorkLog(records, next_byte, len(lines) - len(records))


def nearest_rank(rising: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` % of all values do not exceed; None of no values.

    The nearest-rank percentile: element ⌈percent·n/100⌉, counted from 1, of `rising`, which must be sorted. It is
    always a value that occurred; `percent` is 1-100.
    """
    if not rising:
        return None
    return rising[math.ceil(percent * len(rising) / 100) - 1]


def summarise(
    records: Iterable[RequestRecord], from_unix_seconds: float, to_unix_seconds: float, objective_seconds: float
) -> Summary:
    """The requests *scheduled* within [from, to): their percentiles in ms and the ratio that broke the objective.

    A failed request violates, however fast it failed, and in the percentiles it ranks with the slowest request of the
    window: refusing quickly must not make a service look fast.
    """
    window = [record for record in records if from_unix_seconds <= record.scheduled_unix_seconds < to_unix_seconds]
    if not window:
        return Summary(0, 0, None, None, None, None)
    slowest = max(record.latency_seconds for record in window)
    rising = sorted(record.latency_seconds if record.is_ok else slowest for record in window)
    violations = sum(not record.is_ok or record.latency_seconds > objective_seconds for record in window)
    p50, p95, p99 = (_milliseconds(nearest_rank(rising, percent)) for percent in (50, 95, 99))
    failed = sum(not record.is_ok for record in window)
    return Summary(len(window), failed, p50, p95, p99, violations / len(window))


def work_per_second(
    records: Iterable[WorkRecord],
    from_unix_seconds: float,
    to_unix_seconds: float,
    *,
    edge_slack_seconds: float = 2.0,
) -> float | None:
    """Mean work per second between two times, interpolated linearly between records; restarts count from 0.

    None when the records do not cover the window. `edge_slack_seconds` may be missing at either end, since a writer
    that is starved is late; the mean is then over the part that is covered.
    """
    times, totals = _rising_totals(records)
    if not times:
        return None
    start, end = max(from_unix_seconds, times[0]), min(to_unix_seconds, times[-1])
    if start >= end or start - from_unix_seconds > edge_slack_seconds or to_unix_seconds - end > edge_slack_seconds:
        return None
    return (_interpolate(times, totals, end) - _interpolate(times, totals, start)) / (end - start)


def _rising_totals(records: Iterable[WorkRecord]) -> tuple[list[float], list[float]]:
    times: list[float] = []
    totals: list[float] = []
    last_work = 0.0
    for at, work in records:
        if times and at <= times[-1]:
            continue
        if not times:
            totals.append(work)
        else:
            totals.append(totals[-1] + (work - last_work if work >= last_work else work))
        times.append(at)
        last_work = work
    return times, totals


def _interpolate(times: Sequence[float], values: Sequence[float], at: float) -> float:
    after = min(bisect_right(times, at), len(times) - 1)
    if after == 0:
        return values[0]
    share = (at - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def _whole_lines(path: Path, from_byte: int) -> tuple[list[bytes], int]:
    try:
        with path.open("rb") as file:
            file.seek(from_byte)
            raw = file.read()
    except FileNotFoundError:
        return [], from_byte
    end = raw.rfind(b"\n") + 1
    return [line for line in raw[:end].split(b"\n") if line], from_byte + end


def _json(line: bytes) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000.0
