"""The whole evaluation: coverage against known values, what is refused to whom, and what is said with it."""

import msgspec
import numpy as np
import pytest

from lab.bench_ope import cover
from lab.ope.bootstrap import block_interval
from lab.ope.estimators import ESTIMATORS, snips
from lab.ope.evaluate import MAX_TARGETS, evaluate
from lab.ope.known_truth import best_policy, make_world, near_policy, simulate, target_on
from lab.ope.logged import Target
from lab.ope.report import Report, table_lines
from tests.support.logs import drawn_log, log_of

NAN = float("nan")


def by_name(report):
    found = {(each.policy, each.estimator): each for judged in report.policies for each in judged.estimates}
    return found | {(f"{each.policy} - {each.other}", each.estimator): each for each in report.differences}


def always(arm, rows, arms=2):
    return Target.choosing(np.full(rows, arm), arms)


def test_intervals_hold_the_truth_on_logs_with_carry_over():
    """A smaller `python -m lab.bench_ope`. Width must not buy it: it stays near the deviation from log to log."""
    found = cover(40, 4000, seed=7, resamples=200)
    assert all(each.refused == 0 for each in found.values())
    assert {name: each.ratio for name, each in found.items() if each.ratio < 0.85} == {}
    for each in found.values():
        assert np.mean(each.widths) / 3.92 < 1.4 * np.std(each.values)


def test_single_rows_for_blocks_do_not_hold_the_truth():
    world = make_world()
    policy = near_policy(world)
    held = 0
    for logged, levels in simulate(world, 4000, 20, seed=7):
        estimate = snips(logged, target_on(policy, levels))
        found = block_interval([(1.0, estimate)], 1, seed=1, resamples=100)
        held += found.low <= world.value(policy) <= found.high
    assert held < 0.6 * 20


def test_the_known_world_is_known():
    """Its exact values against a long simulation of the very policy, in the log's contexts and in its own."""
    world = make_world()
    best = best_policy(world)
    logs = simulate(world, 4000, 40, seed=3)
    seen = np.concatenate([levels for _, levels in logs])
    assert (best * world.reward).sum(axis=1)[seen].mean() == pytest.approx(world.value(best), abs=0.006)
    assert np.concatenate([logged.reward for logged, _ in logs]).mean() == pytest.approx(
        world.value(world.pi_b), abs=0.012
    )
    acting = type(world)(world.reward, world.up, world.down, best, world.masked)
    own = np.concatenate([levels for _, levels in simulate(acting, 4000, 40, seed=4)])
    assert (best * world.reward).sum(axis=1)[own].mean() == pytest.approx(world.lasting_value(best), abs=0.012)
    assert world.lasting_value(best) < world.value(best) - 0.02


def test_the_same_seed_gives_the_same_report_as_plain_values():
    logged = drawn_log(1500, [0.5, 0.5], seed=1)
    targets = {"a": always(0, 1500), "b": always(1, 1500)}
    report = evaluate(logged, targets, seed=5, resamples=100)
    assert evaluate(logged, targets, seed=5, resamples=100) == report
    assert evaluate(logged, targets, seed=6, resamples=100) != report
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_the_better_of_two_policies_is_told():
    """Arm 1 earns 0.1 more than arm 0; the log took both alike."""
    logged = drawn_log(2000, [0.5, 0.5], seed=1)
    targets = {"worse": always(0, 2000), "better": always(1, 2000), "same": Target(logged.pi_b)}
    report = evaluate(logged, targets, seed=1, resamples=200)
    found = by_name(report)
    for estimator in ESTIMATORS:
        apart = found["worse", estimator].value - found["better", estimator].value
        assert found["worse - better", estimator].value == pytest.approx(apart, abs=1e-12)
        assert apart == pytest.approx(-0.1, abs=0.02)
        assert found["worse - better", estimator].verdict == "worse"
        assert found["better - same", estimator].verdict == "better"
        assert found["better - logged", estimator].value == pytest.approx(0.05, abs=0.02)
        assert found["same - logged", estimator].verdict == "not told apart"
    assert found["same", "ips"].value == pytest.approx(logged.reward.mean())
    assert found["same", "ips"].ess == pytest.approx(2000)
    assert found["better", "replay"].ess == logged.action.sum()
    assert report.logged.value == pytest.approx(logged.reward.mean())
    assert len(report.differences) == 6 * 4


def test_without_propensities_nothing_is_answered():
    drawn = drawn_log(1000, [0.5, 0.5], seed=1)
    logged = log_of(drawn.action, drawn.reward, np.full((1000, 2), NAN), pscore=np.full(1000, NAN))
    report = evaluate(logged, {"a": always(0, 1000)}, seed=1)
    assert report.rows == 0
    assert report.policies[0].support is None
    assert report.differences == ()
    for each in (report.logged, *report.policies[0].estimates):
        assert each.value is None
        assert [reason.word for reason in each.refused] == ["no_propensity", "few_rows"]


def test_rows_without_a_propensity_are_left_out_and_counted():
    drawn = drawn_log(2000, [0.5, 0.5], seed=1)
    pscore = drawn.pscore.copy()
    pscore[::40] = NAN
    reward = drawn.reward.copy()
    reward[::40] = 50.0
    logged = log_of(drawn.action, reward, drawn.pi_b, pscore=pscore, censored=10)
    report = evaluate(logged, {"a": Target(drawn.pi_b)}, seed=1, resamples=100)
    kept = np.arange(2000) % 40 != 0
    assert by_name(report)["a", "snips"].value == pytest.approx(drawn.reward[kept].mean())
    assert (report.decisions, report.rows, report.censored) == (2000, 1950, 10)
    assert any("50 of 2000 decisions" in note for note in report.notes)
    assert any("10 of 2010 decisions have no reward" in note for note in report.notes)


