"""Owns the training of the warm start: lessons from generated scenarios on the simulator, folded into one prior.

Nothing of the named scenarios is used, nor of the generated ones with seeds below FIRST_SCENARIO: those are for trial.
Half of the scenarios are played with random profiles that are held for a while, so that every profile is seen in every
situation; half by the cold policy itself with much exploration, so that the situations are those it gets into.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from lab.arena.generated import generated
from lab.arena.scenario import Scenario
from lab.arena.sim_world import SimWorld
from schemas.messages import Action, Actuation, PodWrite, State, Verdict
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.linucb import LinUCB
from services.decider.core.mask import mask
from services.decider.core.outlook import Outlook
from services.decider.core.policy import HOLD, Arm
from services.decider.core.warm import WARM_VERSION, Provenance, WarmStart
from services.decider.core.zoo import make_policy, meaning_of
from services.rewarder.config import RewarderConfig
from services.rewarder.core.censor import Cycle, censor_reason
from services.rewarder.core.reward import RewardWeights, reward

FIRST_SCENARIO: Final = 100_000
STRENGTH: Final = 60.0
"""Lessons that the prior is worth: five minutes of contention, after which a node's own lessons weigh more."""

RIDGE: Final = 20.0
HOLD_CYCLES: Final = (2, 8)


def train(
    *,
    seed: int,
    scenarios: int,
    cycles: int,
    out: str,
    progress: Callable[[int, int], None],
    command: str = "",
    commit: str = "",
) -> WarmStart:
    """Makes the prior and writes it to `out`. The same arguments, the same numbers. Raises OSError."""
    total: _Lessons | None = None
    for number in range(scenarios):
        lessons = _play(number, seed, cycles)
        total = lessons if total is None else total + lessons
        progress(number + 1, scenarios)
    if total is None or not total.count:
        raise ValueError("no lessons: ask for at least one scenario and a few dozen cycles")
    size = len(total.moment)
    ridge = RIDGE * np.eye(size)
    solution = np.linalg.solve(total.gram + ridge, total.moment)
    gram = total.gram / total.count
    warm = WarmStart(
        version=WARM_VERSION,
        model=meaning_of(DeciderConfig(), Shared()),
        size=size,
        strength=STRENGTH,
        gram=[float(f"{value:.5g}") for value in gram[np.tril_indices(size)]],
        solution=[float(f"{value:.6g}") for value in solution],
        provenance=Provenance(
            command=command or f"trimtab train --seed {seed} --scenarios {scenarios} --cycles {cycles}",
            seed=seed,
            scenarios=scenarios,
            cycles=cycles,
            lessons=total.count,
            trimtab=version("trimtab"),
            commit=commit,
            made_at=datetime.now(UTC).strftime("%Y-%m-%d"),
        ),
    )
    Path(out).write_bytes(msgspec.json.encode(warm))
    return warm


class _Lessons:
    """Sums over lessons."""

    def __init__(self, size: int) -> None:
        self.gram = np.zeros((size, size))
        self.moment = np.zeros(size)
        self.count = 0

    def __add__(self, other: "_Lessons") -> "_Lessons":
        both = _Lessons(len(self.moment))
        both.gram, both.moment = self.gram + other.gram, self.moment + other.moment
        both.count = self.count + other.count
        return both


def _play(number: int, seed: int, cycles: int) -> _Lessons:
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - draws scenarios and arms
    scenario = generated(FIRST_SCENARIO + rng.randrange(10_000_000), "bounded" if number % 2 else "unbounded")
    return _Student(scenario, rng, is_free=number % 4 < 2).study(cycles)  # noqa: PLR2004 - half of both queues


class _Student:
    """Plays one scenario without a guard and keeps what was learned."""

    def __init__(self, scenario: Scenario, rng: random.Random, *, is_free: bool) -> None:
        self._world = SimWorld(scenario, rng.randrange(2**31))
        self._shared = self._world.shared
        self._rng = rng
        self._is_free = is_free
        self._arms = [arm for arm in build_arms(self._shared, {}) if arm.weights is not None]
        config = DeciderConfig(warm_start=False, epsilon=0.3, caution=1.0)
        policy = make_policy(config, self._shared).policy
        assert isinstance(policy, LinUCB)
        self._policy = policy
        self._outlook = Outlook(self._shared.classes, self._arms)
        self._lessons = _Lessons(policy.size)
        self._arm, self._left = HOLD, 0
        terms = RewarderConfig()
        self._terms = RewardWeights(
            terms.violation_weight, terms.severity_weight, terms.throughput_weight, terms.oscillation_weight
        )

    def study(self, cycles: int) -> _Lessons:
        """All lessons of a run."""
        for _ in range(cycles):
            before = self._world.before()
            features = before.features | self._outlook.see(before.features)
            arm, moves = self._choose(before, features)
            writes = self._world.apply(arm.weights or {}, arm.name) if moves else ()
            after = self._world.after()
            self._learn(before, after, features, arm, writes, moves=moves)
            self._world.finish()
        return self._lessons

    def _choose(self, before: State, features: dict[str, float]) -> tuple[Arm, bool]:
        if self._is_free:
            self._left -= 1
            if self._left > 0:
                return self._arm, False
            self._left = self._rng.randint(*HOLD_CYCLES)
            self._arm = self._rng.choice(self._arms)
            return self._arm, True
        weights = {name: seen.weight for name, seen in before.classes.items() if seen.weight is not None}
        masked = mask(
            self._arms,
            weights,
            before.classes,
            settings=self._shared.classes,
            limits=self._shared.weights,
            lost=self._outlook.lost(),
        )
        name = self._policy.decide(features, masked.allowed, self._rng).arm
        arm = next((arm for arm in self._arms if arm.name == name), HOLD)
        return arm, arm.weights is not None and arm is not masked.allowed[0]

    def _learn(
        self,
        before: State,
        after: State,
        features: dict[str, float],
        arm: Arm,
        writes: tuple[PodWrite, ...],
        *,
        moves: bool,
    ) -> None:
        cycle = _cycle(before, after, arm, writes, moves=moves)
        rules = RewarderConfig()
        if censor_reason(
            cycle, self._shared.classes, min_requests=rules.min_requests, require_contention=rules.require_contention
        ):
            return
        moved_to = dict(arm.weights) if moves and arm.weights is not None else None
        worth = reward(before, after, moved_to, self._shared.classes, self._terms)
        if self._policy.teaches(features, arm):
            vector, surprise = self._policy.lesson(features, arm, worth.value)
            self._lessons.gram += np.outer(vector, vector)
            self._lessons.moment += vector * surprise
            self._lessons.count += 1
        self._policy.learn(features, arm, worth.value)


def _cycle(before: State, after: State, arm: Arm, writes: tuple[PodWrite, ...], *, moves: bool) -> Cycle:
    """The cycle as the rewarder would have seen it."""
    node, boot, number = before.node, before.boot, before.cycle
    return Cycle(
        before,
        Action(node=node, boot=boot, cycle=number, at=0, policy="training", arm=arm.name),
        Verdict(
            node=node,
            boot=boot,
            cycle=number,
            at=0,
            outcome="allow" if moves else "hold",
            execute=moves,
            mode="active",
        ),
        Actuation(node=node, boot=boot, cycle=number, at=0, outcome="applied" if moves else "held", writes=writes),
        after,
    )
