"""Rates from counters: none from a first reading, a reset or another group; never a negative one."""

from dataclasses import replace

import pytest

from hostfs.pressure import PressureAbsent
from services.collector.core.tally import GroupRates, Tally
from tests.unit.collector.world import reading

FIRST = GroupRates(unknown="first_look")


def tally(*readings, delays=()):
    """Rates after each reading of one group, five seconds apart. `delays` are those of its tasks, reading by reading."""
    made, found = Tally(), []
    for number, one in enumerate(readings):
        waited = {"pod-a": delays[number]} if delays and delays[number] is not None else None
        rates = made.advance(5.0 if number else None, {"pod-a": one} if one else {}, waited)
        found.append(rates.get("pod-a"))
    return found


def test_cores_pressure_and_throttling_are_rises_over_time():
    rates = tally(reading(0, waited=0), reading(5_000_000, waited=1_000_000, throttled=500_000))
    assert rates[0] == FIRST
    held = 0.1 / 1.1  # it wanted to run for 1.1 s in a second, and was held for 0.1 of them
    assert rates[1] == GroupRates(*map(pytest.approx, (1.0, 0.2, held)), None, pytest.approx(0.2 - held))


@pytest.mark.parametrize(
    ("used", "held", "ratio"),
    [
        (0.0, 0.0, 0.0),
        (5.0, 0.0, 0.0),
        (0.0, 2.5, 0.5),
        (0.0, 40.0, 1.0),
        (2.5, 2.5, 0.5),
        (5.0, 15.0, 0.75),
        (5.0, 0.5, 0.1 / 1.1),
        (0.05, 0.05, 0.01),
    ],
)
def test_the_time_that_a_limit_held_a_group_is_added_up_over_the_cpus_and_is_a_part_of_the_window(used, held, ratio):
    """Seconds in a window of five. Held on four CPUs for 15 s in all after a quarter of the window is 3/4 of it."""
    rates = tally(reading(0, waited=0), reading(int(used * 1e6), waited=0, throttled=int(held * 1e6)))[1]
    assert rates.throttled_ratio == pytest.approx(ratio)


def test_throttling_is_unknown_where_the_usage_is():
    rates = tally(reading(9, waited=0), reading(0, waited=0, throttled=500_000))[1]
    assert (rates.cpu_cores, rates.throttled_ratio, rates.waited_ratio(2)) == (None, None, None)


def test_a_counter_that_jumps_further_than_any_machine_has_cpus_is_no_rate():
    most, more = 5 * 8192 * 10**6, 5 * 8192 * 10**6 + 1
    rates = tally(reading(0, waited=0), reading(most, waited=0), reading(most + more, waited=0))
    assert [rate.cpu_cores for rate in rates] == [None, 8192.0, None]
    assert [rate.unknown for rate in rates] == ["first_look", None, "counter_reset"]
    for jumped in (reading(0, waited=more), reading(0, waited=0, throttled=more)):
        rates = tally(reading(0, waited=0), jumped)[1]
        assert (rates.waited_ratio(2), rates.unknown) == (None, "counter_reset")


PSI_ON = {"waited": 0}


@pytest.mark.parametrize(
    ("first", "second", "unknown"),
    [
        (reading(0, **PSI_ON), reading(0, **PSI_ON), None),
        (reading(0, **PSI_ON), reading(0, inode=2, **PSI_ON), "first_look"),
        (reading(9, **PSI_ON), reading(0, **PSI_ON), "counter_reset"),
        (reading(0, waited=9), reading(0, waited=0), "counter_reset"),
        (reading(0, throttled=9, **PSI_ON), reading(0, throttled=0, **PSI_ON), "counter_reset"),
        (reading(9, throttled=9), reading(9, throttled=0), "counter_reset"),
        (reading(0), reading(0, **PSI_ON), "first_look"),
        (reading(0, **PSI_ON), reading(0), "psi_off"),
        (reading(9), reading(0), "counter_reset"),
        (reading(0, **PSI_ON), reading(None, **PSI_ON), "malformed"),
        (reading(None, **PSI_ON), reading(0, **PSI_ON), "first_look"),
        *(
            (reading(0), replace(reading(0), pressure=PressureAbsent(word)), word)
            for word in ("psi_off", "psi_missing", "unreadable", "malformed", "vanished")
        ),
    ],
)
def test_why_a_wait_is_unknown_is_said(first, second, unknown):
    rates = tally(first, second)[1]
    assert rates.unknown == unknown
    assert (rates.waited_ratio(2) is None) is (unknown is not None)


def test_a_run_delay_that_stands_in_needs_no_reason():
    rates = tally(reading(0), reading(0), delays=({7: 0}, {7: 1_000_000_000}))[1]
    assert (rates.waited_ratio(2), rates.unknown) == (pytest.approx(0.2), None)
    rates = tally(reading(0), reading(0), delays=(None, {7: 1_000_000_000}))[1]
    assert (rates.waited_ratio(2), rates.unknown) == (None, "psi_off")


def test_st_05_b_without_the_cpu_controller_throttling_is_unknown_and_there_is_none_to_take_off():
    rates = tally(reading(0, waited=0, throttled=None), reading(0, waited=1_000_000, throttled=None))[1]
    assert (rates.throttled_ratio, rates.unheld_ratio) == (None, pytest.approx(0.2))


@pytest.mark.parametrize("before", [900_000, None])
def test_throttling_that_went_back_or_just_began_to_be_counted_is_unknown_and_so_is_the_wait_for_others(before):
    first, second = reading(0, waited=0, throttled=before), reading(0, waited=1_000_000, throttled=5)
    rates = tally(first, second, reading(0, waited=2_000_000, throttled=500_005))
    assert (rates[1].pressure_ratio, rates[1].throttled_ratio) == (pytest.approx(0.2), None)
    assert (rates[1].unheld_ratio, rates[1].waited_ratio(2)) == (None, None)
    assert rates[2].unheld_ratio == pytest.approx(0.1)


