"""Settings that contradict the loop."""

import pytest

from runtime.errors import ConfigError
from services.collector.config import CollectorConfig
from tests.support.harness import config_of


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"collector.scrape_timeout_seconds": 2.5}, "more than loop.settle_seconds"),
        ({"collector.scrape_timeout_seconds": 1.5}, "shorten one"),
        ({"collector.class_labels": []}, "class_labels: is empty"),
        ({"collector.min_requests": 0}, "min_requests"),
    ],
)
def test_a_contradiction_is_said_at_start(settings, words):
    with pytest.raises(ConfigError, match=words):
        config_of("collector", CollectorConfig, settings)


def test_the_defaults_agree_with_each_other():
    assert config_of("collector", CollectorConfig).section("collector", CollectorConfig).min_requests == 20
