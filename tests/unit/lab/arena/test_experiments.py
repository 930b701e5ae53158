"""What the experiments play, how their parts are taken out and put back, and what their tables say."""

import random

import msgspec
import pytest

from lab.arena import episode, experiments, sim_world
from lab.arena.bench import Failed, Job, Played
from lab.arena.experiment_runs import STATIC, block_scores, changes_in, play, static_named, stretched
from lab.arena.experiment_tables import (
    Run,
    best_over_all,
    by_place,
    by_variant,
    comparison,
    difference,
    in_hindsight,
    over_seeds,
    static_table,
    table,
)
from lab.arena.experiment_variants import VARIANTS, Variant
from lab.arena.experiments import EXPERIMENTS, Findings, jobs_of, main, names_of, runs_of, seeds_of, tables_of
from lab.arena.node import Node
from lab.arena.results import Curves
from lab.arena.scenarios import named
from lab.arena.sim_world import CycleOutcome
from schemas.messages import ClassState, Latency
from schemas.settings import ClassSettings, Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.burns import Shares
from services.decider.core.policy import HOLD
from services.guard.core import excuses
from services.rewarder.core import reward

STEADY = named("steady")
CALM = named("quiet")


def run(variant="ours", scenario="steady", seed=1, score=0.0, **fields):
    asked = {
        "queue": "bounded",
        "violation_lc": 0.0,
        "violation_default": 0.0,
        "batch_share": 0.0,
        "changes_per_minute": 0.0,
        "changes": 0,
        "taken_back": 0,
        "rollbacks": 0,
    }
    return Run(variant=variant, scenario=scenario, seed=seed, score=score, **(asked | fields))


def outcome(missed, ended, batch_share=0.0, name="latency-critical", violation=None):
    counts = {"latency-critical": 0, "default": 0}
    return CycleOutcome(
        violation_lc=violation if violation is not None else missed / ended if ended else None,
        violation_default=None,
        batch_share=batch_share,
        score=0.0,
        latencies={},
        ended=counts | {name: ended},
        missed=counts | {name: missed},
    )


def curves(arms, outcomes):
    nothing = (0.0,) * len(arms)
    return Curves(
        scenario="s",
        queue="bounded",
        policy="p",
        seed=1,
        scores=nothing,
        p99_lc_ms=nothing,
        p99_default_ms=nothing,
        batch_share=nothing,
        arms=tuple(arms),
        outcomes=tuple(outcomes),
    )


def cells(text, first):
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


# ---- what is played -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({name for one in EXPERIMENTS.values() for name in one.variants}))
def test_every_variant_of_an_experiment_plays_and_leaves_the_code_as_it_was(name):
    before = (episode.mask, sim_world.shared_settings, reward.severity, *_excuses())

    played = play(Job(named("flood"), name, 1, 12))

    assert played.scores
    assert all(-1.5 <= score <= 0.3 for score in played.scores)
    assert (episode.mask, sim_world.shared_settings, reward.severity, *_excuses()) == before


def _excuses():
    return excuses.is_a_good_trade, excuses.was_given_more, excuses.has_yielded


def test_every_variant_is_in_an_experiment():
    asked = {name for one in EXPERIMENTS.values() for name in (*one.variants, one.base, one.baseline)}

    assert set(VARIANTS) - asked <= {"static-default", "vowpal"}
    assert asked <= set(VARIANTS)


def test_the_same_run_gives_the_same_scores():
    job = Job(named("swap"), "without caution", 3, 30)

    assert play(job).scores == play(job).scores


@pytest.mark.parametrize(
    ("name", "scenario", "other"),
    [
        ("without lost", "flood", "trimtab"),
        ("without need", "swap", "trimtab"),
        ("without outlook", "flood", "trimtab"),
        ("mask off", "flood", "trimtab"),
        ("step 10", "flood", "trimtab"),
        ("changes 4", "flood", "trimtab"),
        ("floor 0", "runaway", "trimtab"),
        ("violation 0.9, severity 0.1", "flood", "trimtab"),
        ("cold, likeness 0.3", "swap", "trimtab-cold"),
        ("severity of the P99", "flood", "severity of over_ratio"),
    ],
)
def test_what_is_varied_changes_the_run(name, scenario, other):
    ours, theirs = (play(Job(named(scenario), variant, 1, 60)) for variant in (name, other))

    assert ours.scores != theirs.scores


