"""Owns the names of the policies and how each is made. Only the module of the chosen one is imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from schemas.features import features_schema
from schemas.settings import SettingsError, Shared
from services.decider.core.arms import build_arms, default_profile
from services.decider.core.checked import Checked
from services.decider.core.context import default_context, read_context
from services.decider.core.policy import Arm, Policy
from services.decider.core.snapshot import DamagedPrior, Identity, fingerprint

if TYPE_CHECKING:
    from services.decider.config import DeciderConfig


def make_policy(
    config: "DeciderConfig", shared: Shared, *, set_aside: Callable[[DamagedPrior], None] | None = None
) -> Checked:
    """The configured policy, fresh, behind its check. Raises SettingsError for a name that is not known.

    A warm start whose file is damaged is told to `set_aside`, and the policy starts cold; without `set_aside` it raises
    DamagedPrior, for whoever compares policies must not take a cold one for a warm one.
    """
    maker = _MAKERS.get(config.policy)
    if maker is None:
        raise SettingsError(f"decider.policy: {config.policy!r} is not known; known are {', '.join(POLICIES)}")
    arms = build_arms(shared, config.profiles)
    try:
        return Checked(maker(config, shared, arms))
    except DamagedPrior as damage:
        if set_aside is None:
            raise
        set_aside(damage)
        return Checked(maker(replace(config, warm_start=False), shared, arms))


def profile_named(name: str | None, arms: tuple[Arm, ...], shared: Shared, setting: str, where: str = "decider") -> Arm:
    """The profile of that name, or the default one for None. Raises SettingsError naming the known ones."""
    if name is None:
        return default_profile(arms, shared)
    for arm in arms:
        if arm.name == name and arm.weights is not None:
            return arm
    known = ", ".join(arm.name for arm in arms if arm.weights is not None)
    raise SettingsError(f"{where}.{setting}: no profile {name!r}; known are {known}")


def meaning_of(config: "DeciderConfig", shared: Shared) -> str:
    """What gives the default policy's numbers their meaning, as a short id: where it is the same, a prior fits."""
    arms = build_arms(shared, config.profiles)
    centre = profile_named(config.prior_profile, arms, shared, "prior_profile")
    return fingerprint(
        config.context_features or default_context(shared.classes),
        [arm.weights for arm in (*arms, centre)],
        [shared.weights.min_weight, shared.weights.max_weight],
        [config.prior_fall, config.likeness_decades],
        {name: [spec.kind, spec.importance] for name, spec in shared.classes.items()},
    )


