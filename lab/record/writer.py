"""A recording written: items appended as blocks, each on the disk before the next; and gone on with, after an end."""

import contextlib
import fcntl
import io
import os
from pathlib import Path
from typing import Final, Self

from lab.record.blocks import SEED, START, TooLarge, encode_block
from lab.record.file import Reading, Tracker, read_recording
from lab.record.items import AnyItem, Closed, Damage, Entry, Header, ModelCopy, Settings, Stored
from runtime.errors import ConfigError, TrimtabError

BLOCK_BYTES: Final = 512 << 10
"""Bytes of messages after which a block is written. 512 KiB: some twenty cycles, and what a reader holds is small."""

_OVERHEAD_BYTES: Final = 64


class RecordingWriter:
    """Appends items to one recording; what was added is safe when `flush` has returned. Made by `create_recording` and
    `resume_recording`. One process at a time: the file is locked. `written_bytes` were `content_bytes` before they were
    compressed; `settings` and `models` are what the file has of them.
    """

    def __init__(self, file: io.FileIO, path: Path, header: Header) -> None:
        self._file = file
        self.path = path
        self.header = header
        self.tracker = Tracker()
        self.settings: list[Settings] = []
        self.models: set[str] = set()
        self.content_bytes = 0
        self.written_bytes = 0
        self._positions: dict[str, int] = {}
        self._number = 0
        self._digest = SEED
        self._pending: list[AnyItem] = []
        self._pending_bytes = 0

    @property
    def is_bare(self) -> bool:
        """Whether nothing but the header is on the disk."""
        return self._number <= 1

    def position(self, stream: str) -> int:
        """The last sequence of a stream that was added, or is known to be gone; 0 if none was."""
        return self.tracker.last.get(stream, 0)

    def add(self, item: AnyItem) -> None:
        """Adds one item, and writes a block when there is enough for one. Raises TrimtabError when the disk does not
        take it.
        """
        self._pending.append(item)
        self.tracker.take(item)
        self._remember(item)
        self._pending_bytes += _OVERHEAD_BYTES
        if isinstance(item, Stored | ModelCopy):
            self._pending_bytes += len(item.payload or b"")
        if self._pending_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what was added as one block, and waits for the disk."""
        if not self._pending:
            return
        try:
            raw, digest, content_bytes = encode_block(self._number, self._digest, self._positions, self._pending)
        except TooLarge as error:
            raise TrimtabError(f"{self.path}: {error}; leave out what is so large") from error
        self._put(raw if self._number else START + raw)
        self.content_bytes += content_bytes
        self.written_bytes += len(raw)
        self._number += 1
        self._digest = digest
        self._positions = dict(self.tracker.last)
        self._pending = []
        self._pending_bytes = 0

    def _remember(self, item: Entry) -> None:
        if isinstance(item, Header):
            self.settings += item.settings
        elif isinstance(item, ModelCopy) and item.payload is not None:
            self.models.add(item.digest)

    def close(self) -> None:
        """Writes what was added, and that this is an orderly end."""
        try:
            self.add(Closed(messages=dict(self.tracker.messages)))
            self.flush()
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Closes the file as it is: what was not flushed is lost."""
        self._file.close()

    def __enter__(self) -> Self:
        """Closed in an orderly way where the `with` block ends, abandoned where it raises."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def begin(self) -> None:
        """Writes the start of the file and the header."""
        self.add(self.header)
        self.flush()

    def go_on(self) -> str | None:
        """Comes to where the file's last good block ends and cuts off what is torn behind it; returns what was torn.

        Raises TrimtabError where the file is damaged before its end.
        """
        damage: Damage | None = None
        with self.path.open("rb") as file:
            self._remember(self.header)
            reading = Reading(file, self.path)
            for entry in reading:
                if damage is not None:  # and something follows it
                    break
                self._remember(entry)
                damage = entry if isinstance(entry, Damage) and entry.kind != "unclosed" else None
            else:
                if damage is None or damage.kind in ("torn", "changed"):
                    self._cut(reading)
                    return f"{damage}; cut off, and read again where the streams still have it" if damage else None
        raise TrimtabError(f"{self.path}: {damage}; a damaged recording is not gone on with: name another file")

    def _cut(self, reading: Reading) -> None:
        self._file.seek(reading.end)
        self._file.truncate()
        self.tracker = reading.tracker
        self._positions = dict(reading.tracker.last)
        self._number, self._digest = reading.expected, reading.digest

    def _put(self, raw: bytes) -> None:
        start = self._file.tell()
        try:
            left = memoryview(raw)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(start)
            raise TrimtabError(
                f"{self.path}: {error.strerror}; make room and run `trimtab record` with the same file again: it goes "
                f"on behind what was written"
            ) from error


def create_recording(path: str | os.PathLike[str], header: Header) -> RecordingWriter:
    """A new recording. Raises ConfigError where the file is already there or cannot be made."""
    place = Path(path)
    try:
        file = io.FileIO(place, "xb")
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}; name a file that can be made") from error
    writer = RecordingWriter(file, place, header)
    try:
        _lock(file, place)
        writer.begin()
        _sync_folder(place)
    except BaseException:
        writer.abandon()
        raise
    return writer


def resume_recording(path: str | os.PathLike[str]) -> tuple[RecordingWriter, str | None]:
    """A recording to go on with, and what was torn at its end, if anything was. Raises TrimtabError."""
    place = Path(path)
    header = read_recording(place).header
    try:
        file = io.FileIO(place, "r+b")
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}; name a file that this user may write") from error
    writer = RecordingWriter(file, place, header)
    try:
        _lock(file, place)
        return writer, writer.go_on()
    except BaseException:
        writer.abandon()
        raise


def _lock(file: io.FileIO, path: Path) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise TrimtabError(f"{path}: another process records into it; end that one, or name another file") from error


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