def test_an_error_in_a_run_puts_the_code_back():
    before = reward.severity

    def fail():
        assert reward.severity is not before
        raise RuntimeError

    with pytest.raises(RuntimeError), VARIANTS["severity of the P99"].in_force():
        fail()

    assert reward.severity is before


def test_a_name_that_is_gone_from_the_code_fails_the_run():
    with pytest.raises(AttributeError), Variant(patches=((excuses, "_no_such_rule", None),)).in_force():
        pass


def test_limits_reach_the_loop():
    with VARIANTS["step 10"].in_force():
        assert sim_world.shared_settings(STEADY, 2.0).weights == WeightSettings(max_step_ratio=10.0)
        assert sim_world.shared_settings(STEADY, 2.0).loop.tick_seconds == 2.0
    assert sim_world.shared_settings(STEADY).weights == WeightSettings()


def test_without_the_mask_every_arm_is_offered_and_staying_is_the_first():
    shared = Shared()
    policy = VARIANTS["mask off"].make(DeciderConfig(), shared)

    choice = policy.decide({}, [HOLD], random.Random(1))

    assert list(choice.propensities) == ["hold", *(arm.name for arm in build_arms(shared, {}) if arm.name != "hold")]
    assert len(choice.propensities) > 5


def test_without_lost_the_mask_protects_a_lost_class_as_any_other():
    shared = Shared()
    weights = {"latency-critical": 1000, "default": 100, "batch": 100}
    late = Latency(requests=99, p99_seconds=9.0, over_ratio=0.9)
    classes = {
        name: ClassState(pods=1, weight=weight, latency=late, objective_seconds=0.1) for name, weight in weights.items()
    }
    asked = {"settings": shared.classes, "limits": shared.weights}
    arms = build_arms(shared, {})
    spared, protected = (
        episode.mask(arms, weights, classes, lost=lost, **asked) for lost in (["latency-critical"], [])
    )
    assert spared != protected

    with VARIANTS["without lost"].in_force():
        assert episode.mask(arms, weights, classes, lost=["latency-critical"], **asked) == protected


def test_what_is_hidden_changes_no_decision_and_no_lesson():
    shared = Shared()
    arms = build_arms(shared, {})
    seeing, blind = (VARIANTS[name].make(DeciderConfig(), shared) for name in ("trimtab", "without need"))
    low, high = {"latency-critical.need": 0.1}, {"latency-critical.need": 0.9}

    assert blind.decide(low, arms, random.Random(1)) == blind.decide(high, arms, random.Random(1))
    assert seeing.decide(low, arms, random.Random(1)) != seeing.decide(high, arms, random.Random(1))
    blind.learn(high, arms[1], 0.1)
    other = VARIANTS["without need"].make(DeciderConfig(), shared)
    other.learn(low, arms[1], 0.1)
    assert blind.save() == other.save()
    assert blind.updates == 1


def test_without_caution_every_arm_may_be_drawn():
    shared = Shared()
    arms = build_arms(shared, {})
    cautious, bold = (VARIANTS[name].make(DeciderConfig(), shared) for name in ("trimtab", "without caution"))

    assert min(bold.decide({}, arms, random.Random(1)).propensities.values()) > 0.0
    assert min(cautious.decide({}, arms, random.Random(1)).propensities.values()) == 0.0


def test_without_burns_nothing_is_forbidden():
    shared = Shared()
    arm = next(one for one in build_arms(shared, {}) if one.name == "lc1-d1-b1")
    where_it_takes = {"latency-critical.weight_log": 1.0, "default.weight_log": 1.0}
    shares = Shares(shared.classes, where_it_takes)
    forbidden = {}
    for name in ("trimtab", "without burns"):
        policy = VARIANTS[name].make(DeciderConfig(), shared).policy
        policy.burns.burn(arm)
        forbidden[name] = policy.burns.forbidden(where_it_takes, [arm], shares)

    assert forbidden == {"trimtab": [arm.name], "without burns": []}


@pytest.mark.parametrize(
    ("name", "excuse"),
    [
        ("no excuse: given more", "was_given_more"),
        ("no excuse: yielded", "has_yielded"),
        ("no excuse: good trade", "is_a_good_trade"),
    ],
)
def test_an_excuse_that_is_off_excuses_nobody(name, excuse):
    for variant in (name, "no excuse"):
        before = getattr(excuses, excuse)
        with VARIANTS[variant].in_force():
            assert getattr(excuses, excuse) is not before
            assert getattr(excuses, excuse)("default", None, None, {}) is False


