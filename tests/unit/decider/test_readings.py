"""What controllers read from the vector: places, shares, verdicts."""

import pytest

from schemas.settings import DEFAULT_CLASSES
from services.decider.core.policy import HOLD, Arm
from services.decider.core.readings import apart, is_same, load_place, place_of, save_place, share_of, verdicts


def test_factor_that_all_weights_have_in_common_is_no_distance():
    assert apart({"a": 2.0, "b": 3.0}, {"a": 2.5, "b": 3.5}) == pytest.approx(0.0)
    assert apart({"a": 2.0, "b": 3.0}, {"a": 2.0, "b": 4.0}) == pytest.approx(0.5**0.5)


def test_weights_now_are_where_a_profile_of_their_ratios_lies_even_if_its_lowest_class_is_gone():
    features = {"latency-critical.weight_log": 0.25, "default.weight_log": 0.0, "batch.present": 0.0}
    profile = Arm("p", {"latency-critical": 1000, "default": 316, "batch": 100})
    names = ("latency-critical", "default")
    assert is_same(place_of(HOLD, features, names), place_of(profile, features, names))


def test_share_is_of_weights_and_not_of_their_logarithms():
    assert share_of(["a"], {"a": 3.0, "b": 2.0, "c": 2.0}) == pytest.approx(1000 / 1200)
    assert share_of(["a"], {}) == 0.0


def test_ratios_beyond_their_range_are_cut():
    read = {"default.latency_missing": 0.0, "default.over_ratio": 7.0, "latency-critical.latency_missing": 0.0}
    read |= {"latency-critical.over_ratio": -3.0}
    found = verdicts(read, DEFAULT_CLASSES)
    assert {name: verdict.ratio for name, verdict in found.items()} == {"latency-critical": 0.0, "default": 1.0}


@pytest.mark.parametrize("place", [None, {"a": 2.0, "c": 0.0}, {"a": 0.1, "b": 0.2, "c": 0.3}])
def test_saved_place_is_restored(place):
    assert load_place(save_place(place, ("a", "b", "c")), ("a", "b", "c")) == place
