from hypothesis import given
from hypothesis import strategies as st

from schemas.order import CycleOrder


def accepted(*arrivals: tuple[str, int]) -> list[tuple[str, int]]:
    order = CycleOrder()
    return [arrival for arrival in arrivals if order.accept(*arrival)]


def test_na_09_order_comes_from_the_cycle_so_that_a_clock_stepping_back_drops_nothing():
    assert accepted(("r", 5), ("r", 6), ("r", 7)) == [("r", 5), ("r", 6), ("r", 7)]


def test_a_cycle_is_accepted_once():
    assert accepted(("r", 5), ("r", 5)) == [("r", 5)]


def test_an_older_cycle_is_late_for_good():
    assert accepted(("r", 5), ("r", 7), ("r", 6)) == [("r", 5), ("r", 7)]


def test_a_new_run_starts_its_own_count():
    assert accepted(("r1", 900), ("r2", 1), ("r2", 2)) == [("r1", 900), ("r2", 1), ("r2", 2)]


def test_a_run_that_has_ended_never_comes_back():
    assert accepted(("r1", 900), ("r2", 1), ("r1", 901)) == [("r1", 900), ("r2", 1)]


def test_what_is_refused_changes_nothing():
    order = CycleOrder()
    order.accept("r1", 4)
    order.accept("r2", 9)
    order.accept("r1", 5)
    order.accept("r2", 3)
    assert (order.boot, order.cycle) == ("r2", 9)
    assert order.is_current("r2", 9)
    assert not order.is_current("r1", 9)
    assert not order.is_current("r2", 3)


def test_before_the_first_cycle_nothing_is_current():
    order = CycleOrder()
    assert (order.boot, order.cycle) == (None, 0)
    assert not order.is_current("r", 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6))))
def test_na_09_whatever_arrives_in_whatever_order_it_never_goes_back(arrivals):
    order = CycleOrder()
    runs: list[str] = []
    for boot, cycle in arrivals:
        before = (order.boot, order.cycle)
        if not order.accept(boot, cycle):
            assert (order.boot, order.cycle) == before
            continue
        if boot == before[0]:
            assert cycle > before[1]
        else:
            assert boot not in runs
            runs.append(boot)
