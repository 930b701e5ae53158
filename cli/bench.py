"""`trimtab bench`: policies against each other, over scenarios and seeds, on the simulator or on real cgroups."""

import argparse
import importlib
import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from cli.bench_progress import Progress, duration
from cli.bench_source import commit_of_source, describe_machine, package_versions
from cli.inputs import check_output_file, make_run_dir
from cli.order_view import printable
from cli.report import show, write_page
from hostfs.mounts import detect
from lab.arena.bench import (
    ALONE,
    BASELINE,
    BEST_STATIC,
    Failed,
    Job,
    Outcome,
    Plan,
    Setting,
    assemble,
    jobs_of,
    play_in_turn,
)
from lab.arena.cgroup_loads import scaled
from lab.arena.players import cgroup_player, play_simulated
from lab.arena.pool import play_in_processes
from lab.arena.results import Results, write_results
from lab.cgroup_sandbox import SandboxUnavailable, find_base
from lab.cgroup_stage import usable_cpus
from runtime.errors import ConfigError, HostError, TrimtabError
from runtime.metrics import product_version

if TYPE_CHECKING:
    from lab.arena.scenario import Queue, Scenario

_SIM_CYCLES: Final = 400
"""Two rounds of the slowest scenarios (33 minutes of a node's time), a few seconds of this machine's."""

_CGROUP_CYCLES: Final = 40
"""Long enough to see where a policy settles, short enough to wait for."""

_TICK_SECONDS: Final = 5.0
"""As the services have it (loop.tick_seconds)."""

_START_SECONDS: Final = 25.0
"""What a run on real cgroups takes beside its cycles, roughly: pods, server and services start and end."""

_SHORTEST_TICK_SECONDS: Final = 0.5
_MOST_SEEDS: Final = 1000
_MOST_CYCLES: Final = 100_000
_NEEDED: Final = ("numba", "river")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add = parser.add_argument
    add("--backend", choices=["sim", "cgroup"], default="sim", help="the simulator, or real cgroups (default: sim)")
    add(
        "--scenarios",
        default="all",
        metavar="A,B",
        help="names, gen:SEED, files of your own (.json, .yaml), or all (default: all)",
    )
    add("--policies", default="all", metavar="X,Y", help="names, or all (default: all)")
    add("--seeds", default="1-10", metavar="1-10", help="seeds and ranges of them, as in 1,4-6 (default: 1-10)")
    add("--cycles", type=int, metavar="N", help=f"length of a run (default: {_SIM_CYCLES}; cgroup: {_CGROUP_CYCLES})")
    add(
        "--queue", choices=["bounded", "unbounded", "both"], default="both", help="the services' queues (default: both)"
    )
    add("--workers", type=int, metavar="N", help="processes that simulate (default: as many as CPUs)")
    add("--keep-curves", choices=["none", "first", "all"], default="first", help="seeds whose curves are kept in FILE")
    add("--load", type=float, metavar="RATIO", help="part of the requests that is sent, cgroup only (default: 1)")
    add("--tick", type=float, metavar="SECONDS", help=f"seconds a cycle, cgroup only (default: {_TICK_SECONDS:g})")
    add("--run-dir", type=Path, metavar="DIR", help="keep everything of the runs there, cgroup only")
    add("--json", type=Path, metavar="FILE", help="write all results there")
    add("--html", type=Path, metavar="FILE", help="write the report there, one page")
    add("-o", "--output", choices=["table", "json", "jsonl"], default="table", help="how the summary is shown")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plays everything; the summary on stdout. 1 if a run failed, 130 if it was interrupted; what is there is kept."""
    need_lab("bench")
    plan = _plan(args)
    _check_flags(args)
    check_output_file(args.json, "--json")
    check_output_file(args.html, "--html")
    setting = Setting(
        backend=args.backend,
        made_by=_command(args, plan),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        trimtab=product_version(),
        commit=commit_of_source(),
        machine=describe_machine(),
        versions=package_versions(),
        cycle_seconds=_tick_seconds(args),
    )
    outcomes, is_interrupted = _play(args, plan)
    results = assemble(plan, outcomes, setting)
    _keep(args, results)
    show(results, args.output)
    if args.html is not None:
        write_page(args.html, results)
    for note in results.notes:
        print(f"trimtab bench: {printable(note)}", file=sys.stderr)
    if is_interrupted:
        kept = f"; {len(results.results)} are in {args.json}" if args.json is not None else ""
        total = len(jobs_of(plan))
        print(f"trimtab bench: interrupted; {len(outcomes)} of {total} runs ended{kept}", file=sys.stderr)
        return 130
    return 1 if any(isinstance(outcome, Failed) for _, outcome in outcomes) else 0


def need_lab(verb: str) -> None:
    """Raises TrimtabError if a package that the simulator needs is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TrimtabError(f"{verb}: needs the package {missing[0]}; run `pip install 'trimtab[lab]'`")


