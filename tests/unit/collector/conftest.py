import pytest

from tests.unit.collector.world import Node


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)
