"""Whether CPUs were fought over, with every source a kernel may have."""

import pytest

from schemas.messages import ClassState
from services.collector.core.contention import contention


def seen(classes=None, **fields):
    defaults = {
        "cpus": 2,
        "busy_ratio": 1.0,
        "node_pressure_ratio": None,
        "run_queue": None,
        "run_queue_source": None,
        "pressure_limit": 0.05,
        "run_queue_limit": 0.5,
    }
    return contention(classes or {}, **{**defaults, **fields})


def test_a_class_that_waited_makes_contention():
    found = seen({"api": ClassState(waited_ratio=0.2), "batch": ClassState(waited_ratio=0.01)})
    assert found.contended
    assert found.reason == "api waited 20 % of the time"


def test_below_the_limit_there_is_none():
    assert not seen({"api": ClassState(waited_ratio=0.04)}).contended
    assert seen({"api": ClassState(waited_ratio=0.05)}).contended


def test_a_class_held_by_its_own_limit_is_no_contention():
    assert not seen({"api": ClassState(pressure_ratio=0.6, throttled_ratio=0.58, waited_ratio=0.02)}).contended
    assert seen({"api": ClassState(pressure_ratio=0.6, throttled_ratio=0.6, waited_ratio=0.4)}).contended


def test_a_class_that_waited_by_its_run_delay_makes_contention_and_the_reason_says_so():
    waits = {"api": ClassState(waited_ratio=0.2, waited_source="run_delay"), "batch": ClassState(waited_ratio=0.1)}
    found = seen(waits, run_queue=0.0, run_queue_source="schedstat")
    assert found.contended
    assert found.reason == "api waited 20 % of the time (run delay)"


def test_pressure_of_the_classes_goes_before_the_run_queue():
    found = seen({"api": ClassState(waited_ratio=0.0)}, run_queue=5.0, run_queue_source="schedstat")
    assert not found.contended
    assert found.run_queue == 5.0


@pytest.mark.parametrize(("queue", "busy", "contended"), [(0.6, 1.0, True), (0.4, 1.0, False), (0.6, 0.5, False)])
def test_st_02_without_pressure_the_run_queue_of_a_busy_node_decides(queue, busy, contended):
    found = seen({"api": ClassState()}, run_queue=queue, run_queue_source="schedstat", busy_ratio=busy)
    assert found.contended is contended
    assert "no pressure per group" in (found.reason or "")


@pytest.mark.parametrize("source", ["loadavg", "stat"])
@pytest.mark.parametrize(
    ("runnable", "contended"), [(0.9, False), (1.0, False), (1.4, False), (1.5, True), (3.0, True)]
)
def test_st_02_tasks_that_run_are_not_tasks_that_wait(source, runnable, contended):
    assert seen(run_queue=runnable, run_queue_source=source).contended is contended


def test_pressure_of_the_node_is_the_last_resort():
    found = seen(node_pressure_ratio=0.2, run_queue=0.2, run_queue_source="pressure")
    assert found.contended
    assert found.reason == "some task on the node waited 20 % of the time"


def test_without_any_source_it_is_unknown_which_counts_as_none():
    found = seen()
    assert not found.contended
    assert found.reason == "unknown: no file for it here"


@pytest.mark.parametrize("source", ["schedstat", "pressure"])
def test_a_source_that_has_no_number_yet_is_not_a_missing_file(source):
    found = seen(run_queue_source=source)
    assert not found.contended
    assert found.reason == f"unknown: {source}: first look, or a counter went back"


def test_classes_that_share_busy_cpus_evenly_fight_although_none_waits_more_than_it_runs():
    """Two single tasks on one CPU: each runs half of the time and waits the other half, so the lower bound is 0."""
    even = {"latency-critical": ClassState(pods=1, waited_ratio=0.0), "batch": ClassState(pods=1, waited_ratio=0.0)}
    shared = {"busy_ratio": 1.0, "unheld_ratio": 0.5, "rivals": True}
    assert seen(even, **shared).contended
    assert "a pod waited 50 %" in (seen(even, **shared).reason or "")
    assert not seen(even, **{**shared, "rivals": False}).contended
    assert not seen(even, **{**shared, "busy_ratio": 0.5}).contended
    assert not seen(even, **{**shared, "unheld_ratio": 0.01}).contended
