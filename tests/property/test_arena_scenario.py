"""Generated scenarios are scenarios, whatever the seed, also written down and read; one absurd number makes any none."""

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lab.arena.generated import generated
from lab.arena.scenario import Curve, Scenario, ServicePod

SEEDS = st.integers(0, 2**40)
ABSURD = st.one_of(st.just(math.nan), st.just(math.inf), st.floats(max_value=-1e-9), st.floats(min_value=1e9))


@given(SEEDS, st.sampled_from(["bounded", "unbounded"]))
def test_every_generated_scenario_passes_and_reads_back_as_it_was(seed, queue):
    made = generated(seed, queue)
    for codec in (msgspec.json, msgspec.yaml):
        assert codec.decode(codec.encode(made), type=Scenario) == made


def with_load(scenario, index, value, at):
    """The scenario with one value of one pod's curve replaced."""

    def changed(curve):
        points = list(curve.points)
        at_point = at % len(points)
        points[at_point] = (points[at_point][0], value)
        return replace(curve, points=tuple(points))

    pods = list(scenario.pods)
    pod = pods[index % len(pods)]
    field = "rate" if isinstance(pod, ServicePod) else "processes"
    pods[index % len(pods)] = replace(pod, **{field: changed(getattr(pod, field))})
    return replace(scenario, pods=tuple(pods))


@given(SEEDS, ABSURD, st.integers(0, 15), st.integers(0, 15))
def test_any_load_that_is_absurd_is_refused(seed, value, index, at):
    with pytest.raises(ValueError, match=r"^(points|rate|processes): "):
        with_load(generated(seed), index, value, at)


@given(SEEDS, ABSURD, st.integers(0, 1))
def test_any_objective_or_period_that_is_absurd_is_refused(seed, value, which):
    made = generated(seed)
    name = list(made.objectives)[which % len(made.objectives)]
    with pytest.raises(ValueError, match=f"^objectives: {name} "):
        replace(made, objectives={**made.objectives, name: value})
    with pytest.raises(ValueError, match=r"^phase_period \(cycles\): "):
        replace(made, phase_period=value)
    with pytest.raises(ValueError, match=r"^period \(cycles\): "):
        Curve(((0.0, 1.0),), period=value)


@given(SEEDS, st.lists(st.floats(0.001, 100.0), min_size=2, max_size=6))
def test_phases_and_points_are_taken_in_order_only(seed, starts):
    points = ((0.0, 1.0), *((start, 1.0) for start in starts))
    phases = tuple((f"p{index}", start) for index, (start, _) in enumerate(points))
    if all(before < after for before, after in pairwise(starts)):
        assert Curve(points).points == points
    else:
        with pytest.raises(ValueError, match="points: cycle"):
            Curve(points)
        with pytest.raises(ValueError, match="phases: "):
            replace(generated(seed), phases=phases, phase_period=None)
