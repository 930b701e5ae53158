"""The whole loop on the real kernel: real workloads, real contention, real weights; and the demo as people run it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.cgroup_sandbox import open_sandbox
from lab.cgroup_stage import CgroupStage
from lab.demo_report import MISSED_ALONE_RATIO
from lab.rig import RECORDING, Rig, RigOptions
from tests.integration.test_loop import Ear

pytestmark = pytest.mark.kernel


@pytest.mark.timeout(240)
async def test_the_loop_steers_real_groups_and_survives_kill_9_of_the_actuator(sandbox, tmp_path):
    sandbox.remove()  # the stage opens one of its own under the same name; the fixture told that it can
    ear = Ear()
    stage = CgroupStage(duration_seconds=200.0, seed=1)
    rig = Rig(stage, RigOptions(tmp_path, tick_seconds=2.0), on_message=ear)
    try:
        await rig.start()
        assert set(rig.originals.values()) == {"10\n", "157\n", "4\n"}
        await stage.start_batch()
        await rig.order("active", "a test")
        await ear.until(lambda _: len(ear.applied()) >= 1)
        assert stage.weights() != rig.originals
        old = rig.fleet.pids()["actuator"]
        os.kill(old, signal.SIGKILL)
        await ear.until(lambda _: rig.fleet.pids()["actuator"] != old)
        before = len(ear.applied())
        await ear.until(lambda _: len(ear.applied()) > before)
    finally:
        assert await rig.close()
    assert not list(Path(stage.host.cgroup_root).glob("trimtab-demo-*"))


ATTEMPTS = 3
FEW_LATE = 3


def demo(tmp_path: Path, *flags: str) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """A demo's report, the messages of its bus, and the table that it printed.

    One that the machine disturbed is run again: alone, on a machine of its own, the API keeps its objective, and the
    loop its times. A loop that is late by itself is so in each of the attempts, and has to pass with the last.
    """
    for attempt in range(ATTEMPTS):
        run = tmp_path / f"run{attempt}"
        argv = [sys.executable, "-m", "cli", "demo", "--duration", "60", *flags, "--run-dir", str(run)]
        done = subprocess.run(
            [*argv, "--json", f"{run}.json"], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        report = json.loads(Path(f"{run}.json").read_text())
        heard = [json.loads(line)["message"] for line in (run / RECORDING).read_text().splitlines()]
        is_quiet = report["phases"]["solo"]["latency-critical"]["violation_ratio"] <= MISSED_ALONE_RATIO
        if is_quiet and late_once_active(heard) <= FEW_LATE:
            break
        sys.stderr.write(f"attempt {attempt + 1} was disturbed:\n{done.stdout}\n")
    if not is_quiet:
        pytest.skip(f"something else used this machine {ATTEMPTS} times: the API alone missed its objective")
    return report, heard, done.stdout


def late_once_active(heard: list[dict[str, Any]]) -> int:
    """Rewards that the loop came too late for, after it was told to steer."""
    ordered = next(place for place, message in enumerate(heard) if message["type"] == "command")
    return sum(
        message["type"] == "reward" and message["outcome"] == "censored" and message["reason"] in ("late", "overrun")
        for message in heard[ordered:]
    )


@pytest.mark.timeout(1000)
def test_the_demo_brings_the_p99_down_to_a_quarter_at_most(sandbox, tmp_path):
    sandbox.remove()
    report, _, table = demo(tmp_path)
    assert report["backend"] == "cgroup"
    assert len(set(report["pids"].values())) == 5
    assert report["restored"] is True
    assert report["counts"]["applied"] >= 1
    phases = report["phases"]
    assert phases["controlled"]["batch"]["work_per_second"] > 0
    controlled, baseline = (phases[name]["latency-critical"]["p99_ms"] for name in ("controlled", "baseline"))
    assert controlled <= baseline / 4, table
    assert not list(Path(open_sandbox_root()).glob("trimtab-demo-*"))


@pytest.mark.timeout(1000)
def test_the_loop_steers_by_the_kernel_alone_where_no_pod_has_metrics(sandbox, tmp_path):
    """No endpoint, no latency: what the groups waited judges them. The clients' own clocks tell whether it helped."""
    sandbox.remove()
    report, heard, table = demo(tmp_path, "--without-metrics")
    assert (report["backend"], report["restored"]) == ("cgroup", True)
    states = [message for message in heard if message.get("type") == "state"]
    critical = [state["classes"]["latency-critical"] for state in states]
    assert {seen["latency"]["reason"] for seen in critical} == {"no_source"}
    assert {seen["judged_by"] for seen in critical} == {"pressure"}
    assert {seen["waited_source"] for seen in critical[1:]} <= {"pressure", "run_delay"}
    assert [message for message in heard if message.get("type") == "reward" and message["outcome"] == "joined"]
    phases = report["phases"]
    controlled, baseline = (phases[name]["latency-critical"]["p99_ms"] for name in ("controlled", "baseline"))
    assert controlled <= baseline / 4, table
    assert phases["controlled"]["batch"]["work_per_second"] > 0


def open_sandbox_root() -> str:
    probe = open_sandbox()
    try:
        return str(probe.base)
    finally:
        probe.remove()
