import pytest

from tests.unit.actuator.world import API, JOB, Faults, Tree


@pytest.fixture
def tree(tmp_path):
    """Two pods at the kernel's default weight."""
    made = Tree(tmp_path)
    made.add(API)
    made.add(JOB)
    return made


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "state" / "journal"


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)
