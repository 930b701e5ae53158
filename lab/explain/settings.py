"""The settings that a message was made under, or why they are not known."""

from lab.replay.library import Library, NotReplayable
from schemas.messages import Reward, Verdict
from schemas.settings import Shared
from services.guard.config import GuardConfig
from services.rewarder.config import RewarderConfig

_NO_MESSAGE = "the record has no such message"


def guard_settings(library: Library, verdict: Verdict | None) -> tuple[Shared, GuardConfig] | str:
    """Those of the guard that gave this verdict."""
    try:
        return library.settings("guard", verdict.settings, GuardConfig) if verdict is not None else _NO_MESSAGE
    except NotReplayable as reason:
        return str(reason)


def rewarder_settings(library: Library, reward: Reward | None) -> tuple[Shared, RewarderConfig] | str:
    """Those of the rewarder that gave this reward."""
    try:
        return library.settings("rewarder", reward.settings, RewarderConfig) if reward is not None else _NO_MESSAGE
    except NotReplayable as reason:
        return str(reason)
