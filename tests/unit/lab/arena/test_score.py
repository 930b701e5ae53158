"""The score of a cycle, the shortfall and the plateau, on literals."""

import pytest

from lab.arena.score import cycle_score, plateau_cycle, worst_shortfall


@pytest.mark.parametrize(
    ("violation_lc", "violation_default", "batch_share", "score"),
    [
        (0.0, 0.0, 0.5, 0.15),
        (0.0, 0.0, 1.0, 0.3),
        (1.0, 1.0, 1.0, -1.5),
        (0.2, 0.0, 0.5, -0.2),
        (0.0, 0.2, 0.5, -0.1),
        (0.01, 0.01, 0.5, 0.135),
        (0.011, 0.0, 0.5, -0.011),
        (0.0, 0.011, 0.5, -0.0055),
        (None, None, 0.5, 0.15),
        (None, 1.0, 0.5, -0.5),
        (1.0, None, 0.0, -1.0),
    ],
)
def test_misses_weigh_and_batch_counts_only_while_both_services_keep_their_objectives(
    violation_lc, violation_default, batch_share, score
):
    assert cycle_score(violation_lc, violation_default, batch_share) == pytest.approx(score)


def test_the_shortfall_is_the_worst_of_all_cycles_not_the_last():
    assert worst_shortfall([-2.0, -2.0, 0.0, 0.0], [-1.0, -1.0, -1.0, -1.0]) == pytest.approx(1.0)
    assert worst_shortfall([-2.0, -2.0, -2.0], [-2.0, -1.0, -1.0]) == pytest.approx(0.5)


def test_the_shortfall_is_a_part_of_the_magnitude_of_the_baseline_s_sum():
    assert worst_shortfall([0.0, 1.0], [2.0, 2.0]) == pytest.approx(1.0)
    assert worst_shortfall([-10.0, -1.0], [-10.0, 0.0]) == pytest.approx(0.1)


def test_near_zero_it_is_a_part_of_one_cycle_at_its_worst():
    assert worst_shortfall([0.0], [0.25]) == pytest.approx(0.25)
    assert worst_shortfall([-0.5], [0.0]) == pytest.approx(0.5)


def test_who_is_never_below_has_no_shortfall():
    assert worst_shortfall([0.1, 0.2], [0.1, 0.1]) == 0.0
    assert worst_shortfall([], []) == 0.0


def test_runs_of_two_lengths_are_not_compared():
    with pytest.raises(ValueError, match="zip"):
        worst_shortfall([0.0], [0.0, 0.0])


def test_the_plateau_begins_where_the_next_ten_are_as_good_as_the_second_half():
    assert plateau_cycle([0.1] * 40) == 0
    assert plateau_cycle([-1.0] * 10 + [0.1] * 30) == 10
    assert plateau_cycle([-0.3] * 10 + [0.1] * 30) == 9  # one bad cycle in ten is within the margin


def test_a_plateau_within_the_margin_is_one():
    assert plateau_cycle([0.06] * 10 + [0.1] * 30) == 0
    assert plateau_cycle([0.04] * 10 + [0.1] * 30) == 2


def test_a_run_of_no_or_one_cycle_is_at_its_plateau():
    assert plateau_cycle([]) == 0
    assert plateau_cycle([-1.5]) == 0
