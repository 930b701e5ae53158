"""The unsigned decimal numbers that kernel files are made of."""

from collections.abc import Sequence
from typing import Final

MAX_UNSIGNED: Final = 2**64 - 1
"""Largest counter of the kernel. A larger number is none."""

_MAX_DIGITS: Final = 20
"""Digits of the largest 64-bit number (`int()` refuses very long ones)."""


def parse_unsigned(text: str) -> int | None:
    """The number if `text`, apart from white space around it, is ASCII digits that fit into 64 bits; else None."""
    digits = text.strip()
    if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
        number = int(digits)
        return number if number <= MAX_UNSIGNED else None
    return None


def parse_all_unsigned(fields: Sequence[str]) -> tuple[int, ...] | None:
    """All fields as numbers, or None if one of them is none."""
    numbers = [parse_unsigned(field) for field in fields]
    found = tuple(number for number in numbers if number is not None)
    return found if len(found) == len(numbers) else None


def parse_keyed(text: str) -> dict[str, int]:
    """The `key number` lines of a flat keyed file (kernel: admin-guide/cgroup-v2.rst). Other lines are left out."""
    numbers: dict[str, int] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        number = parse_unsigned(value)
        if number is not None:
            numbers[key] = number
    return numbers
