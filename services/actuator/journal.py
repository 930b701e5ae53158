"""The journal's file: appended, and synced to disk before a group is written for the first time."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from runtime.errors import HostError
from services.actuator.core.journal_format import JournalDamaged, header, line_of, records_of


class Journal:
    """One append-only file. A file that cannot be trusted is set aside, never acted upon."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._descriptor = -1

    def open(self) -> tuple[list[Mapping[str, object]], str | None]:
        """The records of an earlier run, and a word if the file was damaged and set aside. Raises HostError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            raw = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise self._unusable(error) from error
        trouble: str | None = None
        try:
            records = records_of(raw, self._boot_id)
        except JournalDamaged as error:
            aside = self._path.with_suffix(".set-aside")
            with contextlib.suppress(OSError):
                self._path.replace(aside)
            records, trouble = [], f"{self._path}: {error}; set aside as {aside.name}"
        self._reopen(records)
        return records, trouble

    def append(self, records: list[Mapping[str, object]], *, sync: bool) -> None:
        """Adds records; with `sync` they are on disk when this returns. Raises HostError (disk full, for one)."""
        block = b"".join(line_of(record) for record in records)
        try:
            written = os.write(self._descriptor, block)
            if written != len(block):
                raise OSError(28, os.strerror(28))
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            raise self._unusable(error) from error

    def clear(self) -> None:
        """Everything was restored: starts an empty journal."""
        self._reopen([])

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _reopen(self, records: list[Mapping[str, object]]) -> None:
        """Replaces the file by a clean one with these records, so that it never ends in a torn line."""
        self.close()
        fresh = self._path.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(header(self._boot_id) + b"".join(line_of(record) for record in records))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> HostError:
        return HostError(
            f"actuator.journal: {self._path}: {error.strerror}; nothing is written without a journal: "
            f"set actuator.journal to a writable path"
        )


def boot_id(proc_root: str) -> str:
    """This boot of the machine, by the kernel's name for it; 'unknown' where it has none."""
    with contextlib.suppress(OSError):
        return Path(proc_root, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return "unknown"
