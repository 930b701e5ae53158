"""The record as events: each entry in, the events that it makes out. Pure, and bounded whatever comes.

Order is that of the record, which is that of the streams' sequences; a clock that is set back reorders nothing. Who
changed a weight is found by boot and cycle, and for orders by their words. Entries are held back for a moment, since an
order may stand a little behind what it led to.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from lab.audit.events import ByAction, ByItself, ByOther, Cause, Event, Kind, by_command, event_of
from lab.audit.models import Models
from lab.audit.orders import Place
from lab.audit.origins import Origins
from lab.explain.gather import gap_text
from lab.explain.moments import at_text
from lab.explain.unread import Unread, unread
from lab.record.items import Damage, Entry, Gap, ModelCopy, Stored
from runtime.streams import ORDERS
from schemas.codec import DecodeError, decode_on
from schemas.messages import Action, Actuation, AnyMessage, Command, Heartbeat, PodWrite, State, Verdict

M = TypeVar("M", bound=AnyMessage)

_CYCLES: Final = 256
_ORDERS: Final = 256
_PODS: Final = 20_000
_NODES: Final = 10_000
_TOLD: Final = 3

_BEHIND_NS: Final = 2 * 10**9
"""How long entries are held back: two streams may be a second apart in a record (docs/recording.md)."""

_HELD: Final = 4096
"""Entries that are held back at most."""

_NO_ORDER: Final = "no order in the record says so"
_RECOVERED: Final = "no message tells of it: somebody else, or an actuator that restored after a crash, without a bus"


@dataclass
class _Pod:
    """What is known of one pod: its weight by the last word on it, and another one that was seen once.

    Since it was `confirmed`, seen twice in a row with that weight, something was lost, or `unread` could not be read.
    """

    uid: str
    name: str
    group: str
    weight: int | None = None
    sighted: tuple[int, State] | None = None
    was_lost: bool = False
    unread: str | None = None
    confirmed: int = 0

    def hold(self, weight: int | None) -> None:
        """It has this weight for certain."""
        self.weight, self.sighted, self.was_lost, self.unread, self.confirmed = weight, None, False, None, 0

    def doubt(self, *, was_lost: bool = False, unread: str | None = None) -> None:
        """Something that may have told of it is not known."""
        self.was_lost, self.unread, self.confirmed = self.was_lost or was_lost, self.unread or unread, 0


@dataclass
class _Node:
    models: Models
    actions: OrderedDict[tuple[str, int], Action] = field(default_factory=OrderedDict)
    verdicts: OrderedDict[tuple[str, int], Verdict] = field(default_factory=OrderedDict)
    orders: deque[Command] = field(default_factory=lambda: deque(maxlen=_ORDERS))
    pods: OrderedDict[str, _Pod] = field(default_factory=OrderedDict)
    mode: str | None = None
    last: AnyMessage | None = None
    lacks_orders: str | None = None
    stretch: int = 0
    state_at: int = 0


class Timeline:
    """Fed with a record's entries in their order. `node` leaves others out. `spans` has, by node, of each stretch of
    rising times the first and the last; `first_seen` each pod's first weight; `newest_ns` is the last time of all;
    `names` are the nodes that the record tells of, also those that are left out.
    """

    def __init__(self, node: str | None = None) -> None:
        self._only = node
        self._nodes: dict[str, _Node] = {}
        self._last: dict[str, AnyMessage] = {}
        self._lost: dict[str, list[str]] = {}
        self._unread: dict[str, list[Unread]] = {}
        self._unread_more: dict[str, int] = {}
        self._origins = Origins()
        self._held: deque[tuple[int, Entry]] = deque()
        self._taken = 0
        self._stored_ns = 0
        self.spans: dict[str, list[tuple[int, int]]] = {}
        self.first_seen: dict[tuple[str, str], Event] = {}
        self.newest_ns = 0
        self.names: dict[str, None] = {}

    def take(self, entry: Entry) -> Iterator[Event]:
        """The events that are known with one more entry."""
        self._taken += 1
        if isinstance(entry, Stored):
            self._stored_ns = max(self._stored_ns, entry.stored_ns)
            if entry.stream == ORDERS:
                self._hear(entry)
        self._held.append((self._taken, entry))
        while self._held and (len(self._held) > _HELD or self._is_past(self._held[0][1])):
            yield from self._tell(*self._held.popleft())

    def end(self) -> Iterator[Event]:
        """The rest; and the gaps behind which nothing came."""
        while self._held:
            yield from self._tell(*self._held.popleft())
        for stream in list(self._lost):
            yield from self._gaps(stream, None)
        for name in list(self._unread):
            yield from self._unreadable(name, None)

    def _is_past(self, entry: Entry) -> bool:
        return not isinstance(entry, Stored) or entry.stored_ns < self._stored_ns - _BEHIND_NS

    def _hear(self, entry: Stored) -> None:
        """An order of a model, before its turn."""
        try:
            message = decode_on(entry.subject, entry.payload)
        except DecodeError:
            return
        if isinstance(message, Command) and message.verb == "model" and self._only in (None, message.node):
            self._node(message.node).models.orders.give(message, Place(self._taken, entry.stored_ns))

    def _node(self, name: str) -> _Node:
        return self._nodes.setdefault(name, _Node(Models(self._origins)))

    def _tell(self, index: int, entry: Entry) -> Iterator[Event]:
        if isinstance(entry, Gap):
            self._lost.setdefault(entry.stream, []).append(gap_text(entry))
        elif isinstance(entry, Damage):
            if entry.kind != "unclosed":
                self._lost.setdefault(next(iter(entry.after), ""), []).append(gap_text(entry))
        elif isinstance(entry, ModelCopy):
            self._origins.take(entry)
        elif isinstance(entry, Stored):
            try:
                message = decode_on(entry.subject, entry.payload)
            except DecodeError as error:
                self._cannot_read(unread(entry, error))
                return
            if isinstance(message, Heartbeat):
                return
            self._name(message.node)
            if self._only in (None, message.node):
                yield from self._gaps(entry.stream, message)
                yield from self._unreadable(message.node, message)
                yield from self._message(message, Place(index, entry.stored_ns))
                self.newest_ns = max(self.newest_ns, message.at)
                self._last[entry.stream] = message

    def _name(self, node: str) -> None:
        if len(self.names) < _NODES:
            self.names[node] = None

    # ---- what cannot be read ----

    def _cannot_read(self, what: Unread) -> None:
        """It is told with what comes next of its node, and leaves the weights of that in doubt."""
        if what.node:
            self._name(what.node)
        if self._only not in (None, what.node):
            return
        told = self._unread.setdefault(what.node, [])
        if len(told) < _TOLD:
            told.append(what)
        else:
            self._unread_more[what.node] = self._unread_more.get(what.node, 0) + 1
        for name, node in self._nodes.items():
            if what.node not in ("", name):
                continue
            if what.kind == "command":
                node.lacks_orders = what.place
            for pod in node.pods.values():
                pod.doubt(unread=what.place)

    def _unreadable(self, name: str, message: AnyMessage | None) -> Iterator[Event]:
        """What could not be read of a node, or of none, before this message of it or, without one, up to the end."""
        for whose in dict.fromkeys((name, "")) if message is not None else (name,):
            found, more = self._unread.pop(whose, []), self._unread_more.pop(whose, 0)
            if not found:
                continue
            text = "; ".join(str(what) for what in found) + (f"; and {more} more cannot be read" if more else "")
            node = self._nodes.get(name)
            before = node.last if node is not None else None
            near = message or before
            if near is not None:
                gap = event_of("gap", near, text, node.stretch if node is not None else 0)
            else:
                at_ns = found[-1].stored_ns
                gap = Event(kind="gap", at=at_text(at_ns), at_ns=at_ns, node=name, boot="", cycle=0, text=text)
            yield msgspec.structs.replace(gap, from_ns=before.at if before is not None else None)

    # ---- what is lost ----

    def _gaps(self, stream: str, message: AnyMessage | None) -> Iterator[Event]:
        lost = self._lost.pop(stream, []) + (self._lost.pop("", []) if message is not None else [])
        if not lost:
            return
        before = self._last.get(stream)
        since = f"after {at_text(before.at)}" if before is not None else "before that"
        if before is not None and message is not None:
            since = f"between {at_text(before.at)} and {at_text(message.at)}"
        elif message is not None:
            since = f"before {at_text(message.at)}"
        near = message or before
        if near is None:
            return
        text = f"nothing is known {since}: {'; '.join(lost)}"
        stretch = self._nodes[near.node].stretch if near.node in self._nodes else 0
        gap = event_of("gap", near, text, stretch)
        yield msgspec.structs.replace(gap, from_ns=before.at if before is not None else None)
        for node in self._nodes.values():
            for pod in node.pods.values():
                pod.doubt(was_lost=True)
                pod.sighted = None

    # ---- messages ----

    def _message(self, message: AnyMessage, place: Place) -> Iterator[Event]:
        node = self._node(message.node)
        node.last = message
        key = (message.boot, message.cycle)
        if isinstance(message, State):
            yield from self._state(node, message)
        elif isinstance(message, Action):
            _remember(node.actions, key, message)
            yield from node.models.take(message, place, node.stretch)
            if message.trial is not None and message.trial.event is not None:
                text = f"trial of {message.trial.challenger}: {message.trial.event}"
                yield event_of("trial", message, text, node.stretch)
        elif isinstance(message, Verdict):
            _remember(node.verdicts, key, message)
            yield from _mode_events(node, message)
        elif isinstance(message, Actuation):
            yield from _changes(node, message)
        elif isinstance(message, Command):
            node.orders.append(message)
            yield _order_event(message, node.stretch)

    def _state(self, node: _Node, state: State) -> Iterator[Event]:
        spans = self.spans.setdefault(state.node, [])
        if not spans:
            spans.append((state.at, state.at))
        elif state.at < node.state_at:
            node.stretch += 1
            spans.append((state.at, state.at))
        spans[-1] = (spans[-1][0], max(spans[-1][1], state.at))
        node.state_at = state.at
        for seen in state.pods:
            if seen.weight is None:
                continue
            pod = _pod(node, seen.uid, seen.name, seen.group)
            yield from self._sighting(node, pod, seen.weight, state)

    def _sighting(self, node: _Node, pod: _Pod, weight: int, state: State) -> Iterator[Event]:
        """A weight that is seen twice in a row and is not what our last word on the pod says, is somebody else's."""
        if pod.weight is None:
            pod.weight = weight
            text = f"{pod.name}: first seen, with weight {weight}"
            self.first_seen.setdefault((state.node, pod.uid), _pod_event("change", state, pod, text, node.stretch))
        if weight == pod.weight:
            pod.sighted, pod.confirmed = None, pod.confirmed + 1
            if pod.confirmed > 1:
                pod.hold(weight)
            return
        pod.confirmed = 0
        if pod.sighted is None or pod.sighted[0] != weight:
            pod.sighted = (weight, state)
            return
        first = pod.sighted[1]
        reason = "it changed while nothing is known" if pod.was_lost else _RECOVERED
        if pod.unread is not None:
            reason = f"{_may_tell(pod.unread)}; if it does not, {reason}"
        text = f"{pod.name}: {pod.weight} → {weight}, found so: {reason}"
        yield _pod_event(
            "unexplained", first, pod, text, node.stretch, before=pod.weight, after=weight, cause=ByOther(reason=reason)
        )
        pod.hold(weight)