def test_what_is_outside_is_refused_by_those_that_only_weigh_and_noted_by_the_others():
    rng = np.random.default_rng(1)
    logged = log_of(rng.integers(0, 2, 2000), rng.normal(0.5, 0.1, 2000), np.tile([0.5, 0.5, 0.0], (2000, 1)))
    targets = {"within": Target(logged.pi_b), "a": Target(np.tile([0.6, 0.37, 0.03], (2000, 1)))}
    report = evaluate(logged, targets, seed=1, resamples=100)
    found = by_name(report)
    for estimator in ("replay", "ips", "snips"):
        assert found["within", estimator].value is not None
        assert [reason.word for reason in found["within - a", estimator].refused] == ["outside"]
        assert found["a", estimator].value is None
        assert [reason.word for reason in found["a", estimator].refused] == ["outside"]
        assert found["a - logged", estimator].verdict == "refused"
        assert [reason.word for reason in found["a - logged", estimator].refused] == ["outside"]
    assert found["a", "dr"].value == pytest.approx(0.5, abs=0.02)
    assert found["a", "dr"].notes == (
        "3.00% of its choices have propensity 0 in the log: there the model's extrapolation speaks alone",
    )


def test_what_is_hardly_outside_counts_as_nothing_for_ips():
    rng = np.random.default_rng(1)
    logged = log_of(rng.integers(0, 2, 2000), np.full(2000, 0.5), np.tile([0.5, 0.5, 0.0], (2000, 1)))
    report = evaluate(logged, {"a": Target(np.tile([0.495, 0.495, 0.01], (2000, 1)))}, seed=1, resamples=100)
    found = by_name(report)
    assert found["a", "ips"].value == pytest.approx(0.495)
    assert "they count as reward 0" in found["a", "ips"].notes[0]
    assert found["a", "snips"].value == pytest.approx(0.5)


def test_rewards_that_hang_together_too_long_have_no_interval():
    """A load that changes twice in the whole log says little, however many rows there are."""
    drawn = drawn_log(1000, [0.5, 0.5], seed=1)
    steps = np.repeat([0.0, 1.0, 0.0], [300, 400, 300])
    logged = log_of(drawn.action, drawn.reward + steps, drawn.pi_b)
    report = evaluate(logged, {"a": Target(drawn.pi_b)}, seed=1)
    for each in (report.logged, *report.policies[0].estimates, *report.differences):
        assert [reason.word for reason in each.refused] == ["few_blocks"]
        assert each.value is None


def test_the_memory_of_the_rewards_sets_the_block_of_a_difference():
    """What two policies differ by looks like noise; the block is as long as for the rewards all the same."""
    world = make_world()
    ((logged, levels),) = simulate(world, 6000, 1, seed=2)
    report = evaluate(logged, {"near": target_on(near_policy(world), levels)}, seed=1, resamples=100)
    found = by_name(report)
    assert found["near - logged", "ips"].block_cycles >= report.logged.block_cycles > 60


def test_a_block_can_be_given():
    logged = drawn_log(1000, [0.5, 0.5], seed=1)
    report = evaluate(logged, {"a": Target(logged.pi_b)}, seed=1, resamples=100, block_cycles=37)
    assert report.logged.block_cycles == 37


@pytest.mark.parametrize(
    ("targets", "options", "says"),
    [
        ({}, {}, "targets must be 1 to"),
        (dict.fromkeys(map(str, range(MAX_TARGETS + 1)), always(0, 600)), {}, "targets must be 1 to"),
        ({"logged": always(0, 600)}, {}, "logged is the name of what the log itself earned"),
        ({"a": always(0, 599)}, {}, "pi_e must be 600 rows of 2 arms"),
        ({"a": always(0, 600)}, {"resamples": 99}, "resamples must be 100"),
        ({"a": always(0, 600)}, {"block_cycles": 0}, "block_cycles must be 1"),
    ],
)
def test_what_it_is_not_asked_rightly_is_said(targets, options, says):
    with pytest.raises(ValueError, match=says):
        evaluate(drawn_log(600, [0.5, 0.5], seed=1), targets, seed=1, **options)


def test_the_table_shows_values_refusals_and_each_reason_once():
    rng = np.random.default_rng(1)
    logged = log_of(rng.integers(0, 2, 2000), rng.normal(0.5, 0.1, 2000), np.tile([0.5, 0.5, 0.0], (2000, 1)))
    report = evaluate(logged, {"mine": Target(np.tile([0.6, 0.37, 0.03], (2000, 1)))}, seed=1, resamples=100)
    lines = table_lines(report)
    assert lines[0].split() == ["policy", "estimator", "value", "[95", "%]", "ess"]
    assert lines[1].startswith("logged  mean")
    assert [line.split()[:2] for line in lines[2:6]] == [["mine", name] for name in ESTIMATORS]
    dr = by_name(report)["mine", "dr"]
    assert f"{dr.value:+.4f} [{dr.low:+.4f}, {dr.high:+.4f}]" in lines[5]
    assert "refused: outside" in lines[2]
    assert next(line.split()[:4] for line in lines if line.startswith("mine - logged")) == [
        "mine",
        "-",
        "logged",
        "replay",
    ]
    reasons = [line for line in lines if "refused: 3.0% of this policy's choices" in line]
    assert len(reasons) == 1
    assert reasons[0].startswith("mine replay, mine ips, mine snips: ")
    assert lines[-1] == "Values are of one decision in each recorded context, with the log's own decisions before it."
