"""The canary's class weights: those of the pods that are in it, since no others move."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from schemas.canary import is_canary
from schemas.messages import EXECUTED, Actuation, PodState
from schemas.profile import on_profile_scale
from schemas.settings import WeightSettings
from schemas.tree import class_weights

_IN_PLACE = frozenset({"applied", "unchanged"})


@dataclass(frozen=True)
class Ordered:
    """Class weights that were carried out, and what was read back for them, by group: integers beside neighbours only
    come near a profile, and read alone they would be another one.
    """

    weights: Mapping[str, int]
    written: Mapping[str, int | None]


def ordered_after(before: Ordered | None, actuation: Actuation) -> Ordered | None:
    """What is in force after an actuation, given what was before it. None: the pods' weights tell."""
    if actuation.outcome in ("held", "skipped") and not actuation.writes:
        return before
    is_whole = actuation.rule is None and all(write.result in _IN_PLACE for write in actuation.writes)
    if actuation.outcome not in EXECUTED or not actuation.weights or not is_whole:
        return None
    return Ordered(actuation.weights, {write.group: write.after for write in actuation.writes})


def canary_weights(
    pods: Collection[PodState],
    ratio: float,
    limits: WeightSettings,
    ordered: Ordered | None = None,
    parents: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Class weights of the picked pods on the profile scale, for the classes that have any with a weight: as ordered,
    for as long as just those pods have what was written for it. `parents` are the weights of the groups above the pods.
    """
    picked = [
        pod
        for pod in pods
        if pod.cls is not None and pod.skip is None and pod.weight and pod.weight > 0 and is_canary(pod.uid, ratio)
    ]
    weights = class_weights(picked, pods, parents or {})
    written = {pod.group: pod.weight for pod in picked}
    if ordered is not None and ordered.written == written and ordered.weights.keys() == weights.keys():
        return on_profile_scale(ordered.weights, limits)
    return on_profile_scale(weights, limits)
