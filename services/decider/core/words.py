"""Owns the words in which an action tells what became of an order of a model: who gave it looks for them."""

from typing import Final

LONGEST_EVENT: Final = 1000
"""Signs after which what an action tells is cut: reasons are people's, and may be long."""

_DIGEST_LENGTH: Final = 64
_SHOWN: Final = 12


def short(word: str | None) -> str:
    """A digest as people read it, or a name as it is."""
    if not word:
        return "none"
    return word[:_SHOWN] if len(word) == _DIGEST_LENGTH else word[: _DIGEST_LENGTH - 1]


def obeyed(word: str | None, by: str) -> str:
    """How an event begins to tell that an order was obeyed; the reason follows."""
    return f"goes on from {short(word)} on the word of {by}: "


def not_obeyed(word: str | None, by: str) -> str:
    """How an event begins to tell that an order was not obeyed; what was wrong follows."""
    return f"not obeyed: model {short(word)}, on the word of {by}: "
