import random

import pytest

from schemas.features import feature_names
from schemas.settings import Shared
from services.decider.core.arms import build_arms


@pytest.fixture(scope="session")
def shared():
    return Shared()


@pytest.fixture(scope="session")
def arms(shared):
    return build_arms(shared, {})


@pytest.fixture
def features(shared):
    """A state vector with every feature the contract names, each within [-1, 1]."""
    rng = random.Random(5)
    names = feature_names(tuple(shared.classes))
    return {name: 1.0 if name.endswith(".present") else rng.uniform(-1.0, 1.0) for name in names}
