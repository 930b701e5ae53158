"""Whether a replayed message is the recorded one: the bytes that were on the wire; and where it is not."""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from lab.replay.cycles import Part
from schemas.messages import Action, Reward, Verdict
from schemas.subjects import kind_of

M = TypeVar("M", Action, Verdict, Reward)

NOTHING: Final = "(absent)"
"""What stands for a field that one of the two does not have."""


UNREADABLE: Final = "a field that this release does not know, and whose value it cannot read"


class Difference(NamedTuple):
    """Both messages, as JSON, and the fields in which they differ: path, recorded value, replayed value, as JSON.
    `words` say how they differ where that is not by what the message means.
    """

    kind: str
    node: str
    boot: str
    cycle: int
    fields: tuple[tuple[str, str, str], ...]
    recorded: str
    replayed: str
    words: str = ""

    def __str__(self) -> str:
        """One line for people."""
        if self.words:
            return f"{self.kind} of cycle {self.cycle} of {self.node} (boot {self.boot}): {self.words}"
        names = ", ".join(path for path, _, _ in self.fields)
        return f"{self.kind} of cycle {self.cycle} of {self.node} (boot {self.boot}) differs in {names}"


def difference(recorded: Part[M], replayed: M) -> Difference | None:
    """None where both are the same bytes: `replayed` has the recorded values of all that is taken as told."""
    ours = _encoder.encode(replayed)
    if ours == recorded.payload:
        return None
    message = recorded.message
    theirs, shown = _encoder.encode(message), recorded.payload
    is_same, unreadable = ours == theirs, ""
    try:
        told = msgspec.json.decode(shown)
    except (msgspec.DecodeError, UnicodeDecodeError):  # in a field that is unknown, so nobody looked at it
        told, shown, unreadable = msgspec.json.decode(theirs), theirs, UNREADABLE
    fields = tuple(_unequal(told, msgspec.json.decode(ours)))
    words = f"the same message in other bytes: {unreadable or _how_written(fields)}" if is_same else unreadable
    return Difference(
        kind_of(message), message.node, message.boot, message.cycle, fields, shown.decode(), ours.decode(), words
    )


def _how_written(fields: tuple[tuple[str, str, str], ...]) -> str:
    """How two ways to write the same message differ."""
    unknown = [path for path, _, replayed in fields if replayed == NOTHING]
    absent = [path for path, recorded, _ in fields if recorded == NOTHING]
    others = [path for path, recorded, replayed in fields if NOTHING not in (recorded, replayed)]
    parts = []
    if unknown:
        parts.append(f"{_fields(unknown)} that this release does not know: {', '.join(unknown)}")
    if absent:
        parts.append(f"{_fields(absent)} that this release writes is not there: {', '.join(absent)}")
    if others:
        parts.append(f"written another way: {', '.join(others)}")
    return "; ".join(parts) or "spaces, or another way to write the same text"


def _fields(paths: list[str]) -> str:
    return "a field" if len(paths) == 1 else "fields"


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
