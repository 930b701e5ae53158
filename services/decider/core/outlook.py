"""Owns what the decider remembers from one state to the next, and what follows from it for a decision.

A state shows one window. Whether a class is short of CPU or beyond help, and how much it needs when it is well, shows
only over several. From the states' features alone, so that a recorded stream gives the same outlook again.

`<class>.need`: part of the node's CPUs that a latency class used when it last kept its objective; while it misses it,
or its latency is not known, the most that it used since. It tells load from backlog, which uses more but is no need.
`<class>.lost`: 1 while no weights can save the class. It becomes lost when it had enough (below), more than half of its
requests were late and its latency did not fall, for as many states in a row as patience asks; a state that is neither
well nor that bad counts a quarter, one right after a move neither adds nor clears. It is lost no more when it is well
or its latency is not known, when another one is lost too (who was given up first was given up in vain), and to be tried
anew after a while that doubles each time.
`<class>.rescue`: 1 for the most important of the latency classes that are not lost and of which more than half of the
requests were late, without falling, for RESCUE_AFTER states, or which were not well for RESCUE_SHORT_AFTER; unless it
has enough.
`moved`: 1 if the weights are not those of the state before, so that what is seen is still the work of those.

A class has enough at NEAR_RATIO of the largest share of the weights that any profile gives it. One that was lost once
is hopeless: while no other is lost, its fair part among the latency classes is enough, so that it is not rescued at the
others' cost again; until more than that has helped it after all. When a class is lost, the others are its heirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

import msgspec

from schemas.features import WEIGHT_LOG_BASE
from schemas.settings import ClassSettings
from services.decider.core.policy import Arm

PATIENCE: Final = 2
"""States in a row in which a class must be late with enough before it is lost: one may be a burst."""

BLIND_PATIENCE: Final = 8
"""The same where the latency is beyond what can be seen: histograms end, most at ten seconds, and then tell the same
number again and again. It may be falling unseen, and a backlog of minutes takes as long to be served."""

HEIR_PATIENCE: Final = 40
"""The same for a class that gained from another's loss and has not been well since: it first has its own backlog to
serve, and to give it up as well would make all of it vain."""

RESCUE_AFTER: Final = 2
"""States in a row: one is a burst."""

RESCUE_SHORT_AFTER: Final = 8
"""States in a row in which a class is not well, though most of its requests may be in time: as each counts a quarter
(_HALF_BAD). What lasts for 40 s at the 5 s tick is no burst, and what the model makes of it has not helped."""

MISSED_RATIO: Final = 0.5
"""Part of the requests. More than half: the median request is late, which is no burst."""

NEAR_RATIO: Final = 0.75
"""Part of the largest share that any profile gives the class: a third more CPU does not save it from an overload that
makes most requests late, or if it does, the class is tried anew."""

WELL_RATIO: Final = 0.1
"""Part of the requests up to which a class is well enough: what a burst of arrivals does in two seconds."""

_HALF_BAD: Final = 0.25
"""What a state between MISSED_RATIO and WELL_RATIO counts for: four of them are one."""

FALLING: Final = 0.03
"""Fall of `latency_log` from one state to the next that counts as catching up: about 15 % of the latency."""

RETRY_STATES: Final = 120
MOST_RETRY_STATES: Final = 960
"""States after which a lost class is tried anew: ten minutes at the 5 s tick, twice as long each time, at most 80."""

_MOVED: Final = 0.002
"""Of `weight_log`, which is 0.5 per decade: 1 % of a weight, as rounding to whole weights makes it."""

_NEARLY: Final = 0.9
_CLEARLY: Final = 1.1
"""Of the fair part: what still counts as having it, and what is more than it beyond rounding."""


def outlook_names(classes: Mapping[str, ClassSettings]) -> tuple[str, ...]:
    """Every name that an outlook over these classes has."""
    latency = [name for name, spec in classes.items() if spec.kind == "latency"]
    return ("moved", *(f"{name}.{word}" for name in latency for word in ("need", "lost", "rescue")))


@dataclass
class _Memory:
    """Of one latency class. `late`, `short` and `bad` count states towards `rescue` and `lost`, `since` those since it
    was lost, `retry` those after which it is tried anew. `latency` is the last one known.
    """

    need: float = 0.0
    late: int = 0
    short: int = 0
    bad: float = 0.0
    has_enough: bool = False
    hopeless: bool = False
    is_heir: bool = False
    lost: bool = False
    since: int = 0
    retry: int = RETRY_STATES
    latency: float | None = None

    @property
    def calls(self) -> bool:
        """Whether it has been late for long enough to be rescued."""
        return self.late >= RESCUE_AFTER or self.short >= RESCUE_SHORT_AFTER


class OutlookState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an outlook remembers: each latency class's numbers by name (a claim is 0 or 1), and the last weights."""

    memories: dict[str, dict[str, float | None]]
    weights: tuple[float, ...] | None


