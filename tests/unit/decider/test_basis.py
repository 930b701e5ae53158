"""Where arms lie, whatever was asked before."""

import numpy as np

from schemas.settings import DEFAULT_CLASSES, Shared, WeightSettings
from services.decider.core.arms import build_arms
from services.decider.core.basis import Basis
from services.decider.core.policy import HOLD, Arm

ARMS = build_arms(Shared(), {})
LC, D, B = "latency-critical", "default", "batch"
HERE, THERE = {f"{LC}.weight_log": 0.4}, {f"{LC}.weight_log": 0.1, f"{D}.weight_log": 0.2}


def fresh():
    return Basis(DEFAULT_CLASSES, WeightSettings(), ARMS, ARMS[0], likeness_decades=0.6)


def test_an_arm_lies_by_its_weights_and_not_by_its_name():
    basis = fresh()
    for weights in ({LC: 400, D: 100, B: 100}, {LC: 100, D: 100, B: 400}, ARMS[1].weights):
        arms = (HOLD, Arm(ARMS[1].name, weights))
        for told, plain in zip(basis.describe(arms, HERE), fresh().describe(arms, HERE), strict=True):
            assert np.array_equal(told, plain)
    foreign = basis.describe((HOLD, Arm(ARMS[1].name, {LC: 400, D: 100, B: 100})), HERE)[0][1]
    assert not np.array_equal(foreign, basis.describe((ARMS[1],), HERE)[0][0])


def test_hold_lies_where_the_weights_are_wherever_it_stands():
    basis = fresh()
    arms = (HOLD, ARMS[2], Arm("between", {LC: 700, D: 200, B: 100}), HOLD)
    for seen in (HERE, THERE, HERE | {f"{D}.present": 0.0}, HERE):
        terms, squared = basis.describe(arms, seen)
        for index, arm in enumerate(arms):
            alone, distance = fresh().describe((arm,), seen)
            assert np.array_equal(terms[index], alone[0])
            assert squared[index] == distance[0]


def test_what_was_described_is_the_callers_own():
    basis = fresh()
    first, _ = basis.describe((HOLD, ARMS[0]), HERE)
    before = first.copy()
    first[:] = 7.0
    assert np.array_equal(basis.describe((HOLD, ARMS[0]), HERE)[0], before)
