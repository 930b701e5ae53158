"""The record as events: each entry in, the events that it makes out. Pure, and bounded whatever comes.

Order is that of the record, which is that of the streams' sequences; a clock that is set back reorders nothing. Who
changed a weight is found by boot and cycle, and for orders by their words.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from lab.audit.events import ByAction, ByCommand, ByItself, ByOther, Cause, Event, Kind
from lab.explain.gather import gap_text
from lab.explain.moments import at_text
from lab.record.items import Damage, Entry, Gap, Stored
from schemas.codec import DecodeError, decode_on
from schemas.messages import Action, Actuation, AnyMessage, Command, Heartbeat, PodWrite, State, Verdict
from services.decider.core.words import obeyed

M = TypeVar("M", bound=AnyMessage)

_CYCLES: Final = 256
_ORDERS: Final = 256
_PODS: Final = 20_000
_RECOVERED: Final = "no message tells of it: somebody else, or an actuator that restored after a crash, without a bus"


@dataclass
class _Pod:
    """What is known of one pod: its weight by the last word on it, and another one that was seen once."""

    uid: str
    name: str
    group: str
    weight: int | None = None
    sighted: tuple[int, State] | None = None
    was_lost: bool = False


@dataclass
class _Node:
    actions: OrderedDict[tuple[str, int], Action] = field(default_factory=OrderedDict)
    verdicts: OrderedDict[tuple[str, int], Verdict] = field(default_factory=OrderedDict)
    orders: deque[Command] = field(default_factory=lambda: deque(maxlen=_ORDERS))
    pods: OrderedDict[str, _Pod] = field(default_factory=OrderedDict)
    mode: str | None = None
    model: tuple[str, str, str] | None = None
    stretch: int = 0
    state_at: int = 0


class Timeline:
    """Fed with a record's entries in their order. `node` leaves others out. `spans` has, by node, of each stretch of
    rising times the first and the last; `first_seen` each pod's first weight; `newest_ns` is the last time of all.
    """

    def __init__(self, node: str | None = None) -> None:
        self._only = node
        self._nodes: dict[str, _Node] = {}
        self._last: dict[str, AnyMessage] = {}
        self._lost: dict[str, list[str]] = {}
        self.spans: dict[str, list[tuple[int, int]]] = {}
        self.first_seen: dict[tuple[str, str], Event] = {}
        self.newest_ns = 0

    def take(self, entry: Entry) -> Iterator[Event]:
        """The events that one more entry makes."""
        if isinstance(entry, Gap):
            self._lost.setdefault(entry.stream, []).append(gap_text(entry))
        elif isinstance(entry, Damage):
            if entry.kind != "unclosed":
                self._lost.setdefault(next(iter(entry.after), ""), []).append(gap_text(entry))
        elif isinstance(entry, Stored):
            try:
                message = decode_on(entry.subject, entry.payload)
            except DecodeError:
                return
            if self._only in (None, message.node) and not isinstance(message, Heartbeat):
                yield from self._gaps(entry.stream, message)
                yield from self._message(message)
                self.newest_ns = max(self.newest_ns, message.at)
                self._last[entry.stream] = message

    def end(self) -> Iterator[Event]:
        """The gaps behind which nothing came."""
        for stream in list(self._lost):
            yield from self._gaps(stream, None)

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
        gap = _event("gap", near, text, stretch)
        yield msgspec.structs.replace(gap, from_ns=before.at if before is not None else None)
        for node in self._nodes.values():
            for pod in node.pods.values():
                pod.was_lost, pod.sighted = True, None

    # ---- messages ----

    def _message(self, message: AnyMessage) -> Iterator[Event]:
        node = self._nodes.setdefault(message.node, _Node())
        key = (message.boot, message.cycle)
        if isinstance(message, State):
            yield from self._state(node, message)
        elif isinstance(message, Action):
            _remember(node.actions, key, message)
            yield from _model_events(node, message)
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
            pod.sighted, pod.was_lost = None, False
            return
        if pod.sighted is None or pod.sighted[0] != weight:
            pod.sighted = (weight, state)
            return
        first = pod.sighted[1]
        reason = "it changed while nothing is known" if pod.was_lost else _RECOVERED
        text = f"{pod.name}: {pod.weight} → {weight}, found so: {reason}"
        yield _pod_event(
            "unexplained", first, pod, text, node.stretch, before=pod.weight, after=weight, cause=ByOther(reason=reason)
        )
        pod.weight, pod.sighted, pod.was_lost = weight, None, False


def _model_events(node: _Node, action: Action) -> Iterator[Event]:
    champion = action.champion or action.policy
    last, node.model = node.model, (action.run, action.model, champion)
    model = action.model[:12] or "none stored"
    told = []
    if last is not None and last[0] != action.run:
        told.append(f"the decider started anew (run {action.run}), from model {model}")
    elif last is not None and last[1] != action.model:
        told.append(f"the decider goes on from model {model}")
    if last is not None and last[2] != champion:
        told.append(f"policy {champion} is in charge instead of {last[2]}")
    if action.event is not None:
        told.append(action.event)
    if told:
        order = None
        if last is not None and last[1:] != node.model[1:]:
            new = {word for word in node.model[1:] if word and word not in last}
            order = next((o for o in reversed(node.orders) if o.verb == "model" and o.model in new), None)
        words = f"{obeyed(order.model, order.by)}{order.reason}" if order is not None else ""
        if order is not None and words not in (action.event or ""):
            told.append(f"by order of {order.by}: {order.reason}")
        cause = _by_command(order) if order is not None else None
        yield _event("model", action, "; ".join(told), node.stretch, cause=cause)
    if action.trial is not None and action.trial.event is not None:
        yield _event("trial", action, f"trial of {action.trial.challenger}: {action.trial.event}", node.stretch)


def _mode_events(node: _Node, verdict: Verdict) -> Iterator[Event]:
    last, node.mode = node.mode, verdict.mode
    if last is None or last == verdict.mode:
        return
    order = next((o for o in reversed(node.orders) if o.verb == "mode" and o.mode == verdict.mode), None)
    who = f"by order of {order.by}: {order.reason}" if order is not None else "no order in the record says so"
    cause = _by_command(order) if order is not None else None
    yield _event("mode", verdict, f"mode {last} → {verdict.mode}, {who}", node.stretch, cause=cause)


def _order_event(order: Command, stretch: int) -> Event:
    what = " ".join(word for word in (order.verb, order.mode, (order.model or "")[:12]) if word)
    named = f" (id {order.id})" if order.id else ""
    text = f"order: {what} by {order.by}: {order.reason}{named}"
    return _event("order", order, text, stretch, cause=_by_command(order))


def _changes(node: _Node, actuation: Actuation) -> Iterator[Event]:
    """What an actuation changed: by our hand, and by others' as far as it met them."""
    cause = _cause(node, actuation)
    for write in actuation.writes:
        pod = _pod(node, write.uid, write.name or write.group, write.group)
        if write.group in actuation.overridden:
            yield from _foreign(node, actuation, pod, write)
        if write.result != "applied":
            continue
        before, pod.weight, pod.sighted, pod.was_lost = write.before, write.after, None, False
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
    text = f"{pod.name}: {_shown(before)} → {found}, by somebody else: {reason}"
    pod.weight, pod.sighted = found, None
    yield _pod_event(
        "foreign", actuation, pod, text, node.stretch, before=before, after=found, cause=ByOther(reason=reason)
    )


