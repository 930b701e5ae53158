"""What the messages of a row tell: which cycles were whole, what was lost, what was applied that must not be. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from schemas.messages import Actuation, AnyMessage, CollectRequest, Heartbeat, State, Verdict
from schemas.subjects import kind_of

Key: TypeAlias = tuple[str, int]
"""Boot and number of a cycle."""

WHOLE = frozenset({"state.before", "action", "verdict", "actuation", "state.after", "reward"})

LATE_GRACE_SECONDS = 0.25
"""Between the last look at the deadline and the stamp of the message that tells of the write."""


def kinds_of(messages: Iterable[AnyMessage]) -> dict[Key, Counter[str]]:
    """The kinds of each cycle whose first state is among the messages, in the order of those states."""
    found: dict[Key, Counter[str]] = {}
    for message in messages:
        if isinstance(message, Heartbeat | CollectRequest):
            continue
        key = (message.boot, message.cycle)
        if isinstance(message, State) and message.phase == "before":
            found.setdefault(key, Counter())
        if key in found:
            found[key][_kind(message)] += 1
    return found


def whole_of(messages: Sequence[AnyMessage]) -> list[Key]:
    """The cycles of which every kind is there and that were in time."""
    late = {(each.boot, each.cycle) for each in messages if isinstance(each, Verdict) and each.outcome == "late"}
    return [key for key, kinds in kinds_of(messages).items() if kinds.keys() >= WHOLE and key not in late]


def lost_of(messages: Sequence[AnyMessage]) -> int:
    """What is missing of the cycles up to the last whole one: those after it may be under way."""
    kinds, whole = kinds_of(messages), whole_of(messages)
    keys = list(kinds)
    ended = keys[: keys.index(whole[-1]) + 1] if whole else keys
    return sum(len(WHOLE - kinds[key].keys()) for key in ended)


def misapplied(actuations: Iterable[Actuation], verdicts: Iterable[Verdict]) -> str:
    """What is wrong with the applications: twice in a cycle, without a verdict that allows it, or too late."""
    allowed = {(each.boot, each.cycle): each for each in verdicts if each.execute}
    times: dict[tuple[str, int], int] = defaultdict(int)
    for each in actuations:
        if each.outcome != "applied":
            continue
        key = (each.boot, each.cycle)
        times[key] += 1
        if times[key] > 1:
            return f"cycle {key} was applied {times[key]} times"
        verdict = allowed.get(key)
        if verdict is None:
            return f"cycle {key} was applied without a verdict that allows it"
        late = (each.at - (verdict.deadline or 0)) / 1e9
        if late > LATE_GRACE_SECONDS:
            return f"cycle {key} was applied {late:.2f} s after its deadline"
    return ""


def _kind(message: AnyMessage) -> str:
    if isinstance(message, State):
        return f"state.{message.phase}"
    if isinstance(message, Actuation) and message.outcome in ("rolled_back", "restored"):
        return f"actuation.{message.outcome}"
    return kind_of(message)
