"""Owns the order of a decision: what exploring and queues demand of it beyond a score.

In the order in which it is asked (docs/adr/0016-a-policy-that-earns-its-place.md says why):
- rescue: while most requests of a class are late, or clearly some for long (outlook), an arm that gives it more is
  taken.
- hold: the cycle after a move takes the same arm once more: what is seen then is still the work of the weights before.
- need: while a class that is not lost misses its objective clearly, the best-scored arm is taken, margin and budget
  aside, of those that starve no class that keeps its own.
- content: with every objective kept and no throughput class present there is nobody to give to: nothing is moved.
- pause: after harm was done nothing is tried for a while.
- caution: with every objective kept, only what the budget pays for is tried (see caution); else the best known arm is
  taken, and the one in force is left only for one that is better by a margin.

What has burnt (see burns) is taken in none of these, unless it is in force. Only the last one leaves
anything to chance.
"""

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple, TypeAlias

from schemas.settings import ClassSettings
from services.decider.core.belief import Floats
from services.decider.core.burns import Shares
from services.decider.core.caution import Caution
from services.decider.core.outlook import MISSED_RATIO
from services.decider.core.policy import Arm, Choice, choose

MARGIN: Final = 0.02
"""How much better another arm must be believed to be to leave the one in force: a quarter of what full movement
costs."""

IN_NEED_RATIO: Final = 0.1
"""Part of a class's requests over the objective from which on caution is no virtue. A tenth: what a burst of arrivals
does in two seconds is a few per cent."""


class Beliefs(NamedTuple):
    """What is believed of each arm on offer, in their order: mean reward, width, and the score made of both."""

    means: Floats
    widths: Floats
    scores: Floats


Question: TypeAlias = Literal["rescue", "hold", "need", "content", "pause", "caution"]
"""What is asked before an arm is taken, in this order."""


class Ruling(NamedTuple):
    """Which question decided, the arm that leads by it, and what the draw is among: with probability `epsilon` any of
    `among` (None: of all on offer) instead.
    """

    question: Question
    best: str
    among: tuple[str, ...] | None = None
    epsilon: float = 0.0


class Order:
    """The rules for some classes. Without state: what it needs to know is asked of it."""

    def __init__(self, classes: Mapping[str, ClassSettings]) -> None:
        self._classes = classes
        self._latency = tuple(name for name, spec in classes.items() if spec.kind == "latency")
        self._objectives = tuple(
            (f"{name}.over_ratio", f"{name}.lost", classes[name].violation_target_ratio) for name in self._latency
        )
        self._first = max(self._latency, key=lambda name: classes[name].importance, default=None)

    def choose(
        self,
        features: Mapping[str, float],
        arms: Sequence[Arm],
        beliefs: Beliefs,
        shares: Shares,
        *,
        burnt: AbstractSet[str],
        budget: Caution,
        is_paused: bool,
        epsilon: float,
        rng: random.Random,
    ) -> Choice:
        """One of `arms`, of which the first changes nothing. `burnt` names others that are known to do harm."""
        ruling = self.rule(
            features, arms, beliefs, shares, burnt=burnt, budget=budget, is_paused=is_paused, epsilon=epsilon
        )
        scored = dict(zip([arm.name for arm in arms], beliefs.scores.tolist(), strict=True))
        return choose(scored, ruling.epsilon, rng, ruling.among, best=ruling.best)

    def rule(
        self,
        features: Mapping[str, float],
        arms: Sequence[Arm],
        beliefs: Beliefs,
        shares: Shares,
        *,
        burnt: AbstractSet[str],
        budget: Caution,
        is_paused: bool,
        epsilon: float,
    ) -> Ruling:
        """Which question decides, and what is left to the draw: all of a choice but chance."""
        means, widths, scores = beliefs.means, beliefs.widths, beliefs.scores.tolist()
        scored = dict(zip([arm.name for arm in arms], scores, strict=True))
        rescue = self._rescue(features, arms, scored, burnt, shares)
        if rescue is not None:
            return Ruling("rescue", rescue)
        if features.get("moved", 0.0) > 0.0:
            return Ruling("hold", arms[0].name, (arms[0].name,))
        if self.misses_any(features, but_lost=True, by=IN_NEED_RATIO):
            barred = burnt | {arm.name for arm in arms[1:] if self._starves(features, arm, shares)}
            able = {name: score for name, score in scored.items() if name not in barred}
            return Ruling("need", max(able, key=able.__getitem__))
        if self._is_content(features):
            return Ruling("content", arms[0].name)
        if is_paused:
            return Ruling("pause", arms[0].name)
        best_known = int(means.argmax())
        if means[best_known] <= means[0] + MARGIN or arms[best_known].name in burnt:
            best_known = 0
        tried = [
            index
            for index in budget.affordable(means, widths, best_known)
            if index == best_known or arms[index].name not in burnt
        ]
        leader = max(tried, key=lambda index: (scores[index] - MARGIN * (index != best_known), index == best_known))
        return Ruling("caution", arms[leader].name, tuple([arms[index].name for index in tried]), epsilon)

    def misses_any(self, features: Mapping[str, float], *, but_lost: bool = False, by: float = 0.0) -> bool:
        """Whether a latency class misses its objective; `but_lost`: one that weights can help; `by` more than that."""
        return any(
            features.get(over, 0.0) > max(by, target) and not (but_lost and features.get(lost, 0.0) > 0.0)
            for over, lost, target in self._objectives
        )

    def _rescue(
        self,
        features: Mapping[str, float],
        arms: Sequence[Arm],
        scored: Mapping[str, float],
        burnt: AbstractSet[str],
        shares: Shares,
    ) -> str | None:
        """The arm that rescues a class, if one is to be rescued and any can."""
        rescued = next((name for name in self._latency if features.get(f"{name}.rescue", 0.0) > 0.0), None)
        if rescued is None:
            return None
        better = [arm.name for arm in shares.giving_more(rescued, arms) if arm.name not in burnt]
        if not better:
            return None
        # Nobody stands above the most important class; whoever else is rescued, or from less, shall not cost more than
        # it gains.
        is_dire = features.get(f"{rescued}.over_ratio", 0.0) > MISSED_RATIO
        return better[-1] if is_dire and rescued == self._first else max(better, key=scored.__getitem__)

    def _is_content(self, features: Mapping[str, float]) -> bool:
        """Whether no objective is missed and nobody is there who could use what the latency classes do not need."""
        takers = (name for name, spec in self._classes.items() if spec.kind == "throughput")
        is_asked = any(features.get(f"{name}.present", 1.0) > 0.0 for name in takers)
        return not is_asked and not self.misses_any(features)

    def _starves(self, features: Mapping[str, float], arm: Arm, shares: Shares) -> bool:
        """Whether an arm takes from a class that keeps its objective, and leaves it less than it needs."""
        then = shares.of(arm)
        return any(
            then[name] < min(shares.now[name], features.get(f"{name}.need", 0.0))
            for name in self._latency
            if name in shares.now
            and features.get(f"{name}.over_ratio", 0.0) <= self._classes[name].violation_target_ratio
        )
