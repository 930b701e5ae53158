"""Finds one cycle in a record, and takes all messages out that are about it."""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from lab.explain.moments import is_moment, moment_of
from lab.explain.unread import Unread, unread
from lab.record.items import Damage, Entry, Gap, Stored
from lab.replay.cycles import WAYS_BACK
from runtime.errors import ConfigError, TrimtabError
from schemas.codec import DecodeError, decode_on
from schemas.messages import Action, Actuation, AnyMessage, Command, Reward, State, Verdict
from schemas.subjects import KINDS, kind_of, subject

Entries = Callable[[], Iterable[Entry]]
"""A record that can be read more than once."""

LAST: Final = "last"
_TOLD: Final = 3
_IN_A_CYCLE: Final = ("state", "action", "verdict", "actuation", "reward")
_NUMBER: Final = re.compile(r"(?:(?P<boot>[^/\s]{1,200})/)?(?P<cycle>\d{1,18})")


class _Head(msgspec.Struct, frozen=True):
    """What of a message says which cycle it is of."""

    type: str = ""
    node: str = ""
    boot: str = ""
    cycle: int = 0
    at: int = 0
    phase: str = ""


_head: Final = msgspec.json.Decoder(_Head)


class CycleId(NamedTuple):
    """One cycle of one node."""

    node: str
    boot: str
    cycle: int


class CycleMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one cycle, as far as the record has them, in its order. `actuation` is the cycle's own;
    `undone` are what came of it later: rolled back, restored. `gaps` are what is missing among them, in words; `unread`
    what stands where a message of a kind would be, and cannot be read.
    """

    id: CycleId
    before: State | None = None
    action: Action | None = None
    verdict: Verdict | None = None
    actuation: Actuation | None = None
    after: State | None = None
    reward: Reward | None = None
    undone: tuple[Actuation, ...] = ()
    commands: tuple[Command, ...] = ()
    gaps: tuple[str, ...] = ()
    unread: dict[str, tuple[str, ...]] = {}


def find_cycle(entries: Entries, wanted: str, node: str | None = None) -> CycleId:
    """The cycle that is meant by `57`, `boot/57`, `last` or a time; of several with that number, the newest.

    Raises ConfigError for what says no cycle, TrimtabError for one that the record does not have.
    """
    number = _NUMBER.fullmatch(wanted)
    if number is None and wanted != LAST and not is_moment(wanted):
        raise ConfigError(f"{wanted!r} is no cycle; write 57, boot/57, last, or a time as 03:12")
    cycles, ended, newest_ns = _cycles(_heads(entries(), node))
    if not cycles:
        raise TrimtabError("the record has no cycle" + (f" of node {node}" if node else "") + "; record for longer")
    if wanted == LAST:
        meant = [ended or next(reversed(cycles))]
    elif number is not None:
        meant = [c for c in cycles if c.cycle == int(number["cycle"]) and number["boot"] in (None, c.boot)]
    else:
        moment = moment_of(wanted, newest_ns, "CYCLE")
        meant = [c for c, at in cycles.items() if at <= moment.start_ns][-1:]
        meant = meant or [c for c, at in cycles.items() if at < moment.end_ns][:1]
    if not meant:
        raise TrimtabError(_not_there(wanted, list(cycles), number))
    nodes = sorted({c.node for c in (meant if number is not None else cycles)})
    if len(nodes) > 1:
        raise ConfigError(f"cycle {wanted} may be of {len(nodes)} nodes ({', '.join(nodes[:5])}); name one: --node")
    return meant[-1]


def _cycles(heads: Iterable[_Head]) -> tuple[dict[CycleId, int], CycleId | None, int]:
    """When each cycle began, in the record's order; the last one that has its reward; and the newest time of all."""
    cycles: dict[CycleId, int] = {}
    ended: CycleId | None = None
    newest_ns = 0
    for head in heads:
        found = CycleId(head.node, head.boot, head.cycle)
        if head.type == "state" and head.phase == "before":
            cycles[found] = head.at
        elif head.type != "command" and head.cycle > 0:
            cycles.setdefault(found, head.at)
        if head.type == "reward":
            ended = found
        newest_ns = max(newest_ns, head.at if head.type != "command" else 0)
    return cycles, ended, newest_ns


def _not_there(wanted: str, cycles: list[CycleId], number: re.Match[str] | None) -> str:
    first, last = cycles[0], cycles[-1]
    text = f"the record has no cycle {wanted}; it has {first.boot}/{first.cycle} to {last.boot}/{last.cycle}"
    if number is not None:
        near = [c.cycle for c in cycles if number["boot"] in (None, c.boot)]
        below = [c for c in near if c < int(number["cycle"])]
        above = [c for c in near if c > int(number["cycle"])]
        if below and above:
            text += f", and nothing between {max(below)} and {min(above)}"
    return text


