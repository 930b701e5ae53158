"""The decider's settings."""

import msgspec
import pytest

from schemas.settings import ClassSettings, SettingsError, Shared
from services.decider.config import DeciderConfig


def test_defaults_fit_the_default_classes():
    DeciderConfig().check(Shared())


def test_defaults_fit_any_classes():
    DeciderConfig().check(Shared(classes={"bulk": ClassSettings(kind="throughput")}))
    DeciderConfig().check(Shared(classes={"web": ClassSettings(objective_p99_seconds=0.1)}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"policy": "linucbb"}, "decider.policy: 'linucbb' is not known; known are linucb"),
        ({"static_profile": "fast"}, "decider.static_profile: no profile 'fast'; known are lc1-d1-b1"),
        ({"prior_profile": "hold"}, "decider.prior_profile: no profile 'hold'; known are lc1-d1-b1"),
        ({"profiles": {"p": {"bach": 100}}}, "decider.profiles.p: no class 'bach'"),
        ({"context_features": ("load",)}, "decider.context_features: no feature 'load'"),
        ({"context_features": ("node.busy_ratio",) * 2}, "decider.context_features: names a feature twice"),
    ],
)
def test_setting_that_names_nothing_is_one_line_of_error(settings, text):
    with pytest.raises(SettingsError) as caught:
        DeciderConfig(**settings).check(Shared())
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_profile_settings_may_name_configured_profiles():
    profiles = {"even": {"default": 100}, "up": {"latency-critical": 300}}
    DeciderConfig(profiles=profiles, static_profile="up", prior_profile="even").check(Shared())


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 1.1},
        {"discount": 1.01},
        {"discount": 0.0},
        {"prior_strength": 0.0},
        {"exploration": -0.1},
        {"history": -1},
        {"likeness_decades": 0.0},
        {"profiles": {"p": {"batch": 0}}},
        {"polcy": "linucb"},
    ],
)
def test_setting_out_of_range_or_mistyped_does_not_decode(settings):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, DeciderConfig)
