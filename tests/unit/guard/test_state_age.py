"""Ages of states under clocks that jump. Times are given as seconds; the wall clock starts at 1000 s."""

import pytest

from services.guard.core.state_age import StateAges

HOUR = 3600.0


def ns(seconds):
    return round((1000.0 + seconds) * 1e9)


def ages(*arrivals, started=0.0, skew=5.0):
    """The ages of arrivals (stamp by the wall clock, wall clock at arrival, monotonic arrival)."""
    of = StateAges(started, skew)
    return [pytest.approx(of.age_seconds(ns(stamp), ns(wall), now), abs=1e-6) for stamp, wall, now in arrivals]


def test_the_wall_clock_tells_the_age():
    assert ages((5.0, 5.01, 5.01), (10.0, 40.0, 40.0)) == [0.01, 30.0]


def test_a_stamp_a_little_in_the_future_is_another_machine_s_clock():
    assert ages((5.2, 5.0, 5.0), (10.2, 10.0, 10.0), (15.2, 15.0, 15.0)) == [0.0, 0.0, 0.0]


def test_na_09_a_clock_set_back_between_stamp_and_arrival_costs_nothing():
    assert ages((5.0, 5.01, 5.01), (10.0, 10.02 - HOUR, 10.02), (15.0 - HOUR, 15.01 - HOUR, 15.01)) == [
        0.01,
        0.02,
        0.01,
    ]


def test_na_09_a_clock_set_back_does_not_make_an_old_state_fresh():
    backlog = [(10.0, 45.0 - HOUR, 45.0), (15.0, 45.0 - HOUR, 45.0), (20.0, 45.0 - HOUR, 45.0)]
    assert ages((5.0, 5.0, 5.0), *backlog, (45.0 - HOUR, 45.1 - HOUR, 45.1)) == [0.0, 35.0, 30.0, 25.0, 0.1]


def test_a_clock_set_forward_makes_one_state_look_old_and_no_more():
    assert ages((5.0, 5.0, 5.0), (10.0, 10.0 + HOUR, 10.0), (15.0 + HOUR, 15.0 + HOUR, 15.0)) == [0.0, HOUR, 0.0]


def test_the_first_state_is_no_older_than_the_subscription():
    assert ages((7.0, 8.0 - HOUR, 8.0), started=5.0) == [3.0]


def test_two_machines_an_hour_apart_do_not_stop_the_loop():
    states = [(tick + HOUR, tick, tick) for tick in (5.0, 10.0, 15.0, 20.0)]
    assert ages(*states, started=3.0) == [2.0, 2.0, 2.0, 2.0]


def test_stamps_that_contradict_the_arrivals_give_the_longest_possible_age():
    assert ages((5.0, 5.0, 5.0), (2 * HOUR, 10.0, 10.0)) == [0.0, 5.0]  # stamped hours after a state 5 s ago
    assert ages((2 * HOUR, 5.0, 5.0), (HOUR, 10.0, 10.0)) == [5.0, 10.0]  # stamped before the one before it
