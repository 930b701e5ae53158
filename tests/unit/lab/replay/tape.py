"""A recording in the hand: its items, what can be done to them, and what a replay says of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from lab.record.items import Entry, Header, Stored
from lab.replay.compare import Difference
from lab.replay.replayer import Replayer, Report
from schemas.codec import decode
from schemas.messages import AnyMessage, State
from schemas.subjects import kind_of


@dataclass(frozen=True)
class Tape:
    header: Header
    items: tuple[Entry, ...]

    def messages(self, name: str) -> dict[int, AnyMessage]:
        """The messages of a kind (`before` and `after` are kinds of states), by their place in the items."""
        found = {}
        for index, item in enumerate(self.items):
            if isinstance(item, Stored) and name_of(message := decode(item.payload)) == name:
                found[index] = message
        return found

    def find(self, name: str, cycle: int) -> int:
        return next(index for index, message in self.messages(name).items() if message.cycle == cycle)

    def changed(self, index: int, change: Callable[[dict[str, Any]], object]) -> "Tape":
        """With one message changed where it stands."""
        item = self.items[index]
        assert isinstance(item, Stored)
        fields = msgspec.json.decode(item.payload)
        change(fields)
        payload = msgspec.json.encode(fields)
        assert payload != item.payload
        return self.with_item(index, msgspec.structs.replace(item, payload=payload))

    def with_item(self, index: int, *items: Entry) -> "Tape":
        return replace(self, items=(*self.items[:index], *items, *self.items[index + 1 :]))

    def without(self, index: int, *, renumbered: bool = False) -> "Tape":
        """Without one item; `renumbered`: as if the stream had never had it."""
        gone = self.items[index]
        left = self.with_item(index)
        if not renumbered:
            return left
        assert isinstance(gone, Stored)
        items = tuple(
            msgspec.structs.replace(item, sequence=item.sequence - 1)
            if isinstance(item, Stored) and item.stream == gone.stream and item.sequence > gone.sequence
            else item
            for item in left.items
        )
        return replace(left, items=items)

    def replayed(self, **options: Any) -> tuple[Report, list[Difference]]:
        replayer = Replayer(self.header, **options)
        found = [difference for item in self.items for difference in replayer.take(item)]
        return replayer.report, found + list(replayer.end())


def name_of(message: AnyMessage) -> str:
    return message.phase if isinstance(message, State) else kind_of(message)
