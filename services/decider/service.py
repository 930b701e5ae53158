"""Wiring of the decider: state in, action out; rewards in, once each, into the policy."""

import random
import time
from collections import OrderedDict

from runtime.lifecycle import Context
from runtime.streams import AUDIT
from schemas.features import features_schema
from schemas.messages import Action, Mode, Reward, State, Verdict
from schemas.runs import Runs
from schemas.subjects import node_token
from services.decider.config import DeciderConfig
from services.decider.core.arms import build_arms
from services.decider.core.mask import mask
from services.decider.core.outlook import Outlook
from services.decider.core.policy import HOLD, Arm, Choice
from services.decider.core.zoo import make_policy
from services.decider.metrics import DeciderMetrics

_MEMORY = 4096


class DeciderService:
    """Proposes one arm a cycle and learns from each reward once."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("decider", DeciderConfig)
        self._shared = context.shared
        self._metrics = DeciderMetrics(context.metrics.registry)
        self._arms = build_arms(self._shared, self._config.profiles)
        self._by_name = {HOLD.name: HOLD, **{arm.name: arm for arm in self._arms}}
        self._policy = make_policy(
            self._config,
            self._shared,
            set_aside=lambda damage: context.log.error("prior_set_aside", reason=str(damage), begins="cold"),
        )
        self._outlook = Outlook(self._shared.classes, self._arms)
        self._schema = features_schema(tuple(self._shared.classes))
        self._random = random.Random(self._config.seed)  # noqa: S311 - draws arms, not secrets
        self._order = Runs(self._shared.loop.tick_seconds)
        self._learned: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._last_verdict: Verdict | None = None

    @property
    def cycle(self) -> int:
        """The newest cycle decided."""
        return self._order.cycle

    @property
    def mode(self) -> Mode | None:
        """The mode that the guard last spoke in."""
        return self._last_verdict.mode if self._last_verdict else None

    async def start(self) -> None:
        """Learns anew what earlier runs were taught, then listens."""
        messenger = self._context.messenger
        token = node_token(self._shared.node)
        await messenger.learn_from(AUDIT, f"trimtab-decider-{token}", Reward, self._on_reward)
        history = await messenger.history(AUDIT, Reward, self._config.history) if self._config.history else []
        for reward in history:
            await self._on_reward(reward)
        self._context.log.info(
            "policy_ready",
            policy=self._policy.name,
            arms=len(self._arms),
            relearned=self._policy.updates,
            begins="warm" if getattr(self._policy.policy, "warm", None) is not None else "cold",
        )
        await messenger.listen(Verdict, self._on_verdict)
        await messenger.listen(State, self._on_state)

    async def run(self) -> None:
        """Everything is driven by messages."""
        while True:
            await self._context.clock.sleep(3600.0)

    async def stop(self) -> None:
        """Nothing is held that the streams do not hold too."""

    async def _on_verdict(self, verdict: Verdict) -> None:
        self._last_verdict = verdict

    async def _on_state(self, state: State) -> None:
        if state.phase != "before":
            return
        refused = self._order.refuses(state.boot, state.cycle, self._context.clock.monotonic())
        if refused is not None:
            self._context.messenger.drop(state, refused)
            return
        started = time.perf_counter()
        with self._context.metrics.step.labels("decide").time():
            action = self._decide(state, started)
        await self._context.messenger.send(action)
        self._metrics.decisions.labels(action.policy, action.arm).inc()
        self._metrics.propensity.labels(action.policy).observe(action.propensity)
        if action.explored:
            self._metrics.explorations.labels(action.policy).inc()

    def _decide(self, state: State, started: float) -> Action:
        weights = {name: seen.weight for name, seen in state.classes.items() if seen.weight is not None}
        verdict = self._last_verdict
        features = state.features if state.features_schema == self._schema else {}
        outlook = self._outlook.see(features)
        masked = mask(
            self._arms,
            weights or None,
            state.classes,
            settings=self._shared.classes,
            limits=self._shared.weights,
            changes_left=verdict.changes_left if verdict is not None and verdict.boot == state.boot else None,
            mode=verdict.mode if verdict is not None else self._shared.mode,
            lost=self._outlook.lost(),
        )
        self._metrics.allowed.set(len(masked.allowed))
        choice = self._policy.decide(features | outlook, masked.allowed, self._random)
        arm = self._by_name[choice.arm]
        return Action(
            node=state.node,
            boot=state.boot,
            cycle=state.cycle,
            at=self._context.clock.now_ns(),
            policy=self._policy.name,
            arm=choice.arm,
            weights=dict(arm.weights) if arm.weights is not None else None,
            propensity=choice.propensity,
            propensities=choice.propensities,
            scores=choice.scores,
            masked=masked.reasons,
            explored=choice.explored,
            reason=masked.why_alone() or _why_hold(arm, choice),
            decide_seconds=time.perf_counter() - started,
            policy_updates=self._policy.updates,
            context=outlook,
        )

    async def _on_reward(self, reward: Reward) -> None:
        if reward.outcome != "joined" or reward.value is None or reward.arm is None:
            return
        key = (reward.boot, reward.cycle)
        if key in self._learned:
            self._context.messenger.drop(reward, "duplicate")
            return
        self._learned[key] = None
        while len(self._learned) > _MEMORY:
            self._learned.popitem(last=False)
        arm = self._by_name.get(reward.arm)
        if arm is None:
            self._metrics.rejected.labels("unknown_arm").inc()
            return
        objection = self._objection(reward, arm)
        if objection is not None:
            self._metrics.rejected.labels(objection).inc()
            return
        before, refused = self._policy.updates, self._policy.rejected.total()
        with self._context.metrics.step.labels("learn").time():
            self._policy.learn(reward.features, arm, reward.value)
        if self._policy.updates > before:
            self._metrics.updates.labels(self._policy.name).inc()
        elif self._policy.rejected.total() > refused:
            self._metrics.rejected.labels("not_usable").inc()
        else:
            self._metrics.rejected.labels("after_move").inc()  # heeded, but no lesson: the work of the weights before

    def _objection(self, reward: Reward, arm: Arm) -> str | None:
        """Why a reward of an arm of this name teaches nothing about it, or None."""
        if reward.features_schema != self._schema:
            return "features_schema"
        if reward.weights != arm.weights:
            return "other_weights"  # the name stays where a profile is redefined, and what was learned of it does not
        return None


def _why_hold(arm: Arm, choice: Choice) -> str | None:
    """Why nothing is proposed though there was a choice; None if something is."""
    if arm.weights is not None:
        return None
    return "drawn by chance" if choice.explored else "nothing better is known from here"
