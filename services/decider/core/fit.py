"""Owns the question whether a stored model is one that a decider of some settings can go on from."""

import random
from typing import TYPE_CHECKING

from schemas.settings import Shared
from services.decider.core.mind import Mind
from services.decider.core.model import Model
from services.decider.core.snapshot import SnapshotMismatch

if TYPE_CHECKING:
    from services.decider.config import DeciderConfig


def require_fit(model: Model, config: "DeciderConfig", shared: Shared) -> None:
    """Raises SnapshotMismatch if the policy that would be in charge cannot go on from the model, or cannot decide then.

    Tried on a mind of its own, so that there is no half-used state. Policies that are only shadows may not fit.
    """
    if model.node != shared.node:
        raise SnapshotMismatch("node", f"it is of node {model.node}")
    tried = Mind(config, shared, 0)
    left_out = tried.load(model.mind)
    if tried.champion in left_out:
        reason, _, text = left_out[tried.champion].partition(": ")
        raise SnapshotMismatch(reason, f"policy {tried.champion}: {text}")
    try:
        tried.policy.decide({}, tried.arms, random.Random(0))  # noqa: S311 - a trial of the numbers
    except Exception as error:
        raise SnapshotMismatch("damaged", f"it cannot decide: {type(error).__name__}: {error}") from error
