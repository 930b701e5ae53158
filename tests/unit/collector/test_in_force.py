"""An order stays in force as long as every pod has what was written for it, however integers rounded it."""

import msgspec
import pytest

from schemas.messages import PodState
from schemas.settings import ClassSettings, WeightSettings
from services.collector.core.classes import PodReading, class_states
from services.collector.core.in_force import Ordered, is_in_force, is_still_meant, ordered_after
from services.collector.core.tally import GroupRates
from tests.support.builders import BATCH, CRITICAL, actuation, write

WEIGHTS = {CRITICAL: 10_000, BATCH: 100}
APPLIED = actuation(
    weights=WEIGHTS, writes=(write("api", 10, 77), write("j1", 40, 1), write("j2", 40, 1, result="unchanged"))
)
ORDERED = Ordered(WEIGHTS, {"pod-api": 77, "pod-j1": 1, "pod-j2": 1})


def pods(api=77, j1=1, j2=1, **more):
    found = [
        PodState(uid="a", name="api", group="pod-api", cls=CRITICAL, weight=api),
        PodState(uid="b", name="j1", group="pod-j1", cls=BATCH, weight=j1),
        PodState(uid="c", name="j2", group="pod-j2", cls=BATCH, weight=j2),
        PodState(uid="", name="other", group="pod-other", weight=50),
    ]
    return [*found, *more.values()]


def test_what_was_carried_out_for_every_pod_is_an_order():
    assert ordered_after(None, APPLIED) == ORDERED


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "failed", "weights": None},
        {"outcome": "restored"},
        {"rule": "unreachable"},
        {"writes": (write("api", 10, 77), write("j1", 40, 1, result="skipped", reason="foreign"))},
        {"writes": (write("api", 10, 77), write("j1", 40, 1, result="mismatch"))},
    ],
)
def test_what_was_carried_out_in_part_or_taken_back_is_none(fields):
    assert ordered_after(ORDERED, msgspec.structs.replace(APPLIED, **fields)) is None


@pytest.mark.parametrize("outcome", ["held", "skipped"])
def test_where_nothing_was_touched_the_order_stays(outcome):
    assert ordered_after(ORDERED, actuation(outcome=outcome, weights=None, writes=())) is ORDERED


def test_a_rollback_puts_the_earlier_weights_in_force_and_names_only_what_had_moved():
    back = actuation(outcome="rolled_back", weights={CRITICAL: 1000, BATCH: 100}, writes=(write("api", 77, 70),))
    assert ordered_after(ORDERED, back) == Ordered(
        {CRITICAL: 1000, BATCH: 100}, {"pod-api": 70, "pod-j1": 1, "pod-j2": 1}
    )


def test_it_is_in_force_until_a_pod_changes_comes_or_goes():
    assert is_in_force(ORDERED, pods())
    assert not is_in_force(ORDERED, pods(api=78))
    assert not is_in_force(ORDERED, pods()[1:])
    newcomer = PodState(uid="d", name="new", group="pod-new", cls=BATCH, weight=39)
    assert not is_in_force(ORDERED, pods(new=newcomer))


def test_the_state_shows_the_order_and_not_how_it_was_rounded():
    specs = {CRITICAL: ClassSettings(objective_p99_seconds=0.1), BATCH: ClassSettings(kind="throughput")}
    readings = [PodReading(pod, GroupRates(), None, None) for pod in pods()]
    as_read = class_states(readings, {}, specs, WeightSettings(), 2)
    as_ordered = class_states(readings, {}, specs, WeightSettings(), 2, ORDERED)
    assert as_read[CRITICAL].weight == 3850
    assert as_ordered[CRITICAL].weight == 10_000
    assert as_ordered[CRITICAL].pods_weight == 77


# ---- when the tree around the pods changes ----


@pytest.mark.parametrize(
    ("then", "now", "is_meant"),
    [
        ({CRITICAL: 1000, BATCH: 100}, {CRITICAL: 10_000, BATCH: 1000}, True),
        ({CRITICAL: 1000, BATCH: 100}, {CRITICAL: 1019, BATCH: 100}, True),
        ({CRITICAL: 1000, BATCH: 100}, {CRITICAL: 1021, BATCH: 100}, False),
        ({CRITICAL: 1000, BATCH: 100}, {CRITICAL: 1000, BATCH: 103}, False),
        ({CRITICAL: 1000, BATCH: 100}, {CRITICAL: 1000}, False),
        ({}, {}, True),
    ],
)
def test_the_same_pod_weights_mean_the_same_while_the_classes_ratios_do(then, now, is_meant):
    assert is_still_meant(then, now) is is_meant
