"""Moments as people write them."""

import pytest

from cli.times import moment_ns, moment_text
from runtime.errors import ConfigError

NOW = 1_796_115_015_000_000_123


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("20min", 1200), ("2h", 7200), ("7d", 604_800), ("1.5h", 5400), (" 2 h ", 7200)],
)
def test_so_long_ago(text, seconds):
    assert moment_ns(text, "--since", NOW) == NOW - seconds * 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-12-01T03:00Z", 1_796_094_000),
        ("2026-12-01T03:00", 1_796_094_000),
        ("2026-12-01 04:00:00+01:00", 1_796_094_000),
        ("2026-12-01", 1_796_083_200),
        ("1970-01-01T00:00Z", 0),
    ],
)
def test_a_date_and_a_time_without_a_zone_is_utc(text, seconds):
    assert moment_ns(text, "--since", NOW) == seconds * 10**9


def test_microseconds_are_exact():
    assert moment_ns("2026-12-01T03:00:00.123457Z", "--since", NOW) == 1_796_094_000_123_457_000


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2", "h", "-2h", "2w", "1e3s", "2026-13-01", "nan", "0001-01-01", "03:12"]
)
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(ConfigError, match=r"flag --since: .* is no moment; write 90s"):
        moment_ns(text, "--since", NOW)


def test_a_moment_is_shown_in_utc():
    assert moment_text(1_796_094_000_999_999_999) == "2026-12-01T03:00:00Z"
