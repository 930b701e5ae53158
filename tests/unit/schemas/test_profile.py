"""The profile scale: ratios, with the smallest class at the bottom."""

from schemas.profile import on_profile_scale, within_bounds
from schemas.settings import WeightSettings


def test_the_smallest_class_is_at_the_smallest_weight():
    assert on_profile_scale({"a": 39, "b": 4, "c": 0}, WeightSettings()) == {"a": 975, "b": 100}
    assert on_profile_scale({"a": 5000}, WeightSettings()) == {"a": 100}
    assert on_profile_scale({"a": 0}, WeightSettings()) == {}


def test_classes_too_far_apart_stay_so_on_the_scale_and_are_cut_in_a_profile():
    weights = {"a": 1250, "b": 1}
    assert on_profile_scale(weights, WeightSettings()) == {"a": 125_000, "b": 100}
    assert within_bounds(weights, WeightSettings()) == {"a": 10_000, "b": 100}
