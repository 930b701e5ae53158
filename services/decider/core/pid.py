"""Owns the PI controller: the weight of each latency class follows how far its violation ratio is from its target.

One loop per latency class, as Åström and Murray (Feedback Systems, 2008, chapter 10) have it:
    u = start + KP · e + KI · Σe
u is log10 of the class's weight, over throughput classes that stay at the prior profile; e is how many decades the
violation ratio lies above its target. Counted in decades, since a ratio can miss its target of 1 % by 99 points to one
side and by 1 to the other. The controls are as coarse as the arms: the nearest one on offer is taken. There is no
derivative: the difference of two violation ratios of 2 s windows is noise.

Against windup the sum is held within what the profiles span, does not run further away from what was executed than
MAX_LEAD, and goes back to where the weights are when a move is found undone: the guard rolled it back. It draws
nothing: one arm has probability 1. The sum changes in `learn` alone, so time runs in lessons.
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
    staying,
    verdicts,
)
from services.decider.core.snapshot import SNAPSHOT_VERSION, Identity, SnapshotMismatch

POLICY_VERSION: Final = 1
KP: Final = 0.25
"""Decades of weight per decade of error: all requests over the objective (2 decades) ask for one grid step at once."""
KI: Final = 0.1
"""Decades of weight per decade of error and lesson. With no violation at all a grid step back takes 50 lessons (see
RELEASE): 4 minutes of contention at the 5 s tick."""
DEADBAND: Final = 0.3
"""Decades of error that count as none: at a target of 1 %, from 0.5 % to 2 %."""
FLOOR: Final = 0.1
"""Added to the ratio, in targets: no violation at all is then an error of one decade, and not of infinitely many."""
LEAST_TARGET: Final = 0.001
"""Stands in for a target of 0, above which every ratio would lie infinitely many decades."""
RELEASE: Final = 0.1
"""Part by which an error to the good side counts: a class in need is helped at once, weight is taken back slowly."""
MAX_LEAD: Final = 1.0
"""Decades by which a sum may be ahead of the executed weight: two grid steps, what the mask lets pass in two cycles."""
MARGIN: Final = 0.1
"""Decades by which another arm must be nearer than the one in force: a fifth of a grid step, against chatter."""


class PID:
    """PI control of the violation ratio per latency class, on the arms. A `Policy` without chance.

    `centre` is the profile it starts from, `profiles` are those that its sums may span.
    """

    def __init__(
        self, classes: Mapping[str, ClassSettings], profiles: Sequence[Arm], centre: Arm, identity: Identity
    ) -> None:
        self.identity = identity
        self._classes = classes
        self._start = place_of(centre, {}, tuple(classes))
        self._loops = tuple(name for name, spec in classes.items() if spec.kind == "latency")
        self._base = next((name for name in classes if name not in self._loops), None)
        offsets = {
            name: [self._offset(place_of(arm, {}, tuple(classes)), name) for arm in profiles] for name in self._loops
        }
        self._range = {name: (min(offsets[name]), max(offsets[name])) for name in self._loops}
        self._sums = dict.fromkeys(self._loops, 0.0)
        self._before_move: Place | None = None
        self._updates = 0

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.identity.policy

    @property
    def updates(self) -> int:
        """Lessons seen; what they say of the arms' worth is not used."""
        return self._updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        """The arm nearest to what the loops ask for; scores are minus the distance (decades) from it."""
        return choose(self._scores(features, arms), 0.0, rng)

    def _scores(self, features: Mapping[str, float], arms: Sequence[Arm]) -> dict[str, float]:
        """By arm, the one that stays first."""
        names, wanted, stay = present(features, self._classes), self._wanted(features), staying(arms)
        scores = {stay.name: 0.0}
        for arm in arms:
            gap = apart(place_of(arm, features, names), wanted)
            scores[arm.name] = (MARGIN if arm is stay else 0.0) - gap
        return scores

    def explain(self, features: Mapping[str, float], arms: Sequence[Arm]) -> Explanation:
        """Why: each class's part of the distance from what the loops ask for, and what makes them ask for it."""
        names, wanted, stay = present(features, self._classes), self._wanted(features), staying(arms)
        by_arm = [distance_parts(place_of(arm, features, names), wanted) for arm in arms]
        parts: dict[str, tuple[float | None, Sequence[float]]] = {
            name: (None, [one.get(name, 0.0) for one in by_arm]) for name in names
        }
        parts["staying"] = (None, [MARGIN if arm is stay else 0.0 for arm in arms])
        scores = [math.fsum(row[index] for _, row in parts.values()) for index in range(len(arms))]
        seen = verdicts(features, self._classes)
        ranked = self._scores(features, arms)
        leader = max(ranked, key=ranked.__getitem__)
        return Explanation(
            unit="decades",
            arms=parted(arms, scores, parts),
            leader=leader,
            among=(leader,),
            notes=tuple(
                f"{name}: {seen[name].ratio:.3g} over, target {seen[name].target:.3g}: error {error(seen[name]):+.2f} "
                f"decades; asks for {wanted[name] - self._start[name]:+.2f} decades on its start, of which the sum is "
                f"{self._sums[name]:+.2f}"
                for name in self._loops
                if name in seen
            ),
        )

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Adds the errors of the situation to the sums."""
        self._updates += 1
        names = present(features, self._classes)
        now, executed = place_now(features, names), place_of(arm, features, names)
        if self._before_move is not None and is_same(now, self._before_move):
            self._sums |= {name: self._held(name, self._change(now, name)) for name in self._loops if name in now}
        self._before_move = now if now and not is_same(now, executed) else None
        for name, verdict in verdicts(features, self._classes).items():
            wrong = error(verdict)
            lead = self._sums[name] - self._change(executed, name)
            if wrong * lead > 0.0 and abs(lead) >= MAX_LEAD:
                continue
            self._sums[name] = self._held(name, self._sums[name] + KI * wrong)

    def save(self) -> Snapshot:
        """The sum of each loop, and where the weights were before the last move, in decades."""
        return Snapshot(
            version=SNAPSHOT_VERSION,
            identity=self.identity,
            updates=self._updates,
            numbers={
                "sums": [self._sums[name] for name in self._loops],
                "before_move": save_place(self._before_move, self._classes),
            },
        )

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the state by a saved one. Raises SnapshotMismatch, and then has changed nothing."""
        snapshot.require(self.identity, {"sums": len(self._loops), "before_move": 2 * len(self._classes)})
        sums = dict(zip(self._loops, snapshot.numbers["sums"], strict=True))
        if any(self._held(name, value) != value for name, value in sums.items()):
            raise SnapshotMismatch("damaged", f"sums of {sums} are beyond the profiles")
        self._sums, self._updates = sums, snapshot.updates
        self._before_move = load_place(snapshot.numbers["before_move"], self._classes)

    def _wanted(self, features: Mapping[str, float]) -> Place:
        seen = verdicts(features, self._classes)
        pushes = {name: KP * error(seen[name]) if name in seen else 0.0 for name in self._loops}
        return self._start | {
            name: self._start[name] + self._held(name, self._sums[name] + pushes[name]) for name in self._loops
        }

    def _held(self, name: str, change: float) -> float:
        """The change from the start, within what the profiles span."""
        lowest, highest = (bound - self._offset(self._start, name) for bound in self._range[name])
        return min(max(change, lowest), highest)

    def _change(self, place: Place, name: str) -> float:
        return self._offset(place, name) - self._offset(self._start, name)

    def _offset(self, place: Place, name: str) -> float:
        """Decades above the base: the first throughput class or, where there is none, the lowest of all."""
        lowest = min(place.values())
        return place[name] - (place.get(self._base, lowest) if self._base else lowest)


def error(verdict: Verdict) -> float:
    """Decades of the violation ratio above its target, 0 inside the deadband, RELEASE of them below it."""
    target = max(verdict.target, LEAST_TARGET)
    wrong = math.log10((verdict.ratio + FLOOR * target) / (target + FLOOR * target))
    if abs(wrong) <= DEADBAND:
        return 0.0
    return wrong if wrong > 0.0 else RELEASE * wrong
