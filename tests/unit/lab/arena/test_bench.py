"""Which runs a bench is, in which order, and what becomes of them; pools of processes; progress and words."""

import io
import os
from collections import Counter
from itertools import pairwise

import pytest

from cli.bench import parse_seeds
from cli.bench_progress import Progress, duration
from lab.arena.bench import (
    BASELINE,
    BEST_STATIC,
    Failed,
    Job,
    Plan,
    Played,
    Setting,
    assemble,
    jobs_of,
    phases_of,
    play_in_turn,
)
from lab.arena.pool import play_in_processes
from lab.arena.results import BestStatic, Curves, Row, read_results, write_results
from lab.arena.scenario import Scenario, SpinnerPod, constant
from runtime.errors import ConfigError

SETTING = Setting(
    backend="sim",
    made_by="trimtab bench",
    made_at="2026-01-01T00:00:00+00:00",
    trimtab="1",
    commit="abc",
    machine="a machine",
    versions={"Python": "3"},
)


def scenario(name="flood", **fields):
    pod = SpinnerPod(name="batch", cls="batch", request_millicpu=100, processes=constant(1.0))
    return Scenario(name=name, pods=(pod,), text=f"about {name}", **fields)


def plan(**fields):
    asked = {"scenarios": (scenario("flood"), scenario("swap")), "policies": ("trimtab", BASELINE), "seeds": (3, 1, 2)}
    return Plan(**{**asked, "cycles": 4, **fields})


SCORES = {"trimtab": (-0.1, -0.3, 0.2, 0.2), BASELINE: (-0.2, -0.2, -0.2, -0.2), "step": (-1.0, -1.0, -1.0, -1.0)}


def play(job: Job) -> Played | BestStatic:
    """A run that ends at once, with scores that say whose they are."""
    names = {"scenario": job.scenario.name, "queue": job.scenario.queue, "seed": job.seed}
    if job.policy == BEST_STATIC:
        return BestStatic(**names, profile={"batch": 1}, score=0.05, per_phase_score=0.15, phases={}, tried=2)
    scores = tuple(score + 0.01 * job.seed for score in SCORES[job.policy])
    row = Row(
        **names,
        policy=job.policy,
        cycles=job.cycles,
        score=sum(scores) / len(scores),
        violation_lc=0.1,
        violation_default=None,
        batch_share=0.5,
        p99_lc_ms=20.0,
        p99_default_ms=None,
        violation_seconds=5.0,
        changes_per_minute=1.0,
        rollbacks=0,
        worst_shortfall=0.0,
    )
    curves = Curves(
        **names,
        policy=job.policy,
        scores=scores,
        p99_lc_ms=(1.0,) * 4,
        p99_default_ms=(None,) * 4,
        batch_share=(0.5,) * 4,
        arms=("a",) * 4,
        outcomes=("held",) * 4,
    )
    return Played(row, scores, curves if job.with_curves else None)


def played(asked, player=play):
    outcomes = []
    play_in_turn(jobs_of(asked), player, lambda job, outcome: outcomes.append((job, outcome)))
    return outcomes


# ---- which runs ------------------------------------------------------------------------------------------------------


def test_every_scenario_policy_and_seed_is_played_once_with_its_baseline_and_grid_search():
    jobs = jobs_of(plan(policies=("trimtab",)))
    assert Counter((job.scenario.name, job.policy, job.seed) for job in jobs) == Counter(
        (name, policy, seed)
        for name in ("flood", "swap")
        for policy in ("trimtab", BASELINE, BEST_STATIC)
        for seed in (1, 2, 3)
    )


def test_the_baseline_is_played_once_if_it_is_asked_for_too():
    jobs = jobs_of(plan(with_best_static=False))
    assert len(jobs) == 2 * 2 * 3
    assert {job.policy for job in jobs} == {"trimtab", BASELINE}


def test_a_seeds_runs_stand_together_so_that_an_interrupted_bench_can_be_compared():
    seeds = [job.seed for job in jobs_of(plan())]
    assert sum(first != second for first, second in pairwise(seeds)) == 2


def test_the_order_is_drawn_anew_in_every_block_and_the_same_for_the_same_plan():
    asked = plan(scenarios=tuple(scenario(f"s{n}") for n in range(6)))
    jobs = jobs_of(asked)
    assert jobs == jobs_of(asked)
    size = len(jobs) // 3
    orders = [[(job.scenario.name, job.policy) for job in jobs[at : at + size]] for at in range(0, len(jobs), size)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2]
    assert len({name for name, _ in orders[0][:6]}) > 1
    assert jobs_of(plan(cycles=5)) != jobs_of(plan())


