"""Wiring of the actuator: verdict in, weights to the kernel, actuation out; and the ways back to the originals."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from runtime.errors import HostError
from runtime.host_roots import HostRoots, find_roots
from runtime.lifecycle import Context
from schemas.messages import Actuation, ActuationOutcome, Command, Heartbeat, Mode, PodWrite, State, Verdict
from schemas.order import CycleOrder
from services.actuator.config import ActuatorConfig
from services.actuator.core.canary import not_steered, steerable
from services.actuator.core.dead_man import DeadMan
from services.actuator.core.outcome import outcome_of
from services.actuator.core.solver import Target, solution
from services.actuator.metrics import ActuatorMetrics
from services.actuator.recover import open_weights
from services.actuator.weights import Batch

_MEMORY = 4
_PROBE_SECONDS = 60.0
_LOOK_SECONDS = 10.0
_REMEMBERED = 256
_STANDS_STILL = frozenset({"shadow", "frozen"})
_TOLD = frozenset({"released", "failed"})
"""What became of a group that was given back, if it is worth a word: not that it is gone, or is somebody else's."""


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
        self._waiting: tuple[Verdict, float] | None = None
        self._last_applied: Actuation | None = None
        self._read_only = self._roots.read_only
        self._try_again_at = math.inf
        self._restore_again_at: float | None = None
        self._judged_at = -math.inf
        self._note_move()
        self._ending = False
        self._stand_still: Mode | None = None
        self._heard: OrderedDict[str, None] = OrderedDict()

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
        self._say_lost()
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
        look_at = self._context.clock.monotonic()
        while True:
            await self._context.clock.sleep(interval)
            now = self._context.clock.monotonic()
            if now >= look_at:
                self._say_lost()
                look_at = now + _LOOK_SECONDS
            if self._dead_man.fires(now) and self._weights.touched:
                self._context.log.warning("dead_man", silent_seconds=round(now - self._dead_man.last_sign, 1))
                await self._restore_and_say("dead_man", "dead_man")
            elif self._restore_again_at is not None and now >= self._restore_again_at:
                await self._restore_and_say("not all could be restored before", "again")
            if self._waiting is not None and now - self._waiting[1] > self._context.shared.loop.tick_seconds:
                await self._give_up_waiting()

    async def stop(self) -> None:
        """Every original returns before the process ends."""
        self._ending = True  # messages still arrive, and none may write again
        if self._weights.touched:
            await self._restore_and_say("stop", "stop")
        self._weights.close()

    # ---- messages ----

    async def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        now = self._context.clock.monotonic()
        self._dead_man.sign(now)
        # A heartbeat may have been overtaken by the verdict that came after it: then it tells of an earlier mode.
        if now - self._judged_at > self._context.shared.loop.tick_seconds:
            await self._obey_mode(heartbeat.mode)

    async def _on_state(self, state: State) -> None:
        if state.phase != "before":
            return
        # A state that comes twice is as old as it was the first time.
        self._states.setdefault((state.boot, state.cycle), (state, self._context.clock.monotonic()))
        while len(self._states) > _MEMORY:
            self._states.popitem(last=False)
        if self._waiting is None:
            return
        verdict, heard_at = self._waiting
        if (verdict.boot, verdict.cycle) == (state.boot, state.cycle):
            self._waiting = None
            await self._act(verdict, heard_at)

    async def _on_verdict(self, verdict: Verdict) -> None:
        now = self._context.clock.monotonic()
        self._dead_man.sign(now)
        if not self._order.accept(verdict.boot, verdict.cycle):
            self._context.messenger.drop(verdict, "duplicate")
            return
        self._judged_at = now
        await self._give_up_waiting()
        await self._obey_mode(verdict.mode)
        may_act = verdict.execute or self._weights.touched  # what a state shows may have to be given back
        if may_act and (verdict.boot, verdict.cycle) not in self._states:
            self._waiting = (verdict, now)  # two subscriptions race: the state may be a moment behind
            return
        await self._act(verdict, now)

    async def _on_command(self, command: Command) -> None:
        if command.verb == "mode" and command.by == "guard":
            return  # it says again what holds; its verdicts say it, too
        key = command.id or f"{command.by}/{command.at}/{command.verb}/{command.mode}/{command.reason}"
        if key in self._heard:
            self._context.messenger.drop(command, "duplicate")
            return
        self._heard[key] = None
        while len(self._heard) > _REMEMBERED:
            self._heard.popitem(last=False)
        if command.verb == "mode" and command.mode in _STANDS_STILL:
            self._stand_still = command.mode
        elif command.verb == "mode" and command.mode is not None:
            self._stand_still = None
        if command.verb == "rollback":
            await self._roll_back(command)
        elif command.verb == "restore" or command.mode in _STANDS_STILL:
            await self._restore_if_touched(f"command: {command.verb} by {command.by}: {command.reason}", "command")

    async def _obey_mode(self, mode: Mode | None) -> None:
        """In a mode that stands still nothing of ours stays, also where the order to change the mode was missed."""
        if mode in _STANDS_STILL:
            self._stand_still = None  # the guard has it now, and what it says next is newer
            await self._restore_if_touched(f"the guard's mode is {mode}", "mode")

    async def _give_up_waiting(self) -> None:
        if self._waiting is not None:
            (overtaken, _), self._waiting = self._waiting, None
            if overtaken.execute:
                await self._say(overtaken, "skipped", rule="no_state", reason="its state never came")
            else:
                await self._say_not_executed(overtaken, [])

    # ---- step 7 ----

    async def _act(self, verdict: Verdict, heard_at: float) -> None:
        known = self._states.get((verdict.boot, verdict.cycle))
        originals = self._weights.originals()  # also of pods that are given back now, and as such are neighbours
        released = self._give_back(known[0], verdict.canary_ratio) if known is not None else []
        if not verdict.execute or verdict.weights is None:
            self._note_given_back(released)
            await self._say_not_executed(verdict, released)
            return
        if known is None:
            await self._say(verdict, "skipped", rule="no_state", reason="its state was overtaken by newer ones")
            return
        state, seen_at = known
        objection = self._objection(verdict, state, min(seen_at, heard_at))
        self._note_given_back(released)  # part of this verdict, and a move to the next one
        if objection is not None:
            await self._say(verdict, "skipped", rule=objection[0], reason=objection[1], writes=tuple(released))
            return
        started = time.perf_counter()
        pods = steerable(state.pods, verdict.canary_ratio)
        solved = solution(pods, verdict.weights, originals, state.parents)
        self._weights.release({target.group for target in solved.targets})
        batch = self._apply(solved.targets, too_late=lambda: self._expired(verdict, state, min(seen_at, heard_at)))
        if batch is None:
            broken = "the journal cannot be written: nothing was"
            await self._say(verdict, "failed", rule="journal", reason=broken, writes=tuple(released))
            return
        seconds = time.perf_counter() - started
        if batch.late is not None:
            await self._say(verdict, "skipped", rule="deadline", reason=batch.late, writes=(*batch.writes, *released))
            return
        self._metrics.duration.observe(seconds)
        self._metrics.loop.observe(max(0.0, self._context.clock.monotonic() - seen_at))
        self._context.metrics.step.labels("execute").observe(seconds)
        outcome, reason = outcome_of(batch.writes)
        reason = solved.unreachable or reason or solved.coarse
        if batch.refused_everywhere:
            self._say_writable("the kernel refused a write: the files are read-only here")
        elif outcome == "applied":
            self._say_writable(None)
        await self._say(
            verdict,
            outcome,
            rule="unreachable" if solved.unreachable else None,
            reason=reason,
            writes=(*batch.writes, *released),
            overridden=tuple(batch.overridden),
            seconds=seconds,
        )

    async def _say_not_executed(self, verdict: Verdict, released: Sequence[PodWrite]) -> None:
        outcome: ActuationOutcome = "held" if verdict.outcome == "hold" else "skipped"
        await self._say(verdict, outcome, rule=verdict.rule, reason=verdict.reason, writes=tuple(released))

    def _give_back(self, state: State, canary_ratio: float | None) -> list[PodWrite]:
        """Whoever is not steered any more (opted out, without a class, left out of the canary) gets its original at
        once, also in a cycle in which nothing else is done; what came of it, where anything did.

        That needs no deadline: an original is right at any time.
        """
        if self._ending:
            return []
        left = not_steered(state.pods, canary_ratio, self._weights.groups)
        writes = [write for write in self._weights.release_only(left) if write.result in _TOLD]
        for write in writes:
            self._context.log.info(
                "released", group=write.group, why=left[write.group], result=write.result, weight=write.after
            )
        return writes

    def _note_given_back(self, released: Sequence[PodWrite]) -> None:
        if released:
            self._note_move()

    def _note_move(self) -> None:
        """Weights moved by our hand, or may have before we came: what was seen until now is no picture of them."""
        self._moved_at_ns, self._moved_at = self._context.clock.now_ns(), self._context.clock.monotonic()

    def _objection(  # noqa: PLR0911 - one line a reason, in their order
        self, verdict: Verdict, state: State, known_since: float
    ) -> tuple[str, str] | None:
        """Rule and reason for not writing, or None."""
        if self._ending:
            return "stopping", "the actuator is on its way out"
        if verdict.mode in _STANDS_STILL:
            return "mode", f"nothing is written in mode {verdict.mode}"
        if verdict.mode == "canary" and verdict.canary_ratio is None:
            return "mode", "a verdict in mode canary that names no share of pods"
        if self._stand_still is not None:
            return "mode", f"the order {self._stand_still!r} has not reached the guard"
        limits = self._context.shared.weights
        for name, weight in sorted((verdict.weights or {}).items()):  # the guard's rule; here whatever the sender was
            if not limits.min_weight <= weight <= limits.max_weight:
                return "bounds", f"{name}: weight {weight} is outside {limits.min_weight}..{limits.max_weight}"
        expired = self._expired(verdict, state, known_since)
        if expired is not None:
            return "deadline", expired
        since_moved = self._context.clock.monotonic() - self._moved_at
        if state.at < self._moved_at_ns and since_moved <= 2 * self._context.shared.loop.tick_seconds:
            return "freshness", f"the state is from before weights moved {since_moved:.1f} s ago"
        if self._read_only is not None and self._context.clock.monotonic() < self._try_again_at:
            return "read_only", self._read_only
        return None

    def _expired(self, verdict: Verdict, state: State, known_since: float) -> str | None:
        """Why it is too late, by the wall clock or by our own since we knew of the cycle: the stricter one."""
        if verdict.deadline is None:
            return "the verdict has no deadline"
        now_ns = self._context.clock.now_ns()
        late = (now_ns - verdict.deadline) / 1e9
        if late > 0:
            return f"{late * 1000:.0f} ms after the deadline"
        limit = 2 * self._context.shared.loop.tick_seconds
        known = self._context.clock.monotonic() - known_since
        age = max(known, (now_ns - state.at) / 1e9)
        if age > limit:
            return f"the state is {age:.2f} s old"
        if known > max(0.0, (verdict.deadline - state.at) / 1e9):
            return f"the state was seen {known:.2f} s ago, longer than the verdict is good for"
        return None

    # ---- the ways back ----

    async def _roll_back(self, command: Command) -> None:
        last, self._last_applied = self._last_applied, None
        if last is None or (last.boot, last.cycle) != (command.boot, command.cycle):
            self._last_applied = last
            self._context.messenger.drop(command, "not_applied")
            return
        targets = [
            Target(write.uid, write.name, write.group, write.before)
            for write in last.writes
            if write.result == "applied" and write.before
        ]
        batch = self._apply(targets, only_ours=True)
        if batch is None:  # the originals need no journal, and are the one way back that is left
            await self._restore_if_touched(f"rollback without a journal: {command.reason}", "rollback")
            return
        await self._publish(
            command.boot,
            command.cycle,
            "rolled_back",
            reason=command.reason,
            weights=command.weights,
            writes=tuple(batch.writes),
            overridden=tuple(batch.overridden),
        )

    async def _restore_if_touched(self, reason: str, label: str) -> None:
        if self._weights.touched:
            await self._restore_and_say(reason, label)

    async def _restore_and_say(self, reason: str, label: str) -> None:
        writes = self._restore(label)
        boot = self._order.boot
        if boot is not None:
            await self._publish(boot, self._order.cycle, "restored", reason=reason, writes=tuple(writes))

    def _restore(self, label: str) -> list[PodWrite]:
        self._last_applied = None
        writes = self._weights.restore()
        self._note_move()
        failed = [write.group for write in writes if write.result == "failed"]
        now = self._context.clock.monotonic()
        self._restore_again_at = now + self._config.dead_man_seconds if failed else None
        if writes and not failed and self._roots.read_only is None:
            self._say_writable(None)  # what was refused before is taken again
        self._metrics.restores.labels(label).inc()
        self._context.log.info("restored", why=label, groups=len(writes), failed=len(failed))
        return writes

    def _apply(
        self, targets: list[Target], *, too_late: Callable[[], str | None] = lambda: None, only_ours: bool = False
    ) -> Batch | None:
        """Applies, or logs why the journal failed: then nothing was written."""
        now = self._context.clock.monotonic()
        try:
            batch = self._weights.apply(targets, now, too_late=too_late, only_ours=only_ours)
        except HostError as error:
            self._context.log.error("journal_failed", detail=str(error))
            return None
        if batch.ready:
            self._note_move()
            self._restore_again_at = None  # what is there now is wanted
        return batch

    # ---- talk ----

    def _say_writable(self, reason: str | None) -> None:
        self._read_only = reason
        if reason != self._roots.read_only:  # what was found at start stays; a refusal is tried again now and then
            self._try_again_at = self._context.clock.monotonic() + _PROBE_SECONDS
        self._context.health.require("writable", reason)
        self._metrics.writable.set(0 if reason else 1)

    def _say_lost(self) -> None:
        lost = self._weights.lost()
        self._context.health.require("originals", lost)
        self._metrics.lost.set(0 if lost is None else 1)

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
        await self._publish(
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
    ) -> None:
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
        if outcome == "applied":
            self._last_applied = actuation  # before the send: a restore may come while that waits
        self._metrics.outcomes.labels(outcome).inc()
        await self._context.messenger.send(actuation)