def test_without_the_guard_nothing_is_rolled_back():
    scenario = named("flood")

    guarded, free = (
        play(Job(scenario, name, 1, 150)).row.rollbacks for name in ("river-linucb", "river-linucb, guard off")
    )

    assert guarded > 0
    assert free == 0


def test_severity_of_the_p99_does_not_see_how_many_were_late():
    spec = ClassSettings(kind="latency", importance=1.0, objective_p99_seconds=0.1)
    few, many = (
        ClassState(pods=1, objective_seconds=0.1, latency=Latency(requests=99, p99_seconds=0.4, over_ratio=ratio))
        for ratio in (0.04, 0.64)
    )

    with VARIANTS["severity of the P99"].in_force():
        assert reward.severity(few, spec) == reward.severity(many, spec) == pytest.approx(0.4)
    with VARIANTS["severity of over_ratio"].in_force():
        assert (reward.severity(few, spec), reward.severity(many, spec)) == pytest.approx((0.2, 0.8))


def test_a_static_profile_is_played_by_its_name_and_the_best_of_all_is_that_of_the_bench():
    scenario = named("swap")
    found = episode.best_static(scenario, 1, 20)

    scores = {name: play(Job(scenario, STATIC + name, 1, 20)).row.score for name in static_named()}

    assert max(scores.values()) == pytest.approx(found.score)
    assert static_named()[max(scores, key=scores.__getitem__)] == found.profile


def test_profiles_are_named_by_their_ratios():
    assert static_named()["lc100-d10-b1"] == {"latency-critical": 10_000, "default": 1000, "batch": 100}


# ---- the tick ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flash-sale", "diurnal", "noisy-neighbour"])
def test_a_stretched_scenario_does_the_same_at_the_same_second(name):
    scenario = named(name)
    longer = stretched(scenario, 2.5)

    for cycle in (0.0, 19.5, 20.0, 33.25, 41.0, 99.0, 260.5):
        assert longer.phase_at(2.5 * cycle) == scenario.phase_at(cycle)
        for pod, other in zip(scenario.pods, longer.pods, strict=True):
            curve, there = (one.rate if hasattr(one, "rate") else one.processes for one in (pod, other))
            assert there.at(2.5 * cycle) == pytest.approx(curve.at(cycle))


def test_a_stretched_scenario_gets_the_same_requests():
    windows = [
        Node(scenario, 4, cycle_seconds=seconds).advance(300.0)
        for scenario, seconds in ((named("flash-sale"), 5.0), (stretched(named("flash-sale"), 2.5), 2.0))
    ]

    here, there = (window.pods["api"].service for window in windows)
    assert len(here.latencies_seconds) == len(there.latencies_seconds) > 10_000
    assert here.latencies_seconds == pytest.approx(there.latencies_seconds)


def test_stretches_are_scored_as_one_cycle_and_the_rest_is_left_out():
    good, bad = outcome(0, 90, 0.5), outcome(10, 10, 0.1)

    assert block_scores([good, bad, bad], 2) == pytest.approx([-0.1])
    assert block_scores([good, outcome(0, 10, 0.1)], 2) == pytest.approx([0.3 * 0.3])


def test_a_class_that_was_stuck_all_along_is_late_and_an_idle_one_is_not():
    assert block_scores([outcome(0, 0, violation=1.0), outcome(0, 0)], 2) == [-1.0]
    assert block_scores([outcome(0, 0), outcome(0, 0)], 2) == [0.0]


def test_a_tick_is_scored_over_stretches_of_thirty_seconds():
    jobs = {name: Job(STEADY, name, 1, 26) for name in ("request-derived, by 30 s", "tick 10 s")}

    assert {name: (len(play(job).scores), play(job).row.cycles) for name, job in jobs.items()} == {
        "request-derived, by 30 s": (4, 24),
        "tick 10 s": (4, 12),
    }


def test_the_score_of_a_tick_is_the_mean_over_these_stretches():
    played = play(Job(named("mislabelled"), "tick 10 s", 1, 30))

    assert played.row.score == pytest.approx(sum(played.scores) / 5)


# ---- changes -------------------------------------------------------------------------------------------------------


def test_a_change_counts_as_taken_back_when_the_weights_before_return_within_five_cycles():
    held = ["held"] * 5
    assert changes_in(curves("abaaaaa", ["held", "applied", "applied", *held[:4]])) == (2, 1)
    assert changes_in(curves("abbbbba", ["held", "applied", *held[:4], "applied"])) == (2, 1)
    assert changes_in(curves("abbbbbba", ["held", "applied", *held, "applied"])) == (2, 0)
    assert changes_in(curves("abccccc", ["held", "applied", "applied", *held[:4]])) == (2, 0)


