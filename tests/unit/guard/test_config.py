"""Settings of the guard that contradict each other."""

import pytest

from runtime.errors import ConfigError
from services.guard.config import GuardConfig
from tests.support.harness import config_of


def test_a_verdict_must_be_over_before_the_next_cycle():
    with pytest.raises(ConfigError, match=r"guard\.apply_within_seconds"):
        config_of("guard", GuardConfig, {"guard.apply_within_seconds": 4.9})


def test_the_defaults_fit_together():
    assert config_of("guard", GuardConfig).shared.mode == "shadow"
