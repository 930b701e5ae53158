import itertools
import statistics

import pytest

from lab.workloads.arrivals import Step, parse_schedule, poisson_arrivals


def test_a_schedule_is_read_step_by_step():
    assert parse_schedule("0:100,30:250", max_rate_per_second=1000) == (Step(0, 100), Step(30, 250))


@pytest.mark.parametrize(
    "text",
    ["", "100", "0:x", "5:100", "0:100,0:50", "0:100,30:10,20:5", "0:-1", "0:nan", "0:inf", "0:1001", "0:5,nan:3"],
)
def test_a_schedule_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError):
        parse_schedule(text, max_rate_per_second=1000)


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others():
    def first(seed):
        return list(poisson_arrivals([Step(0, 50)], 10, seed))

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_gaps_are_exponential_with_the_asked_mean():
    arrivals = list(poisson_arrivals([Step(0, 200)], 100, seed=3))
    gaps = [after - before for before, after in itertools.pairwise(arrivals)]
    assert len(arrivals) == pytest.approx(20_000, rel=0.03)
    assert statistics.mean(gaps) == pytest.approx(1 / 200, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 200, rel=0.05)  # a regular or a jittered clock has a smaller one
    assert sum(gap > 1 / 200 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.015)  # 1/e


def test_counts_per_second_vary_as_much_as_their_mean():
    seconds = [int(at) for at in poisson_arrivals([Step(0, 50)], 400, seed=5)]
    counts = [seconds.count(second) for second in range(400)]
    assert statistics.variance(counts) / statistics.mean(counts) == pytest.approx(1.0, abs=0.2)


def test_a_step_changes_the_rate_exactly_when_it_is_due():
    steps = parse_schedule("0:100,10:0,20:300,30:0", max_rate_per_second=1000)
    arrivals = list(poisson_arrivals(steps, 60, seed=1))
    assert arrivals == sorted(arrivals)
    assert not [at for at in arrivals if 10 < at < 20 or at > 30]
    assert sum(at <= 10 for at in arrivals) == pytest.approx(1000, rel=0.1)
    assert sum(20 <= at <= 30 for at in arrivals) == pytest.approx(3000, rel=0.06)


def test_nothing_is_due_at_or_after_the_end():
    assert max(poisson_arrivals([Step(0, 1000)], 2, seed=1)) < 2


def test_a_rate_of_zero_ends_at_once():
    assert list(poisson_arrivals([Step(0, 0)], 300, seed=1)) == []