def _plan(args: argparse.Namespace) -> Plan:
    """What is to be played. Raises ConfigError for what nobody knows."""
    cycles = args.cycles if args.cycles is not None else _CGROUP_CYCLES if args.backend == "cgroup" else _SIM_CYCLES
    if not 1 <= cycles <= _MOST_CYCLES:
        raise ConfigError(f"flag --cycles {cycles}: give a number from 1 to {_MOST_CYCLES}")
    scenarios = _scenarios(args.scenarios, args.queue)
    if args.backend == "cgroup":  # as they are played here, so that the report shows the objectives that held
        scenarios = tuple(_scaled(scenario) for scenario in scenarios)
    return Plan(
        scenarios=scenarios,
        policies=_policies(args.policies, args.backend),
        seeds=parse_seeds(args.seeds),
        cycles=cycles,
        keep_curves=args.keep_curves,
        with_best_static=args.backend == "sim",
    )


def _scaled(scenario: "Scenario") -> "Scenario":
    try:
        return scaled(scenario, len(usable_cpus()))
    except ValueError as error:
        raise ConfigError(f"flag --scenarios: {scenario.name} on {len(usable_cpus())} CPUs: {error}") from error


def _scenarios(text: str, queue: str) -> "tuple[Scenario, ...]":
    resolve = importlib.import_module("lab.arena.scenarios").resolve
    queues: tuple[Queue, ...] = ("bounded", "unbounded") if queue == "both" else ("bounded",)
    if queue == "unbounded":
        queues = ("unbounded",)
    try:
        by_queue = [resolve(text, one) for one in queues]
    except ValueError as error:
        raise ConfigError(f"flag --scenarios: {error}") from error
    return tuple(scenario for group in zip(*by_queue, strict=True) for scenario in group)


def _policies(text: str, backend: str) -> tuple[str, ...]:
    """The policies in the order given; `best-static` may be named, and is found whether it is or not. On real cgroups
    there are `alone` and `static:PROFILE`, too.
    """
    all_of_them: tuple[str, ...] = importlib.import_module("lab.arena.episode").POLICIES
    more = (ALONE,) if backend == "cgroup" else ()
    known = f"known: all, {', '.join((*all_of_them, *more))}{', static:PROFILE' if more else ''}"
    found: dict[str, None] = {}
    for word in (part.strip() for part in text.split(",")):
        if word == "all":
            found.update(dict.fromkeys(all_of_them))
        elif word in (*all_of_them, *more) or (more and word.startswith("static:")):
            found[word] = None
        elif word and word != BEST_STATIC:
            raise ConfigError(f"flag --policies: unknown policy {word!r}; {known}")
    if not found:
        raise ConfigError(f"flag --policies: none named; {known}")
    return tuple(found)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `1-10`, `7` and `1,4-6`, in the order given and each once. Raises ConfigError."""
    found: dict[int, None] = {}
    for word in (part.strip() for part in text.split(",")):
        first, dash, last = word.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):  # noqa: PLR2004 - a billion is plenty
            raise ConfigError(f"flag --seeds {text!r}: write whole numbers and ranges, as in 1-10 or 1,4-6")
        low, high = int(ends[0]), int(ends[1])
        if low > high:
            raise ConfigError(f"flag --seeds {text!r}: {word} runs backwards; write {high}-{low}")
        if high - low >= _MOST_SEEDS or len(found) > _MOST_SEEDS:
            raise ConfigError(f"flag --seeds {text!r}: more than {_MOST_SEEDS}; give fewer")
        found.update(dict.fromkeys(range(low, high + 1)))
    return tuple(found)


def _check_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that do not go together or are out of range, HostError without cgroups to use."""
    if args.workers is not None and args.workers < 1:
        raise ConfigError(f"flag --workers {args.workers}: give at least 1")
    if args.json is not None and args.json == args.html:
        raise ConfigError(f"flags --json and --html: both name {args.json}; name two files")
    if args.backend == "sim":
        for flag, value in (("--tick", args.tick), ("--load", args.load), ("--run-dir", args.run_dir)):
            if value is not None:
                raise ConfigError(f"flag {flag}: only with --backend cgroup; a simulated cycle is {_TICK_SECONDS:g} s")
        return
    if args.workers is not None:
        raise ConfigError(
            "flag --workers: only with --backend sim; runs on real cgroups need the machine for themselves"
        )
    _check_load(args.load)
    if not _SHORTEST_TICK_SECONDS <= _tick_seconds(args) <= 60.0:  # noqa: PLR2004 - as the message says
        raise ConfigError(f"flag --tick {args.tick:g}: give {_SHORTEST_TICK_SECONDS:g} to 60 seconds")
    host = detect()
    if host.root is None:
        raise HostError(f"{host.reason}; {(host.remedy or 'mount cgroup v2').rstrip('.')}; or use --backend sim")
    try:
        find_base(host)
    except SandboxUnavailable as error:
        raise HostError(f"{error.reason}; {error.remedy.rstrip('.')}; or use --backend sim") from error


