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
from services.decider.core.mask import Masked, Masks
from services.decider.core.outlook import Outlook, OutlookState
from services.decider.core.policy import HOLD, Arm, Choice
from services.decider.core.snapshot import Snapshot, SnapshotMismatch
from services.decider.core.trial import Contest, ContestState
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
    """All that a mind has learned and remembers, as plain values. `policies` has the one in charge and all shadows,
    `broken` says of which of them nothing is asked any more, and why.
    """

    champion: str
    policies: dict[str, Snapshot]
    outlook: OutlookState
    last_lesson: str | None
    trial: ContestState | None = None
    broken: dict[str, str] = {}


class Mind:
    """Decides and learns. `seed` is that of its draws; a decision draws on the seed, its boot and its cycle alone.
    `set_aside` are the damaged priors that it went on without.
    """

    def __init__(self, config: "DeciderConfig", shared: Shared, seed: int) -> None:
        self.seed = seed
        self.arms = build_arms(shared, config.profiles)
        self.schema = features_schema(tuple(shared.classes))
        self.champion = config.policy
        self.set_aside: list[str] = []
        self.policies: dict[str, Checked] = {
            name: make_policy(config.of(name), shared, set_aside=lambda damage: self.set_aside.append(str(damage)))
            for name in (config.policy, *config.shadows)
        }
        self.lessons = 0
        self.last_lesson: str | None = None
        self.steps = 0  # decisions and lessons: what was saved is all there is while it stays the same
        self._trial_settings = config.trial
        self._trial = self._new_trial()
        self._by_name = {HOLD.name: HOLD, **{arm.name: arm for arm in self.arms}}
        self._masks = Masks(self.arms, shared.classes, shared.weights)
        self._outlook = Outlook(shared.classes, self.arms)
        self._learned: OrderedDict[str, None] = OrderedDict()
        self._broken: dict[str, str] = {}

    @property
    def policy(self) -> Checked:
        """The policy in charge, but for the other's turns in a trial."""
        return self.policies[self.champion]

    def decide(self, state: State, heard: Heard) -> Action:
        """What to propose, at time 0 and without the fields that say where this mind runs."""
        self.steps += 1
        weights = {name: seen.weight for name, seen in state.classes.items() if seen.weight is not None}
        features = state.features if state.features_schema == self.schema else {}
        outlook = self._outlook.see(features)
        masked = self._masks.at(
            weights, state.classes, changes_left=heard.changes_left, mode=heard.mode, lost=self._outlook.lost()
        )
        known = features | outlook
        draws = f"{self.seed}/{state.boot}/{state.cycle}"
        turn = self._trial.turn(state.node, state.boot, state.cycle, self.seed) if self._trial is not None else None
        if self._trial is not None:
            self.champion = self._trial.champion
        name = turn.in_charge if turn is not None else self.champion
        choice = self._choose(name, known, masked, draws)
        if choice is None:  # it is out, and the other one decides
            turn = self._trial.turn(state.node, state.boot, state.cycle, self.seed) if self._trial is not None else None
            name, choice = self.champion, self.policy.decide(known, masked.allowed, _dice(draws))
        policy = self.policies[name]
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
            shadows={other: self._ask(other, known, masked, draws) for other in self.policies if other != name},
            trial=turn.told if turn is not None else None,
        )

    def _choose(self, name: str, features: dict[str, float], masked: Masked, draws: str) -> Choice | None:
        """What the one whose turn it is does; None if it is on trial and cannot, which ends the trial."""
        if not self._may_break(name):
            return self.policies[name].decide(features, masked.allowed, _dice(draws))
        if name not in self._broken:
            try:
                return self.policies[name].decide(features, masked.allowed, _dice(draws))
            except Exception as error:  # noqa: BLE001 - it is on trial, and the loop is not
                self._break(name, error)
                return None
        self._out(name)
        return None

    def _ask(self, name: str, features: dict[str, float], masked: Masked, draws: str) -> Shadow:
        """What a shadow would do. Whatever it raises costs its word and nothing else."""
        policy = self.policies[name]
        if name not in self._broken:
            try:
                choice = policy.decide(features, masked.allowed, _dice(f"{draws}/{name}"))
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
        if self._trial is not None:
            self._trial.reward(key, reward.value)
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
        for name in [self.champion, *(name for name in self.policies if name != self.champion)]:
            if not self._may_break(name):
                self.policies[name].learn(features, arm, value)
            elif name not in self._broken:
                try:
                    self.policies[name].learn(features, arm, value)
                except Exception as error:  # noqa: BLE001 - it is on trial, and the loop is not
                    self._break(name, error)
        if policy.updates > before:
            return "learned"
        return "not_usable" if policy.rejected.total() > refused else "heeded"

    def _may_break(self, name: str) -> bool:
        """Whether what a policy raises must not cost the cycle: there is one to decide in its place."""
        return name != self.champion or (self._trial is not None and self._trial.phase == "watch")

    def _break(self, name: str, error: Exception) -> None:
        self._broken[name] = f"{type(error).__name__}: {error}"[:200]
        self._out(name)

    def _out(self, name: str) -> None:
        if self._trial is not None:
            self._trial.out(name, self._broken[name])
            self.champion = self._trial.champion

    def _new_trial(self) -> Contest | None:
        return Contest(self._trial_settings, self.champion) if self._trial_settings.challenger is not None else None

    def mend(self) -> None:
        """Whoever raised something is asked again: it is another run, maybe of another release."""
        self._broken.clear()

    def put_in_charge(self, name: str) -> None:
        """Makes another of the policies the one in charge, which ends a trial. KeyError for a name that none has."""
        self.policies[name]
        self.champion = name
        self._broken.pop(name, None)
        if self._trial is not None:
            self._trial.put_in_charge(name)
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
            trial=self._trial.save() if self._trial is not None else None,
            broken=dict(self._broken),
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
        self._trial = self._new_trial()
        fits = self.policies.keys() - left_out.keys()
        both = {state.trial.incumbent, state.trial.challenger} if state.trial is not None else set()
        if self._trial is not None and state.trial is not None and both <= fits and self._trial.load(state.trial):
            self.champion = self._trial.champion
        self._broken = {name: why for name, why in state.broken.items() if name in self.policies}
        if outlook:
            try:
                self._outlook.load(state.outlook)
            except ValueError as error:
                left_out["outlook"] = f"shape: {error}"
        self.lessons, self.last_lesson = 0, state.last_lesson
        self.steps += 1
        return left_out


def _dice(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - draws arms, not secrets


def key_of(reward: Reward) -> str:
    """What a reward is remembered by."""
    return f"{reward.boot}/{reward.cycle}"


def _why_hold(arm: Arm, choice: Choice) -> str | None:
    """Why nothing is proposed though there was a choice; None if something is."""
    if arm.weights is not None:
        return None
    return "drawn by chance" if choice.explored else "nothing better is known from here"
