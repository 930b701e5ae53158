"""What of a record is damaged, missing or not closed: in the words of a replay, beside any other reading of it."""

from collections.abc import Iterable, Iterator
from typing import Final

from lab.record.items import Entry, Header
from lab.replay.cycles import Cycles, Told, Trouble

_MOST_TOLD: Final = 20
_IN_A_LINE: Final = 3


class Losses:
    """Looks on while a record is read, of one node or of all. `told` are the first losses, `count` is their number."""

    def __init__(self, header: Header, node: str | None) -> None:
        self._cycles = Cycles(header, node)
        self.told: tuple[str, ...] = ()
        self.count = 0

    def through(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries as they are. They must be read to their end, once."""
        for entry in entries:
            self._note(self._cycles.take(entry))
            yield entry
        self._note(self._cycles.end())

    @property
    def line(self) -> str | None:
        """All of it in a line; None where the record is whole."""
        if not self.count:
            return None
        more = f"; and {self.count - _IN_A_LINE} more (trimtab replay)" if self.count > _IN_A_LINE else ""
        return f"the record is not whole: {'; '.join(self.told[:_IN_A_LINE])}{more}"

    def _note(self, told: Iterable[Told]) -> None:
        for one in told:
            if isinstance(one, Trouble):
                self.count += 1
                if len(self.told) < _MOST_TOLD:
                    self.told = (*self.told, one.text)