def _cause(node: _Node, actuation: Actuation) -> Cause:
    key = (actuation.boot, actuation.cycle)
    if actuation.outcome == "rolled_back":
        order = next((o for o in reversed(node.orders) if o.verb == "rollback" and (o.boot, o.cycle) == key), None)
        reason = actuation.reason or "no order in the record says so"
        return _by_command(order) if order is not None else ByItself(reason=reason)
    if actuation.outcome == "restored":
        reason = actuation.reason or actuation.rule or "restored"
        order = next((o for o in reversed(node.orders) if _led_to(o, reason)), None)
        return _by_command(order) if order is not None else ByItself(reason=reason)
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


def _by_command(order: Command) -> ByCommand:
    return ByCommand(verb=order.verb, by=order.by, reason=order.reason, id=order.id, mode=order.mode)


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


def _event(kind: Kind, of: AnyMessage, text: str, stretch: int, *, cause: Cause | None = None) -> Event:
    return Event(
        kind=kind,
        at=at_text(of.at),
        at_ns=of.at,
        node=of.node,
        boot=of.boot,
        cycle=of.cycle,
        text=text,
        stretch=stretch,
        cause=cause,
    )


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
        _event(kind, of, text, stretch, cause=cause),
        pod=pod.name,
        uid=pod.uid,
        group=pod.group,
        before=before,
        after=after if after is not None else pod.weight,
        outcome=outcome,
    )
