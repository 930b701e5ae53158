"""The demo's arithmetic: how a run is divided, what is counted, what the table shows."""

import pytest

from cli.demo_view import closing_table
from lab.demo_report import BatchFigures, Counts, LatencyFigures, PhaseFigures, Report, Window, phase_figures, schedule
from lab.latency_records import RequestRecord, WorkRecord
from schemas.messages import Actuation, Reward, State, Verdict

ID = {"node": "demo", "boot": "b", "at": 1}


@pytest.mark.parametrize("seconds", [30.0, 60.0, 150.0, 600.0])
def test_the_phases_fill_the_whole_length_and_the_measured_part_is_the_longest(seconds):
    times = schedule(seconds)
    parts = (times.solo_seconds, times.baseline_seconds, times.learning_seconds, times.controlled_seconds)
    assert sum(parts) == pytest.approx(seconds)
    assert max(parts) == times.controlled_seconds
    assert times.settle_seconds < min(times.solo_seconds, times.baseline_seconds)


def test_outcomes_are_counted_once_each():
    counts = Counts()
    for message in (
        State(**ID, cycle=1, phase="before"),
        State(**ID, cycle=1, phase="after"),
        Verdict(**ID, cycle=1, outcome="refuse", execute=False, mode="active"),
        Verdict(**ID, cycle=2, outcome="late", execute=False, mode="active"),
        Actuation(**ID, cycle=3, outcome="applied"),
        Actuation(**ID, cycle=3, outcome="rolled_back"),
        Actuation(**ID, cycle=4, outcome="held"),
        Actuation(**ID, cycle=5, outcome="skipped", rule="shadow"),
        Reward(**ID, cycle=3, outcome="joined", value=0.1),
        Reward(**ID, cycle=4, outcome="censored", reason="late"),
    ):
        counts.add(message)
    assert len(counts.cycles) == 1
    assert counts.as_dict() == {
        "applied": 1,
        "held": 1,
        "refused": 1,
        "late": 1,
        "rolled_back": 1,
        "censored": 1,
        "learned": 1,
        "failed": 0,
        "shadow": 1,
    }


def test_figures_hold_only_what_was_due_within_the_window():
    requests = [
        RequestRecord(at, latency, "ok") for at, latency in ((9.0, 5.0), (10.0, 0.02), (19.9, 0.2), (20.0, 5.0))
    ]
    work = [WorkRecord(10.0, 100.0), WorkRecord(20.0, 600.0)]
    figures = phase_figures(Window("solo", 10.0, 20.0), {"latency-critical": requests}, work, {"latency-critical": 0.1})
    api = figures["latency-critical"]
    assert isinstance(api, LatencyFigures)
    assert (api.requests, api.p99_ms, api.violation_ratio) == (2, pytest.approx(200.0), 0.5)
    assert figures["batch"] == BatchFigures(work_per_second=pytest.approx(50.0))


def test_the_closing_table_says_loudly_what_was_simulated_and_what_was_not_restored():
    api = LatencyFigures(p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, requests=4, violation_ratio=0.25)
    figures = {"latency-critical": api, "default": api, "batch": BatchFigures(work_per_second=7.0)}
    table = closing_table(report_of(figures, restored=False))
    assert "SIMULATED node" in table
    assert "NOT every weight is what it was" in table
    assert "25.0 %" in table


def test_a_machine_on_which_the_api_alone_misses_its_objective_is_said_to_be_busy():
    def table(alone: float) -> str:
        api = LatencyFigures(p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, requests=400, violation_ratio=alone)
        return closing_table(
            report_of(
                {"latency-critical": api, "default": api, "batch": BatchFigures(work_per_second=7.0)}, restored=True
            )
        )

    assert "ALONE the API missed its objective" in table(0.11)
    assert "ALONE" not in table(0.1)


def report_of(figures: PhaseFigures, *, restored: bool) -> Report:
    return Report(
        backend="sim",
        backend_reason="no cgroups",
        duration_seconds=30.0,
        cpus=2,
        pids={},
        restarts={},
        cycles=9,
        complete_cycles=8,
        counts=Counts().as_dict(),
        phases={"solo": figures, "baseline": figures, "controlled": figures},
        learning=figures,
        initial_weights={},
        final_class_weights={},
        restored=restored,
        recording="r.jsonl",
        run_dir="run",
    )


def test_the_closing_table_has_both_latency_classes_phase_by_phase_and_fits_100_columns():
    slow = LatencyFigures(p50_ms=12_345.0, p95_ms=12_345.0, p99_ms=12_345.0, requests=123_456, violation_ratio=1.0)
    none = LatencyFigures(p50_ms=None, p95_ms=None, p99_ms=None, requests=0, violation_ratio=None)
    figures = {"latency-critical": slow, "default": none, "batch": BatchFigures(work_per_second=123_456.0)}
    lines = closing_table(report_of(figures, restored=True)).splitlines()
    phases = ("solo", "baseline", "learning", "controlled")
    rows = [f"{pod}, {phase}" for pod in ("API", "monitor") for phase in phases]
    assert [line[:19].rstrip() for line in lines[1:9]] == rows
    assert lines[1].endswith("12,345 ms  12,345 ms    123456         100.0 %        123456")
    assert lines[5].split() == ["monitor,", "solo", "-", "-", "-", "0", "-"]
    assert max(map(len, lines[:9])) <= 100
