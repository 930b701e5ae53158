"""What excuses a class whose P99 rose, and what each excuse still catches."""

import msgspec
import pytest

from schemas.settings import DEFAULT_CLASSES
from services.guard.core.excuses import Excuses, has_yielded, is_a_good_trade, was_given_more, was_lost
from services.guard.core.regression import Regression, find_regression
from tests.support.builders import BATCH, CRITICAL, DEFAULT, after, batch_state, class_state, latency, state, waiting

EVEN = (100, 100, 100)
SERVICES_FIRST = (400, 400, 100)
CRITICAL_FIRST = (400, 100, 100)
DEFAULT_FIRST = (100, 400, 100)
BATCH_FIRST = (100, 100, 400)


def look(weights, critical=0.0, default=0.0, p99=0.05, *, pods=(1, 1, 1)):
    """A look at three classes: their weights, and the part of both services' requests over the objective of 0.1 s."""
    services = [
        class_state(pods=count, weight=weight, latency=latency(p99, over_ratio=over))
        for count, weight, over in zip(pods, weights, (critical, default), strict=False)
    ]
    names = dict(zip((CRITICAL, DEFAULT), services, strict=True))
    return state(classes={**names, BATCH: batch_state(pods=pods[2], weight=weights[2])})


def evidence(before, then, **fields):
    """What is said of a change with the product's excuses, unless `fields` say otherwise."""
    excuses = Excuses(DEFAULT_CLASSES, **{"lost_ratio": 0.9, **fields})
    limits = {"limit_ratio": 0.2, "floor_ratio": 1.0, "wait_ratio": 0.3, "min_requests": 100}
    return find_regression(before, then, **limits, excuses=excuses)


def without(of, *names):
    return msgspec.structs.replace(of, classes={name: seen for name, seen in of.classes.items() if name not in names})


# ---- lost ----


def test_a_class_of_which_nearly_every_request_was_over_before_was_lost():
    assert was_lost(CRITICAL, look(EVEN, critical=0.91), 0.9)
    assert not was_lost(CRITICAL, look(EVEN, critical=0.9), 0.9)
    assert not was_lost(DEFAULT, look(EVEN, critical=1.0), 0.9)


@pytest.mark.parametrize("over", [None, 1.1, -0.1])
def test_of_whom_it_is_not_known_how_much_was_over_was_not_lost(over):
    assert not was_lost(CRITICAL, look(EVEN, critical=over), 0.9)


def test_nobody_is_lost_with_a_ratio_of_one_or_without_having_been_seen():
    assert not was_lost(CRITICAL, look(EVEN, critical=1.0), 1.0)
    assert not was_lost(CRITICAL, without(look(EVEN, critical=1.0), CRITICAL), 0.9)


def test_what_a_lost_class_loses_is_unknown_and_never_good():
    before, then = look(EVEN, critical=0.95, p99=2.0), look(DEFAULT_FIRST, critical=1.0, p99=9.0)
    alone, alone_then = without(before, DEFAULT), without(then, DEFAULT)
    assert evidence(alone, alone_then) == ("unknown", None)
    assert evidence(alone, alone_then, node_wide=False) == ("unknown", None)
    assert evidence(alone, alone_then, lost_ratio=1.0) == ("regressed", Regression(CRITICAL, 2.0, 9.0))


# ---- given more ----


def test_a_larger_part_of_the_class_weights_is_more():
    assert was_given_more(CRITICAL, look(EVEN), look(CRITICAL_FIRST))
    assert was_given_more(CRITICAL, look((1000, 1000, 1000)), look((104, 100, 100)))


@pytest.mark.parametrize("weights", [EVEN, (1000, 1000, 1000), DEFAULT_FIRST, BATCH_FIRST, (102, 100, 100)])
def test_the_same_part_or_hardly_more_is_not_more(weights):
    assert not was_given_more(CRITICAL, look(EVEN), look(weights))


def test_a_higher_weight_that_is_a_smaller_part_is_not_more():
    assert not was_given_more(CRITICAL, look(EVEN), look((200, 400, 400)))


def test_the_part_that_another_class_left_behind_was_not_given():
    before, then = look(EVEN), look((200, 200, 100))
    assert was_given_more(CRITICAL, before, then)
    assert not was_given_more(CRITICAL, before, without(then, BATCH))
    assert not was_given_more(CRITICAL, before, look((200, 200, 100), pods=(1, 1, 0)))
    assert not was_given_more(CRITICAL, without(before, BATCH), then)


