"""Owns what the decider makes of a state and of a reward: outlook, mask, the policy in charge and its shadows.

Values in, values out: the service and the replay drive the same mind. What it answers follows from the settings, the
seed, where it began (`load`), and the states and rewards that it was given since, in their order.
"""

import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from schemas.features import features_schema
from schemas.messages import Action, Mode, Reward, Shadow, State
from schemas.settings import Shared
from services.decider.core.arms import build_arms
from services.decider.core.checked import Checked
from services.decider.core.mask import Masked, mask
from services.decider.core.outlook import Outlook, OutlookState
from services.decider.core.policy import HOLD, Arm, Choice
from services.decider.core.snapshot import Snapshot, SnapshotMismatch
from services.decider.core.zoo import make_policy

if TYPE_CHECKING:
    from services.decider.config import DeciderConfig

MEMORY: Final = 4096
"""Rewards of which it is remembered that they were learned."""


class Heard(NamedTuple):
    """What is known of the guard: its mode, and the changes left by its last verdict on this run of the collector."""

    mode: Mode
    changes_left: int | None


class MindState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a mind has learned and remembers, as plain values. `policies` has the one in charge and all shadows."""

    champion: str
    policies: dict[str, Snapshot]
    outlook: OutlookState
    last_lesson: str | None


class Mind:
    """Decides and learns. `seed` is that of its draws; a decision draws on the seed, its boot and its cycle alone."""

    def __init__(self, config: "DeciderConfig", shared: Shared, seed: int) -> None:
        self.seed = seed
        self.arms = build_arms(shared, config.profiles)
        self.schema = features_schema(tuple(shared.classes))
        self.champion = config.policy
        self.policies: dict[str, Checked] = {
            name: make_policy(config.of(name), shared) for name in (config.policy, *config.shadows)
        }
        self.lessons = 0
        self.last_lesson: str | None = None
        self.steps = 0  # decisions and lessons: what was saved is all there is while it stays the same
        self._shared = shared
        self._by_name = {HOLD.name: HOLD, **{arm.name: arm for arm in self.arms}}
        self._outlook = Outlook(shared.classes, self.arms)
        self._learned: OrderedDict[str, None] = OrderedDict()
        self._broken: dict[str, str] = {}

    @property
    def policy(self) -> Checked:
        """The policy in charge."""
        return self.policies[self.champion]

    def decide(self, state: State, heard: Heard) -> Action:
        """What to propose, at time 0 and without the fields that say where this mind runs."""
        self.steps += 1
        weights = {name: seen.weight for name, seen in state.classes.items() if seen.weight is not None}
        features = state.features if state.features_schema == self.schema else {}
        outlook = self._outlook.see(features)
        masked = mask(
            self.arms,
            weights or None,
            state.classes,
            settings=self._shared.classes,
            limits=self._shared.weights,
            changes_left=heard.changes_left,
            mode=heard.mode,
            lost=self._outlook.lost(),
        )
        known = features | outlook
        draws = f"{self.seed}/{state.boot}/{state.cycle}"
        policy = self.policy
        choice = policy.decide(known, masked.allowed, random.Random(draws))  # noqa: S311 - draws arms, not secrets
        arm = self._by_name[choice.arm]
        return Action(
            node=state.node,
            boot=state.boot,
            cycle=state.cycle,
            at=0,
            policy=policy.name,
            arm=choice.arm,
            weights=dict(arm.weights) if arm.weights is not None else None,
            propensity=choice.propensity,
            propensities=choice.propensities,
            scores=choice.scores,
            masked=masked.reasons,
            explored=choice.explored,
            reason=masked.why_alone() or _why_hold(arm, choice),
            policy_updates=policy.updates,
            context=outlook,
            seed=self.seed,
            lessons=self.lessons,
            last_lesson=self.last_lesson,
            heard_mode=heard.mode,
            heard_changes_left=heard.changes_left,
            champion=self.champion,
            shadows={name: self._ask(name, known, masked, draws) for name in self.policies if name != self.champion},
        )

    def _ask(self, name: str, features: dict[str, float], masked: Masked, draws: str) -> Shadow:
        """What a shadow would do. Whatever it raises costs its word and nothing else."""
        policy = self.policies[name]
        if name not in self._broken:
            try:
                choice = policy.decide(features, masked.allowed, random.Random(f"{draws}/{name}"))  # noqa: S311
                return Shadow(
                    policy=policy.name,
                    arm=choice.arm,
                    propensity=choice.propensity,
                    propensities=choice.propensities,
                    scores=choice.scores,
                    explored=choice.explored,
                    policy_updates=policy.updates,
                )
            except Exception as error:  # noqa: BLE001 - it is on trial, and the loop is not
                self._break(name, error)
        return Shadow(policy=policy.name, error=self._broken[name])

    def learn(self, reward: Reward) -> str:
        """Takes in one reward, once: the word for what came of it for the policy in charge.

        `learned`; `heeded`: it changed what is known of dangers and is no lesson; `not_usable`: broken numbers;
        `unknown_arm`, `features_schema`, `other_weights`: it is of another arm or of other features; `censored`;
        `duplicate`.
        """
        if reward.outcome != "joined" or reward.value is None or reward.arm is None:
            return "censored"
        key = key_of(reward)
        if not self.pass_over(reward):
            return "duplicate"
        self.steps += 1
        self.lessons, self.last_lesson = self.lessons + 1, key
        arm = self._by_name.get(reward.arm)
        if arm is None:
            return "unknown_arm"
        if reward.features_schema != self.schema:
            return "features_schema"
        if reward.weights != arm.weights:
            return "other_weights"  # the name stays where a profile is redefined, and what was learned of it does not
        return self._teach(reward.features, arm, reward.value)

    def pass_over(self, reward: Reward) -> bool:
        """Remembers a reward as one that was learned; False if it is remembered already."""
        key = key_of(reward)
        if key in self._learned:
            return False
        self._learned[key] = None
        while len(self._learned) > MEMORY:
            self._learned.popitem(last=False)
        return True

    def _teach(self, features: dict[str, float], arm: Arm, value: float) -> str:
        policy = self.policy
        before, refused = policy.updates, policy.rejected.total()
        policy.learn(features, arm, value)
        for name, other in self.policies.items():
            if name != self.champion and name not in self._broken:
                try:
                    other.learn(features, arm, value)
                except Exception as error:  # noqa: BLE001 - it is on trial, and the loop is not
                    self._break(name, error)
        if policy.updates > before:
            return "learned"
        return "not_usable" if policy.rejected.total() > refused else "heeded"

    def _break(self, name: str, error: Exception) -> None:
        self._broken[name] = f"{type(error).__name__}: {error}"[:200]

    def put_in_charge(self, name: str) -> None:
        """Makes another of the policies the one in charge. KeyError for a name that none has."""
        self.policies[name]
        self.champion = name
        self.steps += 1

    def began(self) -> None:
        """What was learned so far is stored: lessons count from here."""
        self.lessons = 0

    def save(self) -> MindState:
        """All that was learned and is remembered."""
        return MindState(
            champion=self.champion,
            policies={name: policy.save() for name, policy in self.policies.items()},
            outlook=self._outlook.save(),
            last_lesson=self.last_lesson,
        )

    def load(self, state: MindState, *, outlook: bool = False) -> dict[str, str]:
        """Goes on from what another mind had learned, policy by policy, and from its `outlook` if asked; lessons count
        from here. What does not fit stays fresh: the policies (and `outlook`) left out, and why, by name.
        """
        left_out: dict[str, str] = {}
        for name, policy in self.policies.items():
            if name not in state.policies:
                left_out[name] = "policy: none of this name was saved"
                continue
            try:
                policy.load(state.policies[name])
            except SnapshotMismatch as error:
                left_out[name] = str(error)
        if state.champion in self.policies and state.champion not in left_out:
            self.champion = state.champion
        if outlook:
            try:
                self._outlook.load(state.outlook)
            except ValueError as error:
                left_out["outlook"] = f"shape: {error}"
        self.lessons, self.last_lesson = 0, state.last_lesson
        self.steps += 1
        return left_out


def key_of(reward: Reward) -> str:
    """What a reward is remembered by."""
    return f"{reward.boot}/{reward.cycle}"


def _why_hold(arm: Arm, choice: Choice) -> str | None:
    """Why nothing is proposed though there was a choice; None if something is."""
    if arm.weights is not None:
        return None
    return "drawn by chance" if choice.explored else "nothing better is known from here"
