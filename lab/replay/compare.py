"""Whether a replayed message is the recorded one: as encoded bytes; and where it is not."""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from lab.replay.cycles import Part
from schemas.codec import encode
from schemas.messages import Action, Reward, Verdict
from schemas.subjects import kind_of

M = TypeVar("M", Action, Verdict, Reward)

NOTHING: Final = "(absent)"
"""What stands for a field that one of the two does not have."""


class Difference(NamedTuple):
    """Both messages, as JSON, and the fields in which they differ: path, recorded value, replayed value, as JSON."""

    kind: str
    node: str
    boot: str
    cycle: int
    fields: tuple[tuple[str, str, str], ...]
    recorded: str
    replayed: str

    def __str__(self) -> str:
        """One line for people."""
        names = ", ".join(path for path, _, _ in self.fields)
        return f"{self.kind} of cycle {self.cycle} of {self.node} (boot {self.boot}) differs in {names}"


def difference(recorded: Part[M], replayed: M) -> Difference | None:
    """None where both are the same bytes. A release that knows more fields than the recording's compares them with
    their defaults.
    """
    ours = _encoder.encode(replayed)
    if ours == recorded.payload:
        return None
    theirs = _encoder.encode(recorded.message)
    if ours == theirs:
        return None
    message = recorded.message
    return Difference(
        kind_of(message),
        message.node,
        message.boot,
        message.cycle,
        tuple(_unequal(msgspec.json.decode(theirs), msgspec.json.decode(ours))),
        theirs.decode(),
        encode(replayed).decode(),
    )


def _unequal(recorded: object, replayed: object, path: str = "") -> Iterator[tuple[str, str, str]]:
    """The leaves that differ. Key order counts: a message whose keys stand in another order has other bytes."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        found = False
        for key in dict.fromkeys((*recorded, *replayed)):
            where = f"{path}.{key}" if path else str(key)
            for leaf in _unequal(recorded.get(key, NOTHING), replayed.get(key, NOTHING), where):
                found = True
                yield leaf
        if not found and list(recorded) != list(replayed):
            yield f"{path} (order of keys)", _text(list(recorded)), _text(list(replayed))
    elif _text(recorded) != _text(replayed):
        yield path, _text(recorded), _text(replayed)


def _text(value: object) -> str:
    return NOTHING if value is NOTHING else _encoder.encode(value).decode()


_encoder: Final = msgspec.json.Encoder()
