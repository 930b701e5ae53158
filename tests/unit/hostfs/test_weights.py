"""Conversions of requests, shares and weights."""

import math

import pytest

from hostfs.weights import kernel_weight, shares_from_millicpu, weight_from_shares


@pytest.mark.parametrize(
    ("millicpu", "shares"),
    [(-5, 2), (0, 2), (1, 2), (2, 2), (100, 102), (1000, 1024), (256_000, 262_144), (999_999, 262_144)],
)
def test_a_request_becomes_1024_shares_per_cpu_within_the_range_of_shares(millicpu, shares):
    assert shares_from_millicpu(millicpu) == shares


@pytest.mark.parametrize(("millicpu", "weight"), [(100, 4), (250, 10), (1000, 39), (4000, 157)])
def test_requests_become_the_weights_that_the_linear_rule_gives(millicpu, weight):
    assert weight_from_shares(shares_from_millicpu(millicpu)) == weight


@pytest.mark.parametrize(
    ("shares", "weight"), [(0, None), (1, 1), (2, 1), (28, 1), (29, 2), (262_144, 10_000), (300_000, 10_000)]
)
def test_wt_02_shares_outside_their_range_neither_wrap_nor_overshoot(shares, weight):
    assert weight_from_shares(shares) == weight


def test_wt_02_negative_shares_are_refused():
    with pytest.raises(ValueError, match="-1 shares"):
        weight_from_shares(-1)


@pytest.mark.parametrize(
    ("proposed", "weight"),
    [
        (0, 1),
        (-3, 1),
        (1, 1),
        (10_000, 10_000),
        (10_001, 10_000),
        (11_443, 10_000),
        (38_144, 10_000),
        (49.6, 50),
        (0.2, 1),
    ],
)
def test_wt_02_numbers_are_rounded_and_clamped_to_what_the_kernel_takes(proposed, weight):
    written = kernel_weight(proposed)
    assert written == weight
    assert type(written) is int


@pytest.mark.parametrize("proposed", [math.nan, math.inf, -math.inf, "100", True, False, None, b"7", [1]])
def test_wt_02_what_is_no_finite_number_is_rejected_and_named(proposed):
    with pytest.raises(ValueError, match="is no weight") as error:
        kernel_weight(proposed)
    assert repr(proposed) in str(error.value)
