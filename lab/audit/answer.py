"""Which change of a pod's weight was in force at a moment: of a timeline's events, whatever clocks did meanwhile."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lab.audit.events import OF_A_POD, Event
from lab.explain.moments import Moment, at_text

_FIRST = "no change of it is in the record before that; this is the weight that it was first seen with"


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """One pod at one moment. `change` is what gave it `weight`; None: `note` says what is known instead.

    `meanwhile` are what else happened on the node within the moment, and what is lost between the change and it.
    """

    node: str
    pod: str
    uid: str
    at: str
    weight: int | None
    change: Event | None
    note: str | None = None
    meanwhile: tuple[Event, ...] = ()


def in_force(
    events: Sequence[Event],
    first_seen: Iterable[Event],
    spans: Mapping[str, Sequence[tuple[int, int]]],
    moment: Moment,
) -> tuple[InForce, ...]:
    """What was in force on each pod at the moment's start, and what changed within it.

    Where the node's clock was set back, a time may have come twice: then there is an answer for each.
    """
    return tuple(
        answer
        for first in first_seen
        for stretch in _stretches(spans.get(first.node, ()), moment)
        if (answer := _answer(events, first, stretch, moment, len(spans.get(first.node, ())))) is not None
    )


def _stretches(spans: Sequence[tuple[int, int]], moment: Moment) -> list[int]:
    """The stretches of the record that had this moment, or the last one that had begun by then."""
    having = [index for index, (first, last) in enumerate(spans) if first < moment.end_ns and moment.start_ns <= last]
    begun = [index for index, (first, _) in enumerate(spans) if first < moment.end_ns]
    return having or begun[-1:]


def _answer(events: Sequence[Event], first: Event, stretch: int, moment: Moment, stretches: int) -> InForce | None:
    """None for a pod that came later."""
    by_then = [
        event
        for event in events
        if event.node == first.node
        and (event.stretch < stretch or (event.stretch == stretch and event.at_ns < moment.end_ns))
    ]
    own = [event for event in by_then if event.uid == first.uid and event.kind in OF_A_POD]
    is_before = first.stretch < stretch or (first.stretch == stretch and first.at_ns < moment.end_ns)
    if not own and not is_before:
        return None
    within = [event for event in by_then if event.stretch == stretch and event.at_ns >= moment.start_ns]
    change = next((event for event in reversed(own) if event not in within), None)
    after = events.index(change) + 1 if change is not None else 0
    lost = [
        event
        for event in events[after:]
        if event.kind == "gap"
        and event.node == first.node
        and event.stretch <= stretch
        and (event.from_ns or 0) < moment.end_ns
        and event not in within
    ]
    notes = [] if change is not None else [_FIRST]
    if stretches > 1:
        notes.append(f"the node's clock was set back; this is the time's {_th(stretch)} coming in the record")
    return InForce(
        node=first.node,
        pod=first.pod or "",
        uid=first.uid or "",
        at=at_text(moment.start_ns),
        weight=change.after if change is not None else first.after,
        change=change,
        note="; ".join(notes) or None,
        meanwhile=(*lost, *(event for event in within if event.uid in (None, first.uid))),
    )


def _th(index: int) -> str:
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"  # noqa: PLR2004 - words end there
