"""Owns the decider's settings (section `decider` of the configuration)."""

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from schemas.features import feature_names
from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared, Weight
from services.decider.core.arms import build_arms
from services.decider.core.outlook import outlook_names
from services.decider.core.zoo import POLICIES, profile_named

MOST_SHADOWS: Final = 8
"""Each one costs a decision's time in every cycle, and a propensity per arm in every message."""

_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,62}")


class PolicySettings(Section, frozen=True, kw_only=True):
    """How one policy learns."""

    policy: str = "linucb"
    """Name of the policy. `linucb`, since it learns across neighbouring profiles; `river-linucb`, `static` and `hold`
    are there to compare with."""

    static_profile: str | None = None
    """Name of the profile that `static` keeps. None: the profile nearest to 10 : 3 : 1, as `prior_profile`."""

    exploration: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.3
    """Multiplies the width of a belief in an arm's score (LinUCB's alpha). 0.3: about the noise of one reward on its
    scale of -1 to 1, which is what the width is measured in."""

    epsilon: Ratio = 0.05
    """Probability of a uniform draw among the allowed arms. 0.05: one cycle in 20, enough for off-policy estimates
    with fifteen arms. It is drawn only while every objective is kept, among what `caution` pays for."""

    discount: Annotated[float, Meta(ge=0.5, le=1.0)] = 0.995
    """Weight of a lesson relative to the one after it. 0.995: half is forgotten after 138 lessons, some 12 minutes of
    contention at the 5 s tick. 1 never forgets."""

    prior_profile: str | None = None
    """Profile believed to be best before any evidence. None: the one nearest to 10 : 3 : 1 (latency-critical :
    default : batch), or for other classes to 10 for the most important latency class and 1 for throughput."""

    prior_strength: Annotated[float, Meta(ge=0.01, le=1000.0)] = 0.5
    """Strength of that belief in pseudo-observations per direction of the model. 0.5: the first real rewards of a
    profile outweigh it."""

    prior_fall: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.1
    """Reward that the prior takes off per squared decade (factor 10) of distance from that profile. 0.1: gentle, 0.025
    for a half decade in one class; it orders the first tries and no more."""

    likeness_decades: Annotated[float, Meta(ge=0.05, le=10.0)] = 0.6
    """How far one reward teaches, in decades of weight ratio: profiles that far apart correlate by 0.6. 0.6: a
    neighbour on the half-decade grid (0.5) shares most, one two steps away a quarter. Smaller learns each profile by
    itself, larger blurs the edge beyond which an objective is missed."""

    context_features: tuple[str, ...] = ()
    """Features that the model sees beside the bias. Empty: `need` and `lost` of each latency class and `present` of
    each throughput class. Each one adds a copy of the arms' terms (16 by default) to what must be learned."""

    caution: Ratio = 0.1
    """Part of what is earned that exploring may lose while every objective is kept (0-1). 0.1: a tenth. 0: nothing is
    tried that may be worse; 1: close to no caution."""

    warm_start: bool = True
    """Whether to begin with what the simulator taught, where that was for these classes and profiles. False: from
    `prior_profile` alone."""


class TrialSettings(Section, frozen=True, kw_only=True):
    """How a challenger is tried against the policy in charge."""

    challenger: str | None = None
    """Name of the shadow that is to show whether it is better. None: no trial."""

    by: Literal["switchback", "node"] = "switchback"
    """`switchback`: on each node both take turns. `node`: it decides on a share of the nodes, which `trimtab compare`
    holds against the others; nothing is promoted by itself then."""

    block_cycles: Annotated[int, Meta(ge=2, le=1000)] = 24
    """Cycles that one policy decides in a row. 24: two minutes at the 5 s tick, ten times what an action carries over,
    and thirty pairs in two hours."""

    washout_cycles: Annotated[int, Meta(ge=0, le=999)] = 2
    """First cycles of a block that do not count, since the other one's weights still act in them. 2: a move takes two
    cycles to be seen alone."""

    share: Ratio = 0.5
    """Part of the nodes that the challenger decides on, where the trial is by node. 0.5: the surest comparison."""

    confidence: Annotated[float, Meta(gt=0.5, lt=1.0)] = 0.95
    """Probability with which the difference lies in the interval at all looks together. 0.95: of twenty challengers
    that are no better, at most one is promoted."""

    min_pairs: Annotated[int, Meta(ge=2, le=1000)] = 8
    """Pairs of blocks before anything follows from them. 8: the interval holds for many pairs, and the spread of fewer
    is hardly known."""

    promote: bool = True
    """Whether a challenger that is better is put in charge. False: it is only said."""