def _mode_events(node: _Node, verdict: Verdict) -> Iterator[Event]:
    last, node.mode = node.mode, verdict.mode
    if last is None or last == verdict.mode:
        return
    order = next((o for o in reversed(node.orders) if o.verb == "mode" and o.mode == verdict.mode), None)
    who = f"by order of {order.by}: {order.reason}" if order is not None else _no_order(node)
    cause = by_command(order) if order is not None else None
    yield event_of("mode", verdict, f"mode {last} → {verdict.mode}, {who}", node.stretch, cause=cause)


def _order_event(order: Command, stretch: int) -> Event:
    what = " ".join(word for word in (order.verb, order.mode, (order.model or "")[:12]) if word)
    named = f" (id {order.id})" if order.id else ""
    text = f"order: {what} by {order.by}: {order.reason}{named}"
    return event_of("order", order, text, stretch, cause=by_command(order))


def _changes(node: _Node, actuation: Actuation) -> Iterator[Event]:
    """What an actuation changed: by our hand, and by others' as far as it met them."""
    cause = _cause(node, actuation)
    for write in actuation.writes:
        pod = _pod(node, write.uid, write.name or write.group, write.group)
        if write.group in actuation.overridden:
            yield from _foreign(node, actuation, pod, write)
        if write.result != "applied":
            continue
        before = write.before
        pod.hold(write.after)
        if before == write.after:
            continue
        text = f"{pod.name}: {_shown(before)} → {_shown(write.after)}, {actuation.outcome.replace('_', ' ')}"
        yield _pod_event(
            "change",
            actuation,
            pod,
            text,
            node.stretch,
            before=before,
            after=write.after,
            outcome=actuation.outcome,
            cause=cause,
        )


