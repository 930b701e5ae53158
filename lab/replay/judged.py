"""A verdict and a reward once more, from what was recorded: by the guard's and the rewarder's own functions."""

from typing import Final, TypeVar

import msgspec

from lab.replay.cycles import WAYS_BACK, Part, Recorded
from lab.replay.library import Library, NotReplayable
from schemas.messages import Actuation, AnyMessage, Reward, State, Verdict
from services.guard.config import GuardConfig
from services.guard.core.known import Stand, verdict_of
from services.rewarder.config import RewarderConfig
from services.rewarder.core.censor import Cycle
from services.rewarder.core.conclude import INTERRUPTED, conclude

M = TypeVar("M", bound=AnyMessage)

UNDER_WAY_NS: Final = 50_000_000
"""How long before the reward a message may have been stored that the rewarder had not heard yet. 50 ms: what crosses a
busy machine takes a few."""

_UNSEEN: Final = (*(reason for reason in INTERRUPTED if reason != "failed"), "no_after_state")


def verdict_again(recorded: Recorded, library: Library) -> Verdict:
    """What the guard says with the state, the action that it had, and what it knew. Raises NotReplayable."""
    assert recorded.verdict is not None
    told = recorded.verdict.message
    if told.known is None or told.breaker is None:
        raise NotReplayable("recorded by a release that tells too little")
    shared, config = library.settings("guard", told.settings, GuardConfig)
    state = _needed(recorded.before, "first state")
    action = None if told.arm is None else _needed(recorded.action, "action")
    verdict = verdict_of(
        state, action, told.known, Stand(told.mode, told.breaker), config=config, shared=shared, at=told.at
    )
    return msgspec.structs.replace(verdict, settings=told.settings)


def reward_again(recorded: Recorded, library: Library) -> Reward:
    """What the rewarder concludes from what it had seen by then. Raises NotReplayable."""
    assert recorded.reward is not None
    told = recorded.reward.message
    shared, config = library.settings("rewarder", told.settings, RewarderConfig)
    cycle = Cycle(
        before=_needed(recorded.before, "first state"),
        action=_heard(recorded.action, recorded.reward, "action", is_told=told.policy is not None),
        verdict=_heard(recorded.verdict, recorded.reward, "verdict", is_told=told.verdict is not None),
        actuation=_actuation(recorded, recorded.reward),
        after=_second_look(recorded, recorded.reward, shared.loop.settle_seconds + config.answer_timeout_seconds),
    )
    interrupted = told.reason if told.reason in INTERRUPTED else None
    reward = conclude(cycle, interrupted, config, shared)
    return msgspec.structs.replace(reward, at=told.at, settings=told.settings)


def _needed(part: Part[M] | None, name: str) -> M:
    if part is None:
        raise NotReplayable(f"the {name} of its cycle is missing")
    return part.message


def _heard(part: Part[M] | None, reward: Part[Reward], name: str, *, is_told: bool) -> M | None:
    """The message if the rewarder had it: as it tells itself, or since that was stored so long before."""
    if is_told:
        return _needed(part, name)
    return part.message if part is not None and part.stored_ns < reward.stored_ns - UNDER_WAY_NS else None


def _actuation(recorded: Recorded, reward: Part[Reward]) -> Actuation | None:
    outcome = reward.message.actuation
    if outcome in WAYS_BACK:
        taken_back = [part for part in recorded.actuations if part.message.outcome in WAYS_BACK]
        seen_ns = recorded.after.stored_ns if recorded.after is not None else reward.stored_ns
        in_time = [part for part in taken_back if part.stored_ns <= seen_ns]
        first = taken_back[0] if taken_back else None
        return _needed(in_time[-1] if in_time else first, "actuation")
    first = next((part for part in recorded.actuations if part.message.outcome not in WAYS_BACK), None)
    return _heard(first, reward, "actuation", is_told=outcome is not None)


def _second_look(recorded: Recorded, reward: Part[Reward], longest_seconds: float) -> State | None:
    """The second state. The reward follows it at once, or else the longest time after the first state: so one that was
    stored before the reward was heard, unless that time was over.
    """
    told = reward.message
    if told.reason in _UNSEEN or (told.reason == "failed" and not told.terms):
        return None
    is_told = bool(told.terms) or told.outcome == "joined"
    before, after = recorded.before, recorded.after
    if is_told or before is None or after is None or reward.stored_ns - before.stored_ns >= longest_seconds * 1e9:
        return _heard(after, reward, "second state", is_told=is_told)
    return after.message if after.stored_ns < reward.stored_ns else None
