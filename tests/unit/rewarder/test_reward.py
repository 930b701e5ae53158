"""The value of a cycle, term by term. Objectives are 0.1 s (latency-critical) and 0.5 s (default, half as important)."""

import math

import msgspec
import pytest

from schemas.messages import Contention
from schemas.settings import DEFAULT_CLASSES, ClassSettings
from services.rewarder.core.reward import RewardWeights, movement, reward, severity
from tests.support.builders import BATCH, CRITICAL, DEFAULT, batch_state, class_state, latency, state, waiting

WEIGHTS = RewardWeights(violation=0.3, severity=0.7, throughput=1.0, oscillation=0.05)
SPEC = DEFAULT_CLASSES[CRITICAL]


def worth(classes, moved_to=None, *, cpus=2, weights=WEIGHTS, before=None):
    then = state(classes=classes, contention=Contention(contended=True, cpus=cpus))
    return reward(before or state(), then, moved_to, DEFAULT_CLASSES, weights)


def seen(p99=0.05, over=0.0, **fields):
    return class_state(latency=latency(p99, over_ratio=over), **fields)


# ---- how badly an objective is missed ----


@pytest.mark.parametrize(
    ("over_ratio", "p99_seconds", "severe"),
    [
        (0.0, 0.1, 0.0),
        (1.0, 0.1, 0.6),
        (0.25, 0.1, 0.3),
        (0.0, 3.2, 0.4),  # 32 times the objective: five octaves
        (0.0, 0.2, 0.08),
        (1.0, 100.0, 1.0),
        (None, 0.2, 0.2),
        (None, 3.2, 1.0),
        (None, 99.0, 1.0),
        (0.25, None, 0.3),
        (None, None, 0.0),
    ],
)
def test_severity_is_made_of_requests_over_and_octaves_over(over_ratio, p99_seconds, severe):
    assert severity(seen(p99_seconds, over_ratio), SPEC) == pytest.approx(severe)


def test_a_saturated_p99_still_tells_bad_from_worse():
    bad = class_state(latency=latency(1.0, saturated=("p99",), over_ratio=0.2))
    worse = class_state(latency=latency(1.0, saturated=("p99",), over_ratio=0.6))
    assert severity(worse, SPEC) > severity(bad, SPEC)


@pytest.mark.parametrize(
    ("waited", "severe"),
    [(0.0, 0.0), (0.1, 0.0), (0.19, 0.1), (0.55, 0.5), (0.91, 0.9), (1.0, 1.0), (1e9, 1.0), (-1.0, 0.0), (None, 0.0)],
)
def test_severity_by_pressure_is_the_part_of_the_way_from_the_ceiling_to_waiting_all_the_time(waited, severe):
    ceiling = ClassSettings(objective_pressure_ratio=0.1)
    assert severity(waiting(waited), ceiling) == pytest.approx(severe)


def test_a_ceiling_of_nothing_leaves_the_whole_way_and_one_of_all_the_time_none():
    assert severity(waiting(0.5), ClassSettings(objective_pressure_ratio=0.0)) == pytest.approx(0.5)
    assert severity(waiting(1.0), ClassSettings(objective_pressure_ratio=1.0)) == 0.0
    assert severity(waiting(1.0), ClassSettings(objective_p99_seconds=0.1)) == 0.0  # no ceiling here


def test_severity_goes_by_the_signal_that_judges_only():
    both = class_state(latency=latency(3.2, over_ratio=1.0), waited_ratio=1.0)
    assert severity(both, SPEC) == pytest.approx(1.0)
    fine_but_waits = class_state(latency=latency(), waited_ratio=1.0)
    assert severity(fine_but_waits, SPEC) == 0.0
    assert severity(msgspec.structs.replace(both, judged_by="pressure", waited_ratio=0.0), SPEC) == 0.0


# ---- movement ----


def test_the_full_range_is_a_movement_of_one():
    here = state(classes={CRITICAL: class_state(weight=100)})
    assert movement(here, {CRITICAL: 10_000}) == pytest.approx(1.0)
    assert movement(here, {CRITICAL: 1000}) == pytest.approx(0.5)


def test_movement_is_the_mean_over_the_classes_that_were_written():
    assert movement(state(), {CRITICAL: 10_000, BATCH: 100}) == pytest.approx(0.25)


