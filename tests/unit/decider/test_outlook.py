"""What the decider makes of states in a row: need, lost, rescue, moved. Every stream is literal."""

import itertools
import math

import pytest

from schemas.settings import DEFAULT_CLASSES, Shared
from services.decider.core.arms import build_arms
from services.decider.core.outlook import (
    BLIND_PATIENCE,
    HEIR_PATIENCE,
    MOST_RETRY_STATES,
    PATIENCE,
    RESCUE_SHORT_AFTER,
    RETRY_STATES,
    Outlook,
    outlook_names,
)

LC, D, B = "latency-critical", "default", "batch"
ARMS = build_arms(Shared(), {})
EVEN, MOST_LC, MOST_D, SHARED = (100, 100, 100), (3162, 316, 100), (1000, 10_000, 100), (1000, 1000, 100)
"""Weights of latency-critical, default, batch: shares of a third each; 0.88; 0.90 for default; just below half each."""
rising = itertools.count()


def state(lc=0.0, d=0.0, weights=EVEN, *, used=(0.2, 0.1), latency=None, known=True):
    """One state's features: parts of the requests over the objective. Latencies rise unless one is given."""
    grown = 0.0001 * next(rising)
    features = {}
    for name, weight in zip((LC, D, B), weights, strict=True):
        features |= {f"{name}.present": 1.0, f"{name}.weight_log": math.log(weight / 100) / math.log(100)}
    for name, over, cpu in ((LC, lc, used[0]), (D, d, used[1])):
        features |= {
            f"{name}.over_ratio": over,
            f"{name}.cpu_ratio": cpu,
            f"{name}.latency_log": grown if latency is None else latency,
            f"{name}.latency_missing": 0.0 if known else 1.0,
        }
    return features


def fresh():
    return Outlook(DEFAULT_CLASSES, ARMS)


def see(outlook, count=1, **fields):
    """The last outlook of so many equal states."""
    for _ in range(count):
        seen = outlook.see(state(**fields))
    return seen


def given_up(outlook, **fields):
    """Feeds states in which latency-critical is late with all that it can get, until it is lost."""
    see(outlook, PATIENCE, lc=0.9, weights=MOST_LC, **fields)
    assert outlook.lost() == {LC}
    return outlook


def test_outlook_has_the_names_it_says_and_no_others():
    assert set(fresh().see(state())) == set(outlook_names(DEFAULT_CLASSES))
    assert outlook_names(DEFAULT_CLASSES) == (
        "moved",
        *(f"{LC}.{word}" for word in ("need", "lost", "rescue")),
        *(f"{D}.{word}" for word in ("need", "lost", "rescue")),
    )


