"""The journal's lines: one JSON record a line with a checksum, under a header that names the machine's boot.

After a reboot all groups are new, so a journal of another boot says nothing. A torn last line is what a crash leaves
and is dropped; a bad line before the end means that the file is not to be trusted.
"""

import zlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from services.actuator.core.records import Record

VERSION = 1

T = TypeVar("T")


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="journal"):
    """The first line: whose journal this is. `version` of the format, `boot_id` of the machine."""

    version: int
    boot_id: str


class JournalDamaged(ValueError):
    """The text is no journal of this machine's boot; the message says why."""


class JournalOutlived(JournalDamaged):
    """A journal of an earlier boot: nothing that it speaks of is there any more, and nothing is lost with it."""


_header: msgspec.json.Decoder[Header] = msgspec.json.Decoder(Header)
_record: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def lines_of(records: Iterable[Record | Header]) -> bytes:
    """The records as lines."""
    bodies = [msgspec.json.encode(record) for record in records]
    return b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies)


def header(boot_id: str) -> bytes:
    """The first line."""
    return lines_of([Header(version=VERSION, boot_id=boot_id)])


def records_of(raw: bytes, boot_id: str) -> list[Record]:
    """All records after the header, but for a last line that has no end: the write of that one was cut off, and what it
    was to tell of was never done. Raises JournalDamaged.
    """
    complete = raw.split(b"\n")[:-1]
    if not complete:  # files are put in place whole, with their header
        raise JournalDamaged("it has no header" if raw else "it is empty")
    head = _decoded(_header, _body(complete[0], 1), 1)
    if head.version != VERSION:
        raise JournalDamaged(f"it is of version {head.version}, this release reads {VERSION}")
    if head.boot_id != boot_id:
        raise JournalOutlived("it is of an earlier boot of this machine: those groups are gone")
    records: list[Record] = []
    for number, line in enumerate(complete[1:], start=2):
        records.append(_decoded(_record, _body(line, number), number))
    return records


def is_torn(raw: bytes) -> bool:
    """Whether the last line has no end."""
    return bool(raw) and not raw.endswith(b"\n")


def _body(line: bytes, number: int) -> bytes:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise JournalDamaged(f"line {number} does not match its checksum")
    return body


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, number: int) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalDamaged(f"line {number} is no record that this release knows: {error}") from error