@pytest.mark.parametrize("weights", [None, {}, {"gold": 500}, {CRITICAL: 1000}])
def test_what_stays_or_is_not_here_has_not_moved(weights):
    assert movement(state(), weights) == 0.0


@pytest.mark.parametrize("weight", [None, 0, -5])
def test_from_a_weight_that_is_none_nothing_moved(weight):
    assert movement(state(classes={CRITICAL: class_state(weight=weight)}), {CRITICAL: 1000}) == 0.0


# ---- the value ----


def test_with_all_objectives_kept_throughput_is_the_value():
    assert worth({CRITICAL: seen(), BATCH: batch_state(cpu_cores=1.0)}).value == pytest.approx(0.5)


def test_throughput_is_summed_over_its_classes_and_never_more_than_the_node():
    assert worth({CRITICAL: seen(), BATCH: batch_state(cpu_cores=9.0)}).value == pytest.approx(1.0)


def test_a_throughput_class_without_pods_does_nothing():
    assert worth({CRITICAL: seen(), BATCH: batch_state(pods=0, cpu_cores=1.0)}).value == 0.0


def test_moving_costs_a_little():
    moved = worth({CRITICAL: seen(), BATCH: batch_state(cpu_cores=1.0)}, {CRITICAL: 10_000, BATCH: 1000})
    assert moved.value == pytest.approx(0.5 - 0.05 * 0.5)
    assert moved.terms["oscillation"] == pytest.approx(-0.5)


def test_a_broken_objective_makes_throughput_count_for_nothing():
    few = worth({CRITICAL: seen(over=0.25), BATCH: batch_state(cpu_cores=0.1)})
    much = worth({CRITICAL: seen(over=0.25), BATCH: batch_state(cpu_cores=2.0)})
    assert few.value == much.value == pytest.approx(-0.05 - 0.9 * (0.3 + 0.7 * 0.3))


def test_the_terms_are_named_and_stand_before_their_weights():
    terms = worth({CRITICAL: seen(0.1, 0.25), DEFAULT: seen(0.1), BATCH: batch_state(cpu_cores=1.0)}).terms
    assert terms == pytest.approx(
        {
            f"severity.{CRITICAL}": -0.3,
            "violation": -1.0 / 1.5,
            "severity": -0.3 / 1.5,
            "throughput": 0.5,
            "oscillation": 0.0,
        }
    )


def test_the_worst_that_can_be_is_minus_one():
    worst = {CRITICAL: seen(1000.0, 1.0), DEFAULT: seen(1000.0, 1.0)}
    assert worth(worst).value == pytest.approx(-0.95)
    before = state(classes={CRITICAL: class_state(weight=100)})
    assert worth(worst, {CRITICAL: 10_000}, before=before).value == pytest.approx(-1.0)


def test_objectives_first_the_least_violation_is_worth_less_than_the_worst_cycle_without_one():
    light = {name: spec for name, spec in DEFAULT_CLASSES.items() if name != DEFAULT}
    light["light"] = ClassSettings(objective_p99_seconds=0.1, importance=0.01)
    least = {CRITICAL: seen(), "light": seen(0.1, 0.0101), BATCH: batch_state(cpu_cores=2.0)}
    before = state(classes={CRITICAL: class_state(weight=100)})
    violated = reward(state(), state(classes=least), None, light, WEIGHTS)
    kept = worth({CRITICAL: seen()}, {CRITICAL: 10_000}, before=before)
    assert violated.value < kept.value == pytest.approx(-0.05)


def test_a_violation_of_the_more_important_class_is_worse():
    critical = {CRITICAL: seen(over=0.25), DEFAULT: seen()}
    default = {CRITICAL: seen(), DEFAULT: seen(over=0.25)}
    assert worth(critical).value < worth(default).value


def test_classes_without_evidence_or_pods_are_neither_kept_nor_broken():
    alone = worth({CRITICAL: seen(over=0.25)})
    nothing = class_state(latency=latency(None))
    assert worth({CRITICAL: seen(over=0.25), DEFAULT: nothing}) == alone
    assert worth({CRITICAL: seen(over=0.25), DEFAULT: seen(pods=0)}) == alone


def test_classes_that_nobody_configured_are_not_judged():
    assert worth({CRITICAL: seen(), "gold": seen(9.0, 1.0)}) == worth({CRITICAL: seen()})


# ---- the value where ceilings judge (0.1 for latency-critical, 0.2 for default) ----

