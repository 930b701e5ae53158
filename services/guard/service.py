"""Wiring of the guard: state and action in, verdict out; the second look in, rollback or restore out."""

import asyncio
import math
from collections import OrderedDict

import msgspec

from runtime.lifecycle import Context
from runtime.streams import AUDIT
from schemas.messages import Action, Actuation, Command, Known, Mode, State, Verdict
from schemas.runs import Runs
from schemas.settings import settings_digest
from services.guard.aftermath import Aftermath
from services.guard.config import GuardConfig
from services.guard.core.canary import Ordered, ordered_after
from services.guard.core.change_budget import ChangeBudget
from services.guard.core.known import Stand, canary_ratio_of, verdict_of
from services.guard.core.mode_order import STANDS_STILL
from services.guard.core.past import breaker_past, change_ages, changed_classes, class_change_ages
from services.guard.core.state_age import StateAges
from services.guard.cycles import Cycle
from services.guard.metrics import GuardMetrics
from services.guard.mode_entry import ModeEntries
from services.guard.mode_orders import ModeOrders
from services.guard.orders import Orders

_MODES: tuple[Mode, ...] = ("shadow", "canary", "active", "frozen")
_MEMORY = 16
_RECENT, _ALL = 200, 100_000


class GuardService:
    """Judges every cycle exactly once."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("guard", GuardConfig)
        self._shared = context.shared
        self._settings = settings_digest(self._shared, self._config)
        self._metrics = GuardMetrics(context.metrics.registry)
        self._order = Runs(self._shared.loop.tick_seconds)
        self._orders = Orders(context)
        self._cycles: OrderedDict[tuple[str, int], Cycle] = OrderedDict()
        self._early: OrderedDict[tuple[str, int], Action] = OrderedDict()
        self._changes = ChangeBudget(self._shared.weights.max_changes_per_minute)
        class_rate = self._config.max_class_changes_per_minute
        limited = self._shared.classes if class_rate is not None else ()  # else the node's rate is the classes', too
        self._class_changes = {name: ChangeBudget(class_rate or 1.0) for name in limited}
        self._aftermath = Aftermath(context, self._config, self._metrics, self._orders)
        self._modes = ModeOrders(context, self._config.max_clock_skew_seconds, self._mode_changed)
        self._canary_ordered: Ordered | None = None
        now = context.clock.monotonic()
        self._ages = StateAges(now, skew_seconds=self._shared.loop.tick_seconds)
        self._last_state_at = now
        self._moved_at = -math.inf  # by a verdict, or by somebody's order
        self._blind = False
        self._timers: set[asyncio.Task[None]] = set()

    @property
    def cycle(self) -> int:
        """The newest cycle seen."""
        return self._order.cycle

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self._modes.mode

    async def start(self) -> None:
        """Takes up what the last run left, then listens. Orders that come meanwhile are newer than what is stored."""
        messenger = self._context.messenger
        await messenger.listen(Command, self._on_command, unread=self._modes.hear_junk)
        await self._take_up()
        self._show_mode()
        await messenger.listen(Actuation, self._on_actuation)
        await messenger.listen(Action, self._on_action)
        await messenger.listen(State, self._on_state)
        await ModeEntries(self._context).start()

    async def _take_up(self) -> None:
        clock, messenger = self._context.clock, self._context.messenger
        orders = await self._modes.take_up()
        verdicts = await messenger.history(AUDIT, Verdict, self._verdicts_that_count)
        now, now_ns = clock.monotonic(), clock.now_ns()
        for age in change_ages(verdicts, now_ns):
            self._changes.spend(now - age)
        for name, ages in class_change_ages(verdicts, now_ns).items():
            for age in ages if name in self._class_changes else ():
                self._class_changes[name].spend(now - age)
        await self._aftermath.take_up(breaker_past(orders, verdicts, now_ns))

    @property
    def _verdicts_that_count(self) -> int:
        """How many verdicts back a change can lie that a budget still counts: one a tick at most."""
        seconds = max(budget.window_seconds for budget in (self._changes, *self._class_changes.values()))
        return min(_ALL, max(_RECENT, math.ceil(seconds / self._shared.loop.tick_seconds) + _MEMORY))

    async def run(self) -> None:
        """Watches that states keep coming."""
        tick = self._shared.loop.tick_seconds
        while True:
            await self._context.clock.sleep(tick / 2)
            self._show_mode()
            silent = self._context.clock.monotonic() - self._last_state_at
            if silent > self._config.blind_after_ticks * tick and not self._blind:
                newest = next((cycle.state for cycle in reversed(self._cycles.values())), None)
                self._blind = await self._orders.restore(newest, "blind", f"no fresh state for {silent:.0f} s")

    async def stop(self) -> None:
        """Ends the timers; what is written is the actuator's to restore."""
        for timer in list(self._timers):
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        await self._modes.stop()

    # ---- step 6 ----

    async def _on_state(self, state: State) -> None:
        if state.phase == "after":
            await self._on_after(state)
            return
        clock = self._context.clock
        refused = self._order.refuses(state.boot, state.cycle, clock.monotonic())
        if refused is not None:
            self._context.messenger.drop(state, refused)
            return
        await self._modes.hear_missed()
        now = clock.monotonic()
        self._last_state_at, self._blind = now, False
        await self._stand_in(state)
        await self._aftermath.look_again([state])
        key = (state.boot, state.cycle)
        cycle = Cycle(state, now, self._ages.age_seconds(state.at, clock.now_ns(), now))
        earlier = [other for other in self._cycles.values() if other.verdict is None]
        self._cycles[key] = cycle
        while len(self._cycles) > _MEMORY:
            self._cycles.popitem(last=False)
        timer = asyncio.create_task(self._expire(cycle))
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)
        early = self._early.pop(key, None)
        for other in earlier:  # a cycle that still waits for its action when the next one begins is over
            await self._end(other, f"no action before cycle {state.cycle} began")
        if early is not None and cycle.verdict is None:
            await self._decide(cycle, early)

    async def _on_action(self, action: Action) -> None:
        key = (action.boot, action.cycle)
        cycle = self._cycles.get(key)
        if cycle is None:
            if key in self._early or (action.boot == self._order.boot and action.cycle <= self._order.cycle):
                self._context.messenger.drop(action, "duplicate" if key in self._early else "stale")
                return
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

    async def _expire(self, cycle: Cycle) -> None:
        budget = self._shared.loop.decision_budget_seconds
        await self._context.clock.sleep(budget)
        await self._end(cycle, f"no action within {budget * 1000:.0f} ms")

    async def _end(self, cycle: Cycle, reason: str) -> None:
        if cycle.verdict is None:
            await self._decide(cycle, None, reason)

    async def _decide(self, cycle: Cycle, action: Action | None, late: str | None = None) -> None:
        clock, now = self._context.clock, self._context.clock.monotonic()
        stand = Stand(self.mode, self._aftermath.breaker.state(now))
        with self._context.metrics.step.labels("validate").time():
            verdict = verdict_of(
                cycle.state,
                action,
                self._known(cycle, stand, now, late),
                stand,
                config=self._config,
                shared=self._shared,
                at=clock.now_ns(),
            )
        verdict = msgspec.structs.replace(verdict, settings=self._settings)
        cycle.verdict = verdict
        if verdict.execute:
            self._changes.spend(now)
            for name in changed_classes(verdict.weights or {}, verdict.previous_weights or {}):
                if name in self._class_changes:
                    self._class_changes[name].spend(now)
            self._aftermath.let_through(cycle, now)
            self._moved_at = now
        await self._publish(verdict)

    def _known(self, cycle: Cycle, stand: Stand, now: float, late: str | None) -> Known:
        moved = now - max(self._moved_at, self._aftermath.moved_at)
        is_canary = canary_ratio_of(cycle.state, stand, self._config, self._shared) is not None
        ordered = self._canary_ordered if is_canary else None
        return Known(
            seen_age_seconds=cycle.age_seconds,
            answer_seconds=now - cycle.seen_at,
            changes_left=self._changes.left(now),
            class_changes_left={name: budget.left(now) for name, budget in self._class_changes.items()},
            since_moved_seconds=moved if math.isfinite(moved) else None,
            breaker_open=self._aftermath.breaker.blocks(now),
            late=late,
            canary_ordered=dict(ordered.weights) if ordered is not None else None,
            canary_written=dict(ordered.written) if ordered is not None else None,
        )

    async def _publish(self, verdict: Verdict) -> None:
        self._metrics.verdicts.labels(verdict.outcome).inc()
        if verdict.rule is not None:
            self._metrics.rule_hits.labels(verdict.rule).inc()
        for name in verdict.would_refuse:
            self._metrics.would_refuse.labels(name).inc()
        await self._context.messenger.send(verdict)
        self._context.log.debug(
            "verdict", cycle=verdict.cycle, outcome=verdict.outcome, rule=verdict.rule, reason=verdict.reason
        )

    # ---- step 11 ----

    async def _on_actuation(self, actuation: Actuation) -> None:
        self._canary_ordered = ordered_after(self._canary_ordered, actuation)
        if actuation.outcome == "restored":
            self._aftermath.taken_back()
        cycle = self._cycles.get((actuation.boot, actuation.cycle))
        if cycle is None:
            return
        stands_still = self.mode if self.mode in STANDS_STILL else None
        await self._aftermath.on_actuation(cycle, actuation, stands_still=stands_still)
        await self._compare(cycle)

    async def _on_after(self, after: State) -> None:
        cycle = self._cycles.get((after.boot, after.cycle))
        if cycle is not None and cycle.after is None:
            cycle.after = after
            await self._compare(cycle)
            await self._aftermath.look_again([after])

    async def _stand_in(self, state: State) -> None:
        """Where the second look of the last cycle never came, this cycle's first look stands in for it: a change is
        judged and taken back without the rewarder, too.
        """
        last = next(reversed(self._cycles.values()), None)
        if last is not None and last.after is None and last.state.boot == state.boot:
            last.after = state
            await self._compare(last)

    async def _compare(self, cycle: Cycle) -> None:
        """As long as its cycle lasts: later, other weights may be in force."""
        if cycle.after is not None and self._order.is_current(cycle.after.boot, cycle.after.cycle):
            await self._aftermath.compare(cycle)
            self._show_mode()

    # ---- commands ----

    async def _on_command(self, command: Command) -> None:
        if command.verb == "model":  # the decider's: what it proposes is judged as ever
            return
        if not await self._modes.hear(command):
            return
        if command.verb != "mode" or command.mode in STANDS_STILL:  # our own orders come back to us here, too
            self._moved_at = max(self._moved_at, self._context.clock.monotonic())
        if command.verb == "restore":
            self._aftermath.taken_back()

    def _mode_changed(self) -> None:
        self._show_mode()
        if self.mode in STANDS_STILL:  # however we learned of it
            self._moved_at = self._context.clock.monotonic()
            self._aftermath.taken_back()

    def _show_mode(self) -> None:
        for mode in _MODES:
            self._metrics.mode.labels(mode).set(1 if mode == self._modes.mode else 0)
        blocked = self._aftermath.breaker.blocks(self._context.clock.monotonic()) is not None
        self._metrics.frozen.set(1 if self._modes.mode == "frozen" or blocked else 0)
