"""Owns one run: a policy in a scenario with a seed, on the simulator, through the very cores that the services run.

The decider's mask and policy, the guard's rules, budget, comparison and breaker, the rewarder's censor and reward are
called in the order in which the services would. What is left out is what the services do for transport and restarts.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

import msgspec
import numpy as np

from lab.arena.hindsight import Search, static_profiles
from lab.arena.node import Node
from lab.arena.results import BestStatic, Curves, Row
from lab.arena.scenario import Scenario
from lab.arena.score import GOOD_RATIO, plateau_cycle
from lab.arena.sim_world import CycleOutcome, SimWorld, outcome_of, shared_settings
from schemas.messages import Action, Actuation, ActuationOutcome, State, Verdict
from schemas.profile import on_profile_scale
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.mask import mask
from services.decider.core.outlook import Outlook
from services.decider.core.policy import HOLD, Arm, Policy
from services.decider.core.zoo import make_policy
from services.guard.config import GuardConfig
from services.guard.core.breaker import Breaker
from services.guard.core.change_budget import ChangeBudget
from services.guard.core.excuses import Excuses
from services.guard.core.regression import Evidence, Regression, find_regression
from services.guard.core.rules import Judgement, Situation, judge
from services.guard.core.trial import is_no_worse
from services.rewarder.config import RewarderConfig
from services.rewarder.core.censor import Cycle
from services.rewarder.core.conclude import conclude

REQUEST_DERIVED: Final = "request-derived"

DECIDERS: Final[dict[str, DeciderConfig]] = {
    REQUEST_DERIVED: DeciderConfig(policy="hold"),
    "static-default": DeciderConfig(policy="static"),
    "step": DeciderConfig(policy="step"),
    "pid": DeciderConfig(policy="pid"),
    "epsilon-greedy": DeciderConfig(policy="epsilon-greedy"),
    "river-linucb": DeciderConfig(policy="river-linucb"),
    "thompson": DeciderConfig(policy="thompson"),
    **({"vowpal": DeciderConfig(policy="vowpal")} if find_spec("vowpalwabbit") is not None else {}),
    "trimtab-cold": DeciderConfig(policy="linucb", warm_start=False),
    "trimtab": DeciderConfig(policy="linucb"),
}
"""The policies of the bench by name, as a user would configure them."""

POLICIES: Final = tuple(DECIDERS)


@dataclass
class Episode:
    """What a run gave. `scores` are per cycle; the row's regrets and shortfall are not known to one run."""

    row: Row
    curves: Curves
    scores: list[float]
    outcomes: list[CycleOutcome] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Settings:
    """How the loop is set up for a run; `guarded` False: no rollbacks and no breaker, for the experiment."""

    decider: DeciderConfig
    guard: GuardConfig = field(default_factory=GuardConfig)
    rewarder: RewarderConfig = field(default_factory=RewarderConfig)
    cycle_seconds: float = 5.0
    guarded: bool = True


def play(scenario: Scenario, policy: str, seed: int, cycles: int) -> Episode:
    """Runs a policy of DECIDERS. KeyError for another."""
    return run(scenario, policy, Settings(DECIDERS[policy]), seed, cycles)


def run(
    scenario: Scenario,
    name: str,
    settings: Settings,
    seed: int,
    cycles: int,
    *,
    make: Callable[[DeciderConfig, Shared], Policy] = make_policy,
) -> Episode:
    """Runs any settings under a name."""
    started = time.perf_counter()
    loop = _Loop(scenario, settings, seed, make)
    for _ in range(cycles):
        loop.turn()
    return loop.episode(name, seed, time.perf_counter() - started)


