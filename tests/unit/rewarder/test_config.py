"""Settings that would put throughput or moving before objectives."""

import pytest

from runtime.errors import ConfigError
from services.rewarder.config import RewarderConfig
from tests.support.harness import config_of


@pytest.mark.parametrize(
    "settings",
    [
        {"rewarder.violation_weight": 0.0},
        {"rewarder.oscillation_weight": 0.3},
        {"rewarder.severity_weight": 0.8},
    ],
)
def test_weights_that_break_the_order_of_aims_are_refused(settings):
    with pytest.raises(ConfigError, match=r"rewarder\."):
        config_of("rewarder", RewarderConfig, settings)


def test_the_defaults_make_up_the_whole_penalty():
    config = config_of("rewarder", RewarderConfig).section("rewarder", RewarderConfig)
    assert config.violation_weight + config.severity_weight == 1.0
