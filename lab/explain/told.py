"""What is told of a cycle: plain structs for any output. `None` is what the record does not say; `unknown` says why."""

import msgspec

from schemas.messages import Command, Contention, PodWrite, Trial, Weights
from services.decider.core.explanation import Answer


class Base(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all that is told."""


class ClassTold(Base, frozen=True, kw_only=True):
    """One class in one look. `is_violated` is None where the settings are not known; `why` is why its judging number is
    not known.
    """

    name: str
    pods: int
    judged_by: str | None
    p99_seconds: float | None
    p99_is_at_least: bool
    objective_seconds: float | None
    over_ratio: float | None
    requests: int
    waited_ratio: float | None
    objective_pressure_ratio: float | None
    cpu_cores: float | None
    weight: int | None
    share: float | None
    waited_for: tuple[str, ...]
    is_violated: bool | None = None
    why: str | None = None


class SeenTold(Base, frozen=True, kw_only=True):
    """What one look saw."""

    at: str
    window_seconds: float | None
    classes: tuple[ClassTold, ...]
    contention: Contention
    features: dict[str, float]
    notes: tuple[str, ...] = ()
    writable: bool = True


class MaskedTold(Base, frozen=True, kw_only=True):
    """Arms that were not on offer for one reason."""

    reason: str
    meaning: str
    arms: tuple[str, ...]


class ArmTold(Base, frozen=True, kw_only=True):
    """One arm on offer, as a policy ranked it, and how likely it was to be taken."""

    arm: str
    propensity: float
    score: float | None = None
    mean: float | None = None
    width: float | None = None


class PartTold(Base, frozen=True, kw_only=True):
    """One feature's part of the chosen arm's mean, and of the other's it is held against."""

    feature: str
    value: float | None
    amount: float
    other: float | None = None


class PolicyTold(Base, frozen=True, kw_only=True):
    """One policy on this cycle. `role` is champion, shadow or, in a trial, challenger or (after a promotion) incumbent.
    `is_in_charge`: it decided this cycle; the others are told as what they would have done.

    `parts` sum to the chosen arm's mean, in `unit`; their `other` to that of the arm `against`, which is the one in
    force or, where that was chosen, the second best. `unknown` says why there is nothing of that. `leader` is taken
    unless, with probability `epsilon`, any of `among` is drawn.
    """

    name: str
    policy: str
    role: str
    is_in_charge: bool
    arm: str | None
    propensity: float | None
    explored: bool
    updates: int
    arms: tuple[ArmTold, ...] = ()
    reason: str | None = None
    unit: str | None = None
    parts: tuple[PartTold, ...] = ()
    against: str | None = None
    leader: str | None = None
    among: tuple[str, ...] = ()
    epsilon: float = 0.0
    questions: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: str | None = None


class DecisionTold(Base, frozen=True, kw_only=True):
    """What was decided, by whom, and what it was made from. `in_charge` decided: the champion, unless it was the
    other's turn in a `trial`.
    """

    at: str
    arm: str
    weights: Weights | None
    in_charge: str
    champion: str
    model: str
    lessons: int
    last_lesson: str | None
    run: str
    seed: int | None
    heard_mode: str | None
    heard_changes_left: int | None
    remembered: dict[str, float]
    masked: tuple[MaskedTold, ...]
    policies: tuple[PolicyTold, ...]
    event: str | None = None
    trial: Trial | None = None


class RuleTold(Base, frozen=True, kw_only=True):
    """One rule, in the order in which rules are asked: `said` is none, not asked, or what it found."""

    rule: str
    prevents: str
    said: str
    reason: str | None = None
    weights: Weights | None = None
    is_watched: bool = False


class GuardTold(Base, frozen=True, kw_only=True):
    """The verdict, and the rules that led to it. `unknown` says why they are not told; `agrees` whether they lead to
    the recorded verdict again.
    """

    at: str
    outcome: str
    execute: bool
    mode: str
    breaker: str | None
    rule: str | None
    reason: str | None
    weights: Weights | None
    propensity: float | None
    changes_left: int | None
    would_refuse: tuple[str, ...]
    rules: tuple[RuleTold, ...] = ()
    agrees: bool | None = None
    unknown: str | None = None


class WrittenTold(Base, frozen=True, kw_only=True):
    """One actuation: what was written and read back."""

    at: str
    outcome: str
    weights: Weights | None
    writes: tuple[PodWrite, ...]
    rule: str | None = None
    reason: str | None = None
    overridden: tuple[str, ...] = ()


class TermTold(Base, frozen=True, kw_only=True):
    """One term of a reward: `amount` = `term` times `weight`; a fixed amount has no term."""

    name: str
    term: float | None
    weight: float | None
    amount: float


class RewardTold(Base, frozen=True, kw_only=True):
    """What the cycle was worth, or why it is not learned from. `terms` sum to `total`, which is `value`."""

    at: str
    outcome: str
    value: float | None
    terms: dict[str, float]
    parts: tuple[TermTold, ...] = ()
    total: float | None = None
    reason: str | None = None
    meaning: str | None = None
    unknown: str | None = None


class CycleTold(Base, frozen=True, kw_only=True):
    """One cycle as a whole. `missing` is what the record lacks of it, `unread` what stands in the place of a message
    of a kind and cannot be read, `lost` what is damaged, missing or not closed of the record as a whole.
    """

    node: str
    boot: str
    cycle: int
    seen: SeenTold | None
    decision: DecisionTold | None
    guard: GuardTold | None
    written: WrittenTold | None
    after: SeenTold | None
    reward: RewardTold | None
    undone: tuple[WrittenTold, ...] = ()
    commands: tuple[Command, ...] = ()
    missing: tuple[str, ...] = ()
    unread: dict[str, tuple[str, ...]] = {}
    lost: tuple[str, ...] = ()