def _foreign(node: _Node, actuation: Actuation, pod: _Pod, write: PodWrite) -> Iterator[Event]:
    """Somebody had replaced our value, or did while it was being written."""
    is_at_once = write.result == "mismatch"
    found = write.after if is_at_once else write.before
    if found is None or (found == pod.weight and not is_at_once):
        return  # told already, when it was seen
    before = write.wanted if is_at_once else pod.weight
    reason = "it was replaced as we wrote" if is_at_once else "found in the place of ours at the next write"
    if pod.unread is not None and not is_at_once:
        reason += f", but {_may_tell(pod.unread)}"
    text = f"{pod.name}: {_shown(before)} → {found}, by somebody else: {reason}"
    pod.weight, pod.sighted = found, None
    yield _pod_event(
        "foreign", actuation, pod, text, node.stretch, before=before, after=found, cause=ByOther(reason=reason)
    )


def _cause(node: _Node, actuation: Actuation) -> Cause:
    key = (actuation.boot, actuation.cycle)
    if actuation.outcome == "rolled_back":
        order = next((o for o in reversed(node.orders) if o.verb == "rollback" and (o.boot, o.cycle) == key), None)
        reason = actuation.reason or _no_order(node)
        return by_command(order) if order is not None else ByItself(reason=reason)
    if actuation.outcome == "restored":
        reason = actuation.reason or actuation.rule or "restored"
        order = next((o for o in reversed(node.orders) if _led_to(o, reason)), None)
        return by_command(order) if order is not None else ByItself(reason=reason)
    action, verdict = node.actions.get(key), node.verdicts.get(key)
    return ByAction(
        policy=action.policy if action else None,
        in_charge=action.in_charge if action else None,
        champion=(action.champion or action.policy) if action else None,
        arm=actuation.arm or (action.arm if action else None),
        weights=actuation.weights,
        propensity=verdict.propensity if verdict else None,
        explored=action.explored if action else None,
        run=action.run if action else None,
        model=action.model if action else None,
        lessons=action.lessons if action else None,
        why=action.reason if action else None,
        outcome=verdict.outcome if verdict else None,
        rule=verdict.rule if verdict else None,
        reason=verdict.reason if verdict else None,
        mode=verdict.mode if verdict else None,
        breaker=verdict.breaker if verdict else None,
    )