@pytest.mark.parametrize(("keep", "seeds"), [("none", set()), ("first", {3}), ("all", {1, 2, 3})])
def test_curves_are_kept_of_the_seeds_that_were_asked_for(keep, seeds):
    asked = plan(policies=("trimtab",), keep_curves=keep)
    results = assemble(asked, played(asked), SETTING)
    assert {(curve.policy, curve.seed) for curve in results.curves} == {("trimtab", seed) for seed in seeds}


# ---- what becomes of them --------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_plan_whatever_ended_first():
    asked = plan()
    results = assemble(asked, played(asked), SETTING)
    assert [(row.scenario, row.policy, row.seed) for row in results.results] == [
        (name, policy, seed) for name in ("flood", "swap") for policy in ("trimtab", BASELINE) for seed in (3, 1, 2)
    ]
    assert [(best.scenario, best.seed) for best in results.best_static] == [
        (name, seed) for name in ("flood", "swap") for seed in (3, 1, 2)
    ]
    assert (results.notes, results.seeds, results.cycles, results.commit) == ((), (3, 1, 2), 4, "abc")
    assert results.about["swap"].text == "about swap"


def test_regret_is_what_hindsight_would_have_scored_more():
    asked = plan(seeds=(1,))
    row = assemble(asked, played(asked), SETTING).results[0]
    assert row.score == pytest.approx(0.01)
    assert row.regret_static == pytest.approx(0.04)
    assert row.regret_phase == pytest.approx(0.14)


def test_the_shortfall_is_measured_against_the_baseline_of_the_same_seed():
    asked = plan(policies=("step", BASELINE), seeds=(1,), scenarios=(scenario(),))
    step, base = assemble(asked, played(asked), SETTING).results
    assert base.worst_shortfall == 0.0
    # After four cycles -3.96 against -0.76: 3.2 below, of a magnitude that counts as 1.
    assert step.worst_shortfall == pytest.approx(3.2)


def test_a_baseline_that_nobody_asked_for_has_no_row():
    asked = plan(policies=("trimtab",))
    assert {row.policy for row in assemble(asked, played(asked), SETTING).results} == {"trimtab"}


def test_two_queues_of_one_scenario_are_kept_apart():
    asked = plan(scenarios=(scenario(), scenario(queue="unbounded")), seeds=(1,))
    results = assemble(asked, played(asked), SETTING)
    assert [(row.queue, row.policy) for row in results.results] == [
        (queue, policy) for queue in ("bounded", "unbounded") for policy in ("trimtab", BASELINE)
    ]


def test_a_run_that_fails_costs_one_row_and_is_named_with_its_last_line():
    def stumble(job):
        if (job.scenario.name, job.policy, job.seed) == ("swap", "trimtab", 2):
            raise ArithmeticError("first line\nthe arm has no weight")
        return play(job)

    asked = plan()
    results = assemble(asked, played(asked, stumble), SETTING)
    assert len(results.results) == 11
    assert results.notes == ("failed: swap (bounded), trimtab, seed 2: the arm has no weight",)


def test_a_row_without_its_baseline_is_left_out_and_counted():
    def stumble(job):
        if (job.scenario.name, job.policy, job.seed) == ("flood", BASELINE, 1):
            raise ArithmeticError("lost")
        return play(job)

    asked = plan()
    results = assemble(asked, played(asked, stumble), SETTING)
    assert ("flood", 1) not in {(row.scenario, row.seed) for row in results.results}
    assert len(results.results) == 10
    assert results.notes == (
        "failed: flood (bounded), request-derived, seed 1: ArithmeticError: lost",
        "left out: 1 runs without a request-derived run of the same seed to judge them by",
    )


def test_an_interrupted_bench_keeps_whole_seeds_and_says_what_it_left_out():
    """Two processes play: one is in the next block, the other one still in the last."""
    asked = plan(scenarios=(scenario(),))
    all_of_them = played(asked)
    blocks = [all_of_them[start : start + 3] for start in (0, 3, 6)]
    first, second, third = (block[0][0].seed for block in blocks)
    results = assemble(asked, [*blocks[0], *blocks[1][:2], *blocks[2][:1]], SETTING)
    assert {(row.policy, row.seed) for row in results.results} == {("trimtab", first), (BASELINE, first)}
    assert [best.seed for best in results.best_static] == [first]
    assert {curve.seed for curve in results.curves} <= {first}
    assert all(band.low == () for band in results.bands)
    assert results.seeds == (first,)
    left = ", ".join(map(str, sorted((second, third))))
    assert results.notes == (
        "interrupted: 3 of 9 runs never ended",
        f"left out: 3 runs of seeds that are not whole ({left})",
    )


