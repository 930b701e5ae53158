"""Wiring of the actuator: verdict in, weights to the kernel, actuation out; and the ways back to the originals."""

import time
from collections import OrderedDict

from runtime.errors import HostError
from runtime.host_roots import HostRoots, find_roots
from runtime.lifecycle import Context
from schemas.messages import Actuation, ActuationOutcome, Command, Heartbeat, Mode, PodWrite, State, Verdict
from schemas.order import CycleOrder
from services.actuator.config import ActuatorConfig
from services.actuator.core.dead_man import DeadMan
from services.actuator.core.outcome import outcome_of
from services.actuator.core.solver import Target, solve
from services.actuator.metrics import ActuatorMetrics
from services.actuator.recover import open_weights
from services.actuator.weights import Batch

_MEMORY = 4
_PROBE_SECONDS = 60.0


class ActuatorService:
    """Applies each verdict at most once, and can always undo all of it."""

    paces_itself = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("actuator", ActuatorConfig)
        self._metrics = ActuatorMetrics(context.metrics.registry)
        self._roots: HostRoots = find_roots(context.config.host)
        self._weights = open_weights(self._config, self._roots, self._metrics, context.log)
        self._dead_man = DeadMan(self._config.dead_man_seconds, context.clock.monotonic())
        self._order = CycleOrder()
        self._states: OrderedDict[tuple[str, int], tuple[State, float]] = OrderedDict()
        self._waiting: Verdict | None = None
        self._last: Actuation | None = None
        self._read_only = self._roots.read_only
        self._probed_at = context.clock.monotonic()

    @property
    def cycle(self) -> int:
        """The newest cycle acted on."""
        return self._order.cycle

    @property
    def mode(self) -> Mode | None:
        """The actuator has no mode of its own: the verdict carries it."""
        return None

    async def start(self) -> None:
        """Restores what an earlier run left behind, then listens."""
        trouble = self._weights.recover()
        if trouble is not None:
            self._context.log.error("journal_set_aside", detail=trouble)
        if self._weights.touched:
            self._restore("restart")
        self._say_writable(self._read_only)
        messenger = self._context.messenger
        await messenger.listen(Heartbeat, self._on_heartbeat, service="guard")
        await messenger.listen(Command, self._on_command)
        await messenger.listen(Verdict, self._on_verdict)
        await messenger.listen(State, self._on_state)

    async def run(self) -> None:
        """Watches for the guard's silence."""
        interval = min(1.0, self._config.dead_man_seconds / 10)
        while True:
            await self._context.clock.sleep(interval)
            now = self._context.clock.monotonic()
            if self._dead_man.fires(now) and self._weights.touched:
                self._context.log.warning("dead_man", silent_seconds=round(now - self._dead_man.last_sign, 1))
                await self._restore_and_say("dead_man")
            if self._read_only and self._roots.read_only is None and now - self._probed_at > _PROBE_SECONDS:
                self._probed_at = now
                self._say_writable(None)

    async def stop(self) -> None:
        """Every original returns before the process ends."""
        if self._weights.touched:
            await self._restore_and_say("stop")
        self._weights.close()

    # ---- messages ----

    async def _on_heartbeat(self, heartbeat: Heartbeat) -> None:  # noqa: ARG002 - that it came is all
        self._dead_man.sign(self._context.clock.monotonic())

    async def _on_state(self, state: State) -> None:
        if state.phase != "before":
            return
        self._states[(state.boot, state.cycle)] = (state, self._context.clock.monotonic())
        while len(self._states) > _MEMORY:
            self._states.popitem(last=False)
        waiting = self._waiting
        if waiting is not None and (waiting.boot, waiting.cycle) == (state.boot, state.cycle):
            self._waiting = None
            await self._act(waiting)

    async def _on_verdict(self, verdict: Verdict) -> None:
        self._dead_man.sign(self._context.clock.monotonic())
        if not self._order.accept(verdict.boot, verdict.cycle):
            self._context.messenger.drop(verdict, "duplicate")
            return
        if self._waiting is not None:
            overtaken, self._waiting = self._waiting, None
            await self._say(overtaken, "skipped", rule="no_state", reason="its state never came")
        if verdict.execute and (verdict.boot, verdict.cycle) not in self._states:
            self._waiting = verdict  # two subscriptions race: the state may be a moment behind
            return
        await self._act(verdict)

    async def _on_command(self, command: Command) -> None:
        if command.verb == "rollback":
            await self._roll_back(command)
            return
        stands_still = command.verb == "mode" and command.mode in ("shadow", "frozen")
        if (command.verb == "restore" or stands_still) and self._weights.touched:
            await self._restore_and_say(f"command: {command.verb} by {command.by}: {command.reason}", "command")

    # ---- step 7 ----

    async def _act(self, verdict: Verdict) -> None:
        if not verdict.execute or verdict.weights is None:
            outcome: ActuationOutcome = "held" if verdict.outcome == "hold" else "skipped"
            await self._say(verdict, outcome, rule=verdict.rule, reason=verdict.reason)
            return
        state, seen_at = self._states[(verdict.boot, verdict.cycle)]
        expired = self._expired(verdict, state, seen_at)
        if expired is not None:
            await self._say(verdict, "skipped", rule="deadline", reason=expired)
            return
        if self._read_only is not None:
            await self._say(verdict, "skipped", rule="read_only", reason=self._read_only)
            return
        started = time.perf_counter()
        batch = self._apply(solve(state.pods, verdict.weights, self._weights.originals()))
        if batch is None:
            await self._say(verdict, "failed", rule="journal", reason="the journal cannot be written: nothing was")
            return
        seconds = time.perf_counter() - started
        self._metrics.duration.observe(seconds)
        self._metrics.loop.observe(max(0.0, self._context.clock.monotonic() - seen_at))
        self._context.metrics.step.labels("execute").observe(seconds)
        if any(write.reason == "read_only" for write in batch.writes):
            self._say_writable("the kernel refused a write: the files are read-only here")
        outcome, reason = outcome_of(batch.writes)
        await self._say(
            verdict,
            outcome,
            reason=reason,
            writes=tuple(batch.writes),
            overridden=tuple(batch.overridden),
            seconds=seconds,
        )

    def _expired(self, verdict: Verdict, state: State, seen_at: float) -> str | None:
        """Why it is too late, by the wall clock or by our own since the state was seen: the stricter one."""
        if verdict.deadline is None:
            return "the verdict has no deadline"
        late = (self._context.clock.now_ns() - verdict.deadline) / 1e9
        if late > 0:
            return f"{late * 1000:.0f} ms after the deadline"
        limit = 2 * self._context.shared.loop.tick_seconds
        age = self._context.clock.monotonic() - seen_at
        if age > min(limit, max(0.0, (verdict.deadline - state.at) / 1e9) + 0.05):
            return f"the state was seen {age:.2f} s ago"
        return None

    # ---- the ways back ----

    async def _roll_back(self, command: Command) -> None:
        last = self._last
        if last is None or (last.boot, last.cycle) != (command.boot, command.cycle) or last.outcome != "applied":
            self._context.messenger.drop(command, "not_applied")
            return
        targets = [
            Target(write.uid, write.name, write.group, write.before)
            for write in last.writes
            if write.result == "applied" and write.before
        ]
        self._last = None
        batch = self._apply(targets) or Batch()
        await self._publish(
            command.boot,
            command.cycle,
            "rolled_back",
            reason=command.reason,
            weights=command.weights,
            writes=tuple(batch.writes),
            overridden=tuple(batch.overridden),
        )

    async def _restore_and_say(self, reason: str, label: str | None = None) -> None:
        writes = self._restore(label or reason)
        self._last = None
        boot = self._order.boot
        if boot is not None:
            await self._publish(boot, self._order.cycle, "restored", reason=reason, writes=tuple(writes))

    def _restore(self, label: str) -> list[PodWrite]:
        try:
            writes = self._weights.restore()
        except HostError as error:
            self._context.log.error("journal_failed", detail=str(error))
            writes = []
        self._metrics.restores.labels(label).inc()
        failed = [write.group for write in writes if write.result == "failed"]
        self._context.log.info("restored", why=label, groups=len(writes), failed=len(failed))
        return writes

    def _apply(self, targets: list[Target]) -> Batch | None:
        """Applies, or logs why the journal failed: then nothing was written."""
        try:
            return self._weights.apply(targets, self._context.clock.monotonic())
        except HostError as error:
            self._context.log.error("journal_failed", detail=str(error))
            return None

    # ---- talk ----

    def _say_writable(self, reason: str | None) -> None:
        self._read_only = reason
        self._context.health.require("writable", reason)
        self._metrics.writable.set(0 if reason else 1)

    async def _say(
        self,
        verdict: Verdict,
        outcome: ActuationOutcome,
        *,
        rule: str | None = None,
        reason: str | None = None,
        writes: tuple[PodWrite, ...] = (),
        overridden: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> None:
        self._last = await self._publish(
            verdict.boot,
            verdict.cycle,
            outcome,
            arm=verdict.arm,
            weights=verdict.weights if outcome in ("applied", "held") else None,
            rule=rule,
            reason=reason,
            writes=writes,
            overridden=overridden,
            seconds=seconds,
        )

    async def _publish(
        self,
        boot: str,
        cycle: int,
        outcome: ActuationOutcome,
        *,
        arm: str | None = None,
        weights: dict[str, int] | None = None,
        rule: str | None = None,
        reason: str | None = None,
        writes: tuple[PodWrite, ...] = (),
        overridden: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> Actuation:
        actuation = Actuation(
            node=self._context.shared.node,
            boot=boot,
            cycle=cycle,
            at=self._context.clock.now_ns(),
            outcome=outcome,
            arm=arm,
            weights=weights,
            writes=writes,
            rule=rule,
            reason=reason,
            overridden=overridden,
            write_seconds=seconds,
        )
        self._metrics.outcomes.labels(outcome).inc()
        await self._context.messenger.send(actuation)
        return actuation
