"""From the streams into a recording: every message once, in order, and every one that is gone as a gap.

Each stream is read in ranges of sequences, each behind the last one recorded, and the streams are merged by the time at
which the server stored a message. What is read is bounded; what was recorded is known from the file, so that a recorder
can be stopped at any time and go on.
"""

import asyncio
import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from lab.record.items import Gap, Header, Settings, Stored
from lab.record.models import behind, copy_model
from lab.record.named import MADE_BY, named_in
from lab.record.settings import versions
from lab.record.writer import RecordingWriter, create_recording
from runtime.bus import Extent, Kept, Span
from runtime.errors import BusError, TrimtabError
from runtime.metrics import product_version
from runtime.streams import AUDIT, ORDERS, STATE
from runtime.streams import STREAMS as DECLARED
from schemas.subjects import ROOT, node_name, node_token

STREAMS: Final = (AUDIT, ORDERS, STATE)
"""What is recorded. In this order they are asked how far they are: an action is stored after the state that it answers,
so whoever knows of the action finds the state."""

POLL_SECONDS: Final = 1.0
"""Seconds between looks at the streams while following. 1: well inside a tick."""

FLUSH_SECONDS: Final = 10.0
"""Seconds after which what was heard is written while following, be it little. What a crash costs is read again."""

_BATCH_BYTES: Final = 4 << 20
"""Bytes of messages that one range is meant to bring."""
_MOST_BEHIND: Final = 16
"""Models that are looked for behind one that an action names."""
_FIRST_RANGE: Final = 256
_LARGEST_RANGE: Final = 1 << 16
_LATE_NS: Final = 2_000_000_000
"""How long after the end that was asked for a message may still come that the server stored before it."""


class Archive(Protocol):
    """What the recorder needs of a bus."""

    async def extent(self, stream: str) -> Extent | None: ...  # noqa: D102 - as in runtime/bus.py

    async def kept(  # noqa: D102
        self, stream: str, subject: str, first: int, last: int, *, most_bytes: int = 16 << 20
    ) -> Span: ...

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None: ...  # noqa: D102


@dataclass
class Tally:
    """What a recorder has recorded since it was made: `cycles` are actions, `missing` the messages in gaps, `left` what
    it knows to be there yet. `unknown_settings` counts messages by service and fingerprint of settings that the
    recording does not have: they cannot be replayed.
    """

    messages: int = 0
    cycles: int = 0
    gaps: int = 0
    missing: int = 0
    models: int = 0
    payload_bytes: int = 0
    left: int = 0
    unknown_settings: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class _Cursor:
    """Where one stream has come to: `next` is the sequence to read next, up to `last` there is something to read. `gap`
    may be longer yet.
    """

    stream: str
    subject: str
    next: int
    last: int = 0
    width: int = _FIRST_RANGE
    waiting: deque[Stored | Gap] = field(default_factory=deque)
    gap: Gap | None = None

    def miss(self, first: int, last: int, *, exact: bool) -> None:
        """So many are gone; one gap may come in several ranges."""
        if first > last:
            return
        if self.gap is not None and self.gap.last + 1 == first:
            first = self.gap.first
        else:
            self.end_gap()
        reason = "the stream no longer has them"
        self.gap = Gap(stream=self.stream, first=first, last=last, exact=exact, reason=reason)

    def end_gap(self) -> None:
        """What follows is there."""
        if self.gap is not None:
            self.waiting.append(self.gap)
            self.gap = None


