"""The breaker's states. Times are seconds on a clock that starts at 0."""

import pytest

from services.guard.core.breaker import Breaker


@pytest.fixture
def breaker():
    return Breaker(rollbacks_to_open=3, window_seconds=120.0, cool_down_seconds=60.0, trial_seconds=30.0)


@pytest.fixture
def opened(breaker):
    """Opened at 20."""
    for at in (0.0, 10.0, 20.0):
        breaker.rolled_back(at)
    return breaker


def test_it_starts_closed(breaker):
    assert (breaker.state(0.0), breaker.blocks(0.0)) == ("closed", None)


def test_it_opens_with_the_nth_rollback_and_says_so_once(breaker):
    assert [breaker.rolled_back(at) for at in (0.0, 10.0, 20.0, 21.0)] == [False, False, True, False]
    assert breaker.state(20.0) == "open"


def test_rollbacks_outside_the_window_do_not_count(breaker):
    assert [breaker.rolled_back(at) for at in (0.0, 60.0, 121.0, 180.0)] == [False, False, False, True]


def test_a_change_that_is_kept_does_not_forgive_rollbacks(breaker):
    breaker.rolled_back(0.0)
    breaker.rolled_back(5.0)
    breaker.kept(10.0)
    assert breaker.rolled_back(15.0)


def test_it_blocks_while_it_cools_down_and_says_how_long(opened):
    assert opened.blocks(20.0) == "the breaker is open for another 60 s: 3 rollbacks"
    assert opened.blocks(79.5) is not None


def test_one_that_opened_at_the_clock_s_zero_tells_the_time_left():
    breaker = Breaker(1, 120.0, 60.0, 30.0)
    breaker.rolled_back(0.0)
    assert breaker.blocks(50.0) == "the breaker is open for another 10 s: 1 rollbacks"


def test_after_the_cool_down_it_is_half_open(opened):
    assert (opened.state(80.0), opened.blocks(80.0)) == ("half_open", None)


def test_half_open_lets_one_change_through(opened):
    opened.tried(81.0)
    assert [("half open" in (opened.blocks(at) or "")) for at in (81.0, 82.0, 110.9, 10_000.0)] == [True] * 4


def test_a_kept_trial_closes_it_with_a_clean_slate(opened):
    opened.tried(81.0)
    opened.kept(83.0)
    assert (opened.state(83.0), opened.blocks(83.0)) == ("closed", None)
    assert not opened.rolled_back(84.0)


def test_a_trial_that_is_rolled_back_opens_it_again_for_the_whole_cool_down(opened):
    opened.tried(81.0)
    assert opened.rolled_back(83.0)
    assert (opened.state(142.9), opened.state(143.0)) == ("open", "half_open")


def test_a_trial_without_evidence_opens_it_again_for_the_whole_cool_down(opened):
    opened.tried(81.0)
    assert [opened.gives_up(at) for at in (81.0, 110.9, 111.0, 111.1)] == [False, False, True, False]
    assert not opened.is_trying
    assert (opened.state(111.0), opened.state(170.9), opened.state(171.0)) == ("open", "open", "half_open")
    assert opened.blocks(171.0) is None


def test_a_trial_is_due_when_it_has_lasted_its_time(opened):
    assert not opened.is_due(10_000.0)
    opened.tried(81.0)
    assert [opened.is_due(at) for at in (110.9, 111.0, 111.1)] == [False, True, True]
    opened.kept(111.1)
    assert (opened.state(111.1), opened.is_due(200.0)) == ("closed", False)


def test_without_a_trial_there_is_nothing_to_give_up(opened):
    assert not opened.gives_up(10_000.0)


def test_a_change_that_never_came_about_leaves_room_for_another_one(opened):
    opened.tried(81.0)
    opened.not_tried()
    assert (opened.state(82.0), opened.blocks(82.0)) == ("half_open", None)
    opened.kept(83.0)
    assert opened.state(83.0) == "half_open"


def test_half_open_without_a_trial_is_not_closed_by_an_older_change(opened):
    opened.kept(81.0)
    assert opened.state(81.0) == "half_open"


def test_a_change_that_was_tried_while_closed_is_no_trial(breaker):
    breaker.tried(0.0)
    for at in (1.0, 2.0, 3.0):
        breaker.rolled_back(at)
    assert breaker.blocks(63.0) is None