def test_what_the_guard_takes_back_counts_although_no_cycle_ends_with_it():
    assert changes_in(curves("aaa", ["held", "rolled_back", "held"])) == (1, 1)


def test_a_change_of_the_first_cycle_was_from_weights_that_are_not_known():
    assert changes_in(curves("aaa", ["applied", "held", "held"])) == (1, 0)


def test_a_refused_change_is_none():
    assert changes_in(curves("aaa", ["rate", "contention", "held"])) == (0, 0)


# ---- what the tables say -------------------------------------------------------------------------------------------


def test_a_seed_is_one_draw_whatever_the_number_of_scenarios():
    runs = [
        run(scenario=scenario, seed=seed, score=score)
        for scenario, seed, score in (("a", 1, 0.0), ("b", 1, 1.0), ("a", 2, 0.2), ("b", 2, 1.2))
    ]

    found = over_seeds(runs)

    assert found.mean == pytest.approx(0.6)
    assert found.count == 2
    assert found.high - found.mean == pytest.approx(12.706 * 0.1)


def test_differences_are_between_runs_of_one_scenario_and_seed():
    ours = [run(seed=1, score=0.5), run(seed=2, score=1.5), run(seed=3, score=9.0)]
    theirs = [run(seed=2, score=1.4), run(seed=1, score=0.4), run(seed=1, score=7.0, queue="unbounded")]

    found = difference(ours, theirs)

    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert difference(ours, [run(seed=9)]) is None


def test_a_seed_that_was_not_played_to_the_end_does_not_count():
    whole = [run(scenario="a", seed=1, score=0.2), run(scenario="b", seed=1, score=0.4)]

    assert over_seeds([*whole, run(scenario="a", seed=2, score=-9.0)]).mean == pytest.approx(0.3)


def test_scenarios_are_told_apart_by_their_queue():
    ours = [run(score=0.5), run(score=0.1, queue="unbounded")]
    theirs = [run(score=0.4), run(score=0.3, queue="unbounded")]

    assert by_place(ours, theirs) == pytest.approx({"steady": 0.1, "steady, unbounded": -0.2})


def test_hindsight_takes_the_best_profile_of_each_run_and_the_single_one_is_best_over_all():
    statics = by_variant(
        [
            run("static:x", "a", score=0.9),
            run("static:x", "b", score=0.1),
            run("static:y", "a", score=0.6),
            run("static:y", "b", score=0.6),
        ]
    )

    assert [(one.scenario, one.score, one.variant) for one in in_hindsight(statics, "best")] == [
        ("a", 0.9, "best"),
        ("b", 0.6, "best"),
    ]
    assert best_over_all(statics) == "static:y"
    shown = static_table(
        {
            "ours": [run("ours", "a", score=0.7), run("ours", "b", score=0.7)],
            "base": [run("base", "a"), run("base", "b")],
        },
        statics,
        "ours",
        "base",
    )
    assert cells(shown, "a") == ["a", "0.700", "0.900", "0.600", "0.000", "-0.200", "+0.100", "+0.700"]
    assert cells(shown, "all") == ["all", "0.700", "0.750", "0.600", "0.000", "-0.050", "+0.100", "+0.700"]


def test_a_comparison_says_where_a_variant_is_worst_and_best_and_what_it_did():
    runs = by_variant(
        [
            run("base", "a", score=0.5),
            run("base", "b", score=0.5),
            run("ours", "a", score=0.2, changes=3, taken_back=1, changes_per_minute=2.0, worst_shortfall=0.4),
            run("ours", "b", score=0.6, changes=1, rollbacks=1, violation_lc=0.5, worst_shortfall=0.1),
        ]
    )

    shown = comparison(runs, ("base", "ours", "never played"), "base")

    assert cells(shown, "ours") == [
        "ours", "0.400", "-0.100", "a -0.300", "b +0.100", "25.0 %", "0.0 %", "0.0 %", "1.00", "25 %", "0.5", "0.40",
    ]  # fmt: skip
    assert cells(shown, "base")[2:5] == ["-", "-", "-"]
    assert "never played" not in shown


def test_a_table_is_markdown():
    assert table(("a", "long"), [("wide", "b")]) == "| a    | long |\n|------|------|\n| wide | b    |"


# ---- the command ---------------------------------------------------------------------------------------------------


