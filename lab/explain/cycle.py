"""A cycle told from its messages: what was seen, remembered, scored, judged, written, seen again, and worth."""

from typing import NamedTuple

from lab.explain.gather import CycleMessages
from lab.explain.moments import at_text
from lab.explain.policies import decision_told
from lab.explain.rules import guard_told
from lab.explain.seen import seen_told
from lab.explain.told import CycleTold, WrittenTold
from lab.explain.worth import reward_told
from schemas.messages import Actuation
from schemas.settings import Shared
from services.decider.core.mind import Mind
from services.guard.config import GuardConfig
from services.rewarder.config import RewarderConfig


class Known(NamedTuple):
    """What is known beside the messages: the decider's mind just before the decision, and the settings of guard and
    rewarder; or in its place why not.
    """

    mind: Mind | str
    guard: tuple[Shared, GuardConfig] | str
    rewarder: tuple[Shared, RewarderConfig] | str


def cycle_told(messages: CycleMessages, known: Known) -> CycleTold:
    """All of a cycle that the record tells."""
    before, action, verdict, reward = messages.before, messages.action, messages.verdict, messages.reward
    shared = next((found[0] for found in (known.guard, known.rewarder) if not isinstance(found, str)), None)
    classes = shared.classes if shared is not None else None
    return CycleTold(
        node=messages.id.node,
        boot=messages.id.boot,
        cycle=messages.id.cycle,
        seen=seen_told(before, classes) if before is not None else None,
        decision=decision_told(action, before, known.mind) if action is not None else None,
        guard=guard_told(verdict, before, action, known.guard) if verdict is not None else None,
        written=_written_told(messages.actuation) if messages.actuation is not None else None,
        after=seen_told(messages.after, classes) if messages.after is not None else None,
        reward=reward_told(reward, known.rewarder) if reward is not None else None,
        undone=tuple(_written_told(actuation) for actuation in messages.undone),
        commands=messages.commands,
        missing=messages.gaps,
        unread=dict(messages.unread),
    )


def _written_told(actuation: Actuation) -> WrittenTold:
    return WrittenTold(
        at=at_text(actuation.at),
        outcome=actuation.outcome,
        weights=actuation.weights,
        writes=actuation.writes,
        rule=actuation.rule,
        reason=actuation.reason,
        overridden=actuation.overridden,
    )
