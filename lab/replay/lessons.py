"""The rewards of one node that a policy learns from, in the order of the audit stream: the order of lessons."""

from bisect import bisect_left
from typing import Final

from lab.replay.cycles import Part
from schemas.messages import Reward

KEPT: Final = 8192
"""Rewards that are remembered behind the last one asked for."""

_NEWEST: Final = 4


class Lessons:
    """Rewards come as their cycles do; they are handed out by sequence. Bounded to KEPT, the oldest go."""

    def __init__(self) -> None:
        self._parts: list[Part[Reward]] = []
        self._keys: dict[str, int] = {}
        self._next: int | None = None
        """Sequence behind which the next lesson stands; None where only the next action can tell."""

    def add(self, part: Part[Reward]) -> None:
        """Takes in a reward; one that teaches nothing, or came before, is left out."""
        reward = part.message
        key = f"{reward.boot}/{reward.cycle}"
        if reward.outcome != "joined" or reward.value is None or reward.arm is None or key in self._keys:
            return
        self._keys[key] = part.sequence
        if self._parts and part.sequence < self._parts[-1].sequence:
            self._parts.insert(self._behind(part.sequence), part)
        else:
            self._parts.append(part)
        if len(self._parts) > 2 * KEPT:
            for old in self._parts[:KEPT]:
                self._keys.pop(f"{old.message.boot}/{old.message.cycle}", None)
            del self._parts[:KEPT]

    def forget_place(self) -> None:
        """The next lesson is whichever the next action tells."""
        self._next = None

    def take(self, count: int, before: int, last: str | None) -> list[Reward]:
        """The next `count` lessons that were stored before this sequence, the last of which should be `last`; fewer
        where there are not as many.
        """
        if self._next is None:
            end = self._keys.get(last or "")
            if end is None:
                return []
            index = self._behind(end) - count + 1
            if index < 0:
                return []
        else:
            index = self._behind(self._next)
        found = [part for part in self._parts[index : index + count] if part.sequence < before]
        if found:
            self._next = found[-1].sequence + 1
        return [part.message for part in found]

    def take_until(self, last: str | None, before: int, count: int) -> list[Reward]:
        """The next lessons up to `last`; none where that is not known to be ahead. Where it is not known which is the
        next, the `count` that end with it.
        """
        if self._next is None:
            return self.take(count, before, last) if count > 0 else []
        end = self._keys.get(last or "")
        if end is None or end >= before or end < self._next:
            return []
        found = self._parts[self._behind(self._next) : self._behind(end) + 1]
        self._next = end + 1
        return [part.message for part in found]

    def take_all(self, before: int) -> list[Reward]:
        """All lessons behind the last one that were stored before this sequence."""
        start = self._behind(self._next or 0)
        end = self._behind(before)
        self._next = max(before, self._next or 0)
        return [part.message for part in self._parts[start:end]]

    def _behind(self, sequence: int) -> int:
        """The index of the first reward that stands at this sequence or behind: mostly one of the newest."""
        newest = max(0, len(self._parts) - _NEWEST)
        is_new = newest > 0 and self._parts[newest - 1].sequence < sequence
        return bisect_left(self._parts, sequence, newest if is_new else 0, key=_sequence)


def _sequence(part: Part[Reward]) -> int:
    return part.sequence
