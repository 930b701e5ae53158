"""Settings of the guard that contradict each other."""

import pytest

from runtime.errors import ConfigError
from services.guard.config import GuardConfig
from services.guard.core.rules import ALWAYS_ENFORCED, RULES, WATCHABLE
from tests.support.harness import config_of


def test_a_verdict_must_be_over_before_the_next_cycle():
    with pytest.raises(ConfigError, match=r"guard\.apply_within_seconds"):
        config_of("guard", GuardConfig, {"guard.apply_within_seconds": 4.9})


def test_the_defaults_fit_together():
    assert config_of("guard", GuardConfig).shared.mode == "shadow"


def test_a_rule_that_is_watched_must_exist():
    with pytest.raises(ConfigError, match=r"guard\.watch: no rule 'min_shares'; those to watch are .*min_share"):
        config_of("guard", GuardConfig, {"guard.watch": ["min_shares"]})


@pytest.mark.parametrize("name", ["budget", "frozen", "hold", "canary", "present_classes"])
def test_what_must_always_hold_cannot_be_watched(name):
    with pytest.raises(ConfigError, match=rf"guard\.watch: '{name}' cannot be watched: "):
        config_of("guard", GuardConfig, {"guard.watch": [name]})


def test_every_rule_is_either_watchable_or_always_enforced():
    config = config_of("guard", GuardConfig, {"guard.watch": list(WATCHABLE)})
    assert {*config.section("guard", GuardConfig).watch, *ALWAYS_ENFORCED} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ({"gold": 100}, r"guard\.profiles\.calm: no class 'gold' is configured; known are latency-critical, default"),
        ({"batch": 99}, r"guard\.profiles\.calm\.batch: 99 is outside weights\.min_weight 100 to .* 10000"),
        ({"batch": 10_001}, r"guard\.profiles\.calm\.batch: 10001 is outside"),
    ],
)
def test_a_profile_must_be_one_that_may_be_asked_for(weights, error):
    with pytest.raises(ConfigError, match=error):
        config_of("guard", GuardConfig, {"guard.profiles": {"calm": weights}})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("canary_ratio", 0.0),
        ("canary_ratio", 1.1),
        ("min_share_ratio", -0.1),
        ("min_share_ratio", 0.6),
        ("max_class_changes_per_minute", 0.0),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(setting, value):
    with pytest.raises(ConfigError, match=rf"guard\.{setting}"):
        config_of("guard", GuardConfig, {f"guard.{setting}": value})


def test_the_least_share_allows_all_that_three_classes_can_be_apart():
    config = config_of("guard", GuardConfig)
    assert config.section("guard", GuardConfig).min_share_ratio < 100 / (100 + 10_000 + 10_000)
