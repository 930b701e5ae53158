"""Owns how a bench is run: which runs, in which order, and what becomes of one that fails. Who plays them is given.

Runs go in blocks, one per seed; a block holds every scenario x policy with that seed, in an order drawn at random. So
drift of the machine hits all policies alike, and a bench that is interrupted has whole seeds to compare: what there is
of others is not kept.
"""

import math
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from msgspec.structs import replace

from lab.arena.results import About, Band, BestStatic, Curves, Results, Row
from lab.arena.scenario import Scenario
from lab.arena.score import plateau_cycle, worst_shortfall
from lab.arena.statistics import mean_interval

KeepCurves = Literal["none", "first", "all"]

BASELINE: Final = "request-derived"
"""The policy that every other is measured against; it is played whether asked for or not."""

ALONE: Final = "alone"
"""On real cgroups: no batch runs and nothing is steered, which is the best that there can be."""

BEST_STATIC: Final = "best-static"
"""The grid search in hindsight: a run of its own, and no policy that could be in force."""

_BAND_POINTS: Final = 80
"""Points of a band: a chart is about 800 pixels wide."""


@dataclass(frozen=True)
class Plan:
    """What is asked for. `policies` are in the order of the tables."""

    scenarios: tuple[Scenario, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    cycles: int
    keep_curves: KeepCurves = "first"
    with_best_static: bool = True


@dataclass(frozen=True)
class Job:
    """One run, of a policy or of the grid search. `with_curves`: its curves are wanted."""

    scenario: Scenario
    policy: str
    seed: int
    cycles: int
    with_curves: bool = False

    @property
    def name(self) -> str:
        """What it is called when it is spoken of."""
        return f"{self.scenario.name} ({self.scenario.queue}), {self.policy}, seed {self.seed}"


@dataclass(frozen=True)
class Played:
    """What one run of a policy left: its row, the score of each cycle, and its curves if they were wanted."""

    row: Row
    scores: tuple[float, ...]
    curves: Curves | None = None


@dataclass(frozen=True)
class Failed:
    """Why a run gave nothing: the last line of its traceback."""

    reason: str


Outcome = Played | BestStatic | Failed
Player = Callable[[Job], Played | BestStatic]
Heard = Callable[[Job, Outcome], None]


def jobs_of(plan: Plan) -> tuple[Job, ...]:
    """Every run that the plan needs, in the order in which they are started; the same plan gives the same order."""
    policies = [*dict.fromkeys((*plan.policies, BASELINE)), *([BEST_STATIC] if plan.with_best_static else [])]
    names = [(scenario.name, scenario.queue) for scenario in plan.scenarios]
    rng = random.Random(repr((names, policies, plan.seeds, plan.cycles)))  # noqa: S311 - an order, no secret
    jobs: list[Job] = []
    for seed in rng.sample(plan.seeds, len(plan.seeds)):
        keeps = plan.keep_curves == "all" or (plan.keep_curves == "first" and seed == plan.seeds[0])
        block = [
            Job(
                scenario=scenario,
                policy=policy,
                seed=seed,
                cycles=plan.cycles,
                with_curves=keeps and policy in plan.policies,
            )
            for scenario in plan.scenarios
            for policy in policies
        ]
        rng.shuffle(block)
        jobs += block
    return tuple(jobs)


def attempt(player: Player, job: Job) -> Outcome:
    """Plays one run; an error of its own is an outcome, an interrupt is not."""
    try:
        return player(job)
    except Exception as error:  # noqa: BLE001 - whatever a policy or a scenario raises costs one run, not the bench
        return Failed("".join(traceback.format_exception_only(error)).strip().splitlines()[-1])


def play_in_turn(jobs: Iterable[Job], player: Player, heard: Heard) -> None:
    """Plays one after another, here. Tells of every outcome."""
    for job in jobs:
        heard(job, attempt(player, job))


@dataclass(frozen=True)
class Setting:
    """What a bench was made with, for the report."""

    backend: Literal["sim", "cgroup"]
    made_by: str
    made_at: str
    trimtab: str
    commit: str
    machine: str
    versions: dict[str, str]
    cycle_seconds: float = 5.0


def assemble(plan: Plan, outcomes: Sequence[tuple[Job, Outcome]], setting: Setting) -> Results:
    """The results of all runs that are there, in the order of the plan, whatever order they ended in.

    A row needs its baseline: one whose `request-derived` run is missing is left out, and a note says so. If not all
    runs ended, only those of whole seeds are kept, so that all policies have the same; if no seed is whole, those
    of the one that got furthest. Notes say what was left out, which runs failed and how many never ended.
    """
    asked = len(jobs_of(plan))
    missing = asked - len(outcomes)
    kept = _comparable_seeds(plan, outcomes) if missing else plan.seeds
    ended, outcomes = outcomes, [(job, outcome) for job, outcome in outcomes if job.seed in kept]
    played = {_key(job): outcome for job, outcome in outcomes if isinstance(outcome, Played)}
    best = {_key(job): outcome for job, outcome in outcomes if isinstance(outcome, BestStatic)}
    notes = [f"failed: {job.name}: {out.reason}" for job, out in ended if isinstance(out, Failed)]
    rows: list[Row] = []
    curves: list[Curves] = []
    without_baseline = 0
    wanted = [
        (s.name, s.queue, policy, seed) for s in plan.scenarios for policy in plan.policies for seed in plan.seeds
    ]
    for scenario, queue, policy, seed in wanted:
        run = played.get((scenario, queue, policy, seed))
        if run is None:
            continue
        baseline = played.get((scenario, queue, BASELINE, seed))
        if baseline is None:
            without_baseline += 1
            continue
        rows.append(_judged(run, baseline, best.get((scenario, queue, BEST_STATIC, seed))))
        if run.curves is not None:
            curves.append(run.curves)
    if missing:
        notes.append(f"interrupted: {missing} of {asked} runs never ended")
    if len(outcomes) < len(ended):
        unkept = sorted({job.seed for job, _ in ended if job.seed not in kept})
        what = f"{len(ended) - len(outcomes)} runs of seeds that are not whole ({', '.join(map(str, unkept))})"
        notes.append(f"left out: {what}")
    if without_baseline:
        notes.append(f"left out: {without_baseline} runs without a {BASELINE} run of the same seed to judge them by")
    return Results(
        results=tuple(rows),
        best_static=tuple(
            best[key]
            for s in plan.scenarios
            for seed in plan.seeds
            if (key := (s.name, s.queue, BEST_STATIC, seed)) in best
        ),
        curves=tuple(curves),
        phases={scenario.name: phases_of(scenario, plan.cycles) for scenario in plan.scenarios},
        backend=setting.backend,
        cycles=plan.cycles,
        cycle_seconds=setting.cycle_seconds,
        seeds=kept,
        notes=tuple(notes),
        made_by=setting.made_by,
        made_at=setting.made_at,
        trimtab=setting.trimtab,
        commit=setting.commit,
        machine=setting.machine,
        bands=tuple(
            _band(s.name, s.queue, policy, runs)
            for s in plan.scenarios
            for policy in plan.policies
            if (runs := [run.scores for seed in plan.seeds if (run := played.get((s.name, s.queue, policy, seed)))])
        ),
        about={
            s.name: About(
                text=s.text,
                cores=s.cores,
                objectives={str(cls): seconds for cls, seconds in s.objectives.items()},
                matters=s.matters,
            )
            for s in plan.scenarios
        },
        versions=setting.versions,
    )


def _comparable_seeds(plan: Plan, outcomes: Sequence[tuple[Job, Outcome]]) -> tuple[int, ...]:
    """The seeds of which every run ended; without any the one of which most did, the first asked for of equals."""
    asked, ended = Counter(job.seed for job in jobs_of(plan)), Counter(job.seed for job, _ in outcomes)
    whole = tuple(seed for seed in plan.seeds if ended[seed] == asked[seed])
    started = [seed for seed in plan.seeds if ended[seed]]
    return whole or tuple(sorted(started, key=lambda seed: -ended[seed])[:1])


def _key(job: Job) -> tuple[str, str, str, int]:
    return job.scenario.name, job.scenario.queue, job.policy, job.seed


def _judged(run: Played, baseline: Played, best: BestStatic | None) -> Row:
    return replace(
        run.row,
        worst_shortfall=worst_shortfall(run.scores, baseline.scores),
        plateau_cycle=plateau_cycle(run.scores) if run.row.plateau_cycle is None else run.row.plateau_cycle,
        regret_static=None if best is None else best.score - run.row.score,
        regret_phase=None if best is None else best.per_phase_score - run.row.score,
    )


def phases_of(scenario: Scenario, cycles: int) -> tuple[tuple[str, int], ...]:
    """Each stretch of a run with its first cycle; what repeats is named again each time. One cycle is in one phase."""
    found: list[tuple[str, int]] = []
    for cycle in range(cycles):
        name = scenario.phase_at(cycle)
        if not found or found[-1][0] != name:
            found.append((name, cycle))
    return tuple(found)


def _band(scenario: str, queue: str, policy: str, runs: Sequence[Sequence[float]]) -> Band:
    """The cumulative scores of several runs, at evenly spaced cycles; all as long as the shortest."""
    length = min(len(scores) for scores in runs)
    step = max(1, math.ceil(length / _BAND_POINTS))
    cycles = [*range(step, length, step), length] if length else []
    sums = [[0.0, *accumulate(scores)] for scores in runs]
    intervals = [mean_interval([total[cycle] for total in sums]) for cycle in cycles]
    lows = tuple(round(here.low, 3) for here in intervals if here.low is not None)
    highs = tuple(round(here.high, 3) for here in intervals if here.high is not None)
    means = tuple(round(here.mean, 3) for here in intervals)
    return Band(scenario=scenario, queue=queue, policy=policy, cycle=tuple(cycles), mean=means, low=lows, high=highs)
