"""Wiring of the rewarder: follows each cycle from its first state, asks for the second, publishes the reward."""

import asyncio
from dataclasses import dataclass, field

import msgspec

from runtime.lifecycle import Context
from schemas.messages import Action, Actuation, CollectRequest, Mode, Reward, State, Verdict
from schemas.objective import is_violated
from schemas.runs import Runs
from schemas.settings import settings_digest
from services.rewarder.config import RewarderConfig
from services.rewarder.core.censor import Cycle
from services.rewarder.core.conclude import conclude, reward_message
from services.rewarder.metrics import RewarderMetrics

_EARLY = 15


@dataclass
class _Follow:
    """One cycle under way: what came so far, and who waits for what."""

    cycle: Cycle
    started: float
    actuated: asyncio.Event = field(default_factory=asyncio.Event)
    judged: asyncio.Event = field(default_factory=asyncio.Event)
    seen_again: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    done: bool = False
    published: bool = False


class RewarderService:
    """Ends every cycle with exactly one reward message."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("rewarder", RewarderConfig)
        self._shared = context.shared
        self._settings = settings_digest(self._shared, self._config)
        self._metrics = RewarderMetrics(context.metrics.registry)
        self._order = Runs(self._shared.loop.tick_seconds)
        self._follow: _Follow | None = None
        self._early: list[Action | Verdict | Actuation] = []

    @property
    def cycle(self) -> int:
        """The newest cycle followed."""
        return self._order.cycle

    @property
    def mode(self) -> Mode | None:
        """The rewarder works alike in every mode."""
        return None

    async def start(self) -> None:
        """Listens."""
        messenger = self._context.messenger
        await messenger.listen(Actuation, self._on_part)
        await messenger.listen(Verdict, self._on_part)
        await messenger.listen(Action, self._on_part)
        await messenger.listen(State, self._on_state)

    async def run(self) -> None:
        """Everything is driven by messages."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """The cycle under way ends now: with its reward if all was seen, else its last word is that we left."""
        follow = self._follow
        if follow is None:
            return
        if not follow.done:
            await self._finish(follow, "stopped")
        if follow.task is not None:  # its last message may be on the way
            await asyncio.gather(follow.task, return_exceptions=True)

    # ---- following a cycle ----

    async def _on_state(self, state: State) -> None:
        follow = self._follow
        if state.phase == "after":
            if follow is not None and self._is_of(state, follow) and follow.cycle.after is None:
                follow.cycle = msgspec.structs.replace(follow.cycle, after=state)
                follow.seen_again.set()
            return
        refused = self._order.refuses(state.boot, state.cycle, self._context.clock.monotonic())
        if refused is not None:
            self._context.messenger.drop(state, refused)
            return
        earlier, follow = follow, _Follow(Cycle(state), self._context.clock.monotonic())
        self._follow = follow
        follow.task = asyncio.create_task(self._accompany(follow))
        self._early = [part for part in self._early if not self._add(part, follow)]
        if earlier is not None and not earlier.done:
            await self._finish(earlier, "overrun")

    async def _on_part(self, part: Action | Verdict | Actuation) -> None:
        follow = self._follow
        if follow is not None and self._add(part, follow):
            return
        if part.boot == self._order.boot and part.cycle <= self._order.cycle:
            self._context.messenger.drop(part, "stale")
            return
        self._early = [*self._early[-_EARLY:], part]  # its state may be a moment behind on another subscription

    def _add(self, part: Action | Verdict | Actuation, follow: _Follow) -> bool:
        if not self._is_of(part, follow):
            return False
        cycle = follow.cycle  # the first of a kind counts: it is what the guard and the actuator went by
        if isinstance(part, Action):
            follow.cycle = msgspec.structs.replace(cycle, action=cycle.action or part)
        elif isinstance(part, Verdict):
            follow.cycle = msgspec.structs.replace(cycle, verdict=cycle.verdict or part)
            follow.judged.set()
        elif part.outcome not in ("rolled_back", "restored"):
            follow.cycle = msgspec.structs.replace(cycle, actuation=cycle.actuation or part)
            follow.actuated.set()
        elif not follow.seen_again.is_set():  # taken back before we looked: nothing was executed for long enough
            follow.cycle = msgspec.structs.replace(cycle, actuation=part)
        return True

    def _is_of(self, message: State | Action | Verdict | Actuation, follow: _Follow) -> bool:
        before = follow.cycle.before
        return (message.boot, message.cycle) == (before.boot, before.cycle)

    async def _accompany(self, follow: _Follow) -> None:
        try:
            await self._see_through(follow)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: whatever it is would vanish, with its cycle
            self._log_failed(follow, error)
            if not follow.done:
                await self._finish(follow, "failed")

    async def _see_through(self, follow: _Follow) -> None:
        loop, timeout = self._shared.loop, self._config.answer_timeout_seconds
        await self._wait(follow.judged, loop.decision_budget_seconds + timeout)
        if follow.judged.is_set():
            await self._wait(follow.actuated, timeout)
        with self._context.metrics.step.labels("wait").time():
            await self._context.clock.sleep(loop.settle_seconds)
        before = follow.cycle.before
        await self._context.messenger.send(
            CollectRequest(node=before.node, boot=before.boot, cycle=before.cycle, at=self._context.clock.now_ns())
        )
        await self._wait(follow.seen_again, timeout)
        if not follow.done:
            await self._finish(follow, None)

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        waiting = asyncio.create_task(event.wait())
        timer = asyncio.create_task(self._context.clock.sleep(seconds))
        try:
            await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            timer.cancel()

    async def _finish(self, follow: _Follow, interrupted: str | None) -> None:
        """Ends the cycle; `interrupted` says why it ended early, and counts only if something was still missing.

        If its reward cannot be told, for an error in our code, the cycle is censored for that.
        """
        follow.done = True
        task = follow.task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        try:
            await self._conclude(follow, interrupted)
        except Exception as error:  # noqa: BLE001 - whatever it is, the cycle must end with a reward
            self._log_failed(follow, error)
            if not follow.published:
                await self._publish(follow, reward_message(follow.cycle, None, "failed"))

    def _log_failed(self, follow: _Follow, error: Exception) -> None:
        cycle = follow.cycle.before.cycle
        self._context.log.error("cycle_failed", cycle=cycle, detail=f"{type(error).__name__}: {error}")

    async def _conclude(self, follow: _Follow, interrupted: str | None) -> None:
        cycle = follow.cycle
        with self._context.metrics.step.labels("reward").time():
            message = conclude(cycle, interrupted, self._config, self._shared)
        if cycle.after is not None:
            self._count_violations(cycle.after)
        await self._publish(follow, message)

    async def _publish(self, follow: _Follow, message: Reward) -> None:
        message = msgspec.structs.replace(message, at=self._context.clock.now_ns(), settings=self._settings)
        self._metrics.rewards.labels(message.outcome).inc()
        self._metrics.delay.observe(self._context.clock.monotonic() - follow.started)
        if message.reason is not None:
            self._metrics.censored.labels(message.reason.split(":", 1)[0]).inc()
        if message.value is not None:
            self._metrics.value.labels("value").observe(message.value)
            for term in ("violation", "severity", "throughput", "oscillation"):
                self._metrics.value.labels(term).observe(message.terms[term])
        follow.published = True
        await self._context.messenger.send(message)

    def _count_violations(self, after: State) -> None:
        for name, spec in self._shared.classes.items():
            seen = after.classes.get(name)
            if seen is not None and is_violated(seen, spec):
                self._metrics.violations.labels(name).inc()
