"""The arm set: grid, configured profiles, canonical form."""

import pytest

from schemas.profile import within_bounds
from schemas.settings import DEFAULT_CLASSES, ClassSettings, SettingsError, Shared, WeightSettings
from services.decider.core.arms import build_arms, default_profile, distance, nearest_profile
from services.decider.core.policy import HOLD, Arm

LIMITS = WeightSettings()
SHARED = Shared()


def weights(lc, d, b):
    return {"latency-critical": lc, "default": d, "batch": b}


def by_name(arms):
    return {arm.name: arm.weights for arm in arms}


def test_default_classes_get_fifteen_named_profiles_and_hold_last():
    arms = build_arms(SHARED, {})
    assert [arm.name for arm in arms] == [
        "lc1-d1-b1",
        "lc3-d3-b1",
        "lc10-d10-b1",
        "lc32-d32-b1",
        "lc100-d100-b1",
        "lc10-d3-b1",
        "lc32-d10-b1",
        "lc100-d10-b1",
        "lc100-d32-b1",
        "lc32-d3-b1",
        "lc100-d3-b1",
        "lc10-d32-b1",
        "lc32-d100-b1",
        "lc10-d100-b1",
        "lc1-d1-b3",
        "hold",
    ]
    assert by_name(arms)["lc10-d3-b1"] == weights(1000, 316, 100)
    assert by_name(arms)["lc1-d1-b3"] == weights(100, 100, 316)
    assert arms[-1] == HOLD


def test_every_default_profile_has_a_neighbour_within_one_step():
    profiles = build_arms(SHARED, {})[:-1]
    for arm in profiles:
        others = [distance(arm.weights, other.weights, LIMITS) for other in profiles if other is not arm]
        assert min(others) < 1.39  # ln 4


def test_profile_believed_in_first_is_ten_to_three_to_one():
    assert default_profile(build_arms(SHARED, {}), SHARED).name == "lc10-d3-b1"


def test_equally_important_latency_classes_are_each_raised_above_the_other():
    classes = {
        "web": ClassSettings(objective_p99_seconds=0.1),
        "api": ClassSettings(objective_p99_seconds=0.1),
        "batch": ClassSettings(kind="throughput"),
    }
    names = by_name(build_arms(Shared(classes=classes), {}))
    assert {"w10-a3-b1", "w3-a10-b1", "w1-a1-b1", "w1-a1-b3"} <= set(names)


def test_added_class_follows_its_importance():
    classes = DEFAULT_CLASSES | {"realtime": ClassSettings(objective_p99_seconds=0.01, importance=0.5)}
    arms = by_name(build_arms(Shared(classes=classes), {}))
    assert all(profile["realtime"] == profile["default"] for name, profile in arms.items() if name != "hold")


def test_classes_with_equal_initials_are_spelled_out():
    classes = {"web": ClassSettings(objective_p99_seconds=0.1), "work": ClassSettings(kind="throughput")}
    assert "web10-work1" in by_name(build_arms(Shared(classes=classes), {}))


def test_single_class_leaves_one_profile():
    shared = Shared(classes={"all": ClassSettings(kind="throughput")})
    assert build_arms(shared, {}) == (Arm("a1", {"all": 100}), HOLD)


def test_throughput_classes_alone_are_each_favoured():
    shared = Shared(classes={"a": ClassSettings(kind="throughput"), "b": ClassSettings(kind="throughput")})
    assert [arm.name for arm in build_arms(shared, {})] == ["a1-b1", "a3-b1", "a10-b1", "a1-b3", "a1-b10", "hold"]


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (WeightSettings(max_step_ratio=1.5), 15),
        (WeightSettings(max_weight=200), 3),
        (WeightSettings(min_weight=1), 15),
        (WeightSettings(min_weight=3000), 3),
    ],
)
def test_grid_keeps_bounds_and_steps(limits, count):
    profiles = build_arms(Shared(weights=limits), {})[:-1]
    assert len(profiles) == count
    for arm in profiles:
        assert min(arm.weights.values()) == limits.min_weight
        assert max(arm.weights.values()) <= limits.max_weight


def test_grid_that_no_step_can_walk_is_an_error():
    with pytest.raises(SettingsError, match=r"max_step_ratio"):
        build_arms(Shared(weights=WeightSettings(min_weight=1, max_step_ratio=1.2)), {})


def test_configured_profiles_are_made_on_profile_scale():
    arms = build_arms(SHARED, {"even": {"default": 500}, "up": {"latency-critical": 400, "default": 200, "batch": 200}})
    assert by_name(arms) == {"even": weights(100, 100, 100), "up": weights(200, 100, 100), "hold": None}


def test_class_that_a_profile_leaves_out_gets_the_weight_of_default_or_the_minimum():
    arms = build_arms(
        SHARED,
        {"with": {"latency-critical": 600, "default": 300, "batch": 150}, "without": {"latency-critical": 400}},
    )
    assert by_name(arms)["with"] == weights(400, 200, 100)
    assert by_name(arms)["without"] == weights(400, 100, 100)
    assert by_name(build_arms(SHARED, {"p": {"default": 300, "latency-critical": 150}}))["p"] == weights(100, 200, 200)


@pytest.mark.parametrize(
    ("profiles", "text"),
    [
        ({"hold": {"batch": 100}}, "reserved"),
        ({"p": {"bach": 100}}, "no class 'bach'"),
        ({"p": {"batch": 50}}, r"p\.batch: 50 is outside"),
        ({"p": {"batch": 10_001}}, "10001 is outside"),
        ({"p": {"batch": 100}, "q": {"default": 400, "batch": 400}}, "same ratios as profile 'p'"),
        ({"p": {"batch": 100}, "q": {"batch": 5000}}, "add a profile between"),
        ({f"p{i}": {"batch": 100 + i} for i in range(21)}, "at most 20"),
    ],
)
def test_bad_profile_is_one_line_that_names_the_way_out(profiles, text):
    with pytest.raises(SettingsError, match=text) as caught:
        build_arms(SHARED, profiles)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("decider.profiles")


def test_canonical_keeps_ratios_and_clamps_at_the_top():
    assert within_bounds({"a": 500, "b": 50}, LIMITS) == {"a": 1000, "b": 100}
    assert within_bounds({"a": 10_000, "b": 10}, LIMITS) == {"a": 10_000, "b": 100}
    assert within_bounds({}, LIMITS) == {}


def test_nearest_profile_is_by_the_worst_ratio():
    arms = (Arm("flat", {"a": 100, "b": 100}), Arm("steep", {"a": 1000, "b": 100}), HOLD)
    assert nearest_profile({"a": 300, "b": 100}, arms, LIMITS).name == "flat"
    assert nearest_profile({"a": 350, "b": 100}, arms, LIMITS).name == "steep"
    assert nearest_profile({"a": 35, "b": 10}, arms, LIMITS).name == "steep"
    assert nearest_profile({"a": 100}, (HOLD,), LIMITS) is HOLD
