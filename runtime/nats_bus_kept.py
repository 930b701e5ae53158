"""Stored messages by their place in a stream, one request each and many at a time.

A consumer would be quicker, but who may make one may have a stream deliver anything anywhere (runtime/access.py): who
may only look reads message by message, and so does everybody here.
"""

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from runtime.bus import Extent, Kept, Span
from runtime.bus_refusals import Refusals
from runtime.errors import BusError
from runtime.nats_bus_client import Client, ConnectionClosedError, Error
from runtime.nats_bus_history import why_not_read

T = TypeVar("T")

_AT_A_TIME: Final = 64
"""Requests in flight. 64: more makes a server on loopback no faster, and hides 30 ms of a network."""

_NOT_FOUND: Final = 404
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class _Error(msgspec.Struct, frozen=True):
    code: int = 0
    description: str = ""


class _Message(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: bytes = b""  # base64, which msgspec undoes


class _Reply(msgspec.Struct, frozen=True):
    error: _Error | None = None
    message: _Message | None = None


class _State(msgspec.Struct, frozen=True):
    first_seq: int
    last_seq: int
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct, frozen=True):
    error: _Error | None = None
    state: _State | None = None


_replies: Final = msgspec.json.Decoder(_Reply)
_infos: Final = msgspec.json.Decoder(_Info)


@dataclass
class _Left:
    """How many bytes the parts of a range may read yet. The one that begins at `first` reads a message in any case."""

    bytes: int
    first: int


class Shelf:
    """Reads what streams keep. `timeout_seconds` is for each answer."""

    def __init__(self, client: Client, timeout_seconds: float, refusals: Refusals) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._refusals = refusals

    async def extent(self, stream: str) -> Extent | None:
        """The first and the last sequence that the stream has now; None where there is no such stream."""
        info = _decoded(_infos, await self._ask(stream, "STREAM.INFO", b""), stream)
        if info.error is not None and info.error.code == _NOT_FOUND:
            return None
        if info.state is None:
            raise BusError(f"{stream}: cannot be looked at ({info.error}); check the server's log")
        return Extent(max(1, info.state.first_seq), info.state.last_seq)  # 0 where nothing ever was

    async def subjects(self, stream: str) -> list[str]:
        """The subjects of which the stream has messages now, the first hundred thousand of them, in order."""
        info = _decoded(_infos, await self._ask(stream, "STREAM.INFO", b'{"subjects_filter":">"}'), stream)
        return sorted(info.state.subjects or {}) if info.state is not None else []

    async def kept(self, stream: str, subject: str, first: int, last: int, most_bytes: int) -> Span:
        """The messages with the sequences `first` to `last` that the stream still has on subjects that match; it ends
        before `last`, behind at least one message, where there are more than `most_bytes` of them.

        The range is cut into parts that are read at the same time, each from message to message.
        """
        first = max(first, 1)
        width = max(1, -(-(last - first + 1) // _AT_A_TIME))
        left = _Left(most_bytes, first)
        try:
            async with asyncio.TaskGroup() as group:
                reading = [
                    group.create_task(self._part(stream, subject, start, min(start + width - 1, last), left))
                    for start in range(first, last + 1, width)
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        found: list[Kept] = []
        for number, task in enumerate(reading):
            part = task.result()
            found += part.messages
            if part.last < min(first + (number + 1) * width - 1, last):
                return Span(found, part.last)
        return Span(found, last)

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        """The first message from sequence `first` on whose subject matches; None if there is none."""
        wish = msgspec.json.encode({"seq": max(first, 1), "next_by_subj": subject})
        reply = _decoded(_replies, await self._ask(stream, "STREAM.MSG.GET", wish), stream)
        found = reply.message
        if found is not None and found.seq >= first:
            return Kept(found.seq, _ns(found.time), found.subject, found.data)
        if reply.error is not None and reply.error.code == _NOT_FOUND:
            return None
        raise BusError(f"{stream}: message {first} cannot be read ({reply.error}); check the server's log")

    async def _ask(self, stream: str, call: str, wish: bytes) -> bytes:
        """The server's answer. Raises BusError where there is none; nothing is asked later than now."""
        try:
            if not self._client.is_connected:
                raise ConnectionClosedError
            return (await self._client.request(f"$JS.API.{call}.{stream}", wish, timeout=self._timeout_seconds)).data
        except (Error, TimeoutError) as error:
            why = why_not_read(self._refusals, stream, error)
            raise BusError(f"{stream}: cannot be read {why}") from error

    async def _part(self, stream: str, subject: str, first: int, last: int, left: _Left) -> Span:
        found: list[Kept] = []
        at = first
        while at <= last:
            if left.bytes <= 0 and (found or first > left.first):
                return Span(found, at - 1)
            message = await self.next_kept(stream, subject, at)
            if message is None or message.sequence > last:
                break
            found.append(message)
            left.bytes -= len(message.payload)
            at = message.sequence + 1
        return Span(found, last)


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes, stream: str) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise BusError(
            f"{stream}: the server's answer cannot be read ({error}); use a nats-server of 2.10 or newer"
        ) from error


def _ns(text: str) -> int:
    """A time as the server writes it, in nanoseconds since the Unix epoch: `datetime` would lose three digits."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise BusError(f"{text!r} is no time")
    at = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00")).astimezone(UTC)
    return int(at.timestamp()) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))
