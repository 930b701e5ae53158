"""The feature vector: every name, always, finite and within [-1, 1]."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.features import feature_names
from schemas.messages import ClassState, Contention, Latency, Previous
from schemas.settings import DEFAULT_CLASSES, ClassSettings
from services.collector.core.features import features

numbers = st.one_of(st.none(), st.floats(), st.integers(-(10**30), 10**30))
latencies = st.builds(
    Latency, p99_seconds=numbers, over_ratio=numbers, requests_per_second=numbers, requests=st.integers()
)
class_states = st.builds(
    ClassState,
    pods=st.integers(-5, 1000),
    weight=st.one_of(st.none(), st.integers(-(10**30), 10**30)),
    share=numbers,
    cpu_cores=numbers,
    pressure_ratio=numbers,
    throttled_ratio=numbers,
    waited_ratio=numbers,
    run_delay=numbers,
    latency=latencies,
)
contentions = st.builds(
    Contention,
    contended=st.booleans(),
    cpus=st.integers(-1, 1024),
    busy_ratio=numbers,
    pressure_ratio=numbers,
    run_queue=numbers,
)
previous = st.one_of(st.none(), st.builds(Previous, cycle=st.integers(0, 9), outcome=st.sampled_from(["applied", "x"])))
names = st.sampled_from([*DEFAULT_CLASSES, "unheard-of"])


@given(st.dictionaries(names, class_states), contentions, previous)
def test_rv_04_every_name_always_finite_and_within_one(classes, contention, before):
    found = features(classes, contention, before, DEFAULT_CLASSES)
    assert tuple(found) == feature_names(tuple(DEFAULT_CLASSES))
    for value in found.values():
        assert math.isfinite(value)
        assert -1.0 <= value <= 1.0


HUGE = 2**63 - 1
EXTREMES = [None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, HUGE, -HUGE, 0]


@pytest.mark.parametrize("value", EXTREMES)
def test_rv_04_one_absurd_number_everywhere_spoils_nothing(value):
    latency = Latency(p99_seconds=value, over_ratio=value, requests_per_second=value)
    ratios = dict.fromkeys(("share", "cpu_cores", "pressure_ratio", "throttled_ratio", "waited_ratio"), value)
    whole = HUGE if value == HUGE else None
    classes = {name: ClassState(pods=1, weight=whole, latency=latency, **ratios) for name in DEFAULT_CLASSES}
    seen = Contention(busy_ratio=value, pressure_ratio=value, run_queue=value)
    found = features(classes, seen, None, DEFAULT_CLASSES)
    assert tuple(found) == feature_names(tuple(DEFAULT_CLASSES))
    assert all(-1.0 <= number <= 1.0 for number in found.values())
    if value is None or not math.isfinite(value):  # no number: neutral, as if it were not known
        assert {name for name, number in found.items() if number and "missing" not in name} == {
            "bias",
            *(f"{name}.present" for name in DEFAULT_CLASSES),
        }


@given(st.floats(5e-324, 1e300), st.floats(5e-324, 86_400.0))
def test_no_latency_and_no_objective_is_too_small_to_compare(p99, objective):
    classes = {"a": ClassState(pods=1, latency=Latency(p99_seconds=p99))}
    specs = {"a": ClassSettings(objective_p99_seconds=objective)}
    assert -1.0 <= features(classes, Contention(), None, specs)["a.latency_log"] <= 1.0


def one(**fields):
    return features({"batch": ClassState(pods=1, **fields)}, Contention(cpus=4), None, DEFAULT_CLASSES)


def test_an_absent_class_and_an_unknown_number_have_defined_values():
    found = features({}, Contention(), None, DEFAULT_CLASSES)
    assert found["bias"] == 1.0
    assert found["batch.present"] == 0.0
    flags = [name for name in found if "missing" in name]
    assert len(flags) == 2 + 3 * len(DEFAULT_CLASSES)
    assert all(found[name] == 1.0 for name in flags)
    assert sum(abs(value) for name, value in found.items() if "missing" not in name) == 1.0


def test_st_02_a_missing_pressure_is_flagged_and_a_measured_zero_is_not():
    assert one()["batch.pressure_missing"] == 1.0
    assert one(pressure_ratio=0.0)["batch.pressure_missing"] == 0.0


def test_how_long_it_waited_is_flagged_where_it_is_unknown_and_a_measured_zero_is_not():
    assert (one()["batch.waited_ratio"], one()["batch.waited_missing"]) == (0.0, 1.0)
    assert (one(waited_ratio=0.0)["batch.waited_ratio"], one(waited_ratio=0.0)["batch.waited_missing"]) == (0.0, 0.0)
    found = one(waited_ratio=0.4, pressure_ratio=None)
    assert (found["batch.waited_ratio"], found["batch.waited_missing"], found["batch.pressure_missing"]) == (0.4, 0, 1)


def test_load_and_the_fraction_over_come_from_what_was_served():
    found = one(latency=Latency(requests_per_second=99.0, over_ratio=0.25))
    assert (found["batch.load_log"], found["batch.over_ratio"]) == (pytest.approx(0.5), 0.25)


@pytest.mark.parametrize(("weight", "value"), [(100, 0.0), (1000, 0.5), (10_000, 1.0), (316, 0.25)])
def test_weights_are_on_a_log_scale(weight, value):
    assert one(weight=weight)["batch.weight_log"] == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(
    ("p99", "value"), [(0.1, 0.0), (0.2, 0.125), (1.6, 0.5), (25.6, 1.0), (0.05, -0.125), (100.0, 1.0), (0.0, -1.0)]
)
def test_latency_is_in_octaves_of_the_objective(p99, value):
    classes = {"latency-critical": ClassState(pods=1, latency=Latency(p99_seconds=p99))}
    found = features(classes, Contention(), None, DEFAULT_CLASSES)
    assert found["latency-critical.latency_log"] == pytest.approx(value)
    assert found["latency-critical.latency_missing"] == 0.0


def test_cpu_is_a_part_of_the_node():
    assert one(cpu_cores=1.0)["batch.cpu_ratio"] == 0.25


@pytest.mark.parametrize(("outcome", "value"), [("applied", 1.0), ("held", 0.0), ("restored", 0.0)])
def test_the_previous_cycle_counts_if_it_was_applied(outcome, value):
    found = features({}, Contention(), Previous(cycle=1, outcome=outcome), DEFAULT_CLASSES)
    assert found["node.previous_applied"] == value


def test_latency_is_measured_by_the_objective_that_the_state_shows():
    slow = Latency(p99_seconds=0.2)
    own = {"latency-critical": ClassState(pods=1, latency=slow, objective_seconds=0.05)}
    classes = {"latency-critical": ClassState(pods=1, latency=slow)}
    found = [features(seen, Contention(), None, DEFAULT_CLASSES) for seen in (own, classes)]
    assert [vector["latency-critical.latency_log"] for vector in found] == [pytest.approx(0.25), pytest.approx(0.125)]
