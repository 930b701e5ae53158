"""Stored messages by their place in a stream, one request each and many at a time.

A consumer would be quicker, but who may make one may have a stream deliver anything anywhere (runtime/access.py): who
may only look reads message by message, and so does everybody here.
"""

import asyncio
import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from runtime.bus import Extent, Kept
from runtime.bus_refusals import Refusals
from runtime.errors import BusError
from runtime.nats_bus_client import Client, Error
from runtime.nats_bus_history import why_not_read

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


class _Info(msgspec.Struct, frozen=True):
    error: _Error | None = None
    state: _State | None = None


_replies: Final = msgspec.json.Decoder(_Reply)
_infos: Final = msgspec.json.Decoder(_Info)


class Shelf:
    """Reads what streams keep. `timeout_seconds` is for each answer."""

    def __init__(self, client: Client, timeout_seconds: float, refusals: Refusals) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._refusals = refusals

    async def extent(self, stream: str) -> Extent | None:
        """The first and the last sequence that the stream has now; None where there is no such stream."""
        try:
            reply = await self._client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=self._timeout_seconds)
            info = _infos.decode(reply.data)
        except (Error, TimeoutError, msgspec.DecodeError) as error:
            why = why_not_read(self._refusals, stream, error)
            raise BusError(f"{stream}: cannot be looked at {why}") from error
        if info.error is not None and info.error.code == _NOT_FOUND:
            return None
        if info.state is None:
            raise BusError(f"{stream}: cannot be looked at ({info.error}); check the server's log")
        return Extent(max(1, info.state.first_seq), info.state.last_seq)  # 0 where nothing ever was

    async def kept(self, stream: str, subject: str, first: int, last: int) -> list[Kept]:
        """The messages with the sequences `first` to `last` that the stream still has on subjects that match.

        The range is cut into parts that are read at the same time, each from message to message.
        """
        first = max(first, 1)
        width = max(1, -(-(last - first + 1) // _AT_A_TIME))
        starts = range(first, last + 1, width)
        try:
            async with asyncio.TaskGroup() as group:
                parts = [
                    group.create_task(self._part(stream, subject, start, min(start + width - 1, last)))
                    for start in starts
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return [message for part in parts for message in part.result()]

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        """The first message from sequence `first` on whose subject matches; None if there is none."""
        wish = msgspec.json.encode({"seq": max(first, 1), "next_by_subj": subject})
        where = f"$JS.API.STREAM.MSG.GET.{stream}"
        try:
            reply = _replies.decode((await self._client.request(where, wish, timeout=self._timeout_seconds)).data)
        except (Error, TimeoutError, msgspec.DecodeError) as error:
            why = why_not_read(self._refusals, stream, error)
            raise BusError(f"{stream}: message {first} cannot be read {why}") from error
        found = reply.message
        if found is not None:
            return Kept(found.seq, _ns(found.time), found.subject, found.data)
        if reply.error is not None and reply.error.code == _NOT_FOUND:
            return None
        raise BusError(f"{stream}: message {first} cannot be read ({reply.error}); check the server's log")

    async def _part(self, stream: str, subject: str, first: int, last: int) -> list[Kept]:
        found: list[Kept] = []
        while first <= last:
            message = await self.next_kept(stream, subject, first)
            if message is None or message.sequence > last:
                break
            found.append(message)
            first = message.sequence + 1
        return found


def _ns(text: str) -> int:
    """A time as the server writes it, in nanoseconds since the Unix epoch: `datetime` would lose three digits."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise BusError(f"{text!r} is no time")
    at = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00")).astimezone(UTC)
    return int(at.timestamp()) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))
