"""Wiring of the guard: state and action in, verdict out; the second look in, rollback or restore out."""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass

from runtime.lifecycle import Context
from runtime.streams import AUDIT
from schemas.messages import Action, Actuation, Command, CommandVerb, Mode, State, Verdict
from schemas.order import CycleOrder
from services.guard.config import GuardConfig
from services.guard.core.breaker import Breaker
from services.guard.core.regression import find_regression
from services.guard.core.rules import Judgement, Situation, judge
from services.guard.metrics import GuardMetrics

_MODES: tuple[Mode, ...] = ("shadow", "canary", "active", "frozen")
_MEMORY = 16
_MINUTE = 60.0


@dataclass
class _Cycle:
    """What the guard knows of one cycle."""

    state: State
    seen_at: float
    verdict: Verdict | None = None
    applied: bool = False


class GuardService:
    """Judges every cycle exactly once."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("guard", GuardConfig)
        self._shared = context.shared
        self._metrics = GuardMetrics(context.metrics.registry)
        self._order = CycleOrder()
        self._cycles: OrderedDict[tuple[str, int], _Cycle] = OrderedDict()
        self._early: OrderedDict[tuple[str, int], Action] = OrderedDict()
        self._changes: deque[float] = deque()
        self._breaker = Breaker(
            self._config.rollbacks_to_open, self._config.rollback_window_seconds, self._config.cool_down_seconds
        )
        self._mode: Mode = self._shared.mode
        self._last_state_at = context.clock.monotonic()
        self._blind = False
        self._timers: set[asyncio.Task[None]] = set()

    @property
    def cycle(self) -> int:
        """The newest cycle seen."""
        return self._order.cycle

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self._mode

    async def start(self) -> None:
        """Takes up the mode that was last ordered, then listens."""
        for command in reversed(await self._context.messenger.history(AUDIT, Command, 200)):
            if command.verb == "mode" and command.mode is not None:
                self._mode = command.mode
                self._context.log.info("mode_taken_up", mode=command.mode, by=command.by, reason=command.reason)
                break
        self._show_mode()
        messenger = self._context.messenger
        await messenger.listen(Command, self._on_command)
        await messenger.listen(Actuation, self._on_actuation)
        await messenger.listen(Action, self._on_action)
        await messenger.listen(State, self._on_state)

    async def run(self) -> None:
        """Watches that states keep coming."""
        tick = self._shared.loop.tick_seconds
        while True:
            await self._context.clock.sleep(tick / 2)
            silent = self._context.clock.monotonic() - self._last_state_at
            if silent > self._config.blind_after_ticks * tick and not self._blind:
                self._blind = True
                self._context.log.warning("blind", seconds=round(silent, 1))
                await self._order_restore(f"no fresh state for {silent:.0f} s")

    async def stop(self) -> None:
        """Ends the timers; what is written is the actuator's to restore."""
        for timer in list(self._timers):
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)

    # ---- step 6 ----

    async def _on_state(self, state: State) -> None:
        if state.phase == "after":
            await self._on_after(state)
            return
        if not self._order.accept(state.boot, state.cycle):
            self._context.messenger.drop(state, "duplicate")
            return
        now = self._context.clock.monotonic()
        self._last_state_at, self._blind = now, False
        key = (state.boot, state.cycle)
        cycle = self._cycles[key] = _Cycle(state, now)
        while len(self._cycles) > _MEMORY:
            self._cycles.popitem(last=False)
        early = self._early.pop(key, None)
        if early is not None:
            await self._decide(cycle, early)
            return
        timer = asyncio.create_task(self._expire(cycle))
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def _on_action(self, action: Action) -> None:
        key = (action.boot, action.cycle)
        cycle = self._cycles.get(key)
        if cycle is None:
            self._early[key] = action  # two subscriptions race: its state may be a moment behind
            while len(self._early) > _MEMORY:
                stale, _ = self._early.popitem(last=False)
                self._context.metrics.dropped.labels("action", "unknown_cycle").inc()
                self._context.log.debug("action_without_state", cycle=stale[1])
            return
        if cycle.verdict is not None:
            self._context.messenger.drop(action, "late" if cycle.verdict.outcome == "late" else "duplicate")
            return
        await self._decide(cycle, action)

    async def _expire(self, cycle: _Cycle) -> None:
        budget = self._shared.loop.decision_budget_seconds
        await self._context.clock.sleep(budget)
        if cycle.verdict is None:
            reason = f"no action within {budget * 1000:.0f} ms"
            await self._publish(cycle, None, Judgement("late", "budget", reason, None, execute=False))

    async def _decide(self, cycle: _Cycle, action: Action) -> None:
        now = self._context.clock.monotonic()
        situation = Situation(
            state=cycle.state,
            mode=self._mode,
            limits=self._shared.weights,
            classes=frozenset(self._shared.classes),
            state_age_seconds=max(now - cycle.seen_at, (self._context.clock.now_ns() - cycle.state.at) / 1e9, 0.0),
            max_state_age_seconds=self._config.max_state_age_ticks * self._shared.loop.tick_seconds,
            answer_seconds=now - cycle.seen_at,
            budget_seconds=self._shared.loop.decision_budget_seconds,
            changes_left=self._changes_left(now),
            require_contention=self._config.require_contention,
            breaker_open=self._breaker.blocks(now),
        )
        with self._context.metrics.step.labels("validate").time():
            judgement = judge(action, situation)
        await self._publish(cycle, action, judgement)

    async def _publish(self, cycle: _Cycle, action: Action | None, judgement: Judgement) -> None:
        clock, state = self._context.clock, cycle.state
        now = clock.monotonic()
        if judgement.execute:
            self._changes.append(now)
            self._breaker.tried(now)
        lifetime = self._shared.loop.decision_budget_seconds + self._config.apply_within_seconds
        clamped = judgement.outcome == "clamp"
        verdict = Verdict(
            node=state.node,
            boot=state.boot,
            cycle=state.cycle,
            at=clock.now_ns(),
            outcome=judgement.outcome,
            execute=judgement.execute,
            mode=self._mode,
            arm=action.arm if action else None,
            weights=judgement.weights,
            rule=judgement.rule,
            reason=judgement.reason,
            propensity=action.propensity if action and not clamped else None,
            deadline=clock.now_ns() + int((lifetime - (now - cycle.seen_at)) * 1e9),
            changes_left=self._changes_left(now),
            previous_weights={name: seen.weight for name, seen in state.classes.items() if seen.weight is not None},
        )
        cycle.verdict = verdict
        self._metrics.verdicts.labels(judgement.outcome).inc()
        if judgement.rule is not None:
            self._metrics.rule_hits.labels(judgement.rule).inc()
        await self._context.messenger.send(verdict)
        self._context.log.debug(
            "verdict", cycle=state.cycle, outcome=judgement.outcome, rule=judgement.rule, reason=judgement.reason
        )

    def _changes_left(self, now: float) -> int:
        while self._changes and now - self._changes[0] >= _MINUTE:
            self._changes.popleft()
        return max(0, int(self._shared.weights.max_changes_per_minute) - len(self._changes))

    # ---- step 11 ----

    async def _on_actuation(self, actuation: Actuation) -> None:
        cycle = self._cycles.get((actuation.boot, actuation.cycle))
        if cycle is not None and actuation.outcome == "applied":
            cycle.applied = True

    async def _on_after(self, after: State) -> None:
        cycle = self._cycles.get((after.boot, after.cycle))
        if cycle is None or not cycle.applied or cycle.verdict is None:
            return
        cycle.applied = False  # judged once, whatever is delivered twice
        with self._context.metrics.step.labels("roll_back").time():
            evidence, regression = find_regression(
                cycle.state,
                after,
                limit_ratio=self._config.regression_ratio,
                floor_ratio=self._config.regression_floor_ratio,
                min_requests=self._config.min_requests,
            )
        self._metrics.evidence.labels(evidence).inc()
        now = self._context.clock.monotonic()
        if regression is None:
            self._breaker.kept(now) if evidence == "keep" else self._breaker.inconclusive()
            self._show_mode()
            return
        self._metrics.rollbacks.inc()
        rise = regression.after_seconds / regression.before_seconds - 1.0
        reason = (
            f"{regression.name}: P99 {regression.before_seconds * 1000:.1f} ms -> "
            f"{regression.after_seconds * 1000:.1f} ms (+{rise * 100:.0f} %)"
        )
        opened = self._breaker.rolled_back(now)
        await self._command(
            after,
            "rollback",
            reason,
            weights=cycle.verdict.previous_weights,
            before=regression.before_seconds,
            after_p99=regression.after_seconds,
        )
        self._context.log.info("rolled_back", cycle=after.cycle, reason=reason)
        if opened:
            self._context.log.warning("breaker_opened", cool_down_seconds=self._config.cool_down_seconds)
            await self._order_restore(f"{self._config.rollbacks_to_open} rollbacks: the breaker opened")
        self._show_mode()

    # ---- commands ----

    async def _on_command(self, command: Command) -> None:
        if command.verb == "mode" and command.mode is not None and command.mode != self._mode:
            self._context.log.info("mode_changed", old=self._mode, new=command.mode, by=command.by)
            self._mode = command.mode
            self._show_mode()

    async def _order_restore(self, reason: str) -> None:
        last = next(reversed(self._cycles.values()), None)
        if last is not None:
            await self._command(last.state, "restore", reason)

    async def _command(
        self,
        about: State,
        verb: CommandVerb,
        reason: str,
        *,
        weights: dict[str, int] | None = None,
        before: float | None = None,
        after_p99: float | None = None,
    ) -> None:
        await self._context.messenger.send(
            Command(
                node=about.node,
                boot=about.boot,
                cycle=about.cycle,
                at=self._context.clock.now_ns(),
                verb=verb,
                by="guard",
                reason=reason,
                weights=weights,
                p99_before_seconds=before,
                p99_after_seconds=after_p99,
                id=f"guard-{about.boot}-{about.cycle}",
            )
        )

    def _show_mode(self) -> None:
        for mode in _MODES:
            self._metrics.mode.labels(mode).set(1 if mode == self._mode else 0)
        blocked = self._breaker.blocks(self._context.clock.monotonic()) is not None
        self._metrics.frozen.set(1 if self._mode == "frozen" or blocked else 0)