def test_whole_seeds_are_kept_in_the_order_that_was_asked_for_whichever_ended_first():
    asked = plan(scenarios=(scenario(),))
    whole = [(job, outcome) for job, outcome in played(asked) if job.seed != 1]
    results = assemble(asked, whole[::-1], SETTING)
    assert results.seeds == (3, 2)
    assert [(row.policy, row.seed) for row in results.results] == [
        ("trimtab", 3), ("trimtab", 2), (BASELINE, 3), (BASELINE, 2),
    ]  # fmt: skip
    assert results.notes == ("interrupted: 3 of 9 runs never ended",)


def test_without_a_whole_seed_the_one_that_got_furthest_is_kept():
    asked = plan(scenarios=(scenario(),), with_best_static=False, policies=("trimtab", "step", BASELINE))
    some = [(job, out) for job, out in played(asked) if (job.seed, job.policy) not in {(1, "step"), (2, "step")}]
    some = [(job, out) for job, out in some if job.seed != 3 and (job.seed, job.policy) != (2, "trimtab")]
    results = assemble(asked, some, SETTING)
    assert {(row.policy, row.seed) for row in results.results} == {("trimtab", 1), (BASELINE, 1)}
    assert results.notes[1] == "left out: 1 runs of seeds that are not whole (2)"


def test_a_run_that_failed_has_ended_and_its_seed_is_whole():
    def stumble(job):
        if (job.policy, job.seed) == ("trimtab", 3):
            raise ArithmeticError("lost")
        return play(job)

    asked = plan(scenarios=(scenario(),))
    results = assemble(asked, [pair for pair in played(asked, stumble) if pair[0].seed == 3], SETTING)
    assert [(row.policy, row.seed) for row in results.results] == [(BASELINE, 3)]
    assert results.seeds == (3,)


def test_a_bench_that_is_interrupted_at_once_has_nothing():
    results = assemble(plan(), [], SETTING)
    assert (results.results, results.seeds) == ((), ())


# ---- the file --------------------------------------------------------------------------------------------------------


