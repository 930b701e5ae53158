"""The journal's lines: one JSON record a line with a checksum, under a header that names the machine's boot.

After a reboot all groups are new, so a journal of another boot says nothing. A torn last line is what a crash leaves
and is dropped; a bad line before the end means that the file is not to be trusted.
"""

import zlib
from collections.abc import Mapping

import msgspec

VERSION = 1


class JournalDamaged(ValueError):
    """The text is no journal of this machine's boot; the message says why."""


def line_of(record: Mapping[str, object]) -> bytes:
    """The record as one line."""
    body = msgspec.json.encode(record)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def header(boot_id: str) -> bytes:
    """The first line."""
    return line_of({"kind": "journal", "version": VERSION, "boot_id": boot_id})


def records_of(raw: bytes, boot_id: str) -> list[Mapping[str, object]]:
    """All records after the header. Raises JournalDamaged; an empty file has none."""
    if not raw:
        return []
    lines = raw.split(b"\n")
    complete, torn = lines[:-1], lines[-1]
    records: list[Mapping[str, object]] = []
    for number, line in enumerate(complete, start=1):
        record = _record(line)
        if record is None:
            if number == len(complete) and not torn and number > 1:
                break  # the last line was cut and a newline followed: still the last write
            raise JournalDamaged(f"line {number} does not match its checksum")
        records.append(record)
    if not records or records[0].get("kind") != "journal":
        raise JournalDamaged("it has no header")
    if records[0].get("version") != VERSION:
        raise JournalDamaged(f"it is of version {records[0].get('version')}, this release reads {VERSION}")
    if records[0].get("boot_id") != boot_id:
        raise JournalDamaged("it is of an earlier boot of this machine: those groups are gone")
    return records[1:]


def _record(line: bytes) -> Mapping[str, object] | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        record = msgspec.json.decode(body)
    except (ValueError, msgspec.DecodeError):
        return None
    return record if isinstance(record, dict) else None
