"""The profile scale: ratios, with the smallest class at the bottom."""

from schemas.profile import on_profile_scale
from schemas.settings import WeightSettings


def test_the_smallest_class_is_at_the_smallest_weight():
    assert on_profile_scale({"a": 39, "b": 4, "c": 0}, WeightSettings()) == {"a": 975, "b": 100}
    assert on_profile_scale({"a": 5000}, WeightSettings()) == {"a": 100}
    assert on_profile_scale({"a": 0}, WeightSettings()) == {}


def test_classes_too_far_apart_are_cut_at_the_largest_weight():
    assert on_profile_scale({"a": 10_000, "b": 1}, WeightSettings()) == {"a": 10_000, "b": 100}
