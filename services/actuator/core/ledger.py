"""Whose value is it? The ledger knows each group's original, what we wrote, and who wrote last.

Originals are the bytes that were read before our first write. A value that is neither the original nor ours was written
by somebody else: it becomes the new original (I5), and after some in a row the group is left alone for a while.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.actuator.core.records import Intend, Original, Record

Owner: TypeAlias = Literal["new", "original", "ours", "foreign", "moved"]
"""`new`: never written. `foreign`: somebody replaced a value of ours. `moved`: somebody changed what was theirs."""


@dataclass
class Entry:
    """One group. `identity` tells a group from a later one of the same name (its inode).

    `ours` are the values (stripped) that the group may hold by our hand. `confirmed` once one of them was read back:
    before that, a crash may have come between the journal and the write, and the original proves nothing.
    """

    group: str
    identity: int
    original: str
    name: str = ""
    ours: frozenset[str] = frozenset()
    confirmed: bool = False


@dataclass
class Others:
    """Somebody else's hand on one group: outlives a restore, after which the group is not ours but still theirs."""

    identity: int
    in_a_row: int = 0
    left_alone_until: float | None = None
    why: str = "foreign"


@dataclass
class Ledger:
    """All groups that were ever written, by path. Texts are compared stripped, and kept as read."""

    entries: dict[str, Entry] = field(default_factory=dict)
    others: dict[str, Others] = field(default_factory=dict)

    @property
    def touched(self) -> bool:
        """Whether any group may hold a value of ours."""
        return any(entry.ours for entry in self.entries.values())

    def originals(self) -> dict[str, int]:
        """Original weights by group, where they are numbers."""
        found = {group: entry.original.strip() for group, entry in self.entries.items()}
        return {group: int(text) for group, text in found.items() if text.isdigit() and int(text) > 0}

    def original(self, group: str, identity: int, current: str) -> str:
        """The original's bytes, given what the group holds now."""
        owner = self.owner(group, identity, current)
        return self.entries[group].original if owner in ("ours", "original") else current

    def owner(self, group: str, identity: int, current: str) -> Owner:
        """Who wrote `current`."""
        entry = self.entries.get(group)
        if entry is None or entry.identity != identity:
            return "new"
        text = current.strip()
        if text in entry.ours:
            return "ours"
        if text == entry.original.strip() and not entry.confirmed:
            return "original"
        return "foreign" if entry.ours else "moved"

    # ---- what the journal knows too ----

    def take(self, record: Record) -> None:
        """The ledger after one more record. A record of a group without an original changes nothing."""
        if isinstance(record, Original):
            self.entries[record.group] = Entry(record.group, record.identity, record.value, record.name)
            return
        entry = self.entries.get(record.group)
        if entry is None:
            return
        if isinstance(record, Intend):
            entry.ours = frozenset(record.values)
        else:
            entry.original, entry.ours, entry.confirmed = record.value, frozenset(), False

    def records(self) -> list[Record]:
        """The shortest journal that leads here."""
        found: list[Record] = []
        for entry in self.entries.values():
            found.append(Original(group=entry.group, identity=entry.identity, value=entry.original, name=entry.name))
            if entry.ours:
                found.append(Intend(group=entry.group, values=tuple(sorted(entry.ours))))
        return found

    # ---- what a write came to ----

    def wrote(self, group: str, text: str) -> None:
        """Our write was read back."""
        entry = self.entries[group]
        entry.ours, entry.confirmed = frozenset({text.strip()}), True

    def not_written(self, group: str, before: frozenset[str]) -> None:
        """Our write did not happen: the group holds of ours what it may have held `before`."""
        self.entries[group].ours = before

    def forget(self, group: str) -> None:
        """The group is gone, or restored."""
        self.entries.pop(group, None)

    def vanished(self, group: str) -> None:
        """The group is gone, and with it whoever else wrote to it."""
        self.forget(group)
        self.others.pop(group, None)

    # ---- somebody else ----

    def is_last_straw(self, group: str, identity: int, limit: int) -> bool:
        """Whether one more foreign write makes `limit` in a row."""
        return self._others(group, identity).in_a_row + 1 >= limit

    def overwritten(self, group: str, identity: int, now: float, limit: int, seconds: float) -> bool:
        """Somebody replaced a value of ours. True when the group is left alone from now on."""
        others = self.others[group] = self._others(group, identity)
        others.in_a_row += 1
        if others.in_a_row < limit:
            return False
        self.leave_alone(group, identity, now + seconds, "foreign")
        return True

    def leave_alone(self, group: str, identity: int, until: float, why: str) -> None:
        """The group is not ours to write until then."""
        self.others[group] = Others(identity, 0, until, why)

    def stayed(self, group: str) -> None:
        """Our last value was still there: the row of foreign writes is broken."""
        if group in self.others:
            self.others[group].in_a_row = 0

    def left_alone(self, group: str, identity: int, now: float) -> str | None:
        """Why the group is not ours to write at the moment, or None."""
        others = self._others(group, identity)
        return others.why if others.left_alone_until is not None and now < others.left_alone_until else None

    def _others(self, group: str, identity: int) -> Others:
        found = self.others.get(group)
        return found if found is not None and found.identity == identity else Others(identity)


RestoreStep: TypeAlias = Literal["write", "done", "gone", "foreign"]


def restore_step(entry: Entry, identity: int | None, current: str | None) -> RestoreStep:
    """What restoring one group takes, given what is there now (None: the group has vanished)."""
    if current is None or identity != entry.identity:
        return "gone"
    text = current.strip()
    if text == entry.original.strip():
        return "done"
    return "write" if text in entry.ours else "foreign"


def ledger_of(records: Iterable[Record]) -> Ledger:
    """The ledger that a journal's records lead to."""
    ledger = Ledger()
    for record in records:
        ledger.take(record)
    return ledger
