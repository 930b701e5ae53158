"""Owns how a policy tells why: what each arm's score is made of, and the questions that were asked beyond the scores.

Values only. A policy that can tell is an `Explains`; one that cannot is asked nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from services.decider.core.checked import Checked, is_usable
from services.decider.core.policy import Arm
from services.decider.core.readings import Place

PRIOR: Final = "prior"
"""Stands among the features for what is believed before any evidence of how good an arm is."""


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """One feature's part of an arm's mean: `amount`, where the feature had this `value` (None: it has none)."""

    feature: str
    value: float | None
    amount: float


class ArmExplained(msgspec.Struct, frozen=True, kw_only=True):
    """One arm: `score` is what it was ranked by, `mean` what `contributions` sum to, `width` how unsure that is."""

    arm: str
    mean: float
    score: float
    width: float | None = None
    contributions: tuple[Contribution, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the order of a decision, what the answer was, and whether it decided."""

    question: str
    asks: str
    answer: str
    decides: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a policy decides as it does, all but chance.

    `arms` are those on offer, in their order; means are in `unit`. `questions` were asked in this order up to the one
    that decided. `leader` is the arm that is taken unless, with probability `epsilon`, any of `among` is drawn.
    `notes` are what else it goes by, in sentences.
    """

    unit: str
    arms: tuple[ArmExplained, ...]
    leader: str
    among: tuple[str, ...]
    epsilon: float = 0.0
    questions: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class Explains(Protocol):
    """A policy that can tell why. Asking changes nothing."""

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why it decides as it does with these arguments (see `Policy.decide`)."""


def explain(policy: Checked, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation | None:
    """What the policy tells, of the features that its check lets through; None if it cannot tell."""
    inner = policy.policy
    if not isinstance(inner, Explains):
        return None
    return inner.explain({name: value for name, value in features.items() if is_usable(value)}, arms)


def parted(
    arms: Sequence[Arm],
    scores: Sequence[float],
    parts: Mapping[str, tuple[float | None, Sequence[float]]],
    widths: Sequence[float] | None = None,
) -> tuple[ArmExplained, ...]:
    """Each arm with its parts: `parts` has for each feature its value and its amounts by arm."""
    found = []
    for index, arm in enumerate(arms):
        amounts = {feature: (value, float(row[index])) for feature, (value, row) in parts.items()}
        found.append(
            ArmExplained(
                arm=arm.name,
                mean=math.fsum(amount for _, amount in amounts.values()),
                score=float(scores[index]),
                width=float(widths[index]) if widths is not None else None,
                contributions=tuple(
                    Contribution(feature=feature, value=value, amount=amount)
                    for feature, (value, amount) in amounts.items()
                ),
            )
        )
    return tuple(found)


def distance_parts(place: Place, wanted: Place) -> dict[str, float]:
    """Each class's part of minus the distance (decades, `readings.apart`) between two places; they sum to it."""
    gaps = {name: place[name] - wanted[name] for name in place if name in wanted}
    middle = sum(gaps.values()) / len(gaps) if gaps else 0.0
    squares = {name: (gap - middle) ** 2 for name, gap in gaps.items()}
    distance = math.sqrt(sum(squares.values()))
    return {name: 0.0 - square / distance if distance else 0.0 for name, square in squares.items()}