def test_the_part_of_more_pods_is_not_more_for_each():
    assert not was_given_more(CRITICAL, look(EVEN), look((200, 100, 100), pods=(2, 1, 1)))
    assert not was_given_more(CRITICAL, look(EVEN), look((200, 100, 100), pods=(1, 1, 2)))


@pytest.mark.parametrize("weight", [None, 0])
def test_nothing_is_known_to_be_more_where_one_weight_is_not_known(weight):
    assert not was_given_more(CRITICAL, look(EVEN), look((400, 100, weight)))
    assert not was_given_more(CRITICAL, look((100, 100, weight)), look(CRITICAL_FIRST))
    assert not was_given_more(CRITICAL, look((weight,) * 3), look((weight,) * 3))


def test_a_class_that_was_given_more_is_not_taken_from_for_its_load():
    before, then = look(EVEN, p99=0.05), look(SERVICES_FIRST, 0.05, 0.05, p99=0.3)
    assert evidence(before, then) == ("unknown", None)
    assert evidence(before, look(BATCH_FIRST, 0.05, 0.05, p99=0.3))[0] == "regressed"
    assert evidence(before, look(EVEN, 0.05, 0.05, p99=0.3))[0] == "regressed"


# ---- yielded ----


def yields(before, then, name=DEFAULT):
    return has_yielded(name, before, then, DEFAULT_CLASSES)


def test_a_class_yields_to_a_more_important_one_in_need_that_is_given_more():
    assert yields(look(EVEN, critical=0.2), look(CRITICAL_FIRST))


def test_nobody_yields_to_one_that_is_not_in_need():
    assert not yields(look(EVEN, critical=0.1), look(CRITICAL_FIRST))
    assert not yields(look(EVEN, critical=None), look(CRITICAL_FIRST))


def test_nobody_yields_to_one_that_is_not_given_more():
    assert not yields(look(EVEN, critical=0.2), look(BATCH_FIRST))
    assert not yields(look(CRITICAL_FIRST, critical=0.2), look((400, 100, 400)))


def test_nobody_yields_to_one_that_is_not_more_important():
    assert not yields(look(EVEN, default=1.0), look(DEFAULT_FIRST), CRITICAL)
    equal = {**DEFAULT_CLASSES, DEFAULT: msgspec.structs.replace(DEFAULT_CLASSES[DEFAULT], importance=1.0)}
    assert not has_yielded(DEFAULT, look(EVEN, critical=1.0), look(CRITICAL_FIRST), equal)


def test_a_class_without_an_objective_is_nobody_s_cover():
    """Batch is of importance 1 by default, but no latency class."""
    before = look(EVEN, critical=0.0)
    missing = class_state(weight=100, latency=latency(over_ratio=1.0))
    assert not yields(state(classes={**before.classes, BATCH: missing}), look(BATCH_FIRST))


def test_what_goes_elsewhere_under_the_cover_of_one_in_need_is_no_yielding():
    """Of the 0.38 that the default class loses critical gets 0.09, and batch the rest."""
    before = look((100, 400, 100), critical=0.5)
    assert not yields(before, look((105, 50, 250)))
    assert yields(before, look((400, 200, 200)))


def test_what_a_class_yields_is_not_given_back():
    before, then = look(EVEN, critical=0.2), look(CRITICAL_FIRST, critical=0.0, default=0.5)
    rose = class_state(weight=100, latency=latency(0.4, over_ratio=0.5))
    then = state(classes={**then.classes, DEFAULT: rose})
    assert evidence(before, then) == ("unknown", None)
    assert evidence(before, then, node_wide=False) == ("regressed", Regression(DEFAULT, 0.05, 0.4))


# ---- a good trade ----


def trades(before, then, name=CRITICAL):
    return is_a_good_trade(name, before, then, DEFAULT_CLASSES)


def test_clearly_fewer_misses_of_all_together_by_importance_are_a_good_trade():
    assert trades(look(EVEN, 0.2, 1.0), look(DEFAULT_FIRST, 0.5, 0.2))
    assert trades(look(EVEN, 0.2, 1.0), look(DEFAULT_FIRST, 0.64, 0.0))
    assert not trades(look(EVEN, 0.2, 1.0), look(DEFAULT_FIRST, 0.66, 0.0))
    assert not trades(look(EVEN, 0.2, 1.0), look(DEFAULT_FIRST, 0.5, 0.6))