def _led_to(order: Command, reason: str) -> bool:
    """Whether a restore is an order's work: the actuator repeats the order's words, or names the guard's mode."""
    words = f"{order.verb} by {order.by}: {order.reason}"
    return words in reason or (order.verb == "mode" and reason == f"the guard's mode is {order.mode}")


def _no_order(node: _Node) -> str:
    return _NO_ORDER + (f", but {_may_tell(node.lacks_orders)}" if node.lacks_orders is not None else "")


def _may_tell(place: str) -> str:
    return f"{place}, which cannot be read, may tell of it"


def _pod(node: _Node, uid: str, name: str, group: str) -> _Pod:
    """By its uid; what has none, such as a write of a restore, by its group."""
    key = uid or next((known for known, pod in node.pods.items() if pod.group == group), group)
    pod = node.pods.get(key)
    if pod is None:
        pod = node.pods[key] = _Pod(uid, name, group)
        while len(node.pods) > _PODS:
            node.pods.popitem(last=False)
    node.pods.move_to_end(key)
    return pod


def _remember(kept: OrderedDict[tuple[str, int], M], key: tuple[str, int], message: M) -> None:
    kept.setdefault(key, message)
    while len(kept) > _CYCLES:
        kept.popitem(last=False)


def _shown(weight: int | None) -> str:
    return "?" if weight is None else str(weight)


def _pod_event(
    kind: Kind,
    of: AnyMessage,
    pod: _Pod,
    text: str,
    stretch: int,
    *,
    before: int | None = None,
    after: int | None = None,
    outcome: str | None = None,
    cause: Cause | None = None,
) -> Event:
    return msgspec.structs.replace(
        event_of(kind, of, text, stretch, cause=cause),
        pod=pod.name,
        uid=pod.uid,
        group=pod.group,
        before=before,
        after=after if after is not None else pod.weight,
        outcome=outcome,
    )
