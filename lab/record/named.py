"""What a message names that a replay of it needs: its model, and the fingerprint of its settings."""

from typing import Final

import msgspec

MADE_BY: Final = {"action": "decider", "verdict": "guard", "reward": "rewarder"}
"""Kinds of messages that follow from settings, and the service that makes each."""


class Named(msgspec.Struct, frozen=True):
    """By a message; empty where it names none, or cannot be read: whoever reads it says why."""

    model: str = ""
    settings: str = ""


def named_in(payload: bytes) -> Named:
    """What the message in these bytes names."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Named()


_decoder: Final = msgspec.json.Decoder(Named)
