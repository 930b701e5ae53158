"""Which pods are steered: those with a class that nothing speaks against and, in a canary, that are in it.

All others are neighbours, and keep, or get back, what they had before Trimtab.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from schemas.canary import is_canary
from schemas.messages import PodState

NOT_IN_CANARY: Final = "not_in_canary"
NO_CLASS: Final = "no_class"
NOT_SEEN: Final = "not_seen"


def steerable(pods: Iterable[PodState], ratio: float | None) -> list[PodState]:
    """The pods as the solver should see them: beyond the canary's share none has a class. `ratio` None: no canary."""
    if ratio is None:
        return list(pods)
    return [pod if is_canary(pod.uid, ratio) else msgspec.structs.replace(pod, cls=None) for pod in pods]


def not_steered(pods: Iterable[PodState], ratio: float | None, groups: Collection[str]) -> dict[str, str]:
    """Those of `groups` that hold no steered pod, and why: the pod's `skip`, else a word of this module."""
    seen = {pod.group: pod for pod in pods}
    found: dict[str, str] = {}
    for group in groups:
        pod = seen.get(group)
        if pod is None:
            found[group] = NOT_SEEN
        elif pod.skip is not None:
            found[group] = pod.skip
        elif pod.cls is None:
            found[group] = NO_CLASS
        elif ratio is not None and not is_canary(pod.uid, ratio):
            found[group] = NOT_IN_CANARY
    return found
