"""All rewards of one node in the order of the stream: what a decider that starts has to learn again."""

from typing import Final

from lab.replay.cycles import WINDOW, Part
from schemas.messages import Reward
from services.decider.core.catch_up import first_unlearned
from services.decider.core.mind import key_of

KEPT: Final = 16384


class Unproven(Exception):
    """Why it cannot be seen whether a model follows from another one, in words."""


class Past:
    """Rewards come as their cycles do. Bounded to twice KEPT, the oldest go."""

    def __init__(self) -> None:
        self._parts: list[Part[Reward]] = []
        self._places: dict[str, int] = {}
        self._sound_from = 0
        """Sequence from which on none is known to be lost."""
        self._in_doubt = 0
        self._is_all = True

    def add(self, part: Part[Reward]) -> None:
        """Takes in a reward of any outcome."""
        key = key_of(part.message)
        if key in self._places:
            return
        self._places[key] = part.sequence
        self._parts.append(part)
        if len(self._parts) > 1 and part.sequence < self._parts[-2].sequence:
            self._parts.sort(key=lambda one: one.sequence)
        if self._in_doubt:
            self._in_doubt -= 1
            self._sound_from = part.sequence + 1
        if len(self._parts) > 2 * KEPT:
            for old in self._parts[:KEPT]:
                del self._places[key_of(old.message)]
            del self._parts[:KEPT]
            self._is_all = False

    def note_loss(self) -> None:
        """Something is lost near here; cycles are put together in a window, so it may be before one that comes yet."""
        self._is_all, self._in_doubt = False, WINDOW
        if self._parts:
            self._sound_from = self._parts[-1].sequence + 1

    def knows(self, key: str | None) -> bool:
        """Whether the reward of this name is there."""
        return key in self._places

    def is_sound(self, rewards: list[Part[Reward]]) -> bool:
        """Whether nothing is known to be lost from the first of these on."""
        return not rewards or rewards[0].sequence >= self._sound_from

    def relearned(
        self, last: str | None, made_at: int, until: str | None, limit: int, *, is_whole: bool
    ) -> list[Part[Reward]]:
        """What a start learns that goes on from a model of then, whose last lesson was `last`: up to `until`, of the
        newest `limit` rewards. `is_whole`: nothing was stored before the recording. Raises Unproven.
        """
        if until == last or until is None or limit == 0:
            return []
        stretch = self._until(until)
        window = stretch[-limit:]
        is_reached = self._is_all and is_whole
        is_reached = is_reached or (len(stretch) >= limit and window[0].sequence >= self._sound_from)
        if not (is_reached or any(key_of(part.message) == last for part in window)):
            raise Unproven("rewards that it learned again are not in the recording")
        return window[first_unlearned([part.message for part in window], last, made_at) :]

    def between(self, last: str | None, until: str | None, count: int) -> list[Part[Reward]]:
        """The lessons behind `last` up to `until`; where there was none before, the last `count`. Raises Unproven."""
        if until == last or until is None:
            return []
        lessons = [part for part in self._until(until) if _teaches(part.message)]
        if last is None:
            return lessons[-count:] if count else []
        if last not in self._places:
            raise Unproven("rewards that it learned are not in the recording")
        return [part for part in lessons if part.sequence > self._places[last]]

    def _until(self, key: str) -> list[Part[Reward]]:
        end = self._places.get(key)
        if end is None:
            raise Unproven("rewards that it learned are not in the recording")
        return [part for part in self._parts if part.sequence <= end]


def _teaches(reward: Reward) -> bool:
    return reward.outcome == "joined" and reward.value is not None and reward.arm is not None
