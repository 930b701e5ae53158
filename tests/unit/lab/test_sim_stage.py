"""What a killed demo left in memory is removed, and nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.sim_stage import remove_stale


@pytest.fixture
def gone() -> int:
    """A process id that nobody has."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def node(memory: Path, pid: int) -> Path:
    file = memory / f"trimtab-node-{pid}-abc" / "proc" / "stat"
    file.parent.mkdir(parents=True)
    file.touch()
    for path in (file, *file.parents[:2]):
        os.utime(path, (1000.0, 1000.0))
    return file


def test_a_node_whose_demo_is_gone_and_that_writes_no_more_is_removed(tmp_path, gone):
    node(tmp_path, gone)
    remove_stale(tmp_path, now=1061.0)
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_still_writes_stays_though_its_demo_cannot_be_seen(tmp_path, gone):
    file = node(tmp_path, gone)
    os.utime(file, (1030.0, 1030.0))
    remove_stale(tmp_path, now=1061.0)
    assert file.exists()


def test_a_node_whose_demo_lives_stays(tmp_path):
    file = node(tmp_path, os.getpid())
    remove_stale(tmp_path, now=9999.0)
    assert file.exists()