def gather(entries: Entries, wanted: CycleId) -> CycleMessages:
    """All messages of a cycle. A second one of a kind, which only a forger sends, is left out: the first one counts."""
    places = _Places(wanted)
    firsts: dict[str, AnyMessage] = {}
    undone: list[Actuation] = []
    commands: list[Command] = []
    gaps: list[str] = []
    pending: list[str] = []
    for entry in entries():
        if isinstance(entry, Gap | Damage):
            if firsts:
                pending.append(gap_text(entry))
            continue
        message = places.take(entry) if isinstance(entry, Stored) else None
        if message is None or _id_of(message) != wanted:
            continue
        gaps += pending
        pending = []
        if isinstance(message, Command):
            commands.append(message)
        elif isinstance(message, Actuation) and message.outcome in WAYS_BACK:
            undone.append(message)
        elif isinstance(message, State):
            firsts.setdefault(message.phase, message)
        else:
            firsts.setdefault(type(message).__name__, message)
    before, after, action = firsts.get("before"), firsts.get("after"), firsts.get("Action")
    verdict, actuation, reward = firsts.get("Verdict"), firsts.get("Actuation"), firsts.get("Reward")
    return CycleMessages(
        id=wanted,
        before=before if isinstance(before, State) else None,
        action=action if isinstance(action, Action) else None,
        verdict=verdict if isinstance(verdict, Verdict) else None,
        actuation=actuation if isinstance(actuation, Actuation) else None,
        after=after if isinstance(after, State) else None,
        reward=reward if isinstance(reward, Reward) else None,
        undone=tuple(undone),
        commands=tuple(commands),
        gaps=tuple(gaps),
        unread=places.unread,
    )


class _Places:
    """Reads a node's messages, and knows of those that cannot be read which may be of the wanted cycle: those that say
    so, and those that say nothing and stand where its message of their kind would be, if that is missing.
    """

    def __init__(self, wanted: CycleId) -> None:
        self._wanted = wanted
        self._subjects = frozenset(subject(kind, wanted.node) for kind in KINDS)
        self._is_seen = False
        self._is_over: set[str] = set()
        self._saying: dict[str, list[Unread]] = {}
        self._between: dict[str, list[Unread]] = {}

    @property
    def unread(self) -> dict[str, tuple[str, ...]]:
        """The first of them, by kind."""
        kinds = [kind for kind in KINDS if kind in self._saying or self._between.get(kind)]
        return {
            kind: tuple(str(what) for what in (*self._saying.get(kind, ()), *self._between.get(kind, ())))[:_TOLD]
            for kind in kinds
        }

    def take(self, entry: Stored) -> AnyMessage | None:
        """The message, if it is the node's and can be read."""
        if entry.subject not in self._subjects:
            return None
        try:
            message = decode_on(entry.subject, entry.payload)
        except DecodeError as error:
            self._cannot_read(unread(entry, error), entry.payload)
            return None
        if not isinstance(message, Command) and not _is_way_back(message):
            self._pass(message)
        return message

    def _pass(self, message: AnyMessage) -> None:
        """What came before the wanted cycle's first message can only be what comes before that in a cycle; with the
        next cycle's, all but a reward, which may be late, has come.
        """
        kind = kind_of(message)
        is_after = isinstance(message, State) and message.phase == "after"
        if _id_of(message) == self._wanted:
            place = len(_IN_A_CYCLE) - 1 if is_after else _IN_A_CYCLE.index(kind)
            if not self._is_seen:
                self._between = {one: found for one, found in self._between.items() if one in _IN_A_CYCLE[:place]}
            self._is_seen = True
        elif not self._is_seen:
            self._between.pop(kind, None)
        elif message.boot != self._wanted.boot or message.cycle > self._wanted.cycle:
            is_first = kind == "state" and not is_after
            self._is_over |= {kind} if is_first else {kind, *_IN_A_CYCLE[:-1]}

    def _cannot_read(self, what: Unread, payload: bytes) -> None:
        try:
            head = _head.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            head = _Head()
        if head.node == self._wanted.node and head.boot:
            if (head.boot, head.cycle) == self._wanted[1:]:
                for kind in {what.kind, head.type}:
                    self._saying.setdefault(kind, []).append(what)
        elif what.kind not in self._is_over:
            self._between[what.kind] = [*self._between.get(what.kind, []), what][-_TOLD:]


def _id_of(message: AnyMessage) -> CycleId:
    return CycleId(message.node, message.boot, message.cycle)


def _is_way_back(message: AnyMessage) -> bool:
    return isinstance(message, Actuation) and message.outcome in WAYS_BACK


def gap_text(gap: Gap | Damage) -> str:
    """What is missing, in a line."""
    if isinstance(gap, Damage):
        return str(gap)
    count = gap.last - gap.first + 1
    which = f"{gap.stream} {gap.first}" if count == 1 else f"{gap.stream} {gap.first} to {gap.last}"
    others = "" if gap.exact else "; some may be other nodes'"
    return f"{count} {'message is' if count == 1 else 'messages are'} missing: {which} ({gap.reason}{others})"


def _heads(entries: Iterable[Entry], node: str | None) -> Iterable[_Head]:
    for entry in entries:
        if not isinstance(entry, Stored):
            continue
        try:
            head = _head.decode(entry.payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
        if node in (None, head.node) and _is_in_its_place(head, entry.subject):
            yield head


def _is_in_its_place(head: _Head, place: str) -> bool:
    """Whether it is on the subject that it belongs on: what is not is not believed, of whom it says it is."""
    try:
        return subject(head.type, head.node) == place
    except ValueError:
        return False
