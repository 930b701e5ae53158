"""Which pods a canary leaves alone: all that are not in it are neighbours, and keep what they have."""

from collections.abc import Iterable

import msgspec

from schemas.canary import is_canary
from schemas.messages import PodState


def steerable(pods: Iterable[PodState], ratio: float | None) -> list[PodState]:
    """The pods as the solver should see them: beyond the canary's share none has a class. `ratio` None: no canary."""
    if ratio is None:
        return list(pods)
    return [pod if is_canary(pod.uid, ratio) else msgspec.structs.replace(pod, cls=None) for pod in pods]


def left_out(pods: Iterable[PodState], ratio: float | None) -> set[str]:
    """The groups of the pods that are not in the canary."""
    return set() if ratio is None else {pod.group for pod in pods if not is_canary(pod.uid, ratio)}
