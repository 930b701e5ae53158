"""Owns the experiments behind docs/findings.md: `python -m lab.arena.experiments NAME[,NAME]|all --json FILE`.

Each asks one question of the simulator. Runs that several need are played once. Tables go to stdout, progress to
stderr; the file holds every run. Ctrl-C and SIGTERM end the playing, and what is there is written.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from lab.arena.bench import Failed, Heard, Job, Outcome, Played, play_in_turn
from lab.arena.episode import REQUEST_DERIVED
from lab.arena.experiment_runs import STATIC, changes_in, play, static_named
from lab.arena.experiment_tables import Run, Runs, by_variant, comparison, static_table
from lab.arena.experiment_variants import VARIANTS
from lab.arena.pool import play_in_processes
from lab.arena.scenario import Queue, Scenario
from lab.arena.scenarios import resolve
from lab.arena.score import worst_shortfall

FORMAT: Final = 1
_BASELINE_30: Final = f"{REQUEST_DERIVED}, by 30 s"


@dataclass(frozen=True)
class Experiment:
    """A question, the variants that answer it, and which of them the others are held against. `baseline` is what
    shortfalls are measured by.
    """

    question: str
    variants: tuple[str, ...]
    base: str = "trimtab"
    baseline: str = REQUEST_DERIVED
    with_statics: bool = False


EXPERIMENTS: Final[dict[str, Experiment]] = {
    "oscillation": Experiment(
        "Better decisions, or oscillation?",
        (REQUEST_DERIVED, "trimtab", "trimtab-cold", "step", "pid", "epsilon-greedy", "thompson", "river-linucb"),
        base=REQUEST_DERIVED,
    ),
    "reward": Experiment(
        "How much depends on the reward's weights?",
        (
            "trimtab",
            "violation 0.1, severity 0.9",
            "violation 0.5, severity 0.5",
            "violation 0.7, severity 0.3",
            "violation 0.9, severity 0.1",
            "throughput 0.3",
            "oscillation 0",
            "oscillation 0.2",
        ),
    ),
    "tick": Experiment(
        "Is a loop of 5 s right?",
        (_BASELINE_30, "tick 1 s", "tick 2 s", "tick 5 s", "tick 10 s", "tick 30 s"),
        base="tick 5 s",
        baseline=_BASELINE_30,
    ),
    "ablation": Experiment(
        "Do the signals and the parts earn their place?",
        (
            "trimtab",
            "without need",
            "without lost",
            "without rescue",
            "without the hold",
            "without outlook",
            "without caution",
            "without exploring",
            "without burns",
            "severity of the P99",
            "severity of over_ratio",
            "trimtab-cold",
            "cold, without need",
            "cold, without lost",
            "cold, without caution",
            "cold, likeness 0.3",
            "cold, likeness 1.2",
        ),
    ),
    "safety": Experiment(
        "What does the safety layer prevent, and what good does it prevent?",
        (
            "trimtab",
            "guard off",
            "breaker off",
            "floor 0",
            "floor 0.5",
            "no excuse: lost",
            "no excuse: given more",
            "no excuse: yielded",
            "no excuse: good trade",
            "no excuse",
            "mask off",
            "mask and guard off",
            "step 2",
            "step 10",
            "changes 4",
            "changes 12",
            "river-linucb",
            "river-linucb, guard off",
            "river-linucb, breaker off",
            "river-linucb, mask off",
            "river-linucb, mask and guard off",
        ),
    ),
    "static": Experiment(
        "Where is a static profile just as good?", ("trimtab", REQUEST_DERIVED), base=REQUEST_DERIVED, with_statics=True
    ),
}


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds. `failed` names the runs that gave nothing, with the reason."""

    made_by: str
    experiments: tuple[str, ...]
    cycles: int
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]
    failed: tuple[str, ...] = ()
    version: int = FORMAT


def jobs_of(names: Sequence[str], scenarios: Sequence[Scenario], seeds: Sequence[int], cycles: int) -> list[Job]:
    """Every run that the experiments need, each once, whole seeds first: who stops early has seeds to compare."""
    wanted: dict[str, None] = {}
    for name in names:
        experiment = EXPERIMENTS[name]
        wanted.update(dict.fromkeys((*experiment.variants, experiment.baseline)))
        if experiment.with_statics:
            wanted.update(dict.fromkeys(STATIC + profile for profile in static_named()))
    return [Job(scenario, variant, seed, cycles) for seed in seeds for scenario in scenarios for variant in wanted]


def runs_of(outcomes: Sequence[tuple[Job, Outcome]]) -> list[Run]:
    """The runs that were played, with their shortfalls where the baseline was played as well."""
    played = {_key(job): (job, out) for job, out in outcomes if isinstance(out, Played)}
    return [_run_of(job, out, played.get((*_key(job)[:3], _baseline_of(job.policy)))) for job, out in played.values()]


