"""Owns the warm start: what the simulator taught about default arms and classes, as a prior for the belief.

A file of plain numbers beside this module, with its provenance; `trimtab train` makes it. It fits only the arms,
classes, context and basis that it was made with; for others there is none, and the policy starts cold. What is read is
believed only as far as lessons could have given it: a damaged prior would outweigh all that a node ever says.
"""

import math
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from services.decider.core.belief import Floats
from services.decider.core.snapshot import DamagedPrior

PRIOR_FILE: Final = Path(__file__).parent.parent / "priors" / "default.json"
WARM_VERSION: Final = 1

MAX_SIZE: Final = 1024
"""Terms times context: ten times the default's, and a second to look at."""

MAX_STRENGTH: Final = 10_000.0
"""In lessons. `trimtab train` gives 60; a discount of 0.995 keeps 200 lessons of a node, which could never correct so
many."""

MAX_NUMBER: Final = 100.0
"""Of any entry. Features, terms and rewards are within [-1, 1] or a few times that, and so are their mean products."""

MOST_POWER: Final = 4.0
"""Mean square of what it predicts over its lessons. Rewards are in [-1, 1], and beyond the prior's fall in [-1, 2]."""

ROUNDING: Final = 1e-6
"""Of a mean of ones."""

LEAST_EIGENVALUE: Final = -0.005
"""Of the precision: rounding to five digits gives a thousandth. With the least ridge (decider.prior_strength 0.01) the
sum is still positive, so that it can be solved."""


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


def read_warm_start(model: str, path: Path = PRIOR_FILE, *, size: int | None = None) -> WarmStart | None:
    """The prior of the file if it is for this model; None for another or without a file. `size` is how many numbers the
    model has, if that is known. DamagedPrior, a ValueError, for a file that cannot be believed: it says which and why.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedPrior(f"{path}: cannot be read: {error.strerror}") from error
    try:
        warm = msgspec.json.decode(raw, type=WarmStart)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedPrior(f"{path}: {error}") from error
    if warm.version != WARM_VERSION or warm.model != model:
        return None
    flaw = _flaw_of_shape(warm, size) or _flaw_of_numbers(warm) or _flaw_of_provenance(warm.provenance)
    if flaw is not None:
        raise DamagedPrior(f"{path}: {flaw}; make it anew with `trimtab train`")
    return warm


def _flaw_of_shape(warm: WarmStart, size: int | None) -> str | None:
    """What is wrong with how many numbers there are, or None."""
    if size is not None and warm.size != size:
        return f"size: {warm.size} terms, and the model has {size}"
    if not 1 <= warm.size <= MAX_SIZE:
        return f"size: {warm.size} is outside 1 to {MAX_SIZE}"
    if len(warm.gram) != warm.size * (warm.size + 1) // 2 or len(warm.solution) != warm.size:
        return f"gram, solution: not the numbers of {warm.size} terms"
    return None


def _flaw_of_numbers(warm: WarmStart) -> str | None:
    """What is wrong with numbers of the right shape, or None."""
    if not 0.0 < warm.strength <= MAX_STRENGTH:
        return f"strength: {warm.strength:g} is not more than 0 and at most {MAX_STRENGTH:g}"
    for name, numbers in (("gram", warm.gram), ("solution", warm.solution)):
        if not np.abs(np.array(numbers)).max() <= MAX_NUMBER:  # not: so that NaN is one, too
            return f"{name}: a number beyond {MAX_NUMBER:g}"
    least = float(np.linalg.eigvalsh(warm.precision()).min())
    if least < LEAST_EIGENVALUE:
        return f"gram: no mean of lessons has an eigenvalue of {least / warm.strength:.3g}"
    if abs(warm.gram[0] - 1.0) > ROUNDING:
        return f"gram: its first number is {warm.gram[0]:.3g}, and the mean of what is always 1 is 1"
    power = float(warm.weights() @ warm.precision() @ warm.weights()) / warm.strength
    if power > MOST_POWER:
        return f"solution: over its lessons it predicts rewards of {math.sqrt(power):.3g}, and they are in -1 to 1"
    return None


def _flaw_of_provenance(told: Provenance) -> str | None:
    """What it does not tell, or None."""
    for name, text in (("command", told.command), ("trimtab", told.trimtab), ("made_at", told.made_at)):
        if not text.strip():
            return f"provenance.{name}: empty"
    if told.lessons < 1:
        return f"provenance.lessons: {told.lessons} is no number of lessons"
    return None
