"""Whose value is it? The ledger knows each group's original, what we wrote, and who wrote last.

Originals are the bytes that were read before our first write. A value that is neither the original nor ours was written
by somebody else: it becomes the new original (I5), and after some in a row the group is left alone for a while.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Owner: TypeAlias = Literal["new", "original", "ours", "foreign"]


@dataclass
class Entry:
    """One group. `identity` tells a group from a later one of the same name (its inode)."""

    group: str
    identity: int
    original: str
    name: str = ""
    ours: set[str] = field(default_factory=set)
    last: str | None = None
    foreign_in_a_row: int = 0
    left_alone_until: float | None = None


@dataclass
class Ledger:
    """All groups that were ever written, by path. Texts are compared stripped, and kept as read."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def originals(self) -> dict[str, int]:
        """Original weights by group, where they are numbers."""
        found = {group: entry.original.strip() for group, entry in self.entries.items()}
        return {group: int(text) for group, text in found.items() if text.isdigit() and int(text) > 0}

    def owner(self, group: str, identity: int, current: str) -> Owner:
        """Who wrote `current`."""
        entry = self.entries.get(group)
        if entry is None or entry.identity != identity:
            return "new"
        text = current.strip()
        if entry.last is not None and text == entry.last.strip():
            return "ours"
        if text == entry.original.strip() and entry.last is None:
            return "original"
        if text in entry.ours and text != entry.original.strip():
            return "ours"
        return "foreign"

    def begin(self, group: str, identity: int, current: str, name: str = "") -> Entry:
        """A first write to a group is about to happen: `current` is its original."""
        entry = self.entries[group] = Entry(group, identity, current, name)
        return entry

    def intend(self, group: str, text: str) -> None:
        """We are about to write `text`; after a crash the group may hold it or what it held."""
        self.entries[group].ours.add(text.strip())

    def wrote(self, group: str, text: str) -> None:
        """Our write was read back."""
        entry = self.entries[group]
        entry.last = text
        entry.ours = {text.strip()}

    def yielded(self, group: str, current: str, now: float, limit: int, seconds: float) -> bool:
        """Somebody else wrote `current`: it is the new original. True when the group is left alone from now on."""
        entry = self.entries[group]
        entry.original, entry.last, entry.ours = current, None, set()
        entry.foreign_in_a_row += 1
        if entry.foreign_in_a_row >= limit:
            entry.left_alone_until = now + seconds
            entry.foreign_in_a_row = 0
            return True
        return False

    def stayed(self, group: str) -> None:
        """Our last value was still there: the row of foreign writes is broken."""
        self.entries[group].foreign_in_a_row = 0

    def left_alone(self, group: str, now: float) -> bool:
        """Whether the group is somebody else's for the moment."""
        entry = self.entries.get(group)
        return entry is not None and entry.left_alone_until is not None and now < entry.left_alone_until

    def forget(self, group: str) -> None:
        """The group is gone, or restored."""
        self.entries.pop(group, None)


RestoreStep: TypeAlias = Literal["write", "done", "gone", "foreign"]


def restore_step(entry: Entry, identity: int | None, current: str | None) -> RestoreStep:
    """What restoring one group takes, given what is there now (None: the group has vanished)."""
    if current is None or identity != entry.identity:
        return "gone"
    text = current.strip()
    if text == entry.original.strip():
        return "done"
    if text in entry.ours or (entry.last is not None and text == entry.last.strip()):
        return "write"
    return "foreign"


def ledger_of(records: list[Mapping[str, object]]) -> Ledger:
    """The ledger that a journal's records lead to."""
    ledger = Ledger()
    for record in records:
        group, kind, value = str(record["group"]), record["kind"], str(record.get("value", ""))
        if kind == "original":
            identity = int(str(record["identity"]))
            ledger.begin(group, identity, value, str(record.get("name", "")))
        elif group not in ledger.entries:
            continue
        elif kind == "intend":
            ledger.intend(group, value)
        elif kind == "rebase":
            entry = ledger.entries[group]
            entry.original, entry.last, entry.ours = value, None, set()
        elif kind == "forget":
            ledger.forget(group)
    return ledger