def tables_of(names: Sequence[str], runs: Sequence[Run]) -> str:
    """The experiments' tables, each below its question."""
    parts = []
    found = by_variant(runs)
    for name in names:
        experiment = EXPERIMENTS[name]
        parts.append(f"## {name}: {experiment.question}\n\n{_table_of(experiment, found)}\n")
    return "\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Plays, prints, writes. Exit code 1 if a run failed, 130 after Ctrl-C (what is there is written), 2 for usage."""
    args = _asked(argv)
    names: Sequence[str] = args.names
    jobs = jobs_of(names, args.scenarios, args.seeds, args.cycles)
    outcomes: list[tuple[Job, Outcome]] = []
    progress = _Progress(len(jobs))

    def heard(job: Job, outcome: Outcome) -> None:
        outcomes.append((job, outcome))
        progress.ended(job.name, outcome)

    code = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _play_all(jobs, heard, args.workers)
    except KeyboardInterrupt:
        code = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    failed = tuple(f"{job.name}: {outcome.reason}" for job, outcome in outcomes if isinstance(outcome, Failed))
    runs = runs_of(outcomes)
    made_by = "python -m lab.arena.experiments " + " ".join(sys.argv[1:] if argv is None else argv)
    found = Findings(
        made_by=made_by,
        experiments=tuple(names),
        cycles=args.cycles,
        seeds=args.seeds,
        runs=tuple(runs),
        failed=failed,
    )
    if args.json:
        with open(args.json, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found), indent=1))
    sys.stdout.write(tables_of(names, runs))
    return code or int(bool(failed))


def _table_of(experiment: Experiment, runs: Runs) -> str:
    if not experiment.with_statics:
        return comparison(runs, experiment.variants, experiment.base)
    statics = {name: of_one for name, of_one in runs.items() if name.startswith(STATIC)}
    if not statics or not all(runs.get(variant) for variant in experiment.variants):
        return "no runs"
    return static_table(runs, statics, *experiment.variants)


def _baseline_of(variant: str) -> str:
    """What a variant's shortfall is measured by: its scores must be of as many cycles."""
    by_blocks = variant in VARIANTS and VARIANTS[variant].block_seconds is not None
    return _BASELINE_30 if by_blocks else REQUEST_DERIVED


def _key(job: Job) -> tuple[str, str, int, str]:
    return job.scenario.name, job.scenario.queue, job.seed, job.policy


def _run_of(job: Job, played: Played, baseline: tuple[Job, Played] | None) -> Run:
    row = played.row
    changes, taken_back = (0, 0) if played.curves is None else changes_in(played.curves)
    return Run(
        variant=job.policy,
        scenario=job.scenario.name,
        queue=job.scenario.queue,
        seed=job.seed,
        score=row.score,
        violation_lc=row.violation_lc,
        violation_default=row.violation_default,
        batch_share=row.batch_share,
        changes_per_minute=row.changes_per_minute,
        changes=changes,
        taken_back=taken_back,
        rollbacks=row.rollbacks,
        worst_shortfall=None if baseline is None else worst_shortfall(played.scores, baseline[1].scores),
    )


def _play_all(jobs: Sequence[Job], heard: Heard, workers: int) -> None:
    if workers == 1:
        play_in_turn(jobs, play, heard)
    else:
        play_in_processes(jobs, play, heard, workers)


class _Progress:
    """One line on a terminal, else one each twentieth of the way; a line for each run that failed."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._parts = total, 0, 0
        self._started = time.monotonic()

    def ended(self, name: str, outcome: Outcome) -> None:
        self._ended += 1
        if isinstance(outcome, Failed):
            sys.stderr.write(f"failed: {name}: {outcome.reason}\n")
        left = (time.monotonic() - self._started) / self._ended * (self._total - self._ended)
        text = f"{self._ended} of {self._total} runs, about {left / 60.0:.0f} min left"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text}  {name}"[:110].ljust(111) + "\n" * (self._ended == self._total))
        elif 20 * self._ended // self._total > self._parts:
            self._parts = 20 * self._ended // self._total
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def seeds_of(text: str) -> tuple[int, ...]:
    """Numbers and ranges, as in `1,4-6`, each once. Raises ValueError."""
    found: dict[int, None] = {}
    for word in text.split(","):
        first, _, last = word.strip().partition("-")
        found.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    if not found:
        raise ValueError(f"no seeds in {text!r}")
    return tuple(found)


def names_of(text: str) -> tuple[str, ...]:
    """Experiments from `a,b` or `all`, in the order given and each once. Raises ValueError that lists what is known."""
    found: dict[str, None] = {}
    for word in (part.strip() for part in text.split(",")):
        if word != "all" and word not in EXPERIMENTS:
            raise ValueError(f"no experiment {word!r}; known: all, {', '.join(EXPERIMENTS)}")
        found.update(dict.fromkeys(EXPERIMENTS if word == "all" else (word,)))
    return tuple(found)


def _asked(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, with `names` and `scenarios` resolved; exits with code 2 for what cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.arena.experiments", description="Play the experiments of docs/findings.md."
    )
    parser.add_argument("names", metavar="NAME[,NAME]", help=", ".join([*EXPERIMENTS, "all"]))
    parser.add_argument("--seeds", default="1-5", help="numbers and ranges (1-5)")
    parser.add_argument("--cycles", type=int, default=400, help="cycles of 5 s (400)")
    parser.add_argument("--scenarios", default="all", help="names, gen:SEED, or all (all)")
    parser.add_argument("--queue", choices=["bounded", "unbounded", "both"], default="both", help="(both)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one a CPU)")
    parser.add_argument("--json", metavar="FILE", help="every run, as JSON")
    args = parser.parse_args(argv)
    if args.workers < 1 or args.cycles < 1:
        parser.error("--workers and --cycles must be at least 1")
    queues: tuple[Queue, ...] = ("bounded", "unbounded") if args.queue == "both" else (args.queue,)
    try:
        args.names, args.seeds = names_of(args.names), seeds_of(args.seeds)
        args.scenarios = [scenario for queue in queues for scenario in resolve(args.scenarios, queue)]
        if args.json:
            with open(args.json, "ab"):
                pass  # better told now than when all has been played
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return args


if __name__ == "__main__":
    sys.exit(main())
