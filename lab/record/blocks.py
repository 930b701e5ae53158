"""The blocks of a recording's file: compressed items, chained by digests.

    file   = magic (8) version (u32) zero (u32) block*
    block  = sync (4) number (u32) length (u32) kind (u32) previous (32) digest (32) payload (length)

Numbers are big-endian. `digest` is the SHA-256 of the block's bytes without it; `previous` is the digest of the block
before, for the first one the SHA-256 of the file's first 16 bytes. So a flipped bit, and a block that is gone, doubled
or elsewhere, are found; and since each block can be checked alone, reading goes on behind them. The payload is the zlib
stream of the msgpack array `[positions, items]`: `positions` is the last sequence of each stream before this block, so
that what a lost block held is known from the next one.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from lab.record.items import FORMAT, AnyItem, Damage
from runtime.errors import ConfigError

MAGIC: Final = b"\x89TTREC\r\n"
"""Not text, and broken by whoever takes it for text."""
SYNC: Final = b"\xd7TTB"
ITEMS: Final = 1
"""The kind of a block of items; no other is written so far."""
MAX_PAYLOAD_BYTES: Final = 64 << 20
"""Largest compressed block that a reader takes. 64 MiB: a block of ours has half a MiB, but a model may be large."""
MAX_CONTENT_BYTES: Final = 128 << 20
"""Largest block after inflating: what a reader holds in memory at most, twice."""

_START: Final = struct.Struct(">8sII")
_HEAD: Final = struct.Struct(">4sIII32s32s")
_SIGNED_BYTES: Final = 48
_LEVEL: Final = 6
_SCAN_BYTES: Final = 1 << 20

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[dict[str, int], list[AnyItem]])

START: Final = _START.pack(MAGIC, FORMAT, 0)
"""What a file begins with."""
SEED: Final = hashlib.sha256(START).digest()
"""What the first block follows."""


class NotARecording(ConfigError):
    """The file is none, or of another version, or its first block cannot be read."""


class Block(NamedTuple):
    """One block that is as it was written; `end` is the byte behind it."""

    number: int
    offset: int
    end: int
    kind: int
    previous: bytes
    digest: bytes
    payload: bytes


class Content(NamedTuple):
    """What is in a block."""

    positions: dict[str, int]
    items: list[AnyItem]


class TooLarge(ValueError):
    """Items that no reader would take."""


def encode_block(
    number: int, previous: bytes, positions: Mapping[str, int], items: Sequence[AnyItem]
) -> tuple[bytes, bytes, int]:
    """The bytes of a block, its digest, and how many bytes it has without compression. Raises TooLarge."""
    raw = _encoder.encode((positions, items))
    payload = zlib.compress(raw, _LEVEL)
    if len(raw) > MAX_CONTENT_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise TooLarge(f"a block of {len(raw)} bytes, the limit is {MAX_CONTENT_BYTES}")
    signed = _HEAD.pack(SYNC, number, len(payload), ITEMS, previous, b"")[:_SIGNED_BYTES]
    digest = _digest(signed, payload)
    return signed + digest + payload, digest, len(raw)


def content_of(block: Block) -> Content | str:
    """What is in a block, or why that cannot be read."""
    if block.kind != ITEMS:
        return f"a block of kind {block.kind}, which this release does not know"
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(block.payload, MAX_CONTENT_BYTES)
        if not inflater.eof or inflater.unused_data:
            return f"it inflates to more than {MAX_CONTENT_BYTES} bytes, or is no whole zlib stream"
        return Content(*_decoder.decode(raw))
    except (zlib.error, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"its content cannot be read ({error})"


class Blocks:
    """The blocks of a file, one after the other; what cannot be read is a Damage, and then the next one is found.

    Raises NotARecording for a file that does not begin as one.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self.offset = len(START)
        file.seek(0)
        _check_start(file.read(len(START)), path)

    def take(self) -> Block | Damage | None:
        """The next block, or what is wrong here, or None at the end."""
        if self.offset >= self._size:
            return None
        found = self._block_at(self.offset)
        if isinstance(found, Block):
            self.offset = found.end
            return found
        start, self.offset = self.offset, self._next_after(self.offset)
        if found is None and self.offset >= self._size:
            return Damage(kind="torn", block=0, offset=start, reason="the last block is incomplete")
        return Damage(kind="changed", block=0, offset=start, reason=found or "it is longer than the file")

    def _block_at(self, offset: int) -> Block | str | None:
        """The block that begins there; what is wrong with it; None if it would be longer than the file."""
        self._file.seek(offset)
        head = self._file.read(_HEAD.size)
        if not head.startswith(SYNC[: len(head)]):
            return "no block begins here"
        if len(head) < _HEAD.size:
            return None
        _, number, length, kind, previous, digest = _HEAD.unpack(head)
        if length > MAX_PAYLOAD_BYTES:
            return f"it says that it has {length} bytes, the limit is {MAX_PAYLOAD_BYTES}"
        if offset + _HEAD.size + length > self._size:
            return None
        payload = self._file.read(length)
        if _digest(head[:_SIGNED_BYTES], payload) != digest:
            return "its bytes are not those that were written"
        return Block(number, offset, offset + _HEAD.size + length, kind, previous, digest, payload)

    def _next_after(self, offset: int) -> int:
        """Where the next good block begins; the end of the file if there is none."""
        at = offset + 1
        while at < self._size:
            self._file.seek(at)
            window = self._file.read(_SCAN_BYTES + len(SYNC) - 1)
            found = window.find(SYNC)
            if found < 0:
                at += _SCAN_BYTES
            elif isinstance(self._block_at(at + found), Block):
                return at + found
            else:
                at += found + 1
        return self._size


def _check_start(start: bytes, path: Path) -> None:
    if not start:
        raise NotARecording(f"{path}: is empty; name a file that `trimtab record FILE` wrote")
    if len(start) < len(START) or not start.startswith(MAGIC):
        raise NotARecording(f"{path}: is no recording; name a file that `trimtab record FILE` wrote")
    _, version, zero = _START.unpack(start)
    if version > FORMAT:
        raise NotARecording(f"{path}: is of format {version}, this release reads {FORMAT}; use a newer trimtab")
    if version != FORMAT or zero:
        raise NotARecording(f"{path}: its first {len(START)} bytes are damaged; record it again")


def _digest(signed: bytes, payload: bytes) -> bytes:
    whole = hashlib.sha256(signed)
    whole.update(payload)
    return whole.digest()
