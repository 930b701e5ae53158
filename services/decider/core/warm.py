"""Owns the warm start: what the simulator taught about default arms and classes, as a prior for the belief.

A file of plain numbers beside this module, with its provenance; `trimtab train` makes it. It fits only the arms,
classes, context and basis that it was made with; for others there is none, and the policy starts cold.
"""

from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from services.decider.core.belief import Floats

PRIOR_FILE: Final = Path(__file__).parent.parent / "priors" / "default.json"
WARM_VERSION: Final = 1


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a prior was made: the command that makes it again, from which code, on what."""

    command: str
    seed: int
    scenarios: int
    cycles: int
    lessons: int
    trimtab: str
    commit: str
    made_at: str


class WarmStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """`gram` is the mean of x x' over the lessons, its lower triangle row by row; `solution` the weights that fit them
    best. `strength` is how many lessons of its own the prior is worth. `model` is the identity's fingerprint.
    """

    version: int
    model: str
    size: int
    strength: float
    gram: list[float]
    solution: list[float]
    provenance: Provenance

    @cached_property
    def _matrix(self) -> Floats:
        lower = np.zeros((self.size, self.size))
        lower[np.tril_indices(self.size)] = self.gram
        return lower + np.tril(lower, -1).T

    def precision(self) -> Floats:
        """Of the prior, beside the ridge."""
        return self.strength * self._matrix

    def weights(self) -> Floats:
        """The prior's weights."""
        return np.array(self.solution)


def read_warm_start(model: str, path: Path = PRIOR_FILE) -> WarmStart | None:
    """The prior of the file if it is for this model; None for another or without a file. ValueError if damaged."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        warm = msgspec.json.decode(raw, type=WarmStart)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    if warm.version != WARM_VERSION or warm.model != model:
        return None
    if len(warm.gram) != warm.size * (warm.size + 1) // 2 or len(warm.solution) != warm.size:
        raise ValueError(f"{path}: not the numbers of {warm.size} terms")
    return warm
