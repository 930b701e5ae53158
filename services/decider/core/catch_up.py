"""Owns what a decider that starts still has to learn: the rewards that its model does not know, each once."""

from collections.abc import Sequence

from schemas.messages import Reward
from services.decider.core.mind import MEMORY, key_of


def first_unlearned(history: Sequence[Reward], last_lesson: str | None, made_at: int) -> int:
    """Where in the stored rewards, oldest first, those begin that a model of then has not learned.

    After its last lesson; where that is not among them, with the first that is newer than the model (by wall clocks,
    for want of better). A model that never learned has learned none of them.
    """
    if last_lesson is None:
        return 0
    for place in range(len(history) - 1, -1, -1):
        if key_of(history[place]) == last_lesson:
            return place + 1
    return next((place for place, reward in enumerate(history) if reward.at > made_at), len(history))


class Past:
    """Tells rewards from before the history that was read, which a durable consumer may still deliver. It delivers in
    order: with the first that is of the history, or newer, all that is past is over, whatever clocks say then.
    """

    def __init__(self, history: Sequence[Reward], limit: int) -> None:
        remembered = history[-MEMORY:]
        is_whole = len(history) < limit and len(remembered) == len(history)
        self._known = {key_of(reward) for reward in remembered} if not is_whole else set()
        self._begin = remembered[0].at if not is_whole and remembered else None

    def has(self, reward: Reward) -> bool:
        """Whether it is from before the history."""
        if self._begin is None:
            return False
        if key_of(reward) in self._known or reward.at >= self._begin:
            self._begin, self._known = None, set()
            return False
        return True
