"""What the audit tells: events in the order of the record. Times are of the node's clock, for reading alone."""

from typing import Literal, TypeAlias

import msgspec

from lab.explain.moments import at_text
from schemas.messages import AnyMessage, Command, Weights

Kind: TypeAlias = Literal["change", "foreign", "unexplained", "order", "mode", "model", "trial", "gap"]

OF_A_POD: frozenset[str] = frozenset({"change", "foreign", "unexplained"})
"""Kinds of events after which a pod has another weight."""


class ByAction(msgspec.Struct, frozen=True, kw_only=True, tag="action", tag_field="word"):
    """A change on the word of the decider, as the guard let it pass. `None`: the record does not have that message.

    `in_charge` is the name of the policy that decided, `policy` its kind: the champion, unless it was the other's turn
    in a trial. `weights` are the class weights in force by it; `model` is what the decider began from, with `lessons`
    rewards since.
    """

    policy: str | None = None
    in_charge: str | None = None
    champion: str | None = None
    arm: str | None = None
    weights: Weights | None = None
    propensity: float | None = None
    explored: bool | None = None
    run: str | None = None
    model: str | None = None
    lessons: int | None = None
    why: str | None = None
    outcome: str | None = None
    rule: str | None = None
    reason: str | None = None
    mode: str | None = None
    breaker: str | None = None


class ByCommand(msgspec.Struct, frozen=True, kw_only=True, tag="command", tag_field="word"):
    """A change on an order's word."""

    verb: str
    by: str
    reason: str
    id: str | None = None
    mode: str | None = None


class ByItself(msgspec.Struct, frozen=True, kw_only=True, tag="actuator", tag_field="word"):
    """A change that the actuator made without anybody's word: its dead man's switch, its end."""

    reason: str


class ByOther(msgspec.Struct, frozen=True, kw_only=True, tag="other", tag_field="word"):
    """A change that was not ours, or that no message tells of; `reason` is how it was seen."""

    reason: str


Cause: TypeAlias = ByAction | ByCommand | ByItself | ByOther


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `text` tells it; the fields that do not fit its kind are `None`.

    A gap is told where it ends; `from_ns` is the last time before it, None where nothing was before it.
    `stretch` counts the stretches of the record between which the node's clock was set back: within one, times rise.
    """

    kind: Kind
    at: str
    at_ns: int
    node: str
    boot: str
    cycle: int
    text: str
    stretch: int = 0
    from_ns: int | None = None
    pod: str | None = None
    uid: str | None = None
    group: str | None = None
    before: int | None = None
    after: int | None = None
    outcome: str | None = None
    cause: Cause | None = None


def event_of(kind: Kind, of: AnyMessage, text: str, stretch: int, *, cause: Cause | None = None) -> Event:
    """An event of no pod, in the place and at the time of a message."""
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


def by_command(order: Command) -> ByCommand:
    """An order as a cause."""
    return ByCommand(verb=order.verb, by=order.by, reason=order.reason, id=order.id, mode=order.mode)
