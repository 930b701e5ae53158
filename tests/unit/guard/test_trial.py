"""What the end of a trial makes of a change of which no look said anything by its P99s."""

import msgspec
import pytest

from schemas.settings import DEFAULT_CLASSES
from services.guard.core.trial import is_no_worse
from tests.support.builders import BATCH, CRITICAL, DEFAULT, batch_state, class_state, latency, state, waiting


def look(critical, default=None, *, requests=500, default_requests=500, **seen):
    """A look at a node: the part of both services' requests over the objective; without the second, batch alone is
    beside the first.
    """
    classes = {
        CRITICAL: class_state(latency=latency(10.0, requests, over_ratio=critical, **seen)),
        BATCH: batch_state(),
    }
    if default is not None:
        classes[DEFAULT] = class_state(latency=latency(10.0, default_requests, over_ratio=default))
    return state(classes=classes)


def judge(before, after, classes=DEFAULT_CLASSES):
    return is_no_worse(before, after, classes, lost_ratio=0.9, min_requests=100, wait_ratio=0.3)


def test_as_much_missed_as_before_is_no_worse():
    assert judge(look(1.0, 1.0), look(1.0, 1.0))
    assert judge(look(0.7), look(0.7))
    assert judge(look(0.0, 0.3), look(0.0, 0.2))


@pytest.mark.parametrize(
    ("before", "after"), [((0.5, 0.5), (0.5, 0.6)), ((0.5, 0.5), (0.51, 0.5)), ((1.0, 0.5), (1.0, 1.0))]
)
def test_more_missed_than_before_is_worse(before, after):
    assert not judge(look(*before), look(*after))


def test_misses_are_weighed_by_importance():
    assert DEFAULT_CLASSES[CRITICAL].importance > DEFAULT_CLASSES[DEFAULT].importance
    assert judge(look(0.6, 0.5), look(0.5, 0.6))
    assert judge(look(0.6, 0.5), look(0.01, 0.6))
    assert not judge(look(0.5, 0.6), look(0.6, 0.5))


def test_no_gain_of_others_makes_up_for_a_class_that_kept_its_objective():
    assert not judge(look(1.0, 0.01), look(0.0, 0.02))
    assert judge(look(1.0, 0.005), look(0.0, 0.01))


def test_what_an_objective_allows_is_not_missed():
    assert judge(look(0.5, 0.001), look(0.5, 0.01))


@pytest.mark.parametrize("unknown", [None, 1.1, -0.1])
def test_what_is_not_known_is_no_good_word(unknown):
    assert not judge(look(unknown, 0.5), look(0.5, 0.5))
    assert not judge(look(0.5, 0.5), look(unknown, 0.5))
    assert not judge(look(1.0, 0.5), look(unknown, 0.5))


def test_too_few_requests_are_not_known():
    assert not judge(look(0.5, 0.0, default_requests=99), look(0.5, 0.0))
    assert not judge(look(0.5, 0.0), look(0.5, 0.0, default_requests=99))
    assert not judge(look(0.0, requests=99), look(0.0, requests=99))
    assert judge(look(0.0, requests=100), look(0.0, requests=100))


def test_of_a_class_that_was_lost_a_few_will_do_but_not_none():
    assert judge(look(0.95, requests=30), look(0.9, requests=25))
    assert not judge(look(0.9, requests=30), look(0.9, requests=25))
    assert not judge(look(1.0, requests=30), look(None, requests=3))
    assert not judge(look(1.0, requests=30), look(None, requests=0))


def test_a_class_that_answers_no_more_is_not_known():
    after = look(0.0, 0.5)
    gone = msgspec.structs.replace(after, classes={CRITICAL: after.classes[CRITICAL]})
    assert not judge(look(0.5, 0.5), gone)
    assert not judge(look(0.5, 0.5), look(0.0, 0.0, silent_pods=1))


def test_without_anybody_who_is_known_there_is_nothing_to_go_by():
    alone = state(classes={BATCH: batch_state()})
    assert not judge(alone, alone)
    assert not judge(look(None, requests=0), look(None, requests=0))
    assert not judge(look(None, requests=0), look(0.0))


def test_who_had_no_requests_stands_in_nobodys_way_but_must_not_miss():
    assert judge(look(None, 0.5, requests=0), look(None, 0.5, requests=0))
    assert judge(look(None, 0.5, requests=0), look(0.01, 0.5))
    assert not judge(look(None, 0.5, requests=0), look(0.02, 0.3))
    assert not judge(look(None, 0.5, requests=0), look(0.0, 0.5, requests=99))  # it has some: too few to be known
    assert not judge(look(None, 0.5, requests=0), look(None, 0.5))


def test_a_class_that_comes_or_goes_makes_the_looks_of_other_pods():
    assert not judge(look(0.5, None), look(0.5, 0.0))
    assert not judge(look(0.5, 0.0), look(0.5, None))


def test_fewer_pods_or_fewer_that_answer_prove_nothing():
    assert judge(of_pods(4, answering=4), of_pods(4, answering=4))
    assert not judge(of_pods(4, answering=1), of_pods(1, answering=1))
    assert not judge(of_pods(4, answering=4), of_pods(4, answering=3))


def test_less_than_half_of_what_was_answered_is_another_load():
    assert judge(look(0.6, requests=2000), look(0.6, requests=1000))
    assert not judge(look(0.6, requests=2000), look(0.6, requests=999))
    shorter = look(0.6, requests=500, window_seconds=2.0)
    assert judge(look(0.6, requests=2000), shorter)  # 250 a second against 400
    assert not judge(look(0.6, requests=2000), look(0.6, window_seconds=None))


def test_what_a_few_requests_of_the_lost_gain_makes_up_for_nothing():
    """Before, both were late; one answered request of the important class does not pay for all of the other."""
    before = look(1.0, 0.02, requests=3, default_requests=1000)
    assert not judge(before, look(0.0, 1.0, requests=2, default_requests=1000))
    assert judge(before, look(0.0, 0.02, requests=2, default_requests=1000))


def test_a_less_important_class_pays_no_more_than_more_important_ones_gain():
    """By importance it would be less: 0.75 + 0.01 against 0.5 + 0.25."""
    assert not judge(look(0.75, 0.02), look(0.5, 0.5))
    assert judge(look(0.75, 0.02), look(0.5, 0.27))


def of_pods(pods, answering):
    of = look(0.6, requests=2000, pods=answering)
    return msgspec.structs.replace(
        of, classes={**of.classes, CRITICAL: msgspec.structs.replace(of.classes[CRITICAL], pods=pods)}
    )


def test_a_class_without_settings_is_not_known():
    assert not judge(look(0.5, 0.5), look(0.5, 0.5), {CRITICAL: DEFAULT_CLASSES[CRITICAL]})


def test_a_class_that_pressure_judges_must_have_waited_no_longer():
    def with_wait(ratio):
        of = look(1.0, 0.5)
        return msgspec.structs.replace(of, classes={**of.classes, DEFAULT: waiting(ratio)})

    assert judge(with_wait(0.1), with_wait(0.3))
    assert not judge(with_wait(0.1), with_wait(0.5))
    assert not judge(with_wait(0.1), with_wait(None))
    assert not judge(with_wait(0.1), look(1.0, 0.0))
    assert not judge(look(1.0, 0.5), with_wait(0.0))
    assert not judge(with_wait(None), with_wait(0.9))