CEILINGS = {
    CRITICAL: ClassSettings(objective_pressure_ratio=0.1),
    DEFAULT: ClassSettings(objective_pressure_ratio=0.2, importance=0.5),
    BATCH: ClassSettings(kind="throughput"),
}


def worth_by_ceilings(critical, default, cores=1.0):
    classes = {CRITICAL: waiting(critical), DEFAULT: waiting(default), BATCH: batch_state(cpu_cores=cores)}
    then = state(classes=classes, contention=Contention(contended=True, cpus=2))
    return reward(state(), then, None, CEILINGS, WEIGHTS)


def test_once_all_ceilings_hold_throughput_is_the_value():
    assert worth_by_ceilings(0.1, 0.2).value == pytest.approx(0.5)
    assert worth_by_ceilings(0.0, 0.0, cores=2.0).value == pytest.approx(1.0)


def test_while_one_ceiling_is_passed_throughput_counts_for_nothing_and_the_wait_does():
    few, much = worth_by_ceilings(0.1, 0.6, cores=0.1), worth_by_ceilings(0.1, 0.6, cores=2.0)
    assert few.value == much.value == pytest.approx(-0.05 - 0.9 * (0.3 + 0.7 * 0.5) / 3.0)
    assert few.terms == pytest.approx(
        {
            f"severity.{DEFAULT}": -0.5,
            "violation": -1.0 / 3.0,
            "severity": -0.5 / 3.0,
            "throughput": 0.05,
            "oscillation": 0.0,
        }
    )


def test_waiting_all_the_time_is_the_worst_that_can_be_and_waiting_less_is_better():
    values = [worth_by_ceilings(critical, 1.0).value for critical in (1.0, 0.55, 0.2, 0.1)]
    assert values[0] == pytest.approx(-0.95)
    assert values == sorted(values)
    assert len(set(values)) == 4


def test_a_wait_that_is_unknown_is_neither_kept_nor_broken():
    alone = worth_by_ceilings(0.55, None)
    assert alone.value == pytest.approx(-0.05 - 0.9 * (0.3 + 0.7 * 0.5))
    assert f"severity.{DEFAULT}" not in alone.terms


def test_one_class_by_latency_and_one_by_pressure_are_weighed_together():
    specs = {CRITICAL: ClassSettings(objective_p99_seconds=0.1), DEFAULT: CEILINGS[DEFAULT]}
    both = state(classes={CRITICAL: seen(0.1, 0.25), DEFAULT: waiting(0.6)})
    terms = reward(state(), both, None, specs, WEIGHTS).terms
    assert terms["violation"] == -1.0
    assert terms["severity"] == pytest.approx(-(0.3 + 0.5 * 0.5) / 1.5)


def test_an_empty_node_is_worth_nothing():
    assert worth({}).value == 0.0


@pytest.mark.parametrize(
    "odd",
    [
        {CRITICAL: seen(over=-1.0)},
        {CRITICAL: seen(1e308, 50.0), BATCH: batch_state(cpu_cores=-1e308)},
        {CRITICAL: seen(), BATCH: batch_state(cpu_cores=-1e308), DEFAULT: seen(-1.0)},
    ],
)
def test_i7_numbers_that_cannot_be_still_give_a_reward_that_can_be_sent(odd):
    for cpus in (-1, 0, 2**63 - 1):
        found = worth(odd, {CRITICAL: -1, BATCH: 0}, cpus=cpus)
        assert all(math.isfinite(number) and -1.0 <= number <= 1.0 for number in (found.value, *found.terms.values()))


def test_the_throughput_of_two_classes_adds_up():
    classes = {**DEFAULT_CLASSES, "bulk": msgspec.structs.replace(DEFAULT_CLASSES[BATCH])}
    then = state(classes={BATCH: batch_state(cpu_cores=0.5), "bulk": batch_state(cpu_cores=0.25)})
    assert reward(state(), then, None, classes, WEIGHTS).terms["throughput"] == pytest.approx(0.375)


def test_severity_is_measured_by_the_objective_that_the_state_shows():
    """Four times a pod's own objective of 25 ms is what it misses, though the class may have 100 ms."""
    assert severity(seen(0.1, None, objective_seconds=0.025), SPEC) == pytest.approx(0.4)
    assert severity(seen(0.1, None, objective_seconds=None), SPEC) == 0.0
    assert severity(seen(0.4, None, objective_seconds=None), SPEC) == pytest.approx(0.4)
