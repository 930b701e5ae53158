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
        ({"collector.scrape_concurrency": 0}, "scrape_concurrency"),
        ({"collector.scrape_max_bytes": 1023}, "scrape_max_bytes"),
        ({"collector.tls_key_file": "/pod.key"}, "tls_key_file: is set and collector.tls_cert_file is not"),
        ({"collector.latency_metrics": ["a_seconds", "latency"]}, "'latency' does not end in a unit of time"),
        ({"collector.latency_metrics": ["a_seconds_bucket"]}, "'a_seconds_bucket' does not end in a unit"),
        ({"collector.latency_metrics": [""]}, "'' does not end in a unit of time"),
    ],
)
def test_a_contradiction_is_said_at_start(settings, words):
    with pytest.raises(ConfigError, match=words):
        config_of("collector", CollectorConfig, settings)


def test_the_defaults_agree_with_each_other():
    assert config_of("collector", CollectorConfig).section("collector", CollectorConfig).min_requests == 20


def test_names_may_be_in_any_unit_and_there_may_be_none():
    names = ["a_ms", "b_milliseconds", "c_us", "d_ns", "e_sec"]
    for wanted in (names, []):
        made = config_of("collector", CollectorConfig, {"collector.latency_metrics": wanted})
        assert made.section("collector", CollectorConfig).latency_metrics == tuple(wanted)


def test_a_certificate_may_hold_its_key():
    made = config_of("collector", CollectorConfig, {"collector.tls_cert_file": "/pod.pem"})
    assert made.section("collector", CollectorConfig).tls_key_file is None
