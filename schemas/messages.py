"""The messages of the loop: frozen, keyword-only, tagged structs, JSON on the wire.

Rules (docs/adr/0002-messages.md): new fields go last and have a default, anything else is a new schema version;
unknown fields are ignored by readers; unknown numbers are `None` with a reason beside them, never NaN or infinity.

Units are in the names. Ratios are 0-1. Weights of classes are integers on the scale of `cpu.weight`.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from schemas.version import SCHEMA_VERSION

Int: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number of 64 bits. JSON has no limit, and a larger one would fail where it is first divided."""

Weights: TypeAlias = dict[str, Int]
"""Weights by class or profile. Not bounded to `cpu.weight`'s range here: the guard and the writer check that."""

Phase: TypeAlias = Literal["before", "after"]
Mode: TypeAlias = Literal["shadow", "canary", "active", "frozen"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What every message carries.

    `boot` identifies the run of the collector that numbered the cycle; `cycle` counts within it, from 1. `at` is in
    nanoseconds since the Unix epoch and is for reading and for ages on one node, never for ordering: order comes from
    `cycle` and from the stream sequence.
    """

    node: str
    boot: str
    cycle: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    at: Int
    schema: Int = SCHEMA_VERSION


# ---- state -----------------------------------------------------------------------------------------------------------


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one class over one window, merged over its pods. `None` means unknown and `reason` says why.

    `saturated` names the quantiles ("p95", "p99") that fell into the last bucket and are lower bounds only.
    `over_ratio` is the fraction of requests above the class's objective. `source` is what the numbers come from:
    "histogram" (added up over the pods), "summary" (the worst pod, over the pods' own windows) or "mixed"; `pods` is
    how many of the class's pods brought any, `silent_pods` how many are asked and did not answer this time: the slowest
    of a class often are, so what the others say is no better for it.
    """

    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    saturated: tuple[str, ...] = ()
    requests: Int = 0
    requests_per_second: float | None = None
    over_ratio: float | None = None
    window_seconds: float | None = None
    reason: str | None = None
    source: str | None = None
    pods: Int = 0
    silent_pods: Int = 0


JudgedBy: TypeAlias = Literal["latency", "pressure"]


class ClassState(msgspec.Struct, frozen=True, kw_only=True):
    """One class as seen in one window.

    `weight` is the class's weight on the profile scale (the smallest present class is 100), `pods_weight` the sum of
    its pods' `cpu.weight` as read. `share` is the effective CPU share of its pods by weights (0-1). `pressure_ratio` is
    the part of the window in which some task of it waited for CPU, `throttled_ratio` the part in which its own limit
    held it (no weight cures that), both of the worst pod; `waited_ratio` is what the worst pod waited for
    others, at least: its wait less its own throttling and less its own use of the CPUs. `waited_for` names the classes
    that ran above their share meanwhile.

    `run_delay` is the mean number of tasks of the worst pod that waited for a CPU, read where the kernel shows no
    pressure; `waited_source` says which of the two ("pressure", "run_delay") `waited_ratio` was made of. `judged_by` is
    the signal that tells whether the class keeps its objective: its latency, or, where it brings none, the pressure
    ceiling `objective_pressure_ratio` on `waited_ratio`. `None` for a class that is not judged. `waited_reason` says
    why `waited_ratio` is unknown.
    """

    pods: Int = 0
    weight: Int | None = None
    pods_weight: Int | None = None
    share: float | None = None
    cpu_cores: float | None = None
    pressure_ratio: float | None = None
    throttled_ratio: float | None = None
    memory_bytes: Int | None = None
    objective_seconds: float | None = None
    latency: Latency = Latency(reason="no_source")
    waited_for: tuple[str, ...] = ()
    waited_ratio: float | None = None
    run_delay: float | None = None
    waited_source: str | None = None
    objective_pressure_ratio: float | None = None
    judged_by: JudgedBy | None = None
    waited_reason: str | None = None


class PodState(msgspec.Struct, frozen=True, kw_only=True):
    """One pod-level cgroup. `group` is its path below the pods root. `skip` says why its weight is never written.

    `cls` is `None` for a pod without a known class: observed, never written.
    """

    uid: str
    name: str
    group: str
    cls: str | None = None
    weight: Int | None = None
    skip: str | None = None
    cpu_cores: float | None = None


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the node's CPUs were fought over. `run_queue` is the mean number of tasks waiting or, from `loadavg`,
    runnable, per CPU; `source` is the kernel file it came from.
    """

    contended: bool = False
    cpus: Int = 1
    busy_ratio: float | None = None
    pressure_ratio: float | None = None
    run_queue: float | None = None
    run_queue_source: str | None = None
    reason: str | None = None


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """The last cycle's executed arm, as the collector saw it confirmed by the actuator."""

    cycle: Int
    outcome: str
    arm: str | None = None
    weights: Weights | None = None


class State(Message, frozen=True, kw_only=True, tag="state"):
    """What the collector saw: `before` a decision, or `after` it has had time to act.

    `parents` are the weights, as found, of the groups on the way from the pods root to the pods: the QoS groups, whose
    weights are the kubelet's. Empty where they are not known.
    """

    phase: Phase
    window_seconds: float | None = None
    classes: dict[str, ClassState] = {}
    pods: tuple[PodState, ...] = ()
    contention: Contention = Contention()
    features: dict[str, float] = {}
    features_schema: str = ""
    previous: Previous | None = None
    writable: bool = True
    notes: tuple[str, ...] = ()
    parents: Weights = {}


# ---- action, verdict, actuation, reward ------------------------------------------------------------------------------


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy that is not in charge would have done with the same state and mask. It is never executed.

    `error` says why it did not choose; then the rest is empty.
    """

    policy: str
    arm: str | None = None
    propensity: float | None = None
    propensities: dict[str, float] = {}
    scores: dict[str, float] = {}
    explored: bool = False
    policy_updates: Int = 0
    error: str | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Where the comparison of the champion with a challenger stands, and what this cycle is in it.

    `phase` is "trial", after a promotion "watch", and "over" in the one action that tells of its end. `block` counts
    the blocks of cycles; `in_charge` is who decided in this one. `pairs` pairs of blocks have been compared so far: the
    challenger's mean reward is better than that of the `incumbent`, in charge before, by `difference`, which lies in
    `low` to `high` however often one looks. `event` is told in the one action in which it happened: what followed from
    it, and why.
    """

    challenger: str
    phase: str
    block: Int
    in_charge: str
    pairs: Int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    event: str | None = None
    incumbent: str = ""


class Action(Message, frozen=True, kw_only=True, tag="action"):
    """What the decider proposes. `weights` is `None` when it proposes to hold.

    `propensities` holds the probability of every arm that was allowed; `masked` the arms that were not, and why.
    `context` is what the decider remembered of the states before, as more features (docs/features.md).

    The rest is what a replay needs to decide it again. `run` is the decider's own run, and `seed` that of its draws: a
    decision draws on `seed/boot/cycle` alone. `model` is the digest of the stored model that what it knew began from,
    "" if none could be stored; `lessons` is how many rewards it was given since, `last_lesson` the boot and cycle of
    the last one. `heard_mode` and `heard_changes_left` are what it knew of the guard. `settings` is the fingerprint of
    its settings. `champion` is the name of the policy in charge, which decided unless it was the other's turn in a
    `trial` (`in_charge` there); `shadows` is what those would have done that did not decide, by name.
    `event` is told in the one action in which it happened: what became of the model otherwise than by learning, and on
    whose word.
    """

    policy: str
    arm: str
    weights: Weights | None = None
    propensity: float = 1.0
    propensities: dict[str, float] = {}
    scores: dict[str, float] = {}
    masked: dict[str, str] = {}
    explored: bool = False
    reason: str | None = None
    decide_seconds: float | None = None
    policy_updates: Int = 0
    context: dict[str, float] = {}
    run: str = ""
    seed: Int | None = None
    model: str = ""
    lessons: Int = 0
    last_lesson: str | None = None
    heard_mode: Mode | None = None
    heard_changes_left: Int | None = None
    settings: str = ""
    champion: str = ""
    shadows: dict[str, Shadow] = {}
    trial: Trial | None = None
    event: str | None = None

    @property
    def in_charge(self) -> str:
        """Name of the policy that decided: whose turn it was in a trial, else the champion."""
        return self.trial.in_charge if self.trial is not None else self.champion or self.policy


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict depended on that no other message tells: by the guard's own clock and memory.

    `seen_age_seconds` is the state's age when it came, `answer_seconds` how long after that it was judged,
    `since_moved_seconds` how long ago weights last moved (`None`: never). `changes_left` and `class_changes_left` are
    the change budgets before the verdict. `breaker_open` is why the breaker lets nothing through, if so, `late` why no
    action was waited for. `canary_ordered` and `canary_written` are, in a canary, what was last ordered and read back.
    """

    seen_age_seconds: float
    answer_seconds: float
    changes_left: Int
    class_changes_left: dict[str, Int] = {}
    since_moved_seconds: float | None = None
    breaker_open: str | None = None
    late: str | None = None
    canary_ordered: Weights | None = None
    canary_written: dict[str, Int | None] | None = None


VerdictOutcome: TypeAlias = Literal["allow", "clamp", "hold", "refuse", "late"]
BreakerState: TypeAlias = Literal["closed", "open", "half_open"]


class Verdict(Message, frozen=True, kw_only=True, tag="verdict"):
    """What the guard lets happen. Only `execute` with `weights` may move a weight, and only until `deadline`.

    `rule` names the rule that decided; `propensity` is that of what is executed, after the guard.
    `changes_left` is the rest of the change budget, so that a decider can mask what would be refused.
    `previous_weights` is where a rollback of this cycle leads back to.
    `would_refuse` are the rules that are only watched and would have ended or changed the matter. `canary_ratio` is the
    share of pods (0-1, `schemas/canary.py`) that alone may be written, in mode `canary`. `breaker` is where the guard's
    breaker stood before this verdict. `known` is what else it depended on, `settings` the fingerprint of the guard's
    settings: with both it can be judged again.
    """

    outcome: VerdictOutcome
    execute: bool
    mode: Mode
    arm: str | None = None
    weights: Weights | None = None
    rule: str | None = None
    reason: str | None = None
    propensity: float | None = None
    deadline: Int | None = None
    changes_left: Int | None = None
    previous_weights: Weights | None = None
    would_refuse: tuple[str, ...] = ()
    canary_ratio: float | None = None
    breaker: BreakerState | None = None
    known: Known | None = None
    settings: str = ""


class PodWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One pod group's part of an actuation: what was there, what was wanted, what was read back, or why not."""

    uid: str
    group: str
    before: Int | None = None
    wanted: Int | None = None
    after: Int | None = None
    result: str = "applied"
    reason: str | None = None
    name: str = ""


ActuationOutcome: TypeAlias = Literal["applied", "held", "skipped", "failed", "rolled_back", "restored"]


class Actuation(Message, frozen=True, kw_only=True, tag="actuation"):
    """What the actuator did, read back from the kernel."""

    outcome: ActuationOutcome
    arm: str | None = None
    weights: Weights | None = None
    writes: tuple[PodWrite, ...] = ()
    rule: str | None = None
    reason: str | None = None
    overridden: tuple[str, ...] = ()
    write_seconds: float | None = None


RewardOutcome: TypeAlias = Literal["joined", "censored"]


class Reward(Message, frozen=True, kw_only=True, tag="reward"):
    """What the cycle was worth, in [-1, 1]; with it, all that is needed to learn from it.

    `censored` rewards carry a reason and are never learned. `verdict` and `actuation` repeat those outcomes, so that
    one message tells how the cycle ended. `weights` are the class weights of the arm as proposed (`None` for hold): the
    arm of that name may be another one tomorrow. `features` are those of the first state and the action's context.
    `settings` is the fingerprint of the rewarder's settings.
    """

    outcome: RewardOutcome
    reason: str | None = None
    value: float | None = None
    terms: dict[str, float] = {}
    arm: str | None = None
    propensity: float | None = None
    policy: str | None = None
    features: dict[str, float] = {}
    features_schema: str = ""
    verdict: str | None = None
    actuation: str | None = None
    weights: Weights | None = None
    settings: str = ""


# ---- commands, requests, heartbeats ----------------------------------------------------------------------------------

CommandVerb: TypeAlias = Literal["rollback", "restore", "mode", "model"]


class Command(Message, frozen=True, kw_only=True, tag="command"):
    """An order: to guard and actuator to roll a cycle back, to restore all originals, or to change the mode; to the
    decider to go on from a stored `model` (its digest), or to put one of its policies in charge (its name).
    """

    verb: CommandVerb
    by: str
    reason: str
    weights: Weights | None = None
    mode: Mode | None = None
    p99_before_seconds: float | None = None
    p99_after_seconds: float | None = None
    id: str | None = None
    model: str | None = None


class CollectRequest(Message, frozen=True, kw_only=True, tag="collect"):
    """The rewarder's wish that the collector looks again: the answer is the state of phase `after`."""


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """One service is alive. `cycle` is the last cycle it worked on, `boot` its own run, not the collector's."""

    service: str
    status: str = "ok"
    mode: Mode | None = None


AnyMessage: TypeAlias = State | Action | Verdict | Actuation | Reward | Command | CollectRequest | Heartbeat

EXECUTED: frozenset[str] = frozenset({"applied", "held"})
"""Actuation outcomes after which the verdict's weights are in force."""
