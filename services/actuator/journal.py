"""The journal's file: appended, and synced to disk before a group is written for the first time."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from runtime.errors import HostError
from services.actuator.core.journal_format import JournalDamaged, JournalOutlived, header, is_torn, lines_of, records_of
from services.actuator.core.records import Record

_MOST_ASIDE = 16


class Journal:
    """One append-only file. A file that cannot be trusted is set aside, never acted upon."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._descriptor = -1
        self._lock = -1
        self.size_bytes = 0
        self.was_torn = False

    @property
    def is_sound(self) -> bool:
        """Whether an append would reach the file that a restart reads: open, whole, and not removed meanwhile."""
        try:
            return self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink > 0
        except OSError:
            return False

    def open(self) -> tuple[list[Record], str | None]:
        """The records of an earlier run, and a word if the file was damaged and set aside. Raises HostError.

        A journal that can be read and not written (disk full, read-only) is opened as it is: nothing new is written on
        its word, but what it holds can be returned. See `is_sound`. `was_torn` tells of a last line that was cut off.
        """
        trouble: str | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            raw = self._path.read_bytes() if self._path.exists() else header(self._boot_id)
            self.was_torn = is_torn(raw)
            try:
                records = records_of(raw, self._boot_id)
            except JournalDamaged as error:
                outlived = isinstance(error, JournalOutlived)
                aside = self._path.with_suffix(".other-boot") if outlived else _unused(self._set_aside)
                self._path.replace(aside)
                records, trouble = [], f"{self._path}: {error}; set aside as {aside.name}"
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self.rewrite(records)
        except HostError:
            if not records:
                raise
        return records, trouble

    def lost(self) -> str | None:
        """Why some originals may not be known any more, for as long as a damaged journal lies beside this one."""
        try:
            damaged = sorted(path.name for path in self._path.parent.glob(f"{self._set_aside.name}*"))
        except OSError:
            return None
        if not damaged:
            return None
        return (
            f"{', '.join(damaged)} in {self._path.parent} could not be read: the weights that were found then count as "
            f"the originals; compare them with the pods' requests, then remove the file"
        )

    @property
    def _set_aside(self) -> Path:
        return self._path.with_suffix(".set-aside")

    def append(self, records: Sequence[Record], *, sync: bool) -> None:
        """Adds records; with `sync` they are on disk when this returns. Raises HostError (disk full, for one): then
        none of them is in the file, nor a part of one, which would spoil all that follows.
        """
        block = lines_of(records)
        try:
            if self._descriptor < 0:
                raise OSError(errno.EBADF, "it is not open")
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            self._take_back()
            raise self._unusable(error) from error
        self.size_bytes += len(block)

    def rewrite(self, records: Sequence[Record]) -> None:
        """Replaces the file by a clean one with these records. Raises HostError: then the old one is still in use."""
        fresh = self._path.with_suffix(".new")
        block = header(self._boot_id) + lines_of(records)
        try:
            with fresh.open("wb") as file:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from error
        self._close_file()
        self._descriptor, self.size_bytes = descriptor, len(block)

    def close(self) -> None:
        """Closes the file and lets another actuator have it."""
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_back(self) -> None:
        """Cuts off what a failed append left. Where even that fails the file is given up: see `is_sound`."""
        if self._descriptor >= 0:
            try:
                os.ftruncate(self._descriptor, self.size_bytes)
            except OSError:
                self._close_file()

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_lock(self) -> None:
        """One actuator per journal: a second one would restore under the first one's feet. Raises HostError."""
        if self._lock >= 0:
            return
        lock = self._path.with_suffix(".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)  # enough to hold it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise HostError(
                f"actuator.journal: {self._path}: another actuator runs on it; stop that one, or set another journal"
            ) from error
        self._lock = descriptor

    def _unusable(self, error: OSError) -> HostError:
        return HostError(
            f"actuator.journal: {self._path}: {error.strerror or error}; nothing is written without a journal: "
            f"set actuator.journal to a writable path"
        )


def _unused(path: Path) -> Path:
    """The path, or one beside it with a number: what was set aside before may hold the only true originals. The last
    of them is written over.
    """
    number, found = 1, path
    while found.exists() and number < _MOST_ASIDE:
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return found


def boot_id(proc_root: str) -> str:
    """This boot of the machine, by the kernel's name for it; 'unknown' where it has none."""
    with contextlib.suppress(OSError):
        return Path(proc_root, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return "unknown"
