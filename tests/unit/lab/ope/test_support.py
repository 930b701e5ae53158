"""What a log can support, by hand, and each reason to refuse, for the estimators that it is a reason for."""

import numpy as np
import pytest

from lab.ope.estimators import DR, ESTIMATORS, IPS, REPLAY, SNIPS, replay
from lab.ope.logged import Target
from lab.ope.support import Limits, reasons_to_refuse, support_of
from tests.support.logs import drawn_log, log_of

LIMITS = Limits()


def words(logged, target, decisions=None, limits=LIMITS):
    """Estimator -> the words of its refusal."""
    support = support_of(logged, target, decisions or len(logged))
    found = reasons_to_refuse(support, replay(logged, target, 1), limits)
    return {name: [reason.word for reason in reasons] for name, reasons in found.items()}


def always(arm, rows, arms=2):
    return Target.choosing(np.full(rows, arm), arms)


def test_support_by_hand():
    """Weights 1.6, 2, .5 and 0: sum 4.1, squares 6.81. Outside: 0.4 of the last row's choices, all of them masked."""
    logged = log_of(
        [0, 1, 0, 0],
        [1.0, 0.5, -1.0, 0.0],
        [[0.5, 0.5], [0.75, 0.25], [0.8, 0.2], [1.0, 0.0]],
        masked=np.array([[False, False]] * 3 + [[False, True]]),
    )
    target = Target(np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6], [0.0, 1.0]]))
    found = support_of(logged, target, 6)
    assert (found.decisions, found.rows, found.unweighable) == (6, 4, 2)
    assert found.ess == pytest.approx(4.1**2 / 6.81)
    assert found.largest_weight == pytest.approx(2.0)
    assert found.largest_weight_ratio == pytest.approx(2.0 / 4.1)
    assert found.matched == pytest.approx(0.8 + 0.5 + 0.4)
    assert found.outside_ratio == pytest.approx(0.25)
    assert found.masked_ratio == pytest.approx(0.25)
    assert found.deterministic_ratio == pytest.approx(0.25)
    assert (found.mean_weight, found.expected_weight) == pytest.approx((4.1 / 4, 0.75))
    variance = sum(
        pi_e[0] ** 2 / pi_b[0] + pi_e[1] ** 2 / pi_b[1] - 1.0
        for pi_e, pi_b in zip(target.pi_e[:3], logged.pi_b[:3], strict=True)
    )
    assert found.weight_errors == pytest.approx((4.1 / 4 - 0.75) / (variance**0.5 / 4))


def test_equal_weights_lose_nothing():
    logged = drawn_log(800, [0.5, 0.5], seed=1)
    found = support_of(logged, Target(logged.pi_b), 800)
    assert found.ess == pytest.approx(800.0)
    assert words(logged, Target(logged.pi_b)) == {name: [] for name in ESTIMATORS}


def test_effective_size_is_never_below_what_replay_accepts_on_average():
    logged = drawn_log(3000, [0.7, 0.2, 0.1], seed=2)
    target = Target(np.tile([0.1, 0.3, 0.6], (3000, 1)))
    accepted = np.mean([replay(logged, target, seed).denominator.sum() for seed in range(50)])
    assert support_of(logged, target, 3000).ess > accepted


def test_too_few_decisions():
    logged = drawn_log(499, [0.5, 0.5], seed=1)
    assert words(logged, Target(logged.pi_b)) == {name: ["few_rows"] for name in ESTIMATORS}
    assert words(logged, Target(logged.pi_b), limits=Limits(min_rows=400)) == {name: [] for name in ESTIMATORS}


def test_decisions_without_a_propensity():
    logged = drawn_log(1900, [0.5, 0.5], seed=1)
    assert words(logged, Target(logged.pi_b), decisions=2000) == {name: [] for name in ESTIMATORS}
    assert words(logged, Target(logged.pi_b), decisions=2001) == {name: ["no_propensity"] for name in ESTIMATORS}


def test_choices_that_the_log_could_not_have_made():
    """3 % outside: only doubly robust, whose model fills the gap, still answers; 6 % is too much for it as well."""
    logged = log_of([0, 1] * 1000, np.zeros(2000), np.tile([0.5, 0.5, 0.0], (2000, 1)))
    for outside, refused in ((0.005, []), (0.03, [REPLAY, IPS, SNIPS]), (0.06, list(ESTIMATORS))):
        target = Target(np.tile([0.5 - outside / 2, 0.5 - outside / 2, outside], (2000, 1)))
        found = words(logged, target)
        assert [name for name, reasons in found.items() if reasons == ["outside"]] == refused
        assert all(not reasons for name, reasons in found.items() if name not in refused)


def test_a_log_that_never_drew_supports_only_itself():
    logged = log_of(np.zeros(1000), np.ones(1000), np.tile([1.0, 0.0], (1000, 1)))
    assert words(logged, always(0, 1000)) == {name: [] for name in ESTIMATORS}
    found = words(logged, always(1, 1000))
    assert found[DR] == found[IPS] == ["deterministic", "few_effective"]
    assert found[REPLAY] == ["deterministic", "few_matched"]


def test_a_target_far_from_the_log():
    """Arm 1 is drawn once in a hundred: 2,000 cycles are worth some 20 of a policy that always takes it."""
    logged = drawn_log(2000, [0.99, 0.01], seed=1)
    found = words(logged, always(1, 2000))
    assert found[IPS] == found[SNIPS] == found[DR]
    assert "few_effective" in found[IPS]
    assert found[REPLAY] == ["few_matched"]


def test_one_row_with_too_much_weight():
    """1,000 rows of weight 1 and one of 100: 9 % of all weight, and Kish says 100."""
    pi_b = [[0.5, 0.5]] * 1000 + [[0.005, 0.995]]
    logged = log_of([0, 1] * 500 + [0], np.zeros(1001), pi_b)
    target = Target(np.array([[0.5, 0.5]] * 1000 + [[0.5, 0.5]]))
    support = support_of(logged, target, 1001)
    assert support.largest_weight_ratio == pytest.approx(100 / 1100)
    assert support.ess == pytest.approx(1100**2 / 11000)
    assert "one_row" in words(logged, target)[IPS]
    assert "few_effective" in words(logged, target)[IPS]
    assert "few_effective" not in words(logged, target, limits=Limits(min_effective_rows=100))[IPS]
    assert words(logged, target)[REPLAY] == ["wrong_propensity", "few_matched"]


def test_propensities_that_are_not_those_the_arms_were_drawn_with():
    drawn = drawn_log(4000, [0.3, 0.7], seed=1)
    claimed = log_of(drawn.action, drawn.reward, np.tile([0.5, 0.5], (4000, 1)))
    assert words(claimed, always(1, 4000)) == {name: ["wrong_propensity"] for name in ESTIMATORS}
    assert words(drawn, always(1, 4000)) == {name: [] for name in ESTIMATORS}


def test_reasons_say_the_figures_and_the_way_out():
    logged = drawn_log(300, [0.99, 0.01], seed=1)
    found = reasons_to_refuse(support_of(logged, always(1, 300), 300), replay(logged, always(1, 300), 1), LIMITS)
    texts = {reason.word: reason.text for reason in found[IPS]}
    assert texts["few_rows"] == "300 decisions to judge by, 500 are needed. Record for longer"
    assert "200 are needed" in texts["few_effective"]
