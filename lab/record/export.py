"""A recording as a table of decisions: one row for each action, with all that came of it.

The names are those of the literature on off-policy evaluation: context, action set, action, pscore, pi_b, reward.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lab.record.items import Damage, Entry, Gap, Stored
from schemas.codec import DecodeError, decode_on
from schemas.messages import EXECUTED, Action, Actuation, AnyMessage, Reward, State, Verdict

OPEN_CYCLES: Final = 64
"""Cycles of a node that wait for the rest of their messages. 64: five minutes; a reward is due within one tick."""

MOST_TOLD: Final = 20
"""Damages that are told one by one."""

_TAKEN_BACK: Final = ("rolled_back", "restored")
_OWN_HOLDS: Final = ("hold", "unchanged")
"""Rules under which what was proposed is what was in force afterwards, though nothing was written."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision. Unknown is None.

    `in_charge` is the name of the policy that decided, `policy` its kind.
    `context` holds the features of the first state and what the decider remembered; `action_set` the arms that were
    allowed and `pi_b` the probability of each under the policy that acted; `action` is the arm proposed, with
    `propensity`. `executed_arm` is what was in force after guard and actuator, None where that was no arm, or nothing
    was executed on the whole node; `executed_weights` are the weights. `pscore` is the propensity of what was executed,
    None without an `executed_arm`. `outcome` is "joined", "censored" or, where no reward came, None. `taken_back` says
    how, where the write was undone before the reward. `gap_before`: the recording misses something between this row
    and the one of this node before.
    """

    node: str
    boot: str
    cycle: int
    ts_ns: int
    policy: str
    in_charge: str
    policy_updates: int
    model: str
    run: str
    context: dict[str, float]
    action_set: list[str]
    pi_b: list[float]
    masked: dict[str, str]
    action: str
    action_weights: dict[str, int] | None
    propensity: float
    explored: bool
    executed_arm: str | None
    executed_weights: dict[str, int] | None
    pscore: float | None
    reward: float | None
    reward_terms: dict[str, float]
    outcome: str | None
    censored_reason: str | None
    mode: str | None
    verdict: str | None
    verdict_rule: str | None
    actuation: str | None
    actuation_rule: str | None
    taken_back: str | None
    contended: bool | None
    delay_seconds: float | None
    decide_seconds: float | None
    gap_before: bool
    features_schema: str
    schema: int


@dataclass
class Counts:
    """What was met on the way: `unread` messages could not be decoded, `late` ones came after their row was written,
    `repeated` ones are second actions and the like, `gaps` and `damages` are those of the recording.
    """

    rows: int = 0
    unread: int = 0
    late: int = 0
    repeated: int = 0
    gaps: int = 0
    damages: int = 0
    damage: list[str] = field(default_factory=list)
    """The first MOST_TOLD of them, and that it was not closed."""


@dataclass
class _Cycle:
    """The messages of one cycle, as far as they came."""

    before: State | None = None
    action: Action | None = None
    verdict: Verdict | None = None
    actuation: Actuation | None = None
    taken_back: str | None = None
    reward: Reward | None = None
    gaps_seen: int = 0


_Key = tuple[str, int]


class Decisions:
    """Makes rows of the entries of a recording, in the order of each node's actions; `counts` says what was met."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = entries
        self.counts = Counts()
        self._open: dict[str, OrderedDict[_Key, _Cycle]] = {}
        self._written: dict[str, OrderedDict[_Key, None]] = {}
        self._breaks = 0
        self._breaks_at_last: dict[str, int] = {}

    def __iter__(self) -> Iterator[Decision]:
        """The rows; memory does not grow with the recording."""
        for entry in self._entries:
            if isinstance(entry, Gap):
                self.counts.gaps += 1
                self._breaks += 1
            elif isinstance(entry, Damage):
                self._note_damage(entry)
            elif isinstance(entry, Stored):
                yield from self._take(entry)
        for node in self._open:
            yield from self._close(node, 0)

    def _note_damage(self, damage: Damage) -> None:
        if damage.kind != "unclosed":
            self.counts.damages += 1
            self._breaks += 1
        if len(self.counts.damage) < MOST_TOLD:
            self.counts.damage.append(str(damage))

    def _take(self, item: Stored) -> Iterator[Decision]:
        try:
            message = decode_on(item.subject, item.payload)
        except DecodeError:
            self.counts.unread += 1
            return
        if not isinstance(message, State | Action | Verdict | Actuation | Reward):
            return
        key = (message.boot, message.cycle)
        opened = self._open.setdefault(message.node, OrderedDict())
        written = self._written.setdefault(message.node, OrderedDict())
        if key in written:
            self.counts.late += not _may_be_late(message)
            return
        cycle = opened.get(key)
        if cycle is None:
            cycle = opened[key] = _Cycle()
        self._add(cycle, message)
        yield from self._close(message.node, OPEN_CYCLES)

    def _add(self, cycle: _Cycle, message: AnyMessage) -> None:
        if isinstance(message, State):
            if message.phase == "before":
                cycle.before = cycle.before or message
        elif isinstance(message, Actuation) and message.outcome in _TAKEN_BACK:
            cycle.taken_back = cycle.taken_back or message.outcome
        elif isinstance(message, Action):
            self.counts.repeated += cycle.action is not None
            if cycle.action is None:
                cycle.action, cycle.gaps_seen = message, self._breaks
        elif isinstance(message, Verdict):
            self.counts.repeated += cycle.verdict is not None
            cycle.verdict = cycle.verdict or message
        elif isinstance(message, Actuation):
            self.counts.repeated += cycle.actuation is not None
            cycle.actuation = cycle.actuation or message
        elif isinstance(message, Reward):
            self.counts.repeated += cycle.reward is not None
            cycle.reward = cycle.reward or message

    def _close(self, node: str, keep: int) -> Iterator[Decision]:
        """The rows that are complete and have a cycle behind them, since another stream's messages may come after the
        reward, or have waited long enough; those that began later wait for their turn.
        """
        opened, written = self._open[node], self._written[node]
        while opened:
            key, cycle = next(iter(opened.items()))
            if len(opened) <= min(keep, OPEN_CYCLES if cycle.reward is None else 1):
                return
            del opened[key]
            written[key] = None
            while len(written) > OPEN_CYCLES:
                written.popitem(last=False)
            if cycle.action is not None:
                gap_before = cycle.gaps_seen > self._breaks_at_last.get(node, 0)
                self._breaks_at_last[node] = cycle.gaps_seen
                self.counts.rows += 1
                yield _row(cycle, cycle.action, gap_before=gap_before)