class Recorder:
    """Reads streams into `writer`. `settings_for` gives the settings of a node that was not heard of before; `say` is
    told in a line what a person should know.
    """

    def __init__(
        self,
        bus: Archive,
        writer: RecordingWriter,
        *,
        settings_for: Callable[[str], Settings | None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
        on_progress: Callable[[Tally], None] = lambda _: None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bus = bus
        self._writer = writer
        self._header = writer.header
        self._settings_for = settings_for
        self._say = say
        self._on_progress = on_progress
        self._clock_ns = clock_ns
        self._cursors: list[_Cursor] = []
        self._nodes: set[str] = set()
        self._models = set(writer.models)
        self.tally = Tally()

    async def open(self) -> None:
        """Finds where to begin or go on in each stream. Raises TrimtabError where the streams are not those that the
        recording was made of.
        """
        for stream in self._header.streams:
            subject = subject_in(stream, self._header.node)
            extent = await self._bus.extent(stream)
            position = self._writer.position(stream)
            if position:
                await self._check_same(stream, position, extent)
                start = position + 1
            elif extent is None:
                start = 1
            elif self._header.since_ns is not None:
                start = await self._first_since(stream, extent, self._header.since_ns)
            else:
                start = extent.first
            self._cursors.append(_Cursor(stream, subject, start))

    async def run(self, stop: asyncio.Event, *, until_ns: int | None = None, follow: bool = False) -> None:
        """Records what the streams have now, in order; with `follow` also what comes, until `stop` is set. Ends before
        the first message that was stored after `until_ns`. Raises BusError, without `follow`.
        """
        now = asyncio.get_running_loop().time
        flushed_at = now()
        is_behind = True
        while not stop.is_set():
            try:
                is_past = await self._catch_up(stop, until_ns)
                if follow and is_behind and not is_past:
                    self._say(f"all {self.tally.messages} messages so far are recorded; following")
                    is_behind = False
            except BusError as error:
                if not follow:
                    raise
                self._say(f"{error}; trying again")
                is_past = False
            if is_past or not follow or (until_ns is not None and self._clock_ns() > until_ns + _LATE_NS):
                return
            if now() - flushed_at >= FLUSH_SECONDS:
                self._writer.flush()
                flushed_at = now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL_SECONDS)

    async def _catch_up(self, stop: asyncio.Event, until_ns: int | None) -> bool:
        """Records what the streams have at this moment; whether what is next was stored after `until_ns`."""
        for cursor in self._cursors:
            extent = await self._bus.extent(cursor.stream)
            if extent is not None and extent.last < cursor.next - 1:
                raise self._another(cursor.stream, f"ends at {extent.last}, but {cursor.next - 1} is recorded")
            cursor.last = cursor.next - 1 if extent is None else extent.last
        while not stop.is_set():
            for cursor in self._cursors:
                while not cursor.waiting and cursor.next <= cursor.last and not stop.is_set():
                    await self._fill(cursor)
            if stop.is_set() or not any(cursor.waiting for cursor in self._cursors):
                break
            if await self._drain(until_ns):
                return True
            self.tally.left = sum(len(c.waiting) + max(0, c.last - c.next + 1) for c in self._cursors)
            self._on_progress(self.tally)
        return False

    async def _fill(self, cursor: _Cursor) -> None:
        """Reads the next range of one stream, and sees what is gone."""
        first, last = cursor.next, min(cursor.last, cursor.next + cursor.width - 1)
        found, last = await self._bus.kept(cursor.stream, cursor.subject, first, last, most_bytes=2 * _BATCH_BYTES)
        certain = last
        if self._header.node is not None:  # what lies between is others', unless the stream has let go of it
            extent = await self._bus.extent(cursor.stream)
            certain = min(last, extent.first - 1) if extent is not None else last
        expected, exact = first, self._header.node is None
        for message in found:
            cursor.miss(expected, min(message.sequence - 1, certain), exact=exact)
            cursor.end_gap()
            cursor.waiting.append(
                Stored(
                    stream=cursor.stream,
                    sequence=message.sequence,
                    stored_ns=message.stored_ns,
                    subject=message.subject,
                    payload=message.payload,
                )
            )
            expected = message.sequence + 1
        cursor.miss(expected, certain, exact=exact)
        cursor.next = last + 1
        if cursor.next > cursor.last:
            cursor.end_gap()
        brought = sum(len(message.payload) for message in found) + 1
        cursor.width = max(1, min(_LARGEST_RANGE, 2 * cursor.width, _BATCH_BYTES * (last - first + 1) // brought))

    async def _drain(self, until_ns: int | None) -> bool:
        """Writes what waits, oldest first, until more must be read; whether the next is from after `until_ns`."""
        while ready := [cursor for cursor in self._cursors if cursor.waiting]:
            cursor = min(ready, key=_age)
            item = cursor.waiting[0]
            if isinstance(item, Stored):
                if until_ns is not None and item.stored_ns > until_ns:
                    return True
                await self._write(item)
            else:
                self._writer.add(item)
                self.tally.gaps += 1
                self.tally.missing += item.last - item.first + 1
            cursor.waiting.popleft()
            if not cursor.waiting and cursor.next <= cursor.last:
                break
        return False

    async def _write(self, item: Stored) -> None:
        kind, _, token = item.subject.removeprefix(f"{ROOT}.").partition(".")
        if token not in self._nodes:
            self._nodes.add(token)
            self._learn_settings(node_name(token))
        if kind in MADE_BY:
            named = named_in(item.payload)
            self._look_for_settings(MADE_BY[kind], named.settings)
            if kind == "action":
                self.tally.cycles += 1
                await self._copy_models(token, named.model)
        self._writer.add(item)
        self.tally.messages += 1
        self.tally.payload_bytes += len(item.payload)

    def _look_for_settings(self, service: str, fingerprint: str) -> None:
        if fingerprint and all(fingerprint != known.fingerprints.get(service) for known in self._writer.settings):
            self.tally.unknown_settings[service, fingerprint] += 1

    def _learn_settings(self, node: str) -> None:
        settings = self._settings_for(node)
        if settings is None or any(settings.fingerprints == known.fingerprints for known in self._writer.settings):
            return
        self._writer.add(msgspec.structs.replace(self._header, settings=(settings,), versions=versions()))

    async def _copy_models(self, token: str, model: str) -> None:
        """Takes along the model that an action names, and those that it comes of, where it is the first to name it."""
        asked: list[tuple[str, str | None]] = [(model, None)]
        for _ in range(_MOST_BEHIND):
            asked = [(digest, run) for digest, run in asked if digest and digest not in self._models]
            if not asked:
                return
            digest, run = asked.pop(0)
            own_run, digests = behind(await self._copy_model(token, digest), run)
            asked += [(other, own_run) for other in digests]

    async def _copy_model(self, token: str, digest: str) -> bytes | None:
        self._models.add(digest)
        copy = await copy_model(self._bus, token, digest)
        if copy.payload is None:
            self._say(f"model {digest[:12]} is not taken along: {copy.reason}")
        else:
            self.tally.models += 1
        self._writer.add(copy)
        return copy.payload

    async def _check_same(self, stream: str, position: int, extent: Extent | None) -> None:
        if extent is None or extent.last < position:
            here = "is not there" if extent is None else f"ends at {extent.last}"
            raise self._another(stream, f"{here}, but {position} is recorded")
        known = self._writer.tracker.newest.get(stream)
        if known is None:
            return
        found = (await self._bus.kept(stream, ">", known.sequence, known.sequence)).messages
        if found and (found[0].stored_ns, found[0].subject) != (known.stored_ns, known.subject):
            raise self._another(stream, f"has another message {known.sequence} than the one recorded")

    def _another(self, stream: str, why: str) -> TrimtabError:
        return TrimtabError(
            f"{self._writer.path}: {stream} {why}: the stream was made anew, or it is another server's; "
            f"name another file"
        )

    async def _first_since(self, stream: str, extent: Extent, since_ns: int) -> int:
        """The first sequence stored at or after a time, found by halving; behind the end if there is none."""
        low, high = extent.first, extent.last + 1
        while low < high:
            middle = (low + high) // 2
            found = await self._bus.next_kept(stream, ">", middle)
            if found is None or found.stored_ns >= since_ns:
                high = middle
            else:
                low = found.sequence + 1
        return low


def new_header(
    made_at: int, settings: Iterable[Settings], *, node: str | None = None, since_ns: int | None = None
) -> Header:
    """The header of a recording that this release makes, of one node or of all."""
    return Header(
        trimtab=product_version(),
        made_at=made_at,
        node=node,
        since_ns=since_ns,
        streams=STREAMS,
        settings=tuple(settings),
        versions=versions(),
    )


async def record_now(
    bus: Archive,
    path: str | os.PathLike[str],
    header: Header,
    *,
    settings_for: Callable[[str], Settings | None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Tally:
    """Records all that the streams have now into a new file. Raises TrimtabError."""
    with create_recording(path, header) as writer:
        recorder = Recorder(bus, writer, settings_for=settings_for, say=say)
        await recorder.open()
        await recorder.run(asyncio.Event())
    return recorder.tally


def subject_in(stream: str, node: str | None) -> str:
    """The subjects of one node in a stream, or of all, as a pattern. Raises ValueError for what is no node's name."""
    if node is None:
        return ">"
    kinds = next((known.kinds for known in DECLARED if known.name == stream), ())
    return f"{ROOT}.{kinds[0] if len(kinds) == 1 else '*'}.{node_token(node)}"


def _age(cursor: _Cursor) -> int:
    head = cursor.waiting[0]
    return head.stored_ns if isinstance(head, Stored) else 0