def test_equal_streams_give_equal_outlooks():
    one, other = fresh(), fresh()
    stream = [state(lc=part % 3 / 3, d=part % 5 / 5, weights=(EVEN, MOST_LC)[part // 7 % 2]) for part in range(60)]
    assert [one.see(features) for features in stream] == [other.see(features) for features in stream]


# ---- moved -----------------------------------------------------------------------------------------------------------


def test_weights_that_are_others_than_before_have_moved_for_one_state():
    outlook = fresh()
    weights = (EVEN, EVEN, MOST_LC, MOST_LC, EVEN)
    assert [see(outlook, weights=here)["moved"] for here in weights] == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_rounding_of_weights_is_no_move():
    outlook = fresh()
    see(outlook, weights=(1000, 316, 100))
    assert see(outlook, weights=(1004, 316, 100))["moved"] == 0.0
    assert see(outlook, weights=(1024, 316, 100))["moved"] == 1.0


# ---- need ------------------------------------------------------------------------------------------------------------


def test_need_is_what_was_used_when_the_objective_was_last_kept():
    outlook = fresh()
    assert see(outlook, lc=0.0, used=(0.3, 0.1))[f"{LC}.need"] == 0.3
    assert see(outlook, lc=0.01, used=(0.2, 0.1))[f"{LC}.need"] == 0.2


def test_a_backlog_uses_more_and_less_counts_for_nothing():
    outlook = fresh()
    see(outlook, lc=0.0, used=(0.3, 0.1))
    needs = [see(outlook, lc=0.5, used=(used, 0.1))[f"{LC}.need"] for used in (0.2, 0.45, 0.4)]
    assert needs == [0.3, 0.45, 0.45]
    assert see(outlook, lc=0.0, used=(0.25, 0.1))[f"{LC}.need"] == 0.25


def test_need_falls_for_nothing_that_is_not_known():
    outlook = fresh()
    see(outlook, lc=0.0, used=(0.3, 0.1))
    assert see(outlook, used=(0.1, 0.1), known=False)[f"{LC}.need"] == 0.3
    assert see(outlook, used=(0.6, 0.1), known=False)[f"{LC}.need"] == 0.6


# ---- rescue ----------------------------------------------------------------------------------------------------------


def test_two_states_of_late_requests_call_for_rescue_and_one_does_not():
    outlook = fresh()
    assert [see(outlook, lc=0.6)[f"{LC}.rescue"] for _ in range(3)] == [0.0, 1.0, 1.0]
    assert see(outlook, lc=0.5)[f"{LC}.rescue"] == 0.0
    assert see(outlook, lc=0.6)[f"{LC}.rescue"] == 0.0


def test_what_is_missed_by_less_calls_for_rescue_when_it_lasts():
    outlook = fresh()
    assert [see(outlook, lc=0.12)[f"{LC}.rescue"] for _ in range(RESCUE_SHORT_AFTER)] == [0.0] * (
        RESCUE_SHORT_AFTER - 1
    ) + [1.0]
    assert see(outlook, lc=0.1)[f"{LC}.rescue"] == 0.0
    assert see(outlook, RESCUE_SHORT_AFTER - 1, lc=0.12)[f"{LC}.rescue"] == 0.0
    assert see(outlook, lc=0.12, latency=-1.0)[f"{LC}.rescue"] == 0.0  # it falls: it catches up
    assert see(outlook, RESCUE_SHORT_AFTER - 1, lc=0.12)[f"{LC}.rescue"] == 0.0
    assert see(outlook, lc=0.12, known=False)[f"{LC}.rescue"] == 0.0


def test_latency_that_falls_is_catching_up_and_not_rescued():
    outlook = fresh()
    assert [see(outlook, lc=0.9, latency=level)[f"{LC}.rescue"] for level in (0.5, 0.46, 0.42)] == [0.0, 0.0, 0.0]
    assert [see(outlook, lc=0.9, latency=level)[f"{LC}.rescue"] for level in (0.41, 0.40)] == [0.0, 1.0]


def test_only_the_most_important_late_class_is_rescued():
    outlook = fresh()
    seen = see(outlook, 2, lc=0.9, d=0.9)
    assert (seen[f"{LC}.rescue"], seen[f"{D}.rescue"]) == (1.0, 0.0)
    assert see(outlook, lc=0.0, d=0.9)[f"{D}.rescue"] == 1.0


def test_class_that_has_nearly_all_it_can_get_is_not_rescued_and_nobody_instead_of_it():
    outlook = fresh()
    seen = see(outlook, 2, lc=0.9, d=0.9, weights=MOST_LC, latency=1.0)
    assert (seen[f"{LC}.rescue"], seen[f"{D}.rescue"]) == (0.0, 0.0)


def test_lost_class_makes_way_for_the_next_one():
    outlook = given_up(fresh())
    assert see(outlook, 2, lc=0.9, d=0.9, weights=MOST_LC)[f"{D}.rescue"] == 1.0


# ---- lost ------------------------------------------------------------------------------------------------------------


def test_class_that_is_late_with_all_it_can_get_is_lost_after_two_states():
    outlook = fresh()
    assert [see(outlook, lc=0.9, weights=MOST_LC)[f"{LC}.lost"] for _ in range(3)] == [0.0, 1.0, 1.0]
    assert outlook.lost() == {LC}


def test_class_that_may_get_more_is_never_lost():
    assert see(fresh(), 50, lc=1.0, weights=(1000, 316, 100))[f"{LC}.lost"] == 0.0  # 0.706 of at most 0.960
    assert see(fresh(), PATIENCE, lc=1.0, weights=(1100, 316, 100))[f"{LC}.lost"] == 1.0  # 0.726: three quarters


def test_half_bad_states_count_a_quarter():
    outlook = fresh()
    assert [see(outlook, lc=0.3, weights=MOST_LC)[f"{LC}.lost"] for _ in range(8)] == [0.0] * (
        RESCUE_SHORT_AFTER - 1
    ) + [1.0]


def test_one_good_state_or_a_falling_latency_starts_the_count_again():
    outlook = fresh()
    for over in (0.9, 0.1, 0.9, 0.1, 0.9):
        assert see(outlook, lc=over, weights=MOST_LC)[f"{LC}.lost"] == 0.0
    outlook = fresh()
    falling = [0.9 - 0.04 * part for part in range(20)]
    assert [see(outlook, lc=1.0, weights=MOST_LC, latency=level)[f"{LC}.lost"] for level in falling] == [0.0] * 20


def test_state_right_after_a_move_neither_counts_nor_clears():
    outlook = fresh()
    other = (10_000, 316, 100)
    weights = (MOST_LC, other, other)
    assert [see(outlook, lc=0.9, weights=here)[f"{LC}.lost"] for here in weights] == [0.0, 0.0, 1.0]


def test_latency_beyond_what_can_be_seen_asks_for_more_patience():
    outlook = fresh()
    lost = [see(outlook, lc=1.0, weights=MOST_LC, latency=1.0)[f"{LC}.lost"] for _ in range(BLIND_PATIENCE)]
    assert lost == [0.0] * (BLIND_PATIENCE - 1) + [1.0]


def test_nobody_is_lost_whose_latency_is_not_known():
    outlook = fresh()
    assert see(outlook, 20, lc=1.0, weights=MOST_LC, known=False)[f"{LC}.lost"] == 0.0
    assert see(given_up(outlook), lc=1.0, weights=MOST_LC, known=False)[f"{LC}.lost"] == 0.0


def test_states_of_another_schema_say_nothing_and_nothing_stays_lost():
    outlook = given_up(fresh())
    seen = outlook.see({})
    assert {name for name, value in seen.items() if value and not name.endswith(".need")} <= {"moved"}
    assert outlook.lost() == frozenset()


def test_class_is_lost_until_a_tenth_or_less_is_late():
    outlook = given_up(fresh())
    assert see(outlook, lc=0.11, weights=EVEN)[f"{LC}.lost"] == 1.0
    assert see(outlook, lc=0.1, weights=EVEN)[f"{LC}.lost"] == 0.0


def test_lost_class_is_tried_anew_and_the_next_time_later():
    outlook = given_up(fresh())
    for wait in (RETRY_STATES, 2 * RETRY_STATES, 4 * RETRY_STATES, MOST_RETRY_STATES, MOST_RETRY_STATES):
        assert see(outlook, wait - 1, lc=0.9, weights=MOST_LC)[f"{LC}.lost"] == 1.0
        assert see(outlook, lc=0.9, weights=MOST_LC)[f"{LC}.lost"] == 0.0
        given_up(outlook)


def test_class_that_was_well_meanwhile_is_tried_anew_as_soon_as_the_first_time():
    outlook = given_up(fresh())
    see(outlook, RETRY_STATES, lc=0.9, weights=MOST_LC)
    given_up(outlook)
    see(outlook, lc=0.0, weights=MOST_LC)
    given_up(outlook)
    assert see(outlook, RETRY_STATES, lc=0.9, weights=MOST_LC)[f"{LC}.lost"] == 0.0


def test_heir_of_a_lost_class_is_given_time_for_its_own_backlog_and_then_the_first_is_taken_back():
    outlook = given_up(fresh(), d=0.9)
    see(outlook, lc=0.9, d=0.9, weights=MOST_D)  # the move
    assert see(outlook, HEIR_PATIENCE - 1, lc=0.9, d=0.9, weights=MOST_D)[f"{D}.lost"] == 0.0
    seen = see(outlook, lc=0.9, d=0.9, weights=MOST_D)
    assert (seen[f"{D}.lost"], seen[f"{LC}.lost"]) == (1.0, 0.0)
    assert outlook.lost() == {D}


def test_class_that_is_taken_back_is_in_line_for_rescue_at_once():
    outlook = given_up(fresh(), d=0.9)
    see(outlook, 1 + HEIR_PATIENCE, lc=0.9, d=0.9, weights=MOST_D)
    assert outlook.lost() == {D}
    assert see(outlook, lc=0.9, d=0.9, weights=MOST_D)[f"{LC}.rescue"] == 1.0


def test_heir_that_was_well_once_is_an_heir_no_more():
    outlook = given_up(fresh(), d=0.9)
    see(outlook, 2, lc=0.9, d=0.05, weights=MOST_D)
    assert see(outlook, PATIENCE, lc=0.9, d=0.9, weights=MOST_D)[f"{D}.lost"] == 1.0


def test_class_that_never_was_lost_is_rescued_from_its_fair_part():
    assert see(fresh(), 2, lc=0.9, weights=SHARED)[f"{LC}.rescue"] == 1.0


def test_hopeless_class_is_content_with_its_fair_part():
    outlook = given_up(fresh())
    see(outlook, lc=0.0, weights=SHARED)
    assert see(outlook, 2, lc=0.9, weights=SHARED)[f"{LC}.rescue"] == 0.0
    assert outlook.lost() == {LC}


def test_hopeless_class_is_rescued_from_less_than_its_fair_part():
    outlook = given_up(fresh())
    see(outlook, lc=0.0, weights=EVEN)
    assert see(outlook, 2, lc=0.9, weights=EVEN)[f"{LC}.rescue"] == 1.0


def test_hopeless_class_is_rescued_like_any_other_while_another_is_lost():
    outlook = given_up(fresh())
    see(outlook, lc=0.0, weights=MOST_D)
    see(outlook, PATIENCE, d=0.9, weights=MOST_D)
    assert outlook.lost() == {D}
    assert see(outlook, 2, lc=0.9, d=0.9, weights=SHARED)[f"{LC}.rescue"] == 1.0


def test_hope_does_not_return_by_being_well_without_having_been_late():
    outlook = given_up(fresh())
    see(outlook, 3, lc=0.0, weights=MOST_LC)
    see(outlook, lc=0.0, weights=SHARED)
    assert see(outlook, 2, lc=0.9, weights=SHARED)[f"{LC}.rescue"] == 0.0


@pytest.mark.parametrize(("weights", "rescued"), [(MOST_LC, 1.0), (SHARED, 0.0)])
def test_hope_returns_when_more_than_the_fair_part_has_helped(weights, rescued):
    outlook = given_up(fresh())
    see(outlook, lc=0.0, weights=weights)
    see(outlook, lc=0.9, weights=weights)
    see(outlook, lc=0.0, weights=weights)
    see(outlook, lc=0.0, weights=SHARED)
    assert see(outlook, 2, lc=0.9, weights=SHARED)[f"{LC}.rescue"] == rescued
