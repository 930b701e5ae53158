"""Owns what the experiments vary: each variant of the loop by name, as settings and as parts that are taken out.

What no setting can switch is switched by replacing a name of the code for as long as one run lasts, in the process that
plays it. A replaced name that is not there any more is an AttributeError, and the run fails with it.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from lab.arena import episode, sim_world
from lab.arena.scenario import Scenario
from schemas.messages import ClassState
from schemas.objective import objective_seconds
from schemas.settings import ClassSettings, Shared, WeightSettings
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.belief import Floats
from services.decider.core.burns import Burns, Shares
from services.decider.core.caution import Caution
from services.decider.core.linucb import LinUCB
from services.decider.core.mask import Masked, mask
from services.decider.core.policy import Arm, Choice, Policy, Snapshot
from services.decider.core.zoo import make_policy
from services.guard.config import GuardConfig
from services.guard.core import excuses
from services.rewarder.config import RewarderConfig
from services.rewarder.core import reward

Patch = tuple[object, str, object]
"""Where a name stands, the name, and what stands in for it."""

WORST_OCTAVES: Final = 5.0
"""A P99 of 32 times the objective is the worst that there is, as in the reward."""


@dataclass(frozen=True)
class Variant:
    """How one run is set up. The defaults are the product's.

    `hides` are the ends of the features that the policy does not get to see. `bold`: nothing holds it back from trying;
    `burns` False: what did harm may be tried again at once. `masked` False: all arms are offered. `guarded` False: no
    rollbacks, no breaker. `block_seconds`: the score is that of stretches so long, whatever the tick.
    """

    decider: DeciderConfig = field(default_factory=DeciderConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    rewarder: RewarderConfig = field(default_factory=RewarderConfig)
    limits: WeightSettings = field(default_factory=WeightSettings)
    cycle_seconds: float = 5.0
    guarded: bool = True
    masked: bool = True
    bold: bool = False
    burns: bool = True
    hides: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    block_seconds: float | None = None

    def make(self, config: DeciderConfig, shared: Shared) -> Policy:
        """The policy, with its parts taken out and its view narrowed."""
        checked = make_policy(config, shared)
        inner = checked.policy
        if isinstance(inner, LinUCB):
            if self.bold:
                inner.budget = _Unlimited(inner.caution)
            if not self.burns:
                inner.burns = _NoBurns(inner.arms)
        if self.masked and not self.hides:
            return checked
        return _Narrowed(checked, self.hides, None if self.masked else build_arms(shared, config.profiles))

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Replaces what must be replaced, and puts it back."""
        with ExitStack() as stack:
            if self.limits != WeightSettings():
                stack.enter_context(_replaced(sim_world, "shared_settings", _limited(self.limits)))
            for owner, name, stand_in in self.patches:
                stack.enter_context(_replaced(owner, name, stand_in))
            yield


class _Narrowed:
    """A policy that does not see some features, and is offered all `arms` where they are given."""

    def __init__(self, policy: Policy, hides: tuple[str, ...], arms: Sequence[Arm] | None) -> None:
        self._policy = policy
        self._hides = hides
        self._arms = arms

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def updates(self) -> int:
        return self._policy.updates

    def decide(self, features: Mapping[str, float], arms: Sequence[Arm], rng: random.Random) -> Choice:
        if self._arms is not None:
            arms = [arms[0], *(arm for arm in self._arms if arm.name != arms[0].name)]
        return self._policy.decide(self._seen(features), arms, rng)

    def learn(self, features: Mapping[str, float], arm: Arm, reward: float) -> None:
        self._policy.learn(self._seen(features), arm, reward)

    def save(self) -> Snapshot:
        return self._policy.save()

    def load(self, snapshot: Snapshot) -> None:
        self._policy.load(snapshot)

    def _seen(self, features: Mapping[str, float]) -> dict[str, float]:
        return {name: value for name, value in features.items() if not name.endswith(self._hides or "\0")}


class _Unlimited(Caution):
    """Whatever it may cost can be tried."""

    def affordable(self, means: Floats, widths: Floats, best: int) -> list[int]:  # noqa: ARG002 - as it is called
        return list(range(len(means)))


class _NoBurns(Burns):
    """Remembers no harm."""

    def forbidden(self, features: Mapping[str, float], arms: Sequence[Arm], shares: Shares) -> list[str]:  # noqa: ARG002 - as it is called
        return []


@contextmanager
def _replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _limited(limits: WeightSettings) -> Callable[..., Shared]:
    original = sim_world.shared_settings

    def shared_settings(scenario: Scenario, cycle_seconds: float = 5.0) -> Shared:
        return structs.replace(original(scenario, cycle_seconds), weights=limits)

    return shared_settings


def _never(*_args: object, **_settings: object) -> bool:
    return False


def _mask_without_lost(*args: object, **settings: object) -> Masked:
    return mask(*args, **{**settings, "lost": ()})  # type: ignore[arg-type] # as it was called