def test_pressure_that_went_back_gives_no_ratio_and_is_a_new_baseline():
    rates = tally(reading(0, waited=9_000_000), reading(0, waited=1_000_000), reading(0, waited=2_000_000))
    assert [rate.pressure_ratio for rate in rates] == [None, None, pytest.approx(0.2)]
    assert [rate.waited_ratio(2) for rate in rates] == [None, None, pytest.approx(0.2)]


def test_without_pressure_the_run_delay_of_its_tasks_tells_how_long_it_waited():
    rates = tally(reading(0), reading(0), delays=({7: 0, 8: 0}, {7: 1_000_000_000, 8: 500_000_000}))[1]
    assert (rates.pressure_ratio, rates.run_delay, rates.unheld_ratio) == (None, pytest.approx(0.3), pytest.approx(0.3))


def test_where_there_is_pressure_the_run_delay_is_not_asked():
    rates = tally(reading(0, waited=0), reading(0, waited=500_000), delays=({7: 0}, {7: 5_000_000_000}))[1]
    assert (rates.pressure_ratio, rates.run_delay, rates.unheld_ratio) == (pytest.approx(0.1), None, pytest.approx(0.1))


def test_the_wait_of_many_tasks_is_at_most_the_whole_window():
    many = dict.fromkeys(range(8), 5_000_000_000)
    rates = tally(reading(0), reading(0), delays=(dict.fromkeys(range(8), 0), many))[1]
    assert (rates.run_delay, rates.unheld_ratio) == (pytest.approx(8.0), 1.0)


def test_tasks_that_their_own_limit_held_together_did_not_wait_for_others():
    held = dict.fromkeys(range(4), 2_500_000_000)
    rates = tally(reading(0), reading(0, throttled=2_500_000), delays=(dict.fromkeys(range(4), 0), held))[1]
    assert (rates.run_delay, rates.throttled_ratio, rates.unheld_ratio) == (pytest.approx(2.0), 0.5, 0.0)


@pytest.mark.parametrize(
    ("readings", "delays"),
    [
        ((reading(0), reading(0, inode=2)), ({7: 0}, {7: 1_000_000_000})),
        ((reading(0), reading(0)), (None, {7: 1_000_000_000})),
        ((reading(0), reading(0)), ({7: 0}, None)),
    ],
    ids=["made anew", "no first reading", "no second reading"],
)
def test_st_01_run_delays_need_two_readings_of_the_same_group(readings, delays):
    rates = tally(*readings, delays=delays)[1]
    assert (rates.run_delay, rates.unheld_ratio) == (None, None)


def test_st_01_a_group_made_again_counts_its_tasks_from_its_own_first_reading():
    first, again = reading(0), reading(0, inode=2)
    rates = tally(first, again, again, delays=({7: 0}, {7: 1_000_000_000}, {7: 2_000_000_000}))
    assert [rate.run_delay for rate in rates] == [None, None, pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("cores", "unheld", "cpus", "waited"),
    [
        (0.0, 0.4, 2, 0.4),
        (0.5, 0.4, 2, 0.15),
        (2.0, 1.0, 2, 0.0),
        (1.0, 1.0, 0, 0.0),
        (None, 0.4, 2, None),
        (0.5, None, 2, None),
    ],
)
def test_what_it_may_have_waited_for_its_own_tasks_is_taken_off(cores, unheld, cpus, waited):
    found = GroupRates(cpu_cores=cores, unheld_ratio=unheld).waited_ratio(cpus)
    assert found == (None if waited is None else pytest.approx(waited))


def test_st_01_a_a_group_made_again_has_no_rate_until_it_was_seen_twice():
    rates = tally(reading(9_000_000), reading(120_000, inode=2), reading(2_620_000, inode=2))
    assert [rate.cpu_cores for rate in rates] == [None, None, pytest.approx(0.5)]


def test_st_01_b_a_counter_that_went_back_gives_no_rate_and_is_a_new_baseline():
    rates = tally(reading(9_000_000), reading(120_000), reading(2_620_000))
    assert [rate.cpu_cores for rate in rates] == [None, None, pytest.approx(0.5)]


def test_st_01_a_a_group_made_again_with_a_higher_counter_gives_no_rate():
    rates = tally(reading(9_000_000), reading(900_000_000, inode=2))
    assert rates == [FIRST, FIRST]


def test_a_group_that_was_away_begins_anew():
    rates = tally(reading(1_000_000), None, reading(90_000_000), reading(95_000_000))
    assert rates == [FIRST, None, FIRST, GroupRates(pytest.approx(1.0), None, 0.0, unknown="psi_off")]


def test_st_02_without_pressure_the_rest_is_known():
    assert tally(reading(0), reading(5_000_000))[1] == GroupRates(pytest.approx(1.0), None, 0.0, unknown="psi_off")


def test_a_stat_that_made_no_sense_is_no_rate_now_nor_next_time():
    rates = tally(reading(0), reading(None), reading(5_000_000))
    assert [rate.cpu_cores for rate in rates] == [None, None, None]


def test_ratios_of_time_are_at_most_one():
    rates = tally(reading(0, waited=0), reading(0, waited=5_100_000, throttled=6_000_000))
    assert (rates[1].pressure_ratio, rates[1].throttled_ratio) == (1.0, 1.0)


def test_no_time_gives_no_rate():
    made = Tally()
    made.advance(None, {"pod-a": reading(0)})
    assert made.advance(0.0, {"pod-a": reading(5)}) == {"pod-a": FIRST}
