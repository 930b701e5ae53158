"""A sandbox for an ordinary user whose own group was delegated to them, as `systemd-run --user -p Delegate=yes` does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cgroup_sandbox import SandboxUnavailable, open_sandbox

pytestmark = pytest.mark.kernel

NOBODY = 65534


@pytest.fixture
def delegated(sandbox) -> Iterator[Path]:
    """A group that belongs to nobody, with this process in it; the effective user is nobody meanwhile."""
    if os.geteuid() != 0:
        pytest.skip("only root can play both the administrator and the user")
    home = Path("/proc/self/cgroup").read_text().partition("0::")[2].strip().lstrip("/")
    group = sandbox.add("delegated")
    for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control", group / "cgroup.threads"):
        os.chown(path, NOBODY, NOBODY)
    os.chown(sandbox.path / "cgroup.procs", NOBODY, NOBODY)  # moves within the delegated tree pass no further up
    (group / "cgroup.procs").write_text("0")
    os.seteuid(NOBODY)
    try:
        yield group
    finally:
        os.seteuid(0)
        (sandbox.root / home / "cgroup.procs").write_text("0")


def test_a_delegated_group_gives_a_sandbox_and_gets_its_processes_back(delegated):
    opened = open_sandbox()
    try:
        assert opened.base == delegated
        pod = opened.add("kubepods/podone", 39)
        assert (pod / "cpu.weight").read_text() == "39\n"
    finally:
        assert opened.remove() == []
    assert str(os.getpid()) in (delegated / "cgroup.procs").read_text().split()
    assert [path for path in delegated.iterdir() if path.is_dir()] == []
    assert "cpu" not in (delegated / "cgroup.subtree_control").read_text()


def test_an_ordinary_user_without_delegation_is_told_how_to_get_it(delegated):
    os.seteuid(0)
    os.chown(delegated / "cgroup.subtree_control", 0, 0)
    os.chown(delegated, 0, 0)
    os.seteuid(NOBODY)
    with pytest.raises(SandboxUnavailable) as refused:
        open_sandbox()
    assert "systemd-run --user --scope -p Delegate=yes" in refused.value.remedy
