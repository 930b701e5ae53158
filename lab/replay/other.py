"""Another policy on what was recorded: what it would have chosen from the same contexts, taught by the same rewards.

What it would have earned is another question (`trimtab evaluate`): here every state is one that the recorded choices
led to.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from lab.record.items import Entry, Header, ModelCopy, Settings
from lab.replay.cycles import Cycles, Recorded, Told, Trouble
from lab.replay.lessons import Lessons
from lab.replay.library import Library, NotReplayable
from runtime.errors import ConfigError
from runtime.yaml_text import parse_yaml
from schemas.messages import Action
from schemas.settings import SettingsError, Shared
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from services.decider.core.mind import Heard, Mind

_MOST_TOLD: Final = 200
_NOT_SET_HERE: Final = ("policy",)


class Wish(NamedTuple):
    """The policy asked for: its name and the settings that differ from the recorded ones. Without a name: the recorded
    policy. `seed`: of its draws, None for the recorded one.
    """

    policy: str | None
    settings: dict[str, object]
    seed: int | None


def wish_of(text: str | None, seed: int | None) -> Wish:
    """From `NAME[:key=value,…]`. Raises ConfigError for a key that no policy has."""
    if text is None:
        return Wish(None, {}, seed)
    name, _, rest = text.partition(":")
    known = [field for field in PolicySettings.__struct_fields__ if field not in _NOT_SET_HERE]
    settings: dict[str, object] = {}
    for word in rest.split(",") if rest else ():
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise ConfigError(f"flag --policy: {word!r} is no key=value; keys are {', '.join(known)}")
        settings[key] = parse_yaml(value, f"flag --policy: {key}")
    return Wish(name, settings, seed)


def config_of(recorded: DeciderConfig, wish: Wish, shared: Shared) -> DeciderConfig:
    """The recorded settings with another policy in charge, alone: no shadows and no trial. Raises ConfigError."""
    values = msgspec.to_builtins(msgspec.structs.replace(recorded, shadows={}, trial=TrialSettings()))
    values |= {"policy": wish.policy} if wish.policy is not None else {}
    try:
        config = msgspec.convert({**values, **wish.settings}, DeciderConfig)
        config.check(shared)
    except (msgspec.ValidationError, SettingsError) as error:
        raise ConfigError(f"flag --policy: {error}") from error
    return config


class Otherwise(NamedTuple):
    """A cycle in which the other policy chose another arm; `propensity` is its probability of the recorded arm, None
    where that was not to be had for it.
    """

    node: str
    boot: str
    cycle: int
    recorded: str
    other: str
    propensity: float | None


@dataclass
class Comparison:
    """What another policy chose. `arms`: how often each was chosen, as recorded and by the other. `notes` are what is
    to be known of the comparison itself.
    """

    cycles: int = 0
    same: int = 0
    arms: dict[str, list[int]] = field(default_factory=dict)
    propensity_total: float = 0.0
    not_decided: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    trouble_count: int = 0
    notes: list[str] = field(default_factory=list)
    policy: str = ""

    @property
    def agreement_ratio(self) -> float | None:
        """Of the cycles, those in which both chose the same arm (0-1)."""
        return self.same / self.cycles if self.cycles else None

    @property
    def propensity_mean(self) -> float | None:
        """The other policy's mean probability of what was recorded (0-1)."""
        return self.propensity_total / self.cycles if self.cycles else None


@dataclass
class _Node:
    mind: Mind | None = None
    lessons: Lessons = field(default_factory=Lessons)


class OtherPolicy:
    """Fed with the entries of a recording; hands out each cycle in which it chose otherwise."""

    def __init__(self, header: Header, wish: Wish, *, node: str | None = None, extra: Iterable[Settings] = ()) -> None:
        self.report = Comparison(policy=wish.policy or "")
        self._wish = wish
        self._library = Library(extra)
        self._library.add(header)
        self._cycles = Cycles(header, node)
        self._nodes: dict[str, _Node] = {}

    def take(self, entry: Entry) -> Iterator[Otherwise]:
        """The cycles that one more entry completes and in which it chose otherwise. Raises ConfigError."""
        for told in self._cycles.take(entry):
            yield from self._told(told)

    def end(self) -> Iterator[Otherwise]:
        """What is left when no more entries come."""
        for told in self._cycles.end():
            yield from self._told(told)

    def _told(self, told: Told) -> Iterator[Otherwise]:
        if isinstance(told, Header | ModelCopy):
            self._library.add(told)
        elif isinstance(told, Recorded):
            yield from self._decide(told)
        elif isinstance(told, Trouble):
            self.report.trouble_count += 1
            if len(self.report.troubles) < _MOST_TOLD:
                self.report.troubles.append(told.text)

    def _decide(self, recorded: Recorded) -> Iterator[Otherwise]:
        node = self._nodes.setdefault(recorded.node, _Node())
        if recorded.reward is not None:
            node.lessons.add(recorded.reward)
        if recorded.action is None or recorded.before is None:
            self.report.not_decided["no state" if recorded.before is None else "no action was recorded"] += 1
            return
        action = recorded.action.message
        try:
            mind = self._mind_of(node, action)
        except NotReplayable as reason:
            self.report.not_decided[str(reason)] += 1
            return
        for reward in node.lessons.take_all(recorded.action.sequence):
            mind.learn(reward)
        ours = mind.decide(recorded.before.message, Heard(action.heard_mode or "active", action.heard_changes_left))
        report = self.report
        report.cycles += 1
        report.arms.setdefault(action.arm, [0, 0])[0] += 1
        report.arms.setdefault(ours.arm, [0, 0])[1] += 1
        propensity = ours.propensities.get(action.arm)
        report.propensity_total += propensity or 0.0
        if ours.arm == action.arm:
            report.same += 1
            return
        yield Otherwise(recorded.node, recorded.boot, recorded.cycle, action.arm, ours.arm, propensity)

    def _mind_of(self, node: _Node, action: Action) -> Mind:
        if node.mind is None:
            shared, recorded = self._library.settings("decider", action.settings, DeciderConfig)
            seed = self._wish.seed if self._wish.seed is not None else action.seed
            node.mind = Mind(config_of(recorded, self._wish, shared), shared, seed if seed is not None else 0)
            self.report.policy = node.mind.policy.name
            self._note_who_is_left_out(recorded)
        return node.mind

    def _note_who_is_left_out(self, recorded: DeciderConfig) -> None:
        """Other draws with the recorded policy: a shadow decided nothing, but who was on trial did, in its blocks, and
        its rewards cannot be told from the policy's where the other draws give the blocks to others.
        """
        challenger = recorded.trial.challenger
        if self._wish.policy is not None or challenger is None:
            return
        note = f"the trial of {challenger} is left out: {recorded.policy}, which was in charge, decides alone here"
        if note not in self.report.notes:
            self.report.notes.append(note)
