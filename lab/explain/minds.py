"""The decider's mind as it was before one decision, reached by replaying the record up to it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from lab.explain.gather import CycleId
from lab.record.items import Entry, Header, ModelCopy, Settings, Stored
from lab.replay.cycles import Cycles, Recorded, Told
from lab.replay.decider import DeciderReplay
from lab.replay.library import Library, NotReplayable
from schemas.subjects import subject as subject_for
from services.decider.core.mind import Mind

_RUN_UP: Final = 32
"""Cycles before the last stored model that are replayed too, so that it is seen where that one begins."""


class _ActionHead(msgspec.Struct, frozen=True):
    """What of an action says which model it was made from."""

    type: str = ""
    node: str = ""
    boot: str = ""
    cycle: int = 0
    run: str = ""
    model: str = ""


_head: Final = msgspec.json.Decoder(_ActionHead)


def mind_before(
    header: Header, entries: Callable[[], Iterable[Entry]], wanted: CycleId, extra: Iterable[Settings] = ()
) -> tuple[Mind | str, Library]:
    """The mind that decided the wanted cycle, or why the record does not lead to it; with what the record had of
    settings and models until then. It must not be asked to decide or to learn: it has decided this cycle.
    """
    skipped = _actions_before_model(entries(), wanted)
    library = Library(extra)
    library.add(header)
    cycles, decider = Cycles(header, wanted.node), DeciderReplay(library)
    found: Mind | str = ""
    seen = 0
    for told in _told(cycles, entries()):
        if isinstance(told, Header | ModelCopy):
            library.add(told)
        elif isinstance(told, Recorded):
            seen += told.action is not None
            if seen > skipped:
                found = _take(decider, told, found, is_whole=cycles.is_whole and not skipped)
            if (told.boot, told.cycle) == wanted[1:]:
                return found or "the record has no such decision", library
    return "the record has no such decision", library


def _told(cycles: Cycles, entries: Iterable[Entry]) -> Iterator[Told]:
    for entry in entries:
        yield from cycles.take(entry)
    yield from cycles.end()


def _take(decider: DeciderReplay, recorded: Recorded, before: Mind | str, *, is_whole: bool) -> Mind | str:
    """The mind after one more cycle, or the first reason since it was last known."""
    known_why = before if isinstance(before, str) else ""
    try:
        decider.take(recorded, is_whole=is_whole)
    except NotReplayable as reason:
        return known_why or str(reason)
    return decider.mind or known_why or "a decision before it is not in the record"


def _actions_before_model(entries: Iterable[Entry], wanted: CycleId) -> int:
    """How many actions of the node need not be replayed: those well before its last stored model."""
    subject = subject_for("action", wanted.node)
    count, begins, last = 0, 0, ("", "")
    for entry in entries:
        if not isinstance(entry, Stored) or entry.subject != subject:
            continue
        try:
            head = _head.decode(entry.payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        count += 1
        if (head.run, head.model) != last:
            last, begins = (head.run, head.model), count
        if (head.node, head.boot, head.cycle) == wanted:
            break
    return max(0, begins - _RUN_UP)