def _check_load(load_ratio: float | None) -> None:
    if load_ratio is not None and not 0.0 < load_ratio <= 1.0:
        raise ConfigError(f"flag --load {load_ratio:g}: give more than 0, up to 1")


def _tick_seconds(args: argparse.Namespace) -> float:
    return _TICK_SECONDS if args.tick is None else float(args.tick)


def _command(args: argparse.Namespace, plan: Plan) -> str:
    """The command that makes these results again, with every choice in it."""
    scenarios = ",".join(word if "/" not in word else Path(word).name for word in args.scenarios.split(","))
    words = ["trimtab", "bench", "--backend", args.backend, "--scenarios", scenarios, "--policies", args.policies]
    words += ["--seeds", args.seeds, "--cycles", str(plan.cycles), "--queue", args.queue]
    words += ["--tick", f"{args.tick:g}"] if args.tick is not None else []
    words += ["--load", f"{args.load:g}"] if args.load is not None else []
    for flag, value in (("--json", args.json), ("--html", args.html)):
        words += [flag, value.name] if value is not None else []
    return shlex.join(words)


def _play(args: argparse.Namespace, plan: Plan) -> tuple[list[tuple[Job, Outcome]], bool]:
    """Every outcome, and whether it was interrupted."""
    jobs = jobs_of(plan)
    outcomes: list[tuple[Job, Outcome]] = []
    progress = Progress(len(jobs), sys.stderr, each=args.backend == "cgroup")

    def heard(job: Job, outcome: Outcome) -> None:
        outcomes.append((job, outcome))
        progress.ended(job.name, failed=outcome.reason if isinstance(outcome, Failed) else None)

    try:
        with _stoppable():
            if args.backend == "cgroup":
                run_dir = make_run_dir(args.run_dir, "trimtab-bench-")
                seconds = len(jobs) * (plan.cycles * _tick_seconds(args) + _START_SECONDS)
                extra = "" if BASELINE in plan.policies else f" (with {BASELINE}, to judge by)"
                _say(f"{len(jobs)} runs{extra}, one after another: about {duration(seconds)}; files in {run_dir}")
                play_in_turn(
                    jobs, cgroup_player(_tick_seconds(args), run_dir, 1.0 if args.load is None else args.load), heard
                )
            else:
                workers = min(args.workers or len(os.sched_getaffinity(0)), len(jobs))
                _say(f"{len(jobs)} runs of {plan.cycles} cycles in {workers} processes")
                play_in_processes(jobs, play_simulated, heard, workers)
    except KeyboardInterrupt:
        return outcomes, True
    finally:
        progress.close()
    return outcomes, False


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP interrupt it, also where a shell has its background jobs ignore Ctrl-C."""

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _keep(args: argparse.Namespace, results: Results) -> None:
    """Writes the results, if they are to be kept. What cannot be written is said: the summary is still to be shown."""
    if args.json is None:
        return
    try:
        write_results(str(args.json), results)
    except OSError as error:
        _say(f"flag --json: {args.json}: {error.strerror}; NOTHING is kept but the summary")


def _say(text: str) -> None:
    print(f"trimtab bench: {text}", file=sys.stderr, flush=True)