class _Loop:
    """The services' cores in turn, with simulated time."""

    def __init__(
        self, scenario: Scenario, settings: Settings, seed: int, make: Callable[[DeciderConfig, Shared], Policy]
    ) -> None:
        self._settings = settings
        self._world = SimWorld(scenario, seed, cycle_seconds=settings.cycle_seconds)
        self._shared = self._world.shared
        self._arms = build_arms(self._shared, settings.decider.profiles)
        self._by_name = {HOLD.name: HOLD, **{arm.name: arm for arm in self._arms}}
        self._policy = make(settings.decider, self._shared)
        self._random = random.Random(seed)  # noqa: S311 - draws arms, not secrets
        self._changes = ChangeBudget(self._shared.weights.max_changes_per_minute)
        guard = settings.guard
        self._breaker = Breaker(
            guard.rollbacks_to_open, guard.rollback_window_seconds, guard.cool_down_seconds, guard.trial_seconds
        )
        self._outlook = Outlook(self._shared.classes, self._arms)
        self._features: dict[str, float] = {}
        self._changes_left: int | None = None
        self._trial: State | None = None
        self._outcomes: list[CycleOutcome] = []
        self._arm_names: list[str] = []
        self._words: list[str] = []
        self._changed = self._rollbacks = 0

    def turn(self) -> None:
        """One cycle. The guard looks at the change under trial, if there is one, with every look."""
        world, now = self._world, self._world.cycle * self._settings.cycle_seconds
        before = world.before()
        is_taken_back = self._look_again(before, now)
        action, arm = self._decide(before)
        verdict, actuation = self._execute(before, action, now)
        after = world.after()
        self._learn(Cycle(before, action, verdict, actuation, after), arm)
        now += self._shared.loop.settle_seconds
        if actuation.outcome == "applied":
            is_taken_back |= self._compare(before, after, now)
        else:
            is_taken_back |= self._look_again(after, now)
        self._outcomes.append(world.finish())
        self._arm_names.append(_name_of(self._arms, world.class_weights(), self._shared))
        self._words.append("rolled_back" if is_taken_back else actuation.rule or actuation.outcome)

    def _decide(self, before: State) -> tuple[Action, Arm]:
        weights = {name: seen.weight for name, seen in before.classes.items() if seen.weight is not None}
        context = self._outlook.see(before.features)
        self._features = before.features | context
        masked = mask(
            self._arms,
            weights or None,
            before.classes,
            settings=self._shared.classes,
            limits=self._shared.weights,
            changes_left=self._changes_left,
            mode="active",
            lost=self._outlook.lost(),
        )
        choice = self._policy.decide(self._features, masked.allowed, self._random)
        arm = self._by_name[choice.arm]
        action = Action(
            node=before.node,
            boot=before.boot,
            cycle=before.cycle,
            at=0,
            policy=self._policy.name,
            arm=arm.name,
            weights=dict(arm.weights) if arm.weights is not None else None,
            propensity=choice.propensity,
            propensities=choice.propensities,
            explored=choice.explored,
            context=context,
        )
        return action, arm

    def _execute(self, before: State, action: Action, now: float) -> tuple[Verdict, Actuation]:
        loop, guard = self._shared.loop, self._settings.guard
        situation = Situation(
            state=before,
            mode="active",
            limits=self._shared.weights,
            classes=frozenset(self._shared.classes),
            state_age_seconds=0.0,
            max_state_age_seconds=guard.max_state_age_ticks * loop.tick_seconds,
            answer_seconds=0.0,
            budget_seconds=loop.decision_budget_seconds,
            changes_left=self._changes.left(now),
            require_contention=guard.require_contention,
            breaker_open=self._breaker.blocks(now),
            profiles=guard.profiles,
            min_share_ratio=guard.min_share_ratio,
        )
        judgement = judge(action, situation, watched=guard.watch)
        if judgement.execute:
            self._changes.spend(now)
            self._breaker.tried(now)
            self._trial = before if self._breaker.is_trying else None
        self._changes_left = self._changes.left(now)  # the decider hears of it in the verdict, a cycle later
        verdict = Verdict(
            node=before.node,
            boot=before.boot,
            cycle=before.cycle,
            at=0,
            outcome=judgement.outcome,
            execute=judgement.execute,
            mode="active",
            arm=action.arm,
            weights=judgement.weights,
            rule=judgement.rule,
            reason=judgement.reason,
            propensity=action.propensity if judgement.outcome != "clamp" else None,
            changes_left=self._changes_left,
            previous_weights=situation.current,
        )
        return verdict, self._actuate(before, action, judgement)

    def _actuate(self, before: State, action: Action, judgement: Judgement) -> Actuation:
        outcome: ActuationOutcome
        if judgement.execute:
            self._changed += 1
            outcome, rule, weights = "applied", None, judgement.weights
            writes = self._world.apply(weights or {}, action.arm)
        else:
            outcome = "held" if judgement.outcome == "hold" else "skipped"
            rule, weights, writes = judgement.rule, None, ()
        return Actuation(
            node=before.node,
            boot=before.boot,
            cycle=before.cycle,
            at=0,
            outcome=outcome,
            arm=action.arm,
            weights=weights,
            writes=writes,
            rule=rule,
        )

    def _learn(self, cycle: Cycle, arm: Arm) -> None:
        value = conclude(cycle, None, self._settings.rewarder, self._shared).value
        if value is not None:
            self._policy.learn(self._features, arm, value)

    def _look_again(self, seen: State, now: float) -> bool:
        """Judges the change under trial by a later look; whether it was taken back for what that showed."""
        if self._trial is None:
            return False
        if self._compare(self._trial, seen, now):
            return True
        if self._trial is not None and self._breaker.is_due(now) and self._is_no_worse(self._trial, seen):
            self._trial = None
            self._breaker.kept(now)
        if self._trial is not None and self._breaker.gives_up(now):
            self._trial = None
            self._world.restore()
        return False

    def _compare(self, before: State, seen: State, now: float) -> bool:
        """Judges a change by a look after it; whether it was taken back."""
        if not self._settings.guarded:
            return False
        evidence, found = self._find(before, seen)
        if evidence == "unknown":
            return False
        self._trial = None
        if found is None:
            self._breaker.kept(now)
            return False
        self._rollbacks += 1
        if self._breaker.rolled_back(now):
            self._world.restore()
        else:
            self._world.roll_back({name: was.weight for name, was in before.classes.items() if was.weight})
        return True

    def _find(self, before: State, seen: State) -> tuple[Evidence, Regression | None]:
        guard = self._settings.guard
        return find_regression(
            before,
            seen,
            limit_ratio=guard.regression_ratio,
            floor_ratio=guard.regression_floor_ratio,
            wait_ratio=guard.regression_wait_ratio,
            min_requests=guard.min_requests,
            excuses=Excuses(self._shared.classes, guard.regression_lost_ratio),
        )

    def _is_no_worse(self, before: State, seen: State) -> bool:
        guard = self._settings.guard
        return is_no_worse(
            before,
            seen,
            self._shared.classes,
            lost_ratio=guard.regression_lost_ratio,
            min_requests=guard.min_requests,
            wait_ratio=guard.regression_wait_ratio,
        )

    def episode(self, name: str, seed: int, seconds: float) -> Episode:
        """What all cycles so far came to."""
        scenario, outcomes = self._world.scenario, self._outcomes
        scores = [outcome.score for outcome in outcomes]
        cycle_seconds = self._settings.cycle_seconds
        minutes = len(outcomes) * cycle_seconds / 60.0
        row = summary(scenario, name, seed, outcomes, cycle_seconds)
        row = msgspec.structs.replace(
            row,
            changes_per_minute=self._changed / minutes if minutes else 0.0,
            rollbacks=self._rollbacks,
            seconds=seconds,
        )
        curves = Curves(
            scenario=scenario.name,
            queue=scenario.queue,
            policy=name,
            seed=seed,
            scores=tuple(round(score, 5) for score in scores),
            p99_lc_ms=tuple(_p99_ms([outcome], "latency-critical") for outcome in outcomes),
            p99_default_ms=tuple(_p99_ms([outcome], "default") for outcome in outcomes),
            batch_share=tuple(round(outcome.batch_share, 5) for outcome in outcomes),
            arms=tuple(self._arm_names),
            outcomes=tuple(self._words),
        )
        return Episode(row, curves, scores, outcomes)