def _severity_of_p99(seen: ClassState, spec: ClassSettings) -> float:
    p99, objective = seen.latency.p99_seconds, objective_seconds(seen, spec)
    if p99 is None or objective is None or p99 <= objective:
        return 0.0
    return min(1.0, math.log2(p99 / objective) / WORST_OCTAVES)


def _severity_of_over_ratio(seen: ClassState, spec: ClassSettings) -> float:  # noqa: ARG001 - as it is called
    return math.sqrt(min(1.0, max(0.0, seen.latency.over_ratio or 0.0)))


def _decider(**fields: object) -> DeciderConfig:
    return DeciderConfig(**fields)  # type: ignore[arg-type] # names and types are those of the fields


_COLD: Final = DeciderConfig(warm_start=False)
_RIVER: Final = episode.DECIDERS["river-linucb"]
_NO_LOST: Final[Patch] = (episode, "mask", _mask_without_lost)
_TRADE: Final[Patch] = (excuses, "is_a_good_trade", _never)
_MORE: Final[Patch] = (excuses, "was_given_more", _never)
_YIELDED: Final[Patch] = (excuses, "has_yielded", _never)

VARIANTS: Final[dict[str, Variant]] = {
    **{name: Variant(decider) for name, decider in episode.DECIDERS.items()},
    # reward
    **{
        f"violation {part:g}, severity {1.0 - part:g}": Variant(
            rewarder=RewarderConfig(violation_weight=part, severity_weight=round(1.0 - part, 3))
        )
        for part in (0.1, 0.5, 0.7, 0.9)
    },
    "throughput 0.3": Variant(rewarder=RewarderConfig(throughput_weight=0.3)),
    "oscillation 0": Variant(rewarder=RewarderConfig(oscillation_weight=0.0)),
    "oscillation 0.2": Variant(rewarder=RewarderConfig(oscillation_weight=0.2)),
    # tick
    "request-derived, by 30 s": Variant(episode.DECIDERS[episode.REQUEST_DERIVED], block_seconds=30.0),
    **{f"tick {tick:g} s": Variant(cycle_seconds=tick, block_seconds=30.0) for tick in (1.0, 2.0, 5.0, 10.0, 30.0)},
    # ablation
    "without need": Variant(hides=(".need",)),
    "without lost": Variant(hides=(".lost",), patches=(_NO_LOST,)),
    "without rescue": Variant(hides=(".rescue",)),
    "without the hold": Variant(hides=("moved",)),
    "without outlook": Variant(hides=(".need", ".lost", ".rescue", "moved"), patches=(_NO_LOST,)),
    "without caution": Variant(bold=True),
    "without exploring": Variant(_decider(caution=0.0, epsilon=0.0)),
    "without burns": Variant(burns=False),
    "severity of the P99": Variant(patches=((reward, "severity", _severity_of_p99),)),
    "severity of over_ratio": Variant(patches=((reward, "severity", _severity_of_over_ratio),)),
    "cold, without need": Variant(_COLD, hides=(".need",)),
    "cold, without lost": Variant(_COLD, hides=(".lost",), patches=(_NO_LOST,)),
    "cold, without caution": Variant(_COLD, bold=True),
    "cold, likeness 0.3": Variant(_decider(warm_start=False, likeness_decades=0.3)),
    "cold, likeness 1.2": Variant(_decider(warm_start=False, likeness_decades=1.2)),
    # safety
    "guard off": Variant(guarded=False),
    "breaker off": Variant(guard=GuardConfig(rollbacks_to_open=100)),
    "floor 0": Variant(guard=GuardConfig(regression_floor_ratio=0.0)),
    "floor 0.5": Variant(guard=GuardConfig(regression_floor_ratio=0.5)),
    "no excuse: lost": Variant(guard=GuardConfig(regression_lost_ratio=1.0)),
    "no excuse: given more": Variant(patches=(_MORE,)),
    "no excuse: yielded": Variant(patches=(_YIELDED,)),
    "no excuse: good trade": Variant(patches=(_TRADE,)),
    "no excuse": Variant(guard=GuardConfig(regression_lost_ratio=1.0), patches=(_TRADE, _MORE, _YIELDED)),
    "mask off": Variant(masked=False),
    "mask and guard off": Variant(masked=False, guarded=False),
    "step 2": Variant(limits=WeightSettings(max_step_ratio=2.0)),
    "step 10": Variant(limits=WeightSettings(max_step_ratio=10.0)),
    "changes 4": Variant(limits=WeightSettings(max_changes_per_minute=4.0)),
    "changes 12": Variant(limits=WeightSettings(max_changes_per_minute=12.0)),
    "river-linucb, guard off": Variant(_RIVER, guarded=False),
    "river-linucb, breaker off": Variant(_RIVER, guard=GuardConfig(rollbacks_to_open=100)),
    "river-linucb, mask off": Variant(_RIVER, masked=False),
    "river-linucb, mask and guard off": Variant(_RIVER, masked=False, guarded=False),
}
"""Every variant by the name that the tables show."""
