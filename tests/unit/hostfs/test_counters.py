"""Numbers in kernel files."""

import pytest

from hostfs.counters import parse_all_unsigned, parse_keyed, parse_unsigned


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("42\n", 42),
        (" 7 ", 7),
        ("007", 7),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), None),
        ("9" * 20, None),
        ("0" * 20 + "1", None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_000", None),
        ("1.0", None),
        ("1e3", None),
        ("0x10", None),
        ("٣", None),
        ("²", None),
        ("max", None),
    ],
)
def test_a_counter_is_digits_that_fit_into_64_bits(text, number):
    assert parse_unsigned(text) == number


def test_all_fields_are_numbers_or_none_is():
    assert parse_all_unsigned(["1", "2"]) == (1, 2)
    assert parse_all_unsigned([]) == ()
    assert parse_all_unsigned(["1", "x"]) is None


def test_keyed_lines_without_one_number_are_left_out():
    text = f"usage_usec 5\n\nblank\nmany 1 2\nbig {2**64}\nnegative -1\nword max\nlast 7"
    assert parse_keyed(text) == {"usage_usec": 5, "last": 7}
