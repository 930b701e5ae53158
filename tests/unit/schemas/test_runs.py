"""Whose states count: the run in progress keeps the floor, and nobody is locked out. Ticks are 5 s; 4 s are quiet."""

import pytest

from schemas.runs import Runs

FAR = 2**63 - 1


def heard(*said):
    """What becomes of each (time, boot, cycle)."""
    runs = Runs(5.0)
    return [runs.refuses(boot, cycle, now) for now, boot, cycle in said]


def test_cycles_in_their_order_are_all_accepted():
    assert heard((0.0, "a", 1), (5.0, "a", 2), (10.0, "a", 4)) == [None, None, None]


def test_what_was_seen_or_overtaken_is_a_duplicate():
    assert heard((0.0, "a", 4), (1.0, "a", 4), (2.0, "a", 3), (9.0, "a", 2)) == [None, *["duplicate"] * 3]


def test_a_collector_that_starts_anew_is_heard_from_its_first_state_on():
    assert heard((0.0, "a", 7), (5.1, "b", 1), (10.1, "b", 2)) == [None, None, None]


def test_a_stray_state_between_two_cycles_is_not_heard_and_costs_nothing():
    assert heard((0.0, "a", 7), (3.0, "b", 1), (5.0, "a", 8), (10.0, "a", 9)) == [None, "stray", None, None]


@pytest.mark.parametrize("stray", [("b", 1), ("b", FAR), ("a", 7000), ("a", FAR)])
def test_a_stray_state_just_before_a_tick_costs_one_cycle_and_no_more(stray):
    told = heard((0.0, "a", 7), (4.9, *stray), (5.0, "a", 8), (10.0, "a", 9), (15.0, "a", 10))
    assert told == [None, None, "stray", None, None]


@pytest.mark.parametrize("stray", [("b", 1), ("a", FAR)])
def test_strays_that_are_heard_first_do_not_lock_the_collector_out(stray):
    assert heard((0.0, *stray), (3.0, "a", 57), (8.0, "a", 58), (13.0, "a", 59)) == [None, "stray", None, None]


def test_a_run_that_keeps_speaking_is_not_interrupted_by_another_one():
    said = [(time, boot, cycle) for cycle in range(1, 9) for time, boot in ((5.0 * cycle, "a"), (5.0 * cycle + 2, "b"))]
    assert heard(*said) == [None, "stray"] * 8


def test_a_cycle_is_accepted_once_whoever_had_the_floor_in_between():
    said = [
        (0.0, "a", 7),
        (5.0, "b", 1),
        (10.0, "a", 7),
        (10.0, "a", 6),
        (15.0, "a", 8),
        (20.0, "b", 1),
        (25.0, "b", 2),
    ]
    assert heard(*said) == [None, None, "duplicate", "duplicate", None, "duplicate", None]


def test_cycles_that_were_missed_in_a_long_silence_are_no_jump():
    assert heard((0.0, "a", 1), (500.0, "a", 101), (501.0, "a", 102)) == [None, None, None]


@pytest.mark.parametrize(("cycle", "told"), [(17, None), (18, "stray")])
def test_a_jump_is_more_cycles_at_once_than_can_have_been_lost(cycle, told):
    assert heard((0.0, "a", 1), (0.0, "a", cycle)) == [None, told]


def test_the_newest_cycle_of_the_run_in_progress_is_the_current_one():
    runs = Runs(5.0)
    assert (runs.boot, runs.cycle, runs.is_current("a", 0)) == (None, 0, False)
    runs.refuses("a", 7, 0.0)
    runs.refuses("b", 1, 1.0)
    assert (runs.boot, runs.cycle, runs.is_current("a", 7), runs.is_current("b", 1)) == ("a", 7, True, False)
    runs.refuses("b", 2, 5.0)
    assert (runs.boot, runs.cycle) == ("b", 2)


def test_memory_is_bounded():
    runs = Runs(5.0)
    for number in range(1000):
        runs.refuses(f"boot{number}", 1, 5.0 * number)
    assert len(runs._runs) == 256
