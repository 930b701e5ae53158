"""Owns Vowpal Wabbit's contextual bandit as a policy, for those who have the extra `vw` installed.

VW's SquareCB (Foster, Rakhlin, ICML 2020; `--cb_explore_adf --squarecb`): a regression of the cost (minus the reward)
on context and arm; an arm's probability falls with its regret, the more sharply the more lessons there are. It is the
one exploration of VW that learns from the executed arm alone: `learn` is not told what else was on offer or with which
propensity, and a regression needs neither. Shared features are the short context (see context); an arm's own are its
weights in decades above the lowest; both are crossed, the latter squared, so that the best may lie between the ends.

VW gives the distribution in single precision and draws nothing; normalised and above our floor it is what the arm is
drawn from. A snapshot holds lessons and not VW's model, which is bytes of VW's own whose readable form lacks the
adaptive rates: a model is always exactly what VW learns from the lessons kept. There are at most twice KEPT; then the
older half goes and VW learns the newer anew, which is also how the past is forgotten.
"""

import importlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from schemas.settings import ClassSettings, SettingsError
from services.decider.core.context import read_context
from services.decider.core.draw import draw
from services.decider.core.policy import Arm, Choice, Snapshot
from services.decider.core.readings import place_of, present
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
KEPT: Final = 1000
"""Lessons that survive forgetting: 83 minutes of contention at the 5 s tick."""
MOST_DECADES: Final = 4.0
"""The range of `cpu.weight`, 1 to 10000. What is beyond is no weight, and cubed it would drown all else."""
DIGITS: Final = 6
"""Decimal places of what VW is given: it counts in single precision, where numbers near 1e-40 make its sums NaN."""
OPTIONS: Final = (
    "--cb_explore_adf --squarecb --quiet --noconstant --bit_precision 14 -q ca -q aa --interactions caa "
    "--min_prediction -2 --max_prediction 2"
)
"""SquareCB as VW has it. 14 bits are room for some hundred crossed features. Costs lie in [-1, 1]: the bounds keep a
feature that was never seen from being believed to be worth more than the whole scale."""


class Workspace(Protocol):
    """What is used of `vowpalwabbit.Workspace`: examples as text."""

    def predict(self, ec: str) -> list[float]:
        """The probability of each action."""

    def learn(self, ec: str) -> None:
        """Takes in a labelled example."""


def new_workspace() -> Workspace:
    """A fresh VW. Raises SettingsError if it is not installed."""
    try:
        module = importlib.import_module("vowpalwabbit")
    except ImportError as error:
        raise SettingsError(
            "decider.policy: 'vowpal' needs the package vowpalwabbit; install trimtab[vw] or choose another policy"
        ) from error
    return cast("Workspace", module.Workspace(OPTIONS))


class Vowpal:
    """VW's SquareCB over profiles of weights, above a floor of uniform exploration. A `Policy`."""

    def __init__(
        self,
        classes: Mapping[str, ClassSettings],
        context_features: tuple[str, ...],
        identity: Identity,
        *,
        epsilon: float = 0.05,
    ) -> None:
        self.context_features = context_features
        self.identity = identity
        self.epsilon = epsilon
        self._classes = classes
        self._context_size = len(read_context({}, context_features))
        self._lessons: list[list[float]] = []
        self._updates = 0
        self._workspace = new_workspace()

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Rewards learned from, over all arms, those forgotten since included."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """An arm by VW's distribution; scores are its probabilities before the floor."""
        names = [arm.name for arm in arms]
        actions = [_action(self._arm_row(features, arm)) for arm in arms]
        found = self._workspace.predict("\n".join([_shared(self._context_row(features)), *actions]))
        likelihoods = dict(zip(names, (max(0.0, float(part)) for part in found), strict=True))
        return draw(likelihoods, likelihoods, self.epsilon, rng)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        """Takes in one reward, and at twice KEPT lessons forgets the older half."""
        self._updates += 1
        lesson = [*self._context_row(features), *self._arm_row(features, arm), round(float(reward), DIGITS)]
        self._lessons.append(lesson)
        if len(self._lessons) >= 2 * KEPT:
            self._lessons = self._lessons[-KEPT:]
            self._workspace = self._taught(self._lessons)
        else:
            self._teach(self._workspace, lesson)

    def save(self) -> Snapshot:
        """The lessons kept, one after the other: context, the arm's decades, reward."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self._updates,
            numbers={"lessons": [number for lesson in self._lessons for number in lesson]},
        )

    def load(self, snapshot: Snapshot) -> None:
        """Learns the saved lessons anew. Raises SnapshotMismatch, and then has changed nothing."""
        width = self._context_size + len(self._classes) + 1
        flat = snapshot.numbers.get("lessons", [])
        count = len(flat) // width
        snapshot.require(self.identity, {"lessons": width * count})
        if not all(math.isfinite(number) for number in flat) or count > min(2 * KEPT, snapshot.updates):
            raise SnapshotMismatch("damaged", f"{count} lessons of {snapshot.updates}, all of them finite numbers")
        lessons = [flat[start : start + width] for start in range(0, len(flat), width)]
        self._workspace = self._taught(lessons)
        self._lessons, self._updates = lessons, snapshot.updates

    def _context_row(self, features: Mapping[str, float]) -> list[float]:
        return [round(value, DIGITS) for value in read_context(features, self.context_features).values()]

    def _arm_row(self, features: Mapping[str, float], arm: Arm) -> list[float]:
        """Decades above the lowest per class, at most MOST_DECADES; 0 for a class without pods."""
        place = place_of(arm, features, present(features, self._classes))
        lowest = min(place.values(), default=0.0)
        return [round(min(place.get(name, lowest) - lowest, MOST_DECADES), DIGITS) for name in self._classes]

    def _teach(self, workspace: Workspace, lesson: Sequence[float]) -> None:
        context, arm, reward = lesson[: self._context_size], lesson[self._context_size : -1], lesson[-1]
        workspace.learn(f"{_shared(context)}\n0:{-reward!r}:1 {_action(arm)}")

    def _taught(self, lessons: Sequence[Sequence[float]]) -> Workspace:
        workspace = new_workspace()
        for lesson in lessons:
            self._teach(workspace, lesson)
        return workspace


def _shared(context: Sequence[float]) -> str:
    return "shared |c " + " ".join(f"{index}:{value!r}" for index, value in enumerate(context))


def _action(arm: Sequence[float]) -> str:
    return "|a one " + " ".join(f"w{index}:{value!r}" for index, value in enumerate(arm))
