"""The items of a recording as cycles: per node in their order, each with what it lacks; and what is lost between them.

Nothing is joined over what is lost: a cycle `follows` the one before it only where nothing can have been between.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from lab.record.items import Closed, Damage, Entry, Gap, Header, ModelCopy, Stored
from schemas.codec import DecodeError, decode_on
from schemas.messages import Action, Actuation, AnyMessage, Command, Reward, State, Verdict

M = TypeVar("M", bound=AnyMessage)

WINDOW: Final = 16
"""Cycles of a node that may be open at once: whoever is not whole by then lacks something."""

_REMEMBERED: Final = 256
WAYS_BACK: Final = ("rolled_back", "restored")
"""Outcomes of actuations that take back what others did."""


class Part(msgspec.Struct, Generic[M], frozen=True):
    """One message of a cycle: as it is, as it was on the wire, and where and when its stream stored it."""

    message: M
    payload: bytes
    sequence: int
    stored_ns: int


@dataclass(slots=True)
class Recorded:
    """One cycle as it was recorded. `actuations` are the actuator's words on it in their order.

    `follows`: the cycle before it, of the same node, is the one that was handed out before. `missing` are the messages
    that its others say existed. `edge` says at which end of the recording it was cut off, if it was.
    """

    node: str
    boot: str
    cycle: int
    before: Part[State] | None = None
    action: Part[Action] | None = None
    verdict: Part[Verdict] | None = None
    actuations: list[Part[Actuation]] = field(default_factory=list)
    after: Part[State] | None = None
    reward: Part[Reward] | None = None
    commands: list[Part[Command]] = field(default_factory=list)
    follows: bool = True
    missing: tuple[str, ...] = ()
    edge: str | None = None

    @property
    def key(self) -> str:
        """How a lesson is called: by boot and cycle."""
        return f"{self.boot}/{self.cycle}"

    def __str__(self) -> str:
        """The cycle, for people."""
        return f"cycle {self.cycle} of {self.node} (boot {self.boot})"


class Trouble(NamedTuple):
    """Something is lost, or cannot be read. `is_behind_all`: nothing that is there is affected."""

    text: str
    is_behind_all: bool = False


Told: TypeAlias = Recorded | Trouble | Header | ModelCopy
"""What comes of the items: in an order in which models and settings are known before they are needed."""


@dataclass
class _Node:
    open: OrderedDict[tuple[str, int], Recorded] = field(default_factory=OrderedDict)
    ended: OrderedDict[tuple[str, int], None] = field(default_factory=OrderedDict)
    boot: str | None = None
    cycle: int = 0
    is_broken: bool = False
    """Something was lost since the last cycle was handed out."""


class Cycles:
    """Puts items together. `take` each of them, then `end`. Memory is bounded by WINDOW cycles a node."""

    def __init__(self, header: Header, node: str | None = None) -> None:
        self._every_number = header.node is None
        self._only = node
        self._nodes: dict[str, _Node] = {}
        self._next: dict[str, int] = {}
        self.is_whole = header.since_ns is None and header.node is None
        """Whether nothing was stored before what is recorded, as far as was seen."""

    def take(self, entry: Entry) -> list[Told]:
        """What one more item gives."""
        if isinstance(entry, Stored):
            return self._stored(entry)
        if isinstance(entry, Gap):
            return [self._gap(entry)]
        if isinstance(entry, Damage):
            return [self._damage(entry)]
        return [] if isinstance(entry, Closed) else [entry]

    def end(self) -> list[Told]:
        """What is left when no more items come."""
        told: list[Told] = []
        for node in self._nodes.values():
            newest = next((key for key in reversed(node.open) if node.open[key].reward is not None), None)
            is_newer = newest is None
            for key, recorded in list(node.open.items()):
                if is_newer and recorded.reward is None:
                    recorded.edge = "under way when the recording ended"
                is_newer = is_newer or key == newest
                recorded.missing = missing_of(recorded)
                self._hand_out(node, key, told)
        return told

    # ---- items ----

    def _stored(self, item: Stored) -> list[Told]:
        told: list[Told] = []
        expected = self._next.get(item.stream)
        if expected is None:
            self.is_whole = self.is_whole and item.sequence == 1
        elif item.sequence < expected:
            return [Trouble(f"{item.stream} {item.sequence} comes again, behind {expected - 1}; it is left out")]
        elif self._every_number and item.sequence > expected:
            told.append(self._lost(item.stream, expected, item.sequence - 1, "are not in the recording"))
        self._next[item.stream] = item.sequence + 1
        try:
            message = decode_on(item.subject, item.payload)
        except DecodeError as error:
            told.append(Trouble(f"{item.stream} {item.sequence} on {item.subject} is no message of ours: {error}"))
            return told
        if self._only is None or message.node == self._only:
            self._add(message, item, told)
        return told

    def _gap(self, gap: Gap) -> Trouble:
        self.is_whole = self.is_whole and self._next.get(gap.stream) is not None
        self._next[gap.stream] = max(self._next.get(gap.stream, 0), gap.last + 1)
        words = "are" if gap.exact else "may be of this node and are"
        return self._lost(gap.stream, gap.first, gap.last, f"{words} not in the recording: {gap.reason}")

    def _damage(self, damage: Damage) -> Trouble:
        if damage.kind == "unclosed":
            text = "the recording was not closed: whether more was recorded cannot be known"
            return Trouble(text, is_behind_all=True)
        for stream, sequence in damage.after.items():
            self._next[stream] = max(self._next.get(stream, 0), sequence)
        self._break()
        return Trouble(f"the recording is damaged: {damage}")

    def _lost(self, stream: str, first: int, last: int, words: str) -> Trouble:
        self._break()
        return Trouble(f"{stream} {first} {words}" if first == last else f"{stream} {first} to {last} {words}")

    def _break(self) -> None:
        self.is_whole = False
        for node in self._nodes.values():
            node.is_broken = True

    # ---- cycles ----

    def _add(self, message: AnyMessage, item: Stored, told: list[Told]) -> None:
        """Puts a message to its cycle; `told` gets what is whole with it."""
        node = self._nodes.get(message.node)
        if node is None:
            node = self._nodes[message.node] = _Node()
        key = (message.boot, message.cycle)
        recorded = node.open.get(key)
        if recorded is None:
            if key in node.ended or not _begins(message):
                return
            recorded = node.open[key] = Recorded(message.node, *key)
        _put(recorded, message, item)
        while node.open:
            head, oldest = next(iter(node.open.items()))
            has_room = len(node.open) <= WINDOW
            if has_room and oldest.reward is None:
                return
            oldest.missing = missing_of(oldest)
            if has_room and oldest.missing:
                return
            self._hand_out(node, head, told)

    def _hand_out(self, node: _Node, key: tuple[str, int], told: list[Told]) -> None:
        recorded = node.open.pop(key)
        node.ended[key] = None
        while len(node.ended) > _REMEMBERED:
            node.ended.popitem(last=False)
        is_first = node.boot is None
        if is_first and recorded.before is None:
            recorded.edge, recorded.follows = "begun before the first state of the recording", False
            told.append(recorded)
            return
        last = node.cycle if node.boot == recorded.boot else 0
        if recorded.cycle <= last:
            told.append(Trouble(f"{recorded} comes behind cycle {last}; it is left out"))
            return
        recorded.follows = recorded.cycle == last + 1 and not (is_first or (last == 0 and node.is_broken))
        if recorded.cycle > last + 1 and not is_first:
            which = f"cycle {last + 1}" if recorded.cycle == last + 2 else f"cycles {last + 1} to {recorded.cycle - 1}"
            told.append(Trouble(f"{which} of {recorded.node} (boot {recorded.boot}) not in the recording"))
        node.boot, node.cycle, node.is_broken = recorded.boot, recorded.cycle, False
        told.append(recorded)


def missing_of(recorded: Recorded) -> tuple[str, ...]:
    """The messages that others of the cycle say existed, and that are not there."""
    verdict = recorded.verdict.message if recorded.verdict else None
    reward = recorded.reward.message if recorded.reward else None
    executed = [part.message for part in recorded.actuations if part.message.outcome not in WAYS_BACK]
    has_acted = reward is not None and reward.policy is not None
    is_heard = verdict is not None and verdict.arm is not None
    is_seen_again = reward is not None and (bool(reward.terms) or reward.outcome == "joined")
    missing = []
    if recorded.before is None:
        missing.append("first state")
    if recorded.action is None and (has_acted or is_heard):
        missing.append("action")
    if verdict is None and (executed or (reward is not None and reward.verdict is not None)):
        missing.append("verdict")
    if _lacks_actuation(recorded, verdict, reward):
        missing.append("actuation")
    if recorded.after is None and is_seen_again:
        missing.append("second state")
    if reward is None:
        missing.append("reward")
    return tuple(missing)


def _lacks_actuation(recorded: Recorded, verdict: Verdict | None, reward: Reward | None) -> bool:
    outcomes = [part.message.outcome for part in recorded.actuations]
    if reward is None:
        return verdict is not None and verdict.execute and not outcomes
    if reward.actuation is None:
        return False
    return all((outcome in WAYS_BACK) != (reward.actuation in WAYS_BACK) for outcome in outcomes)


def _begins(message: AnyMessage) -> bool:
    """Whether a message of a cycle that is not known yet is part of one; the rest are orders, and what follows them."""
    if isinstance(message, Actuation):
        return message.outcome not in WAYS_BACK
    return isinstance(message, State | Action | Verdict | Reward)


def _put(recorded: Recorded, message: AnyMessage, item: Stored) -> None:
    """The first of a kind counts: it is what the services went by."""
    if isinstance(message, State):
        if message.phase == "before":
            recorded.before = recorded.before or _part(message, item)
        else:
            recorded.after = recorded.after or _part(message, item)
    elif isinstance(message, Action):
        recorded.action = recorded.action or _part(message, item)
    elif isinstance(message, Verdict):
        recorded.verdict = recorded.verdict or _part(message, item)
    elif isinstance(message, Reward):
        recorded.reward = recorded.reward or _part(message, item)
    elif isinstance(message, Actuation):
        recorded.actuations.append(_part(message, item))
    elif isinstance(message, Command):
        recorded.commands.append(_part(message, item))


def _part(message: M, item: Stored) -> Part[M]:
    return Part(message, item.payload, item.sequence, item.stored_ns)