def _may_be_late(message: AnyMessage) -> bool:
    """Whether a message after its cycle's reward is nothing to wonder at."""
    if isinstance(message, Actuation):
        return message.outcome in _TAKEN_BACK
    return isinstance(message, State) and message.phase == "after"


def _row(cycle: _Cycle, action: Action, *, gap_before: bool) -> Decision:
    before, verdict, actuation, reward = cycle.before, cycle.verdict, cycle.actuation, cycle.reward
    arm, weights = _executed(action, verdict, actuation)
    features = before.features if before is not None else {}
    seen = features | action.context if before is not None else (reward.features if reward else dict(action.context))
    return Decision(
        node=action.node,
        boot=action.boot,
        cycle=action.cycle,
        ts_ns=action.at,
        policy=action.policy,
        in_charge=action.in_charge,
        policy_updates=action.policy_updates,
        model=action.model,
        run=action.run,
        context=seen,
        action_set=list(action.propensities),
        pi_b=list(action.propensities.values()),
        masked=action.masked,
        action=action.arm,
        action_weights=action.weights,
        propensity=action.propensity,
        explored=action.explored,
        executed_arm=arm,
        executed_weights=weights,
        pscore=action.propensity if arm is not None else None,
        reward=reward.value if reward else None,
        reward_terms=reward.terms if reward else {},
        outcome=reward.outcome if reward else None,
        censored_reason=reward.reason if reward else None,
        mode=verdict.mode if verdict else None,
        verdict=verdict.outcome if verdict else None,
        verdict_rule=verdict.rule if verdict else None,
        actuation=actuation.outcome if actuation else None,
        actuation_rule=actuation.rule if actuation else None,
        taken_back=cycle.taken_back,
        contended=before.contention.contended if before is not None else None,
        delay_seconds=(reward.at - action.at) / 1e9 if reward and reward.at >= action.at else None,
        decide_seconds=action.decide_seconds,
        gap_before=gap_before,
        features_schema=before.features_schema if before is not None else (reward.features_schema if reward else ""),
        schema=action.schema,
    )


def _executed(
    action: Action, verdict: Verdict | None, actuation: Actuation | None
) -> tuple[str | None, dict[str, int] | None]:
    """The arm and the weights that were in force after guard and actuator."""
    if verdict is None or actuation is None or actuation.outcome not in EXECUTED or verdict.mode == "canary":
        return None, None
    weights = actuation.weights if actuation.outcome == "applied" else verdict.previous_weights
    is_arm = verdict.outcome == "allow" or (verdict.outcome == "hold" and verdict.rule in _OWN_HOLDS)
    return (action.arm if is_arm else None), weights
