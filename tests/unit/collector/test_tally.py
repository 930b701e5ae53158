"""Rates from counters: none from a first reading, a reset or another group; never a negative one."""

import pytest

from services.collector.core.tally import GroupRates, Tally
from tests.unit.collector.world import reading

NONE = GroupRates()


def tally(*readings):
    """Rates after each reading of one group, five seconds apart."""
    made, found = Tally(), []
    for number, one in enumerate(readings):
        rates = made.advance(5.0 if number else None, {"pod-a": one} if one else {})
        found.append(rates.get("pod-a"))
    return found


def test_cores_pressure_and_throttling_are_rises_over_time():
    rates = tally(reading(0, waited=0), reading(5_000_000, waited=1_000_000, throttled=500_000))
    assert rates == [NONE, GroupRates(pytest.approx(1.0), pytest.approx(0.2), pytest.approx(0.1))]


def test_st_01_a_a_group_made_again_has_no_rate_until_it_was_seen_twice():
    rates = tally(reading(9_000_000), reading(120_000, inode=2), reading(2_620_000, inode=2))
    assert [rate.cpu_cores for rate in rates] == [None, None, pytest.approx(0.5)]


def test_st_01_b_a_counter_that_went_back_gives_no_rate_and_is_a_new_baseline():
    rates = tally(reading(9_000_000), reading(120_000), reading(2_620_000))
    assert [rate.cpu_cores for rate in rates] == [None, None, pytest.approx(0.5)]


def test_st_01_a_a_group_made_again_with_a_higher_counter_gives_no_rate():
    rates = tally(reading(9_000_000), reading(900_000_000, inode=2))
    assert rates == [NONE, NONE]


def test_a_group_that_was_away_begins_anew():
    rates = tally(reading(1_000_000), None, reading(90_000_000), reading(95_000_000))
    assert rates == [NONE, None, NONE, GroupRates(pytest.approx(1.0), None, 0.0)]


def test_st_02_without_pressure_the_rest_is_known():
    assert tally(reading(0), reading(5_000_000))[1] == GroupRates(pytest.approx(1.0), None, 0.0)


def test_a_stat_that_made_no_sense_is_no_rate_now_nor_next_time():
    rates = tally(reading(0), reading(None), reading(5_000_000))
    assert [rate.cpu_cores for rate in rates] == [None, None, None]


def test_ratios_of_time_are_at_most_one():
    rates = tally(reading(0, waited=0), reading(0, waited=5_100_000, throttled=6_000_000))
    assert (rates[1].pressure_ratio, rates[1].throttled_ratio) == (1.0, 1.0)


def test_no_time_gives_no_rate():
    made = Tally()
    made.advance(None, {"pod-a": reading(0)})
    assert made.advance(0.0, {"pod-a": reading(5)}) == {"pod-a": NONE}