_MOST_KEPT: Final = 256
"""Sets of present classes for which the largest shares are kept: pods come and go seldom."""


class _Reads(NamedTuple):
    """Names of the features that are read of a class."""

    present: str
    weight_log: str
    over_ratio: str
    cpu_ratio: str
    latency_log: str
    latency_missing: str


@dataclass
class Outlook:
    """Fed with every state's features in turn, `see` answers with `outlook_names`. Bounded: a few numbers a class."""

    classes: Mapping[str, ClassSettings]
    arms: Sequence[Arm]
    _memories: dict[str, _Memory] = field(default_factory=dict)
    _weights: tuple[float, ...] | None = None
    _says: dict[str, tuple[str, str, str]] = field(default_factory=dict, repr=False, compare=False)
    _reads: dict[str, _Reads] = field(default_factory=dict, repr=False, compare=False)
    _most: dict[tuple[str, ...], float | None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        ranked = sorted(
            (name for name, spec in self.classes.items() if spec.kind == "latency"),
            key=lambda name: -self.classes[name].importance,
        )
        self._memories = {name: _Memory() for name in ranked}
        self._says = {name: (f"{name}.need", f"{name}.lost", f"{name}.rescue") for name in ranked}
        self._reads = {name: _Reads(*(f"{name}.{word}" for word in _Reads._fields)) for name in self.classes}

    def see(self, features: Mapping[str, float]) -> dict[str, float]:
        """The outlook after this state. Without features (another schema) nothing is known, and nothing stays lost."""
        weights = tuple([features.get(reads.weight_log, 0.0) for reads in self._reads.values()])
        moved = self._weights not in (None, weights) and any(
            abs(a - b) > _MOVED for a, b in zip(weights, self._weights, strict=True)
        )
        self._weights = weights
        present = self._present(features)
        for name, memory in self._memories.items():
            self._look(name, memory, features, present, moved=moved)
        lost = [name for name, memory in self._memories.items() if memory.lost]
        if len(lost) > 1:  # who was given up first was given up in vain
            self._take_back(max(lost, key=lambda name: self._memories[name].since))
        found = {"moved": float(moved)}
        for name, memory in self._memories.items():
            need, is_lost, rescue = self._says[name]
            found[need], found[is_lost], found[rescue] = memory.need, float(memory.lost), 0.0
        for name, memory in self._memories.items():
            if memory.calls and not memory.lost:
                found[f"{name}.rescue"] = float(not memory.has_enough)
                break
        return found

    def save(self) -> OutlookState:
        """All that it remembers."""
        return OutlookState(
            memories={
                name: {key: None if value is None else float(value) for key, value in asdict(memory).items()}
                for name, memory in self._memories.items()
            },
            weights=self._weights,
        )

    def load(self, state: OutlookState) -> None:
        """Goes on from what another one remembered. ValueError if that was of other classes, and nothing changes."""
        plain = asdict(_Memory())
        if list(state.memories) != list(self._memories) or any(
            own.keys() != plain.keys() or any(own[key] is None and plain[key] is not None for key in own)
            for own in state.memories.values()
        ):
            raise ValueError("an outlook of other classes, or of another version")
        if state.weights is not None and len(state.weights) != len(self.classes):
            raise ValueError("an outlook of other classes")
        self._memories = {
            name: _Memory(**{key: _as(plain[key], value) for key, value in own.items()})  # type: ignore[arg-type]
            for name, own in state.memories.items()
        }
        self._weights = state.weights

    def lost(self) -> frozenset[str]:
        """The classes that are lost now."""
        return frozenset(name for name, memory in self._memories.items() if memory.lost)

    def _present(self, features: Mapping[str, float]) -> dict[str, float]:
        """The weights of the classes that are there, on any scale."""
        return {
            name: WEIGHT_LOG_BASE ** features.get(reads.weight_log, 0.0)
            for name, reads in self._reads.items()
            if features.get(reads.present, 0.0) > 0.0
        }

    def _look(
        self, name: str, memory: _Memory, features: Mapping[str, float], present: Mapping[str, float], *, moved: bool
    ) -> None:
        reads = self._reads[name]
        missed, used = features.get(reads.over_ratio, 0.0), features.get(reads.cpu_ratio, 0.0)
        latency = features.get(reads.latency_log, 0.0)
        is_known = features.get(reads.latency_missing, 1.0) <= 0.0
        is_bad, is_well = is_known and missed > MISSED_RATIO, not is_known or missed <= WELL_RATIO
        memory.is_heir = memory.is_heir and not (is_known and is_well)
        is_blind = memory.latency is not None and latency == memory.latency
        is_falling = memory.latency is not None and latency < memory.latency - FALLING
        memory.latency = latency if is_known else None
        was_late, memory.late = memory.late, memory.late + 1 if is_bad and not is_falling else 0
        memory.short = 0 if is_well or is_falling else memory.short + 1
        if is_known and missed <= self.classes[name].violation_target_ratio:
            memory.need = used
        else:
            memory.need = max(memory.need, used)
        if memory.lost:
            memory.since += 1
            if is_well or memory.since >= memory.retry:
                memory.retry = RETRY_STATES if is_well else min(MOST_RETRY_STATES, 2 * memory.retry)
                memory.lost, memory.bad = False, 0.0
            return
        share, fair, most = self._share(name, present)
        if was_late and is_known and is_well and share > fair * _CLEARLY:
            memory.hopeless = False
        enough = fair * _NEARLY if memory.hopeless and not self.lost() else NEAR_RATIO * most
        memory.has_enough = share >= enough
        if is_well or is_falling or not memory.has_enough:
            memory.bad = 0.0
        elif not moved:
            memory.bad += 1.0 if is_bad else _HALF_BAD
        patience = HEIR_PATIENCE if memory.is_heir else BLIND_PATIENCE if is_blind else PATIENCE
        if memory.bad >= patience:
            memory.lost, memory.since, memory.hopeless, memory.is_heir = True, 0, True, False
            for other, heir in self._memories.items():
                heir.is_heir = other != name

    def _take_back(self, name: str) -> None:
        memory = self._memories[name]
        memory.lost, memory.bad, memory.late = False, 0.0, RESCUE_AFTER

    def _share(self, name: str, present: Mapping[str, float]) -> tuple[float, float, float]:
        """The class's part of the class weights now, its fair part among the latency classes, and the most that any
        profile gives it.
        """
        fair = 1.0 / max(1, sum(other in self._memories for other in present))
        if name not in present:
            return 1.0, fair, 1.0
        now = present[name] / sum(present.values())
        key = (name, *present)
        if key not in self._most:
            if len(self._most) >= _MOST_KEPT:
                self._most.clear()
            profiles = [arm.weights for arm in self.arms if arm.weights is not None]
            self._most[key] = max((own[name] / sum(own[other] for other in present) for own in profiles), default=None)
        most = self._most[key]
        return now, fair, now if most is None else most


def _as(like: object, value: float | None) -> object:
    """A saved number as what the field holds."""
    if value is None or like is None:
        return value
    return type(like)(value)  # type: ignore[call-arg] # bool, int or float