class DeciderConfig(PolicySettings, frozen=True, kw_only=True):
    """What the decider chooses from and how it learns."""

    profiles: dict[str, dict[str, Weight]] = {}  # noqa: RUF012 - msgspec copies an empty default per struct
    """Profiles by name, as weights by class; only ratios count. A class left out gets the weight of `default`, or
    `weights.min_weight`. Empty: a grid of about fifteen, made for the configured classes."""

    seed: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """Seed of the decider's random draws. None: from the system at each start, so that nodes do not explore in step.
    Every action tells it."""

    shadows: dict[str, PolicySettings] = {}  # noqa: RUF012 - msgspec copies an empty default per struct
    """Policies by name that decide beside the one in charge and learn from the same rewards. What they choose is
    published and never executed. Each takes the decision as long again as the one in charge."""

    trial: TrialSettings = TrialSettings()

    checkpoint_seconds: Seconds = 1800.0
    """Seconds between two stored models. 1800: a restart loses nothing (later rewards are learned again), and a week
    is 336 models, of which `models_kept` stay."""

    models_kept: Annotated[int, Meta(ge=2, le=10_000)] = 200
    """Newest stored models of this node that are kept. 200: four days of checkpoints; one takes about 75 kB, and as
    much again for each shadow that learns like the default policy."""

    history: Annotated[int, Meta(ge=0, le=100_000)] = 2000
    """Past rewards learned anew at start, in rewards. 2000: older ones weigh less than 0.005 % at the default discount.
    0: start from the stored model alone, or from the prior."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for the first setting that contradicts another or names what does not exist."""
        self._check_policy(self, "decider", shared)
        if len(self.shadows) > MOST_SHADOWS:
            raise SettingsError(f"decider.shadows: {len(self.shadows)} are too many; keep at most {MOST_SHADOWS}")
        for name, settings in self.shadows.items():
            if name == self.policy or not _NAME.fullmatch(name):
                raise SettingsError(
                    f"decider.shadows: {name!r} is no name for one; use letters, digits, '-' and '_', and not that of "
                    f"decider.policy"
                )
            self._check_policy(settings, f"decider.shadows.{name}", shared)
        self._check_trial()

    def _check_trial(self) -> None:
        trial = self.trial
        if trial.challenger is not None and trial.challenger not in self.shadows:
            known = ", ".join(self.shadows) or "none is configured"
            raise SettingsError(
                f"decider.trial.challenger: {trial.challenger!r} is no shadow ({known}); name one of decider.shadows"
            )
        if trial.washout_cycles >= trial.block_cycles:
            raise SettingsError(
                f"decider.trial.washout_cycles: {trial.washout_cycles} of {trial.block_cycles} cycles of a block leave "
                f"none to count; lower it or raise decider.trial.block_cycles"
            )

    def of(self, name: str) -> "DeciderConfig":
        """The settings under which the policy of this name decides alone: the one in charge at first, or a shadow."""
        if name not in self.shadows:
            return msgspec.structs.replace(self, shadows={}, trial=TrialSettings())
        return DeciderConfig(profiles=self.profiles, **msgspec.structs.asdict(self.shadows[name]))

    def _check_policy(self, settings: PolicySettings, where: str, shared: Shared) -> None:
        if settings.policy not in POLICIES:
            raise SettingsError(f"{where}.policy: {settings.policy!r} is not known; known are {', '.join(POLICIES)}")
        arms = build_arms(shared, self.profiles)
        profile_named(settings.static_profile, arms, shared, "static_profile", where)
        profile_named(settings.prior_profile, arms, shared, "prior_profile", where)
        known = {*feature_names(tuple(shared.classes)), *outlook_names(shared.classes)}
        for name in settings.context_features:
            if name not in known:
                raise SettingsError(
                    f"{where}.context_features: no feature {name!r}; features are <class>.load_log and the like "
                    f"(docs/features.md)"
                )
        if len(set(settings.context_features)) < len(settings.context_features):
            raise SettingsError(f"{where}.context_features: names a feature twice; drop one")
