import random
import statistics

import pytest

from lab.workloads.cpu_work import (
    FACTORS,
    KeyStretching,
    Pace,
    exponential_factor,
    jitter_factor,
    stretch_key,
    units_per_cpu_second,
)


class CpuClock:
    """CPU time that only `work` moves, by 2 ms per unit."""

    def __init__(self):
        self.now = 5.0
        self.portions = []

    def work(self, units):
        self.portions.append(units)
        self.now += units * 0.002

    def __call__(self):
        return self.now


def test_calibration_measures_cpu_time_and_grows_the_portion_until_it_is_long_enough():
    clock = CpuClock()
    assert units_per_cpu_second(clock.work, min_cpu_seconds=0.1, cpu_clock=clock) == pytest.approx(500)
    assert clock.portions == [1, 2, 4, 8, 16, 32, 64]


def test_work_is_proportional_to_the_cpu_time_that_was_asked_for(monkeypatch):
    spent = []
    monkeypatch.setattr("lab.workloads.cpu_work.units_per_cpu_second", lambda work: 1_000_000)
    monkeypatch.setattr("lab.workloads.cpu_work.stretch_key", spent.append)
    KeyStretching().spend(0.05)
    assert sum(spent) == 50_000
    assert max(spent) == 20_000  # slices of 20 ms


def test_a_stopped_worker_does_no_further_slice(monkeypatch):
    spent = []
    monkeypatch.setattr("lab.workloads.cpu_work.units_per_cpu_second", lambda work: 1_000_000)
    stretching = KeyStretching()

    def stretch(iterations):
        spent.append(iterations)
        stretching.stop()

    monkeypatch.setattr("lab.workloads.cpu_work.stretch_key", stretch)
    stretching.spend(60)
    assert spent == [20_000]


def test_the_work_depends_on_its_size():
    assert stretch_key(10) == stretch_key(10) != stretch_key(11)


def test_jitter_has_mean_one_is_seeded_and_bounded():
    factors = [jitter_factor(random.Random(4), 0.5)] + [jitter_factor(rng, 0.5) for rng in [random.Random(4)] * 20_000]
    assert factors[0] == factors[1]
    assert statistics.mean(factors) == pytest.approx(1.0, rel=0.02)
    assert max(jitter_factor(rng, 2.0) for rng in [random.Random(1)] * 20_000) == 20.0


def test_no_jitter_is_exactly_one():
    assert jitter_factor(random.Random(1), 0.0) == 1.0


def test_exponential_work_has_mean_one_and_the_quantiles_of_its_law_and_is_bounded():
    rng = random.Random(7)
    factors = sorted(exponential_factor(rng, 0.3) for _ in range(20_000))
    assert statistics.fmean(factors) == pytest.approx(1.0, abs=0.03)
    assert factors[9_999] == pytest.approx(0.693, abs=0.03)
    assert factors[19_800] == pytest.approx(4.6, abs=0.4)
    assert factors[-1] <= 20.0


def test_distributions_are_known_by_name():
    assert {"exponential": exponential_factor, "lognormal": jitter_factor} == FACTORS


class Machine:
    """Work on a machine whose speed may change: `speed` units a second of CPU time, told in ticks of 10 ms."""

    def __init__(self, speed):
        self.speed = speed
        self.now = 3.0

    def work(self, units):
        self.now += units / self.speed

    def thread_time(self):
        return int(self.now * 100) / 100


@pytest.fixture
def machine(monkeypatch):
    made = Machine(1_000_000.0)
    monkeypatch.setattr("lab.workloads.cpu_work.units_per_cpu_second", lambda work: made.speed)
    monkeypatch.setattr("lab.workloads.cpu_work.time", made)
    monkeypatch.setattr("lab.workloads.cpu_work.stretch_key", made.work)
    return made


def cpu_seconds_of(machine, stretching, requests, cpu_seconds=0.007):
    before = machine.now
    for _ in range(requests):
        stretching.spend(cpu_seconds)
    return (machine.now - before) / requests


def test_a_machine_that_slows_down_or_speeds_up_is_given_the_same_cpu_time(machine):
    stretching = KeyStretching()
    assert cpu_seconds_of(machine, stretching, 500) == pytest.approx(0.007, rel=0.03)
    machine.speed = 250_000.0
    cpu_seconds_of(machine, stretching, 2000)  # it takes a few seconds of CPU time to see it
    assert cpu_seconds_of(machine, stretching, 500) == pytest.approx(0.007, rel=0.03)
    machine.speed = 2_000_000.0
    cpu_seconds_of(machine, stretching, 2000)
    assert cpu_seconds_of(machine, stretching, 500) == pytest.approx(0.007, rel=0.03)


def test_one_portion_of_any_length_leaves_a_pace_that_is_finite(machine):
    pace = Pace(1000.0)
    pace.see(1, 1e6)
    assert pace.units_per_second == pytest.approx(1e-6)
    pace.see(5, 0.0)
    assert 0.0 < pace.units_per_second < 1.0