def _linucb(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import linucb, warm  # noqa: PLC0415 - River costs 110 MiB: only who uses it pays
    from services.decider.core.basis import Basis  # noqa: PLC0415 - only needed here
    from services.decider.core.bookkeeping import RIVER_VERSION  # noqa: PLC0415 - imports River

    centre = profile_named(config.prior_profile, arms, shared, "prior_profile")
    context = config.context_features or default_context(shared.classes)
    meaning = meaning_of(config, shared)
    basis = Basis(shared.classes, shared.weights, arms, centre, likeness_decades=config.likeness_decades)
    size = basis.size * len(read_context({}, context))
    start = warm.read_warm_start(meaning, warm.PRIOR_FILE, size=size) if config.warm_start else None
    origin = [start.provenance.commit, start.provenance.seed, start.strength] if start is not None else []
    return linucb.LinUCB(
        basis,
        context,
        arms,
        shared.classes,
        _identity(
            "linucb",
            linucb.POLICY_VERSION,
            shared,
            arms,
            fingerprint(meaning, [config.discount, config.prior_strength], origin),
            river=RIVER_VERSION,
        ),
        exploration=config.exploration,
        discount=config.discount,
        prior_strength=config.prior_strength,
        prior_fall=config.prior_fall,
        epsilon=config.epsilon,
        caution=config.caution,
        warm=start,
    )


def _river_linucb(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import river_linucb  # noqa: PLC0415 - imports River
    from services.decider.core.bookkeeping import RIVER_VERSION  # noqa: PLC0415 - imports River

    context = config.context_features or default_context(shared.classes)
    meaning = fingerprint(context, {arm.name: arm.weights for arm in arms})
    identity = _identity("river-linucb", river_linucb.POLICY_VERSION, shared, arms, meaning, river=RIVER_VERSION)
    return river_linucb.RiverLinUCB(context, identity, epsilon=config.epsilon)


def _static(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import static  # noqa: PLC0415 - every policy is imported when chosen

    target = profile_named(config.static_profile, arms, shared, "static_profile")
    identity = _identity("static", static.POLICY_VERSION, shared, arms, fingerprint(target.weights or {}))
    return static.Static(target, shared.weights, identity)


def _hold(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:  # noqa: ARG001 - makers share one signature
    from services.decider.core import static  # noqa: PLC0415 - every policy is imported when chosen

    return static.Hold(shared.weights, _identity("hold", static.POLICY_VERSION, shared, arms, fingerprint()))


def _step(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:  # noqa: ARG001 - makers share one signature
    from services.decider.core import stepper  # noqa: PLC0415 - every policy is imported when chosen

    identity = _identity("step", stepper.POLICY_VERSION, shared, arms, _kinds(shared))
    return stepper.Stepper(shared.classes, identity)


def _pid(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import pid  # noqa: PLC0415 - every policy is imported when chosen

    centre = profile_named(config.prior_profile, arms, shared, "prior_profile")
    profiles = [arm for arm in arms if arm.weights is not None]
    meaning = fingerprint([arm.weights for arm in (*profiles, centre)], _kinds(shared))
    identity = _identity("pid", pid.POLICY_VERSION, shared, arms, meaning)
    return pid.PID(shared.classes, profiles, centre, identity)


def _epsilon_greedy(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import epsilon_greedy  # noqa: PLC0415 - every policy is imported when chosen

    centre = profile_named(config.prior_profile, arms, shared, "prior_profile")
    meaning = fingerprint([arm.weights for arm in arms], config.discount)
    return epsilon_greedy.EpsilonGreedy(
        shared.classes,
        centre,
        _identity("epsilon-greedy", epsilon_greedy.POLICY_VERSION, shared, arms, meaning),
        epsilon=config.epsilon,
        discount=config.discount,
        prior_strength=config.prior_strength,
        prior_fall=config.prior_fall,
    )


def _thompson(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import thompson  # noqa: PLC0415 - numpy: only who uses it pays
    from services.decider.core.basis import Basis  # noqa: PLC0415 - only needed here

    centre = profile_named(config.prior_profile, arms, shared, "prior_profile")
    context = config.context_features or default_context(shared.classes)
    meaning = fingerprint(
        context,
        [arm.weights for arm in (*arms, centre)],
        [config.discount, config.prior_fall, config.likeness_decades],
        _kinds(shared),
    )
    return thompson.Thompson(
        Basis(shared.classes, shared.weights, arms, centre, likeness_decades=config.likeness_decades),
        context,
        _identity("thompson", thompson.POLICY_VERSION, shared, arms, meaning),
        exploration=config.exploration,
        discount=config.discount,
        prior_strength=config.prior_strength,
        prior_fall=config.prior_fall,
        epsilon=config.epsilon,
    )


def _vowpal(config: "DeciderConfig", shared: Shared, arms: tuple[Arm, ...]) -> Policy:
    from services.decider.core import vowpal  # noqa: PLC0415 - every policy is imported when chosen

    context = config.context_features or default_context(shared.classes)
    meaning = fingerprint(context, [arm.weights for arm in arms], vowpal.OPTIONS)
    identity = _identity("vowpal", vowpal.POLICY_VERSION, shared, arms, meaning)
    return vowpal.Vowpal(shared.classes, context, identity, epsilon=config.epsilon)


def _kinds(shared: Shared) -> str:
    return fingerprint({name: spec.kind for name, spec in shared.classes.items()})


def _identity(
    policy: str, version: int, shared: Shared, arms: tuple[Arm, ...], model: str, *, river: str = ""
) -> Identity:
    return Identity(
        policy=policy,
        policy_version=version,
        features_schema=features_schema(tuple(shared.classes)),
        arms=tuple(arm.name for arm in arms),
        model=model,
        river=river,
    )


_MAKERS: Final[dict[str, Callable[["DeciderConfig", Shared, tuple[Arm, ...]], Policy]]] = {
    "linucb": _linucb,
    "river-linucb": _river_linucb,
    "static": _static,
    "hold": _hold,
    "step": _step,
    "pid": _pid,
    "epsilon-greedy": _epsilon_greedy,
    "thompson": _thompson,
    "vowpal": _vowpal,
}
POLICIES: Final = tuple(_MAKERS)
"""Names of all policies, the default first."""
