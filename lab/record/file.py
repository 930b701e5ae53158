"""A recording read: the items of its file in order, and what is known of those that cannot be read, in their place."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from lab.record.blocks import SEED, Block, Blocks, Content, NotARecording, content_of
from lab.record.items import AnyItem, Closed, Damage, DamageKind, Entry, Gap, Header, Stored
from runtime.errors import ConfigError, TrimtabError

_NUMBERED: Final = (Stored, Gap)

__all__ = ["NotARecording", "Reading", "Recording", "Tracker", "read_recording"]


class Recording:
    """A recording on disk, read block by block: memory does not grow with it. Made by `read_recording`."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header

    def items(self, *, strict: bool = False) -> Iterator[Entry]:
        """All items after the first header, in the order in which they were written, and a `Damage` wherever some are
        missing. With `strict` a damage raises TrimtabError instead, except that the recording was not closed.
        """
        with _open(self.path) as file:
            for entry in Reading(file, self.path):
                if strict and isinstance(entry, Damage) and entry.kind != "unclosed":
                    raise TrimtabError(f"{self.path}: {entry}; record it again while the streams still have it")
                yield entry


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file. Raises NotARecording for what is none or is newer, or has no readable header."""
    place = Path(path)
    with _open(place) as file:
        first = Blocks(file, place).take()
        if isinstance(first, Block) and first.number == 0 and first.previous == SEED:
            content = content_of(first)
            if isinstance(content, Content) and content.items and isinstance(content.items[0], Header):
                return Recording(place, content.items[0])
    raise NotARecording(
        f"{place}: the first block, which says what this is a recording of, is missing or damaged; "
        f"record it again while the streams still have it"
    )


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that `trimtab record FILE` wrote") from error


class Tracker:
    """Of each stream the last sequence that was read or is known to be gone, the newest message, and how many messages
    there were.
    """

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.newest: dict[str, Stored] = {}
        self.messages: dict[str, int] = {}

    def take(self, item: AnyItem) -> None:
        """Counts one item."""
        if isinstance(item, Stored):
            self.last[item.stream] = item.sequence
            self.newest[item.stream] = item
            self.messages[item.stream] = self.messages.get(item.stream, 0) + 1
        elif isinstance(item, Gap):
            self.last[item.stream] = item.last


class Reading:
    """One pass over the blocks of a file, as an iterator of entries. Where it has come to: `tracker`, and of the last
    good block `digest` and `end`; `expected` is the number of the block that comes next.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._blocks = Blocks(file, path)
        self.tracker = Tracker()
        self.expected = 0
        self.digest = SEED
        self.end = self._blocks.offset
        self._trouble: Damage | None = None
        self._is_closed = False
        self._is_whole = False
        self._is_damaged = False

    def __iter__(self) -> Iterator[Entry]:
        """The entries; the last one is a Damage unless the recording was closed."""
        while (block := self._blocks.take()) is not None:
            if isinstance(block, Damage):
                self._trouble = self._trouble or msgspec.structs.replace(block, block=self.expected)
                self._is_damaged = True
            elif block.number < self.expected:
                text = f"block {block.number} belongs before this place; its items are left out"
                yield self._damage("misplaced", block, text, self.expected)
            else:
                yield from self._read(block)
        if self._trouble is not None:
            yield msgspec.structs.replace(self._trouble, before=dict(self.tracker.last))
        elif not self._is_closed:
            text = "it was not closed: the recorder still runs or was stopped, or the end of the file is missing"
            before = dict(self.tracker.last)
            yield Damage(kind="unclosed", block=self.expected, offset=self.end, reason=text, before=before)

    def _read(self, block: Block) -> Iterator[Entry]:
        content = content_of(block)
        trouble = self._trouble or self._what_is_wrong(block, content)
        self._trouble = None
        self.expected, self.digest, self.end = block.number + 1, block.digest, block.end
        if isinstance(content, str):
            self._trouble = trouble
            return
        if trouble is not None:
            after = {stream: sequence + 1 for stream, sequence in content.positions.items()}
            yield msgspec.structs.replace(trouble, before=dict(self.tracker.last), after=after)
        self.tracker.last = dict(content.positions)
        items = content.items
        if block.number == 0 and isinstance(items[0], Header):
            self._is_whole = items[0].node is None
            items = items[1:]
        for item in items:
            if isinstance(item, _NUMBERED):
                if (damage := self._out_of_order(block, item)) is not None:
                    yield damage
                    if damage.kind == "misplaced":
                        continue
            elif isinstance(item, Closed) and not self._is_damaged:
                yield from self._miscounted(item)
            self.tracker.take(item)
            self._is_closed = isinstance(item, Closed)
            yield item

    def _what_is_wrong(self, block: Block, content: Content | str) -> Damage | None:
        if isinstance(content, str):
            return self._damage("unreadable", block, content)
        if block.number > self.expected:
            text = f"{block.number - self.expected} of its blocks are missing"
            return self._damage("missing", block, text, self.expected)
        if block.previous != self.digest or content.positions != self.tracker.last:
            text = "this block does not follow the one before: it was made anew, or is of another recording"
            return self._damage("changed", block, text)
        return None

    def _out_of_order(self, block: Block, item: Stored | Gap) -> Damage | None:
        """Whether a message or a gap is not the next of its stream, though its block is as it was written."""
        first = item.sequence if isinstance(item, Stored) else item.first
        last = self.tracker.last.get(item.stream)
        if last is None or first == last + 1 or (first > last and not self._is_whole):
            return None
        if first <= last:
            text = f"{item.stream}: {first} comes after {last}; it is left out"
            return self._damage("misplaced", block, text)
        text = f"{first - last - 1} messages are missing, and no gap says why"
        damage = self._damage("missing", block, text)
        return msgspec.structs.replace(damage, before={item.stream: last}, after={item.stream: first})

    def _miscounted(self, closed: Closed) -> Iterator[Damage]:
        """Where the recorder counted other messages than were read, and nothing else says which are lost."""
        here = self.tracker.messages
        for stream in sorted({*closed.messages, *here}):
            counted, read = closed.messages.get(stream, 0), here.get(stream, 0)
            if counted != read:
                text = f"it was closed with {counted} messages of {stream}, {read} are here"
                yield Damage(kind="missing", block=self.expected - 1, offset=self.end, reason=text)

    def _damage(self, kind: DamageKind, block: Block, reason: str, number: int | None = None) -> Damage:
        self._is_damaged = True
        return Damage(
            kind=kind,
            block=block.number if number is None else number,
            offset=block.offset,
            reason=reason,
            before=dict(self.tracker.last),
        )
