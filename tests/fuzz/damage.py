"""What goes wrong: odd numbers and characters, and lines that had accidents. All drawn values in this package are
literals, so that what failed can be printed and pasted.
"""

from functools import cache

from hypothesis import strategies as st


def mostly(usual, odd, of=8):
    """The usual, but one in `of` times something odd. (`one_of` takes a strategy that it is given twice as one.)"""
    return st.integers(1, of).flatmap(lambda number: odd if number == of else usual)


@cache
def one_in(of):
    """True about one time in so many."""
    return st.integers(1, of).map(lambda number: number == of)


ODD_NUMBERS = st.sampled_from(
    [
        *(
            "NaN",
            "nan",
            "+Inf",
            "-Inf",
            "inf",
            "Infinity",
            "-0",
            "-1",
            "-1e-9",
            "",
            "+",
            ".",
            "1_000",
            "0x10",
            "\u0661",
        ),
        *("1e308", "1.7976931348623157e308", "1e309", "5e-324", "1e-300", "1e19", "9007199254740993"),
        *("9223372036854775807", "9223372036854775808", "18446744073709551615", "99999999999999999999", "9" * 400),
    ]
)
ODD_CHARACTERS = st.one_of(
    st.sampled_from([*' \t\r\n\0"\\,{}=#+-.0eE/_%:\x0b\x0c\x1c\x85\u2028\ufeff\ud800', '\\"', ",,", "{}", "\r\n"]),
    st.characters(),
)


def _spliced(text, at, length, piece):
    at %= len(text) + 1
    return text[:at] + piece + text[at + length :]


PLACES = st.integers(0, 10_000)
_DAMAGE = st.one_of(
    st.tuples(st.just("drop"), PLACES),
    st.tuples(st.just("double"), PLACES),
    st.tuples(st.just("swap"), PLACES, PLACES),
    st.tuples(st.just("cut line"), PLACES, PLACES),
    st.tuples(st.just("number"), PLACES, ODD_NUMBERS),
    st.tuples(st.just("splice"), PLACES, PLACES, st.integers(0, 3), ODD_CHARACTERS),
    st.tuples(st.just("join"), PLACES),
)
DAMAGES = st.lists(_DAMAGE, max_size=4)


def damaged(lines, damages):
    """The lines after some accidents."""
    found = list(lines)
    for what, *args in damages:
        if not found:
            break
        at = args[0] % len(found)
        if what == "drop":
            del found[at]
        elif what == "double":
            found.insert(at, found[at])
        elif what == "swap":
            other = args[1] % len(found)
            found[at], found[other] = found[other], found[at]
        elif what == "cut line":
            found[at] = found[at][: args[1] % (len(found[at]) + 1)]
        elif what == "number":
            found[at] = f"{found[at].rpartition(' ')[0]} {args[1]}"
        elif what == "splice":
            found[at] = _spliced(found[at], *args[1:])
        else:
            found[at : at + 2] = ["".join(found[at : at + 2])]
    return found


ELAPSED = mostly(
    st.sampled_from([5.0, 2.0, 1.0]), st.one_of(st.sampled_from([0.0, -1.0, 1e-9, 3600.0]), st.floats(1e-9, 1e9)), 6
)
"""Seconds between two collections. The clock counts in nanoseconds."""
