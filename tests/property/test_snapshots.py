"""A snapshot holds everything: who is loaded from one goes on bit for bit like the one that was saved.

On episodes of the simulator, through the loop that the bench runs: what a policy meets there (moves, rollbacks, harm,
lost classes, absences) is what fills the corners of its state.
"""

import importlib.util
import itertools
import random
from typing import Final

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lab.arena.episode import Settings, _Loop
from lab.arena.scenarios import named
from services.decider.config import DeciderConfig
from services.decider.core.snapshot import decode_snapshot, encode_snapshot
from services.decider.core.zoo import POLICIES, make_policy

FOLLOWED: Final = 100
"""Cycles that both live through after a snapshot, at least."""

OFTEN: Final = 5
"""Every so many cycles there is another snapshot, and a second twin from it: what lasts a few cycles is caught there."""

INSTALLED: Final = [name for name in POLICIES if name != "vowpal" or importlib.util.find_spec("vowpalwabbit")]


def exactly(value):
    """A value as bytes: floats differ if any bit does, mappings if their order does."""
    return msgspec.json.encode(value)


class Shadowed:
    """A policy with twins, each loaded from its snapshot, that must answer and save the same. Itself a `Policy`.

    A twin is a fresh policy that only ever saw the snapshot, and what the first one was asked and taught since.
    """

    def __init__(self, make, saved_at):
        self._make, self._saved_at = make, saved_at
        self.policy, self.twins = make(), {}
        self.asked = 0

    @property
    def name(self):
        return self.policy.name

    def decide(self, features, arms, rng):
        for kind, is_due in (("long", self.asked in self._saved_at), ("brief", self.asked % OFTEN == 0)):
            if is_due:
                self.compare()
                self.twins[kind] = self._make()
                self.twins[kind].load(decode_snapshot(encode_snapshot(self.policy.save())))
                self.compare()
        self.asked += 1
        state = rng.getstate()
        choice = self.policy.decide(features, arms, rng)
        for kind, twin in self.twins.items():
            same = random.Random()
            same.setstate(state)
            assert exactly(twin.decide(dict(features), tuple(arms), same)) == exactly(choice), (kind, self.asked)
            assert same.getstate() == rng.getstate()
        return choice

    def learn(self, features, arm, reward):
        for policy in (self.policy, *self.twins.values()):
            policy.learn(dict(features), arm, reward)

    def compare(self):
        for kind, twin in self.twins.items():
            assert exactly(twin.save()) == exactly(self.policy.save()), (kind, self.asked)


@pytest.mark.parametrize("name", INSTALLED)
@settings(max_examples=3, deadline=None, phases=[Phase.reuse, Phase.generate])  # an episode is no smaller for shrinking
@given(
    scenario=st.sampled_from(["flood", "swap", "noisy-neighbour", "runaway", "gen:5", "gen:17"]),
    seed=st.integers(0, 1000),
    gaps=st.tuples(st.integers(0, 60), st.integers(FOLLOWED, FOLLOWED + 60)),
    config=st.fixed_dictionaries(
        {}, optional={"warm_start": st.just(False), "caution": st.just(0.5), "epsilon": st.just(0.3)}
    ),
)
def test_who_is_loaded_goes_on_bit_for_bit(name, scenario, seed, gaps, config):
    saved_at = list(itertools.accumulate(gaps))
    made = []

    def make(decider, shared):
        made.append(Shadowed(lambda: make_policy(decider, shared), saved_at))
        return made[0]

    loop = _Loop(named(scenario), Settings(DeciderConfig(policy=name, **config)), seed, make)
    for _ in range(saved_at[-1] + FOLLOWED):
        loop.turn()
    assert made[0].asked == saved_at[-1] + FOLLOWED
    made[0].compare()
