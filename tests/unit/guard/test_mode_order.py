"""The fold over the stream of orders: what counts, and what does not."""

import pytest

from services.guard.core.mode_order import first_stored_ns, in_force, is_again, refusal, said_again
from tests.support.builders import START_NS, command

SECOND = 1_000_000_000
SKEW = 300.0


def order(value, number, *, at=None, **fields):
    """An order of a mode, stored `number` seconds after the start, dated the same unless told."""
    stored_ns = START_NS + number * SECOND
    dated = stored_ns if at is None else START_NS + at * SECOND
    return command(verb="mode", mode=value, **{"id": f"{number}", "at": dated, **fields}), stored_ns


def mode_of(*orders):
    held = in_force(orders, SKEW)
    return None if held is None else held[0].mode


def test_the_newest_order_holds_whatever_came_after_that_is_none():
    other = [(command(verb="rollback"), START_NS), (command(verb="mode", mode=None), START_NS)]
    assert mode_of(order("active", 1), order("canary", 2), *other) == "canary"


def test_there_may_be_no_order():
    assert mode_of((command(verb="restore"), START_NS)) is None


def test_an_order_that_is_stored_again_under_its_id_is_a_replay_and_does_not_count():
    assert mode_of(order("active", 1), order("frozen", 2), order("active", 3, id="1", at=1)) == "frozen"
    assert mode_of(order("frozen", 1), order("active", 2), order("frozen", 3, id="1", at=1)) == "active"


def test_an_old_order_to_move_under_a_new_id_is_stale():
    assert mode_of(order("frozen", 1), order("active", 1000, at=699)) == "frozen"
    assert mode_of(order("frozen", 1), order("active", 1000, at=700)) == "active"


def test_an_order_to_move_from_the_future_does_not_count():
    assert mode_of(order("shadow", 1), order("canary", 10, at=311)) == "shadow"
    assert mode_of(order("shadow", 1), order("canary", 10, at=310)) == "canary"


@pytest.mark.parametrize("at", [-100_000, 100_000])
@pytest.mark.parametrize("value", ["frozen", "shadow"])
def test_an_order_to_stand_still_is_never_too_old_nor_too_early(value, at):
    assert mode_of(order("active", 1), order(value, 2, at=at)) == value


def test_orders_without_an_id_are_told_apart_by_what_they_say():
    first, again = order("active", 1, id=None), order("active", 3, id=None, at=1)
    assert mode_of(first, order("frozen", 2, id=None), again) == "frozen"
    assert mode_of(first, order("frozen", 2, id=None), order("active", 3, id=None)) == "active"


def test_the_words_for_what_does_not_count():
    active, stored_ns = order("active", 0)
    assert refusal(active, stored_ns, {"0"}, SKEW) == "duplicate"
    assert refusal(active, stored_ns + 301 * SECOND, set(), SKEW) == "stale"
    assert refusal(active, stored_ns - 301 * SECOND, set(), SKEW) == "future"
    assert refusal(active, stored_ns, set(), SKEW) is None


# ---- said again ----

NOW = START_NS + 90_000 * SECOND


def again(of, at=NOW):
    """What a guard says of an order at a time, and when that was stored."""
    return said_again(*of, at), at


def test_what_is_said_again_holds_where_the_order_itself_is_gone():
    word, stored_ns = again(order("active", 1))
    assert in_force([(word, stored_ns)], SKEW) == (word, START_NS + SECOND)
    assert is_again(word)
    assert word.reason == "still in force, ordered by operator: because"


def test_what_is_said_again_twice_is_dated_and_told_as_the_first_time():
    once, _ = again(order("active", 1))
    held = in_force([(once, NOW)], SKEW)
    twice = said_again(*held, NOW + 1000 * SECOND)
    assert (twice.reason, twice.id) == (once.reason, once.id)
    assert first_stored_ns(twice, NOW + 1000 * SECOND) == START_NS + SECOND


def test_what_is_said_again_never_counts_against_an_order_that_came_between():
    first = order("active", 1)
    assert mode_of(first, order("frozen", 2), again(first, START_NS + 3 * SECOND)) == "frozen"


def test_an_old_word_that_comes_again_lets_nothing_move():
    word, stored_ns = again(order("active", 1))
    assert mode_of((word, stored_ns + 301 * SECOND)) is None
    assert mode_of((word, stored_ns + 300 * SECOND)) == "active"


def test_nobody_but_the_guard_says_again():
    first, stored_ns = order("active", 1)
    forged = command(verb="mode", mode="active", id=f"again-{START_NS}-1", at=START_NS)
    assert mode_of(order("frozen", 2), (forged, stored_ns + 1000 * SECOND)) == "frozen"
    assert not is_again(forged)
    assert not is_again(first)
    assert not is_again(command(verb="mode", mode="active", by="guard", id="again-x"))
