"""Which class weights are in force: those that were ordered, as long as every pod still has what was written for them.

Integers and neighbours make pods' weights approximate a profile; read back alone they would be another one, and the
order would be given again in every cycle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.messages import Actuation, PodState

_IN_PLACE = frozenset({"applied", "unchanged"})
_SAME_RATIO: Final = 1.02
"""Class weights that differ by less are one: the kubelet's 79 becomes 80 with the next small pod."""


@dataclass(frozen=True)
class Ordered:
    """Class weights that were carried out, and the pod weights, by group, that were read back for them."""

    weights: Mapping[str, int]
    written: Mapping[str, int]


def ordered_after(before: Ordered | None, actuation: Actuation) -> Ordered | None:
    """What is in force after an actuation, given what was before it. None: nobody's order, the pods' weights tell."""
    if actuation.outcome in ("skipped", "held") and not actuation.writes:
        return before  # nothing was touched
    written = {write.group: write.after for write in actuation.writes if write.after is not None}
    is_whole = len(written) == len(actuation.writes) and all(write.result in _IN_PLACE for write in actuation.writes)
    if actuation.rule == "unreachable" or actuation.outcome == "restored":
        return None  # written or not, those weights do not act on each other
    if not is_whole or not actuation.weights:
        return None
    if actuation.outcome == "rolled_back":  # names only the pods that had moved
        written = {**(before.written if before is not None else {}), **written}
    return Ordered(actuation.weights, written)


def is_in_force(ordered: Ordered, pods: Sequence[PodState]) -> bool:
    """Whether the steered pods are those of the order and have the weights that were written for it."""
    now = {pod.group: pod.weight for pod in pods if pod.cls is not None and pod.skip is None and pod.weight}
    return now == dict(ordered.written) and {pod.cls for pod in pods if pod.group in now} == set(ordered.weights)


def is_still_meant(then: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether what the pods' weights come to, by class, are the ratios that it was when the order was given."""
    if then.keys() != now.keys():
        return False
    changes = [now[name] / then[name] for name in then]
    return not changes or max(changes) <= min(changes) * _SAME_RATIO