def test_results_that_cannot_be_written_leave_the_old_ones_whole_and_nothing_beside(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_results(str(path), assemble(plan(), [], SETTING))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(OSError, match="No space left"):
                write_results(str(path), assemble(plan(), played(plan()), SETTING))
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
    write_results(str(path), assemble(plan(), played(plan()), SETTING))
    assert len(read_results(str(path)).results) == 12


def test_results_are_written_into_a_file_whose_folder_takes_no_other(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    number = path.stat().st_ino
    write_results(str(path), assemble(plan(), [], SETTING))
    assert read_results(str(path)).commit == "abc"
    assert path.stat().st_ino == number


def test_results_replace_what_a_link_names_and_keep_its_rights(tmp_path):
    path, link, new = tmp_path / "results.json", tmp_path / "link.json", tmp_path / "new.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_results(str(link), assemble(plan(), [], SETTING))
    assert link.is_symlink()
    assert read_results(str(path)).commit == "abc"
    assert path.stat().st_mode & 0o777 == 0o640
    before = os.umask(0o022)
    try:
        write_results(str(new), assemble(plan(), [], SETTING))
    finally:
        os.umask(before)
    assert new.stat().st_mode & 0o777 == 0o644


def test_bands_are_the_mean_of_the_cumulative_scores_over_the_seeds():
    asked = plan(policies=("trimtab",), scenarios=(scenario(),))
    (band,) = assemble(asked, played(asked), SETTING).bands
    assert band.cycle == (1, 2, 3, 4)
    assert band.mean == pytest.approx((-0.08, -0.36, -0.14, 0.08))
    # One cycle: -0.09, -0.08, -0.07; standard error 0.01 / sqrt(3), t(2) = 4.303.
    assert band.low[0] == pytest.approx(-0.08 - 4.303 * 0.01 / 3**0.5, abs=0.001)
    assert band.high[0] == pytest.approx(-0.08 + 4.303 * 0.01 / 3**0.5, abs=0.001)


def test_one_seed_has_a_band_without_width():
    asked = plan(seeds=(1,), policies=("trimtab",), scenarios=(scenario(),))
    (band,) = assemble(asked, played(asked), SETTING).bands
    assert (len(band.mean), band.low, band.high) == (4, (), ())


def test_phases_are_named_at_every_return():
    swap = scenario(phases=(("api", 0.0), ("web", 3.0)), phase_period=5.0)
    assert phases_of(swap, 9) == (("api", 0), ("web", 3), ("api", 5), ("web", 8))
    assert phases_of(scenario(), 9) == (("all", 0),)


# ---- processes -------------------------------------------------------------------------------------------------------


def test_in_processes_too_every_run_has_an_outcome():
    asked = plan(seeds=(1,), scenarios=(scenario(),))
    heard = []
    play_in_processes(jobs_of(asked), len, lambda job, outcome: heard.append((job, outcome)), 2)  # type: ignore[arg-type]
    assert {job.name for job, _ in heard} == {job.name for job in jobs_of(asked)}
    assert len(heard) == 3
    assert all(isinstance(outcome, Failed) and "has no len()" in outcome.reason for _, outcome in heard)


def test_a_process_that_dies_costs_the_run_that_killed_it_and_the_rest_goes_on():
    asked = plan(seeds=(1,), scenarios=(scenario(),))
    heard = []
    play_in_processes(jobs_of(asked), Killer(), lambda job, outcome: heard.append((job, outcome)), 2)
    assert {job.policy: outcome.reason.partition(" (")[0] for job, outcome in heard} == {
        "trimtab": "the process that played it died",
        BASELINE: "ArithmeticError: alive",
        BEST_STATIC: "ArithmeticError: alive",
    }
    assert len(heard) == 3


class Killer:
    """A player that needs no module of its own over there: it is made of what every process has."""

    def __reduce__(self):
        return (eval, (KILLER,))


KILLER = (
    "lambda job: __import__('os').kill(__import__('os').getpid(), 9) if job.policy == 'trimtab' "
    "else (_ for _ in ()).throw(ArithmeticError('alive'))"
)


def test_what_is_heard_can_end_it_and_no_process_stays():
    asked = plan()

    def stop(job, outcome):
        raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        play_in_processes(jobs_of(asked), len, stop, 2)  # type: ignore[arg-type]
    assert children() == before


def test_processes_compute_with_one_thread_and_this_one_keeps_its_own_setting(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    heard = []
    player = Environment()
    play_in_processes(jobs_of(plan(seeds=(1,)))[:1], player, lambda job, outcome: heard.append(outcome), 1)
    assert heard == [Failed("ArithmeticError: ('1', '1')")]
    assert (os.environ["OMP_NUM_THREADS"], "NUMBA_NUM_THREADS" in os.environ) == ("7", False)


class Environment:
    """A player that tells its threads' settings in an error."""

    def __reduce__(self):
        names = "tuple(__import__('os').environ.get(name) for name in ('OMP_NUM_THREADS', 'NUMBA_NUM_THREADS'))"
        return (eval, (f"lambda job: (_ for _ in ()).throw(ArithmeticError({names}))",))


def children():
    """The pids of this process's children that run this interpreter's workers."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii") as stat:
                    fields = stat.read().rpartition(")")[2].split()
                with open(f"/proc/{name}/cmdline", "rb") as cmdline:
                    is_worker = b"spawn_main" in cmdline.read()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z" and is_worker:
                found.add(int(name))
    return found


# ---- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-3", (1, 2, 3)), ("7", (7,)), ("4-5, 1,5", (4, 5, 1)), ("0-0", (0,)), ("1-1000", tuple(range(1, 1001)))],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1-", "-3", "1,,2", "1.5", "3-1", "1-1001", "1--2", "²", "9999999999"])
def test_what_is_no_seed_is_refused_with_the_text_and_the_way_out(text):
    with pytest.raises(ConfigError, match=r"flag --seeds .*(write|give)") as refusal:
        parse_seeds(text)
    assert repr(text) in str(refusal.value)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_off_a_terminal_progress_is_a_line_each_tenth():
    clock = iter(float(second) for second in range(1000))
    stream = io.StringIO()
    progress = Progress(40, stream, clock=lambda: next(clock))
    for _ in range(40):
        progress.ended("a run")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "trimtab bench: 4 of 40, about 36 s left"
    assert lines[-1] == "trimtab bench: 40 of 40, took 40 s"


def test_failures_are_told_at_once_and_counted():
    stream = io.StringIO()
    progress = Progress(100, stream, clock=lambda: 0.0)
    progress.ended("flood (bounded), step, seed 4", failed="ValueError: no arm")
    assert stream.getvalue() == "trimtab bench: failed: flood (bounded), step, seed 4: ValueError: no arm\n"
    for _ in range(9):
        progress.ended("another")
    assert stream.getvalue().splitlines()[-1].endswith(", 1 failed")


def test_on_a_terminal_one_line_is_renewed_and_left_clean():
    stream = Terminal()
    progress = Progress(4, stream, clock=lambda: 0.0)
    progress.ended("a long name of a run")
    progress.ended("b")
    progress.close()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r")
    first, second = stream.getvalue().split("\r")[1:3]
    assert len(second) >= len(first)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89.0, "89 s"), (91.0, "2 min"), (3599.0, "1 h 0 min"), (11_100.0, "3 h 5 min")],
)
def test_durations_are_for_people(seconds, words):
    assert duration(seconds) == words