@pytest.mark.parametrize("over", [0.0, 0.005, 0.01, None])
def test_a_class_that_kept_its_objective_or_may_have_is_never_traded_away(over):
    assert not trades(look(EVEN, over, 1.0), look(DEFAULT_FIRST, 0.02, 0.0))
    assert trades(look(EVEN, 0.011, 1.0), look(DEFAULT_FIRST, 0.02, 0.0))


def test_who_is_starved_of_all_answers_makes_no_good_trade():
    before = look(EVEN, 0.5, 0.3)
    assert trades(before, look(CRITICAL_FIRST, 0.0, 0.6))
    assert not trades(before, look(CRITICAL_FIRST, 0.0, None))
    assert not trades(before, without(look(CRITICAL_FIRST, 0.0), DEFAULT))


def test_a_class_that_was_not_known_before_takes_no_part_in_a_trade():
    assert not trades(look(EVEN, 0.5, None), look(CRITICAL_FIRST, 0.46, 1.0))
    assert trades(look(EVEN, 0.5, None), look(CRITICAL_FIRST, 0.4, 1.0))


def test_misses_of_a_class_that_pressure_judges_are_not_counted_in_requests():
    before, then = look(EVEN, 0.5), look(CRITICAL_FIRST, 0.0)
    assert trades(before, then)
    waits = state(classes={**then.classes, DEFAULT: waiting(0.9)})
    assert not trades(before, waits)
    assert not trades(state(classes={**before.classes, DEFAULT: waiting(0.1)}), then)


def test_a_class_that_is_not_configured_is_not_traded():
    assert not trades(look(EVEN, 0.5, 1.0), look(DEFAULT_FIRST, 0.5, 0.0), "gold")


def test_a_good_trade_is_not_taken_back_and_a_bad_one_is():
    before = look(EVEN, 0.2, 0.8, p99=0.2)
    served = {DEFAULT: class_state(weight=400, latency=latency(0.05, over_ratio=0.0))}
    slower = {CRITICAL: class_state(weight=100, latency=latency(0.5, over_ratio=0.4))}
    then = state(classes={**look(DEFAULT_FIRST).classes, **served, **slower})
    assert evidence(before, then) == ("unknown", None)
    assert evidence(before, then, node_wide=False)[0] == "regressed"
    worse = {CRITICAL: class_state(weight=100, latency=latency(0.5, over_ratio=0.7))}
    assert evidence(before, state(classes={**then.classes, **worse}))[1] == Regression(CRITICAL, 0.2, 0.5)


def test_a_trade_does_not_excuse_one_that_kept_its_objective_beside_one_that_did_not():
    gold = msgspec.structs.replace(DEFAULT_CLASSES[DEFAULT], importance=0.4)
    classes = {**DEFAULT_CLASSES, "gold": gold}
    before = look(EVEN, 1.0, 0.0)
    then = look(EVEN, 0.0, 0.3)
    before = state(classes={**before.classes, "gold": class_state(latency=latency(0.2, over_ratio=0.1))})
    then = state(classes={**then.classes, "gold": class_state(latency=latency(0.3, over_ratio=0.2))})
    assert is_a_good_trade("gold", before, then, classes)
    assert not is_a_good_trade(DEFAULT, before, then, classes)


# ---- pressure ----


def test_a_longer_wait_is_never_excused():
    """Though its part grew, and the class that answers requests misses far less than before."""
    before = state(classes={**look(EVEN, 1.0).classes, DEFAULT: waiting(0.1, weight=100)})
    then = state(classes={**look(SERVICES_FIRST, 0.0).classes, DEFAULT: waiting(0.9, weight=400)})
    assert evidence(before, then) == ("regressed", Regression(DEFAULT, 0.1, 0.9, "pressure"))


def test_without_excuses_every_rise_counts():
    before, then = look(EVEN, 1.0, 1.0, p99=0.2), look(SERVICES_FIRST, 1.0, 1.0, p99=0.5)
    limits = {"limit_ratio": 0.2, "floor_ratio": 0.0, "wait_ratio": 0.3, "min_requests": 100}
    assert find_regression(before, then, **limits)[0] == "regressed"
    assert evidence(before, after(then)) == ("unknown", None)