def summary(scenario: Scenario, policy: str, seed: int, outcomes: Sequence[CycleOutcome], cycle_seconds: float) -> Row:
    """The row of a run, as far as outcomes tell it."""
    violations: dict[str, float | None] = {}
    for name in ("latency-critical", "default"):
        ended = sum(outcome.ended[name] for outcome in outcomes)
        violations[name] = sum(outcome.missed[name] for outcome in outcomes) / ended if ended else None
    bad = sum(
        (outcome.violation_lc or 0.0) > GOOD_RATIO or (outcome.violation_default or 0.0) > GOOD_RATIO
        for outcome in outcomes
    )
    scores = [outcome.score for outcome in outcomes]
    count = max(1, len(outcomes))
    settled = outcomes[len(outcomes) // 2 :]
    return Row(
        scenario=scenario.name,
        queue=scenario.queue,
        policy=policy,
        seed=seed,
        cycles=len(outcomes),
        score=sum(scores) / count,
        violation_lc=violations["latency-critical"],
        violation_default=violations["default"],
        batch_share=sum(outcome.batch_share for outcome in outcomes) / count,
        p99_lc_ms=_p99_ms(outcomes, "latency-critical"),
        p99_default_ms=_p99_ms(outcomes, "default"),
        violation_seconds=bad * cycle_seconds,
        changes_per_minute=0.0,
        rollbacks=0,
        worst_shortfall=0.0,
        batch_cpu_seconds=sum(outcome.batch_cpu_seconds for outcome in outcomes),
        plateau_cycle=plateau_cycle(scores),
        p99_lc_settled_ms=_p99_ms(settled, "latency-critical"),
        batch_share_settled=sum(outcome.batch_share for outcome in settled) / max(1, len(settled)),
        services_share_settled=sum(outcome.services_share for outcome in settled) / max(1, len(settled)),
    )


def play_static(scenario: Scenario, profile: Mapping[str, int] | None, seed: int, cycles: int) -> list[CycleOutcome]:
    """A profile from the first cycle to the last, with nothing around it; None: the weights of the requests."""
    return list(_static_cycles(scenario, profile, seed, cycles))


def _static_cycles(
    scenario: Scenario, profile: Mapping[str, int] | None, seed: int, cycles: int
) -> Iterator[CycleOutcome]:
    shared = shared_settings(scenario)
    node = Node(scenario, seed, cycle_seconds=shared.loop.tick_seconds)
    if profile is not None:
        first = node.weights()
        sums: dict[str, int] = {}
        for pod in scenario.pods:
            sums[pod.cls] = sums.get(pod.cls, 0) + first[pod.name]
        node.set_weights(
            {
                pod.name: max(1, min(10_000, round(profile[pod.cls] * first[pod.name] / sums[pod.cls])))
                for pod in scenario.pods
            }
        )
    for _ in range(cycles):
        yield outcome_of(scenario, [node.advance(shared.loop.tick_seconds)])


def best_static(scenario: Scenario, seed: int, cycles: int) -> BestStatic:
    """The best single profile in hindsight for this seed, and the best one of each phase."""
    search = Search([scenario.phase_at(cycle) for cycle in range(cycles)])
    for profile in static_profiles(shared_settings(scenario), {pod.cls for pod in scenario.pods}):
        search.look(profile, (outcome.score for outcome in _static_cycles(scenario, profile, seed, cycles)))
    assert search.best is not None
    profile, score = search.best
    return BestStatic(
        scenario=scenario.name,
        queue=scenario.queue,
        seed=seed,
        profile=profile,
        score=score,
        per_phase_score=search.per_phase_score(),
        phases=search.best_in,
        tried=search.tried,
    )


def _p99_ms(outcomes: Sequence[CycleOutcome], name: str) -> float | None:
    arrays = [outcome.latencies[name] for outcome in outcomes if len(outcome.latencies[name])]
    return round(float(np.quantile(np.concatenate(arrays), 0.99)) * 1000.0, 3) if arrays else None


def _name_of(arms: Sequence[Arm], weights: dict[str, int], shared: Shared) -> str:
    """The arm whose ratios are in force, or the ratios themselves."""
    for arm in arms:
        if arm.weights is not None:
            own = on_profile_scale({name: arm.weights[name] for name in weights}, shared.weights)
            if own == weights:
                return arm.name
    lowest = min(weights.values(), default=1)
    return "-".join(f"{name[:1]}{weight / lowest:.3g}" for name, weight in weights.items())
