"""A recording as a log to judge policies on, and each policy's propensities in it, taught by the rewards as it goes.

Context, mask, executed arm and propensity are the recorded ones. A policy begins anew where the recording begins, under
the recorded settings but for its own, and knows at each decision the rewards that were stored before it; so none has
learned from what it is judged on.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lab.ope.logged import Logged, Target, runs
from lab.record.items import Entry, Header, ModelCopy, Settings
from lab.replay.cycles import Cycles, Recorded, Told, Trouble
from lab.replay.lessons import Lessons
from lab.replay.library import Library, NotReplayable
from lab.replay.other import Wish, config_of
from schemas.messages import Action, Reward
from services.decider.config import DeciderConfig
from services.decider.core.mind import Mind
from services.decider.core.policy import HOLD, Arm

_MOST_TOLD: Final = 20


@dataclass(frozen=True)
class _Row:
    """One decision with a reward; `pi_e` has the propensity of each arm on offer, by policy."""

    boot: str
    cycle: int
    features: Mapping[str, float]
    arm: str
    reward: float
    pscore: float
    pi_b: Mapping[str, float]
    masked: Mapping[str, str]
    pi_e: Mapping[str, Mapping[str, float]]


@dataclass
class _Node:
    lessons: Lessons = field(default_factory=Lessons)
    minds: dict[str, Mind] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)


@dataclass
class LoggedRecording:
    """Fed with the entries of a recording in their order; then `logged` and `targets`. `wishes` are the policies by the
    names they are to have. `left_out` counts decisions that are not judged, by reason beside those that are censored;
    `censored` those without a reward, by the reason's first word. `troubles` are the first things that are lost.
    """

    header: Header
    wishes: Mapping[str, Wish]
    node: str | None = None
    extra: Iterable[Settings] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    censored: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._library = Library(self.extra)
        self._library.add(self.header)
        self._cycles = Cycles(self.header, self.node)
        self._nodes: dict[str, _Node] = {}

    def take(self, entry: Entry) -> None:
        """One more entry. Raises ConfigError for a policy that the recorded settings do not allow."""
        for told in self._cycles.take(entry):
            self._told(told)

    def end(self) -> None:
        """No more entries come."""
        for told in self._cycles.end():
            self._told(told)

    @property
    def has_rows(self) -> bool:
        """Whether there is a decision with a reward that can be judged."""
        return bool(self._rows())

    def logged(self) -> Logged:
        """The log. Raises ValueError where it has no decision with a reward."""
        rows, arms, names = self._rows(), self._arms(), self._features()
        if not rows:
            raise ValueError("a log needs at least one decision with a reward, made under known settings")
        index = {arm: position for position, arm in enumerate(arms)}
        pi_b, masked = np.zeros((len(rows), len(arms))), np.zeros((len(rows), len(arms)), dtype=np.bool_)
        for position, (_, row) in enumerate(rows):
            for arm, propensity in row.pi_b.items():
                pi_b[position, index[arm]] = propensity
            masked[position] = [arm not in row.pi_b for arm in arms]
        return Logged(
            arms=arms,
            context=np.array([[row.features.get(name, 0.0) for name in names] for _, row in rows]).reshape(
                len(rows), len(names)
            ),
            action=np.array([index[row.arm] for _, row in rows], dtype=np.int64),
            reward=np.array([row.reward for _, row in rows]),
            pscore=np.array([row.pscore for _, row in rows]),
            pi_b=pi_b,
            masked=masked,
            cycle=np.array([row.cycle for _, row in rows], dtype=np.int64),
            run=runs([boot for boot, _ in rows], np.array([row.cycle for _, row in rows], dtype=np.int64)),
            censored=self.censored.total(),
        )

    def targets(self) -> dict[str, Target]:
        """Each policy's propensities in the log's contexts."""
        rows, arms = self._rows(), self._arms()
        return {
            name: Target(np.array([[row.pi_e[name].get(arm, 0.0) for arm in arms] for _, row in rows]))
            for name in self.wishes
        }

    # ---- from items to rows ----

    def _told(self, told: Told) -> None:
        if isinstance(told, Header | ModelCopy):
            self._library.add(told)
        elif isinstance(told, Recorded):
            self._take(told)
        elif isinstance(told, Trouble) and len(self.troubles) < _MOST_TOLD:
            self.troubles.append(told.text)

    def _take(self, recorded: Recorded) -> None:
        node = self._nodes.setdefault(recorded.node, _Node())
        if recorded.reward is not None:
            node.lessons.add(recorded.reward)
        if recorded.action is None:
            return
        action, reward = recorded.action.message, recorded.reward.message if recorded.reward is not None else None
        if reward is None or reward.outcome != "joined":
            self.censored[(reward.reason or "unknown").partition(":")[0] if reward is not None else "no reward"] += 1
            return
        try:
            self._know(node, action)
        except NotReplayable as reason:
            self.left_out[str(reason)] += 1
            return
        for lesson in node.lessons.take_all(recorded.action.sequence):
            for mind in node.minds.values():
                mind.learn(lesson)
        row = self._row(node, action, reward)
        if isinstance(row, str):
            self.left_out[row] += 1
        else:
            node.rows.append(row)

    def _know(self, node: _Node, action: Action) -> None:
        """Makes the policies, at the first decision. Raises NotReplayable where its settings are not known."""
        if node.minds:
            return
        shared, recorded = self._library.settings("decider", action.settings, DeciderConfig)
        for name, wish in self.wishes.items():
            seed = wish.seed if wish.seed is not None else action.seed
            node.minds[name] = Mind(config_of(recorded, wish, shared), shared, seed if seed is not None else 0)

    def _row(self, node: _Node, action: Action, reward: Reward) -> _Row | str:
        mind = next(iter(node.minds.values()))
        known: dict[str, Arm] = {HOLD.name: HOLD, **{arm.name: arm for arm in mind.arms}}
        if reward.value is None or reward.arm is None or reward.arm not in action.propensities:
            return "the reward is of an arm that was not on offer"
        if any(name not in known for name in action.propensities):
            return "it chose among other arms than the first decision of the recording"
        if reward.features_schema != mind.schema:
            return "its features are of another schema"
        arms = [known[name] for name in action.propensities]
        pi_e = {
            name: own.policy.decide(
                reward.features,
                arms,
                random.Random(f"{own.seed}/{action.boot}/{action.cycle}"),  # noqa: S311 - draws arms, not secrets
            ).propensities
            for name, own in node.minds.items()
        }
        return _Row(
            boot=f"{action.node}/{action.boot}",
            cycle=action.cycle,
            features=reward.features,
            arm=reward.arm,
            reward=reward.value,
            pscore=reward.propensity if reward.propensity is not None else float("nan"),
            pi_b=action.propensities,
            masked=action.masked,
            pi_e=pi_e,
        )

    # ---- from rows to arrays ----

    def _rows(self) -> list[tuple[str, _Row]]:
        return [(row.boot, row) for node in self._nodes.values() for row in node.rows]

    def _arms(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for _, row in self._rows():
            found.update(dict.fromkeys(row.pi_b))
            found.update(dict.fromkeys(row.masked))
        return tuple(found)

    def _features(self) -> list[str]:
        """Those that are not the same in every row: the others tell a model of rewards nothing."""
        first: dict[str, float] = {}
        varying: dict[str, None] = {}
        for _, row in self._rows():
            for name, value in row.features.items():
                if first.setdefault(name, value) != value:
                    varying[name] = None
        return sorted(varying)
