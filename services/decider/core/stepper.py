"""Owns the step controller: probes by hand-written rules, one neighbouring profile at a time, as PARTIES does.

Chen, Delimitrou, Martínez (ASPLOS 2019, section 4): watch the slack of every latency-critical service; give the one
that misses its objective worst one step more; once all have had slack for a while, take one step back from the one that
has most; undo such a step at once if it hurts, and wait longer before the next. Theirs turns five resources of one
service each; here there is one resource, the weights, and a step is the way to the nearest profile on offer that gives
the class a larger share (or gives the throughput classes a larger one and this class a smaller).

It draws nothing: one arm has probability 1. What it remembers changes in `learn` alone, so time runs in lessons.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.settings import ClassSettings
from services.decider.core.explanation import Explanation, distance_parts, parted
from services.decider.core.policy import Arm, Choice, Snapshot, choose
from services.decider.core.readings import (
    Place,
    Verdict,
    apart,
    is_same,
    load_place,
    place_now,
    place_of,
    present,
    save_place,
    share_of,
    staying,
    verdicts,
)
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
PATIENCE: Final = 6
"""Lessons with slack before the first step back, and lessons that a step back is on trial: half a minute of contention
at the 5 s tick, as PARTIES waits."""
MOST_PATIENCE: Final = 96
"""Longest wait after steps back that hurt; each doubles it: eight minutes of contention at the 5 s tick."""
MORE: Final = 1.01
"""A share counts as larger from 1 % on; less is rounding of weights."""


class Stepper:
    """One step up for the worst violated class, one step back after lasting slack. A `Policy` without chance."""

    def __init__(self, classes: Mapping[str, ClassSettings], identity: Identity) -> None:
        self.identity = identity
        self._classes = classes
        self._takers = [name for name, spec in classes.items() if spec.kind == "throughput"]
        self._updates = 0
        self._calm = 0
        self._patience = PATIENCE
        self._trial_age = 0
        self._before: Place | None = None

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Lessons seen; what they say of the arms' worth is not used."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The one step that the rules ask for; scores are minus the distance (decades) from it."""
        names = present(features, self._classes)
        stay = staying(arms)
        places = {arm.name: place_of(arm, features, names) for arm in arms}
        target = places[self._target(stay.name, places, verdicts(features, self._classes))]
        order = sorted(arms, key=lambda arm: arm is not stay)  # of two arms at one place, the one that changes nothing
        return choose({arm.name: 0.0 - apart(places[arm.name], target) for arm in order}, 0.0, rng)

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why: who misses an objective, or how long all have had slack; and how far each arm is from the step."""
        names, seen, stay = present(features, self._classes), verdicts(features, self._classes), staying(arms)
        places = {arm.name: place_of(arm, features, names) for arm in arms}
        target = self._target(stay.name, places, seen)
        by_arm = [distance_parts(places[arm.name], places[target]) for arm in arms]
        missing = [name for name, verdict in seen.items() if verdict.is_violated]
        calm = f"all have had slack for {self._calm} of {self._patience} lessons before a step back"
        return Explanation(
            unit="decades",
            arms=parted(
                arms,
                [math.fsum(one.values()) for one in by_arm],
                {name: (None, [one.get(name, 0.0) for one in by_arm]) for name in names},
            ),
            leader=target,
            among=(target,),
            notes=(f"misses its objective: {', '.join(missing)}" if missing else calm,),
        )

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Takes in what the situation was, and whether what was executed was a step back."""
        self._updates += 1
        seen = verdicts(features, self._classes)
        is_violated = any(verdict.is_violated for verdict in seen.values())
        self._calm = self._calm + 1 if seen and all(verdict.has_slack for verdict in seen.values()) else 0
        names = present(features, self._classes)
        here, there = place_now(features, names), place_of(arm, features, names)
        if self._before is not None:
            self._trial_age += 1
            if is_violated or is_same(here, self._before):  # it hurt, or the guard found that it did and undid it
                self._patience = min(2 * self._patience, MOST_PATIENCE)
                self._before = None
            elif self._trial_age >= PATIENCE:
                self._patience = max(self._patience // 2, PATIENCE)
                self._before = None
        if here and not is_violated and share_of(self._takers, there) > MORE * share_of(self._takers, here):
            self._before = here
            self._calm = self._trial_age = 0

    def save(self) -> Snapshot:
        """Counters, and where the weights were before the step back that is on trial."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self._updates,
            numbers={
                "counters": [float(self._calm), float(self._patience), float(self._trial_age)],
                "before": save_place(self._before, self._classes),
            },
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        snapshot.require(self.identity, {"counters": 3, "before": 2 * len(self._classes)})
        numbers = snapshot.numbers
        calm, patience, age = (int(number) for number in numbers["counters"])
        if calm < 0 or not PATIENCE <= patience <= MOST_PATIENCE or not 0 <= age <= PATIENCE:
            raise SnapshotMismatch("damaged", f"counters of {numbers['counters']}")
        self._updates, self._calm, self._patience, self._trial_age = snapshot.updates, calm, patience, age
        self._before = load_place(numbers["before"], self._classes)

    def _target(self, stay: str, places: Mapping[str, Place], seen: Mapping[str, Verdict]) -> str:
        """The name of the arm to go to, `stay` if nothing asks for a step or nothing on offer is one."""
        violated = [name for name, verdict in seen.items() if verdict.is_violated]
        if violated:
            worst = max(
                violated, key=lambda name: self._classes[name].importance * (seen[name].ratio - seen[name].target)
            )
            return self._step_back_undone(stay, places) or _nearest(stay, places, more=[worst]) or stay
        if self._calm >= self._patience:
            for name in sorted(seen, key=lambda name: seen[name].used):
                step = _nearest(stay, places, more=self._takers, less=[name])
                if step is not None:
                    return step
        return stay

    def _step_back_undone(self, stay: str, places: Mapping[str, Place]) -> str | None:
        before = self._before
        if before is None:
            return None
        nearest = min(places, key=lambda name: apart(places[name], before))
        return nearest if apart(places[nearest], before) < apart(places[stay], before) else None


def _nearest(stay: str, places: Mapping[str, Place], *, more: Sequence[str], less: Sequence[str] = ()) -> str | None:
    """The nearest arm that gives the classes of `more` a larger share, and those of `less` a smaller; None if none."""
    here = places[stay]
    steps = [
        name
        for name, place in places.items()
        if share_of(more, place) > MORE * share_of(more, here)
        and (not less or MORE * share_of(less, place) < share_of(less, here))
    ]

    def effort(name: str) -> tuple[float, float]:
        moved = sum(abs(places[name][cls] - here[cls]) for cls in here)
        return round(apart(places[name], here), 6), moved  # of two equally far, the one that leaves others alone

    return min(steps, key=effort, default=None)