def test_runs_that_several_experiments_need_are_played_once_and_whole_seeds_first():
    jobs = jobs_of(("oscillation", "reward"), (STEADY, CALM), (7, 8), 10)

    keys = [(job.seed, job.scenario.name, job.policy) for job in jobs]
    assert len(set(keys)) == len(keys) == 2 * 2 * 15
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert {STATIC + name for name in static_named()} <= {job.policy for job in jobs_of(("static",), (CALM,), (1,), 1)}


def test_a_shortfall_is_measured_by_the_baseline_of_the_same_seed():
    row = play(Job(CALM, "request-derived", 1, 2)).row
    shown = curves("aa", ["applied", "held"])
    played = {
        ("request-derived", 1): (-1.0, -1.0),
        ("trimtab", 1): (-2.0, -1.0),
        ("trimtab", 2): (-9.0, -9.0),
    }
    outcomes = [(Job(CALM, name, seed, 2), Played(row, scores, shown)) for (name, seed), scores in played.items()]

    found = {(one.variant, one.seed): one for one in runs_of(outcomes)}

    assert found["trimtab", 1].worst_shortfall == pytest.approx(1.0)
    assert found["trimtab", 2].worst_shortfall is None
    assert found["request-derived", 1].worst_shortfall == 0.0
    assert found["trimtab", 1].changes == 1


def test_experiments_are_named_alone_in_a_list_or_all():
    assert names_of("tick") == ("tick",)
    assert names_of("tick, reward,tick") == ("tick", "reward")
    assert names_of("all") == tuple(EXPERIMENTS)
    with pytest.raises(ValueError, match="no experiment 'tock'; known: all, oscillation"):
        names_of("tock")


def test_seeds_are_numbers_and_ranges():
    assert seeds_of("3,5-7,6") == (3, 5, 6, 7)
    for text in ("", "a", "7-5"):
        with pytest.raises(ValueError):
            seeds_of(text)


def test_the_command_plays_prints_and_writes(tmp_path, capsys):
    path = tmp_path / "found.json"
    asked = ["tick", "--seeds", "1-2", "--cycles", "12", "--scenarios", "steady", "--queue", "bounded"]

    code = main([*asked, "--workers", "1", "--json", str(path)])

    out, err = capsys.readouterr()
    found = msgspec.json.decode(path.read_bytes(), type=Findings)
    assert code == 0
    assert found.experiments == ("tick",)
    assert found.seeds == (1, 2)
    assert len(found.runs) == 2 * 6
    assert min(one.worst_shortfall for one in found.runs) == 0.0
    assert found.failed == ()
    assert out == tables_of(("tick",), found.runs)
    assert cells(out, "tick 10 s")[0] == "tick 10 s"
    assert "12 of 12 runs" in err


def test_a_run_that_fails_is_named_and_the_others_are_told(monkeypatch, tmp_path, capsys):
    def play_all(jobs, heard, workers):
        for job in jobs:
            heard(job, Failed("KeyError: 'x'") if job.policy == "tick 2 s" else play(job))

    monkeypatch.setattr(experiments, "_play_all", play_all)
    path = tmp_path / "found.json"

    code = main(
        ["tick", "--seeds", "1", "--cycles", "6", "--scenarios", "quiet", "--queue", "bounded", "--json", str(path)]
    )

    out, err = capsys.readouterr()
    assert code == 1
    assert "failed: quiet (bounded), tick 2 s, seed 1: KeyError: 'x'" in err
    assert "tick 10 s" in out
    assert "tick 2 s" not in out
    assert msgspec.json.decode(path.read_bytes(), type=Findings).failed == (
        "quiet (bounded), tick 2 s, seed 1: KeyError: 'x'",
    )


def test_an_interrupt_writes_what_is_there(monkeypatch, tmp_path):
    def play_all(jobs, heard, workers):
        heard(jobs[0], play(jobs[0]))
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "_play_all", play_all)
    path = tmp_path / "found.json"

    assert main(["static", "--seeds", "1", "--cycles", "6", "--scenarios", "quiet", "--json", str(path)]) == 130
    assert len(msgspec.json.decode(path.read_bytes(), type=Findings).runs) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["tock"],
        ["tick", "--scenarios", "nowhere"],
        ["tick", "--seeds", "x"],
        ["tick", "--workers", "0"],
        ["tick", "--json", "/no/such/folder/found.json"],
    ],
)
def test_words_that_mean_nothing_end_with_code_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
