"""The demo as people run it, on the simulated node: its report, Ctrl-C, and a killed parent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.subjects import SERVICES

DEADLINE_SECONDS = 60.0


def start(run_dir: Path, *flags: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "cli", "demo", "--simulate", "--run-dir", str(run_dir), *flags]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(run_dir: Path) -> list[int]:
    """Every process whose command line names the run, the demo itself included."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(run_dir).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def applied(run_dir: Path) -> bool:
    recording = run_dir / "recording.jsonl"
    return recording.exists() and b'"outcome":"applied"' in recording.read_bytes()


def pods_root(run_dir: Path) -> Path:
    config = (run_dir / "trimtab.yaml").read_text()
    return Path(next(line.split(": ", 1)[1] for line in config.splitlines() if "cgroup_root" in line)) / "kubepods"


def weights(run_dir: Path) -> list[str]:
    return sorted(path.read_text().strip() for path in pods_root(run_dir).glob("burstable/pod*/cpu.weight"))


@pytest.mark.timeout(120)
def test_the_report_has_what_it_promises(tmp_path):
    out, run_dir = tmp_path / "out.json", tmp_path / "run"
    demo = start(run_dir, "--duration", "30", "--json", str(out))
    stdout, stderr = demo.communicate(timeout=100)
    assert demo.returncode == 0, stderr[-2000:]
    assert "SIMULATED NODE" in stderr
    assert "SIMULATED node" in stdout
    report = json.loads(out.read_text())
    assert report["backend"] == "sim"
    assert set(report["pids"]) == set(SERVICES)
    assert len(set(report["pids"].values())) == 5
    assert report["cycles"] >= 8
    assert set(report["counts"]) >= {"applied", "held", "refused", "late", "rolled_back", "censored"}
    assert list(report["phases"]) == ["solo", "baseline", "controlled"]
    for phase in report["phases"].values():
        for name in ("latency-critical", "default"):
            assert set(phase[name]) == {"p50_ms", "p95_ms", "p99_ms", "requests", "violation_ratio"}
            assert phase[name]["requests"] > 0
    p99 = {name: report["phases"][name]["latency-critical"]["p99_ms"] for name in report["phases"]}
    assert p99["controlled"] <= p99["baseline"] / 4
    assert report["phases"]["controlled"]["batch"]["work_per_second"] > 0
    assert report["restored"] is True
    lines = [json.loads(line) for line in Path(report["recording"]).read_text().splitlines()]
    assert {"state", "action", "verdict", "actuation", "reward"} <= {line["message"]["type"] for line in lines}
    assert {"nats.url", "pids.json", "journal", "recording.jsonl", "logs"} <= {path.name for path in run_dir.iterdir()}
    assert children_of(run_dir) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_restores_and_leaves_nothing_running(tmp_path, signum):
    demo = start(tmp_path, "--duration", "30", "--tick", "1")
    wait_for(lambda: applied(tmp_path))
    os.kill(demo.pid, signum)
    _, stderr = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert b'"outcome":"restored"' in (tmp_path / "recording.jsonl").read_bytes()
    assert children_of(tmp_path) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["start-up", "controlled"])
def test_a_second_interrupt_does_not_cut_the_clean_up_short(tmp_path, moment):
    demo = start(tmp_path, "--duration", "30", "--tick", "1")
    begun = (tmp_path / "pids.json").exists if moment == "start-up" else lambda: applied(tmp_path)
    wait_for(begun)
    assert demo.stderr is not None
    os.kill(demo.pid, signal.SIGINT)
    said = []
    while "stopping" not in (said or [""])[-1]:
        said.append(demo.stderr.readline())
        assert said[-1], "it ended without a word"
    for _ in range(3):
        os.kill(demo.pid, signal.SIGINT)
    _, stderr = demo.communicate(timeout=60)
    assert demo.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert stderr.count("already stopping") == 1
    assert stderr.endswith("interrupted; the weights and the machine are as they were\n")
    assert children_of(tmp_path) == []
    if moment == "controlled":
        assert b'"outcome":"restored"' in (tmp_path / "recording.jsonl").read_bytes()


@pytest.mark.timeout(60)
def test_an_interrupt_before_anything_was_set_up_claims_no_more_than_that(tmp_path):
    demo = start(tmp_path, "--duration", "30", "--tick", "1")
    wait_for((tmp_path / "nats").exists)
    os.kill(demo.pid, signal.SIGINT)
    _, stderr = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert stderr.endswith("interrupted; nothing was changed\n")
    assert children_of(tmp_path) == []


@pytest.mark.timeout(120)
def test_a_killed_demo_takes_its_children_along_and_they_restore_first(tmp_path):
    demo = start(tmp_path, "--duration", "30", "--tick", "1")
    wait_for(lambda: applied(tmp_path))
    assert weights(tmp_path) != ["10", "157", "4"]
    demo.kill()
    demo.communicate(timeout=30)
    wait_for(lambda: children_of(tmp_path) == [])
    assert weights(tmp_path) == ["10", "157", "4"]


@pytest.mark.timeout(120)
def test_services_can_be_killed_while_it_runs_and_pids_json_stays_current(tmp_path):
    demo = start(tmp_path, "--duration", "34", "--tick", "1", "--json", str(tmp_path / "out.json"))
    wait_for(lambda: applied(tmp_path))
    for victim in SERVICES:
        old = json.loads((tmp_path / "pids.json").read_text())[victim]
        os.kill(old, signal.SIGKILL)
        wait_for(lambda name=victim, pid=old: json.loads((tmp_path / "pids.json").read_text())[name] != pid)
    stdout, stderr = demo.communicate(timeout=100)
    assert demo.returncode == 0, stderr[-2000:]
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["restored"] is True
    assert report["restarts"] == dict.fromkeys(SERVICES, 1)
    assert "every weight is what it was" in stdout
