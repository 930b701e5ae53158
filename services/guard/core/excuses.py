"""Step 11: what excuses a class whose P99 rose, so that its change is not taken back for it.

A safety case in four rules. Each one says what it excuses and what it still catches. An excuse never says that a
change was good: it makes the evidence `unknown`, so that it neither closes a breaker on trial nor opens one. Together
they keep this promise (tests/property/test_guard.py): a change may make a class that keeps its objective miss it only
for the sake of a more important one that missed its own and got at least half of what was taken.

They excuse P99s alone. A class that pressure judges is compared without them, and never excused for another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from schemas.messages import State
from schemas.settings import ClassSettings

_CLEARLY_MORE = 0.02
"""Rise of a class's part of the class weights, as a part of it, below which it was not given more: integers round."""

_IN_NEED_RATIO = 0.1
"""Requests over the objective above which a class is in need of what others have: ten times what a P99 allows."""

_PASSED_ON_RATIO = 0.5
"""Least part of what a class lost that must have gone to those in need: else it was taken for somebody else."""

_CLEARLY_LESS = 0.05
"""Fall of the sum of importance x over-ratio that is a good trade: one request in twenty at importance 1."""

Excuse: TypeAlias = Literal["lost", "given_more", "yielded", "good_trade"]


@dataclass(frozen=True)
class Excuses:
    """What the rules need to know beside the two looks. `lost_ratio` 1 excuses nobody as lost.

    `node_wide`: the change was for all pods. If not (a canary), the weights and P99s of whole classes are not those of
    the pods that it moved, and a class is excused by nothing but by having been lost before.
    """

    classes: Mapping[str, ClassSettings]
    lost_ratio: float = 1.0
    node_wide: bool = True

    def find(self, name: str, before: State, after: State) -> Excuse | None:
        """Why the risen P99 of this class is no reason to take the change back, or None."""
        if was_lost(name, before, self.lost_ratio):
            return "lost"
        if not self.node_wide:
            return None
        if was_given_more(name, before, after):
            return "given_more"
        if has_yielded(name, before, after, self.classes):
            return "yielded"
        if is_a_good_trade(name, before, after, self.classes):
            return "good_trade"
        return None


def was_lost(name: str, before: State, lost_ratio: float) -> bool:
    """Excuses a class of which nearly every request was over the objective before: it can hardly miss it more, and
    whoever gives what is lost on it to another class must not be rolled back for that.

    Still caught: any class with less than that over. Not caught: what little a lost class had may be taken, too.
    """
    return (_over_ratio(name, before) or 0.0) > lost_ratio


def was_given_more(name: str, before: State, after: State) -> bool:
    """Excuses a class whose part of the class weights is larger than before: more CPU makes nobody slower, so it is the
    load that rose, and a rollback would take from it what it needs.

    Still caught: every class whose part is smaller, or as it was. A part counts only where the same classes have as
    many pods as before, all with weights: a part that grew because another class left, or that more pods share now, was
    not given by the change.
    """
    return name in _given(before, after)


def has_yielded(name: str, before: State, after: State, classes: Mapping[str, ClassSettings]) -> bool:
    """Excuses a class that lost to more important ones in need: they missed their objectives by far, were given more,
    and what they were given is at least half of what this class lost.

    Still caught: what is taken for a class that is not more important, or keeps its objective, or has no objective; and
    what is taken under the cover of one in need, but goes elsewhere.
    """
    given, importance_of = _given(before, after), _importances(classes)
    own = importance_of.get(name)
    if own is None:
        return False
    received = sum(
        given[other]
        for other, importance in importance_of.items()
        if other in given and importance > own and (_over_ratio(other, before) or 0.0) > _IN_NEED_RATIO
    )
    lost = _parts(before).get(name, 0.0) - _parts(after).get(name, 0.0)
    return received > 0.0 and received >= _PASSED_ON_RATIO * lost


def is_a_good_trade(name: str, before: State, after: State, classes: Mapping[str, ClassSettings]) -> bool:
    """Excuses a class that missed its objective anyway where all classes together miss theirs clearly less than before,
    by importance: it got slower so that another is served at all, and to take that back would be the greater harm.

    Still caught: a class that kept its objective, whatever the others gain; a trade in which a class that was known
    before is not known afterwards, since who is starved of all answers misses nothing that can be counted; and one with
    a class that pressure judges, whose misses are not counted in requests.
    """
    spec, over_before = classes.get(name), _over_ratio(name, before)
    if spec is None or over_before is None or over_before <= spec.violation_target_ratio:
        return False
    sums = [0.0, 0.0]
    for other, importance in _importances(classes).items():
        looks = [state.classes[other] for state in (before, after) if other in state.classes]
        if any(seen.judged_by == "pressure" for seen in looks):
            return False
        over, over_now = _over_ratio(other, before), _over_ratio(other, after)
        if over is None:
            continue
        if over_now is None:
            return False
        sums = [sums[0] + importance * over, sums[1] + importance * over_now]
    return sums[1] < sums[0] - _CLEARLY_LESS


def _importances(classes: Mapping[str, ClassSettings]) -> dict[str, float]:
    return {name: spec.importance for name, spec in classes.items() if spec.kind == "latency"}


def _over_ratio(name: str, state: State) -> float | None:
    """The part of the class's requests over its objective; None where it is not known, or no part of anything."""
    seen = state.classes.get(name)
    over = seen.latency.over_ratio if seen is not None else None
    return over if over is not None and 0.0 <= over <= 1.0 else None


def _given(before: State, after: State) -> dict[str, float]:
    """By how much the part of each class that was clearly given more rose; of nobody where the looks do not compare."""
    if not are_comparable(before, after):
        return {}
    now = _parts(after)
    gains = {name: (part, now.get(name, 0.0) - part) for name, part in _parts(before).items()}
    return {name: gain for name, (part, gain) in gains.items() if gain > _CLEARLY_MORE * part}


def _parts(state: State) -> dict[str, float]:
    """Each class's part of the class weights (0-1), for those with pods and a weight."""
    weights = {
        name: seen.weight
        for name, seen in state.classes.items()
        if seen.pods > 0 and seen.weight is not None and seen.weight > 0
    }
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def are_comparable(before: State, after: State) -> bool:
    """Whether the parts in two looks are of the same pods, as far as their number tells, all of known weight."""
    pods, pods_now = (
        {name: seen.pods for name, seen in state.classes.items() if seen.pods} for state in (before, after)
    )
    return pods == pods_now == {name: pods[name] for name in _parts(before)} and pods.keys() == _parts(after).keys()
