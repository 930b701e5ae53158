"""Wiring of the decider: state in, action out; rewards in, once each, into the mind; what it knows, into the store."""

import asyncio
import secrets
import time

import msgspec

from runtime.lifecycle import Context
from runtime.streams import AUDIT
from schemas.messages import Action, Command, Mode, Reward, State, Verdict
from schemas.runs import Runs
from schemas.settings import settings_digest
from schemas.subjects import node_token
from services.decider.config import DeciderConfig
from services.decider.core.catch_up import Past, first_unlearned
from services.decider.core.mind import Heard, Mind
from services.decider.keeper import Keeper
from services.decider.metrics import DeciderMetrics

_COUNTED = {"heeded": "after_move"}
"""Words of the mind that the metric calls otherwise: heeded, but no lesson, as the work of the weights before."""


class DeciderService:
    """Proposes one arm a cycle and learns from each reward once."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("decider", DeciderConfig)
        self._shared = context.shared
        self._metrics = DeciderMetrics(context.metrics.registry)
        seed = self._config.seed if self._config.seed is not None else secrets.randbits(53)
        self._mind = Mind(self._config, self._shared, seed)
        self._settings = settings_digest(self._shared, self._config)
        for reason in self._mind.set_aside:
            context.log.error("prior_set_aside", reason=reason, begins="cold")
        self._keeper = Keeper(context, self._config, self._mind, self._metrics, self._settings)
        self._past = Past((), 1)
        self._has_begun = asyncio.Event()
        self._may_store = asyncio.Event()
        self._order = Runs(self._shared.loop.tick_seconds)
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
        """Goes on from the newest model that fits and learns what came after it, then listens."""
        messenger = self._context.messenger
        token = node_token(self._shared.node)
        await messenger.learn_from(AUDIT, f"trimtab-decider-{token}", Reward, self._on_reward)
        await messenger.listen(Command, self._on_command)
        restored = await self._keeper.restore()
        history = await messenger.history(AUDIT, Reward, self._config.history) if self._config.history else []
        begin = first_unlearned(history, *restored) if restored is not None else 0
        for reward in history[:begin]:
            self._mind.pass_over(reward)
        for reward in history[begin:]:
            self._learn(reward)
        self._past = Past(history, self._config.history)
        await self._keeper.begin()
        policy = self._mind.policy
        self._context.log.info(
            "policy_ready",
            policy=policy.name,
            arms=len(self._mind.arms),
            model=self._keeper.model[:12],
            relearned=len(history) - begin,
            lessons=policy.updates,
            begins="warm" if getattr(policy.policy, "warm", None) is not None else "cold",
        )
        self._has_begun.set()
        await messenger.listen(Verdict, self._on_verdict)
        await messenger.listen(State, self._on_state)

    async def run(self) -> None:
        """Everything else is driven by messages; what was learned is stored from here, so that nothing waits for it."""
        while True:
            await self._may_store.wait()
            self._may_store.clear()
            await self._keeper.store("checkpoint")

    async def stop(self) -> None:
        """Stores what was learned."""
        if self._has_begun.is_set():
            await self._keeper.end()

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
        self._metrics.allowed.set(len(action.propensities))
        self._metrics.decisions.labels(action.policy, action.arm).inc()
        self._metrics.propensity.labels(action.policy).observe(action.propensity)
        if action.explored:
            self._metrics.explorations.labels(action.policy).inc()
        if self._keeper.is_due:  # the next state is almost a tick away
            self._may_store.set()

    def _decide(self, state: State, started: float) -> Action:
        action = self._mind.decide(state, self._heard(state))
        return msgspec.structs.replace(
            action,
            at=self._context.clock.now_ns(),
            decide_seconds=time.perf_counter() - started,
            run=self._context.boot,
            model=self._keeper.model,
            settings=self._settings,
            event=self._keeper.take_event(),
        )

    def _heard(self, state: State) -> Heard:
        verdict = self._last_verdict
        if verdict is None:
            return Heard(self._shared.mode, None)
        return Heard(verdict.mode, verdict.changes_left if verdict.boot == state.boot else None)

    async def _on_command(self, command: Command) -> None:
        await self._has_begun.wait()
        if not await self._keeper.obey(command):
            self._context.messenger.drop(command, "duplicate")

    async def _on_reward(self, reward: Reward) -> None:
        await self._has_begun.wait()
        if self._past.has(reward):
            self._context.messenger.drop(reward, "past")
        else:
            self._learn(reward)

    def _learn(self, reward: Reward) -> None:
        with self._context.metrics.step.labels("learn").time():
            word = self._mind.learn(reward)
        if word == "learned":
            self._metrics.updates.labels(self._mind.policy.name).inc()
        elif word == "duplicate":
            self._context.messenger.drop(reward, word)
        elif word != "censored":
            self._metrics.rejected.labels(_COUNTED.get(word, word)).inc()
