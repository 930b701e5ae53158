"""What may be done to other sandboxes, on folders that look like groups: nothing that ends a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import doctor
from hostfs.mounts import CgroupHost
from lab.cgroup_sandbox import SandboxUnavailable, find_base, remove_stale


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        yield process
        process.kill()


@pytest.fixture
def gone() -> int:
    """A process id that nobody has."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def group(path: Path, procs: str = "") -> Path:
    path.mkdir(parents=True)
    for name, text in (("procs", procs), ("subtree_control", "cpu\n"), ("controllers", "cpu\n")):
        (path / f"cgroup.{name}").write_text(text)
    return path


def snapshot(path: Path) -> dict[str, str | None]:
    return {str(found): found.read_text() if found.is_file() else None for found in path.rglob("*")}


def test_the_empty_sandbox_of_a_process_that_is_gone_is_removed(tmp_path, gone):
    (tmp_path / f"trimtab-demo-{gone}" / "kubepods" / "pod").mkdir(parents=True)
    remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", [f"trimtab-demo-{os.getpid()}", "trimtab-demo-x", "kubepods"], ids=["own", "x", "pods"]
)
def test_other_empty_groups_stay(tmp_path, name):
    (tmp_path / name / "kubepods").mkdir(parents=True)
    remove_stale(tmp_path)
    assert (tmp_path / name / "kubepods").is_dir()


def test_a_sandbox_in_which_something_runs_stays_whole_and_what_runs_lives(tmp_path, gone, sleeper):
    left = tmp_path / f"trimtab-demo-{gone}"
    group(left / "agent", f"{sleeper.pid}\n")
    (left / "load").mkdir()
    before = snapshot(tmp_path)
    remove_stale(tmp_path)
    assert snapshot(tmp_path) == before
    assert sleeper.poll() is None


def test_a_process_of_another_pid_namespace_counts(tmp_path, gone):
    left = tmp_path / f"trimtab-demo-{gone}"
    group(left / "agent", "0\n")
    (left / "load").mkdir()
    remove_stale(tmp_path)
    assert (left / "load").is_dir()


def test_the_doctor_changes_nothing(tmp_path, gone, sleeper, monkeypatch):
    base = group(tmp_path / "cgroup", f"{sleeper.pid}\n")
    group(base / f"trimtab-demo-{gone}", f"{sleeper.pid}\n")
    (base / f"trimtab-demo-{gone}" / "load").mkdir()
    monkeypatch.setattr(doctor, "detect", lambda _: CgroupHost(root=str(base), layout="unified", cpu_on="v2"))
    before = snapshot(tmp_path)
    checks = {check.name: check for check in doctor._cgroup("/proc")}
    assert checks["writable"] == doctor.Check("writable", "ok", f"this user may write below {base}")
    assert snapshot(tmp_path) == before
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "host",
    [
        CgroupHost(root=None, layout="none", cpu_on="none", reason="no cgroup v2", remedy="boot another way"),
        CgroupHost(
            root="/sys", layout="unified", cpu_on="v2", read_only=True, reason="no cgroup v2", remedy="boot another way"
        ),
    ],
)
def test_what_the_mounts_do_not_allow_is_said_with_the_remedy(host):
    with pytest.raises(SandboxUnavailable) as refused:
        find_base(host)
    assert (refused.value.reason, refused.value.remedy) == ("no cgroup v2", "boot another way")
