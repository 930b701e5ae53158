"""Wiring of the actuator: verdict in, weights to the kernel, actuation out; and the ways back to the originals."""

import time
from collections import OrderedDict
from pathlib import Path

from runtime.errors import HostError
from runtime.host_roots import HostRoots, find_roots
from runtime.lifecycle import Context
from schemas.messages import Actuation, ActuationOutcome, Command, Heartbeat, Mode, PodWrite, State, Verdict
from schemas.order import CycleOrder
from services.actuator.cgroup_writer import CgroupWriter
from services.actuator.config import ActuatorConfig
from services.actuator.core.dead_man import DeadMan
from services.actuator.core.ledger import Entry, Ledger, ledger_of, restore_step
from services.actuator.core.solver import Target, solve
from services.actuator.journal import Journal, boot_id
from services.actuator.metrics import ActuatorMetrics

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
        self._writer = CgroupWriter(self._roots.cgroup_root, self._roots.pods_root)
        self._journal = Journal(Path(self._config.journal), boot_id(self._roots.proc_root))
        self._ledger = Ledger()
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
        records, trouble = self._journal.open()
        if trouble is not None:
            self._context.log.error("journal_set_aside", detail=trouble)
        self._ledger = ledger_of(records)
        if self._ledger.entries:
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
            if self._dead_man.fires(now) and self._ledger.entries:
                self._context.log.warning("dead_man", silent_seconds=round(now - self._dead_man.last_sign, 1))
                await self._restore_and_say("dead_man")
            if self._read_only and self._roots.read_only is None and now - self._probed_at > _PROBE_SECONDS:
                self._probed_at = now
                self._say_writable(None)

    async def stop(self) -> None:
        """Every original returns before the process ends."""
        if self._ledger.entries:
            await self._restore_and_say("stop")
        self._journal.close()

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
        elif command.verb == "restore" or (command.verb == "mode" and command.mode in ("shadow", "frozen")):
            if self._ledger.entries:
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
        try:
            writes, overridden = self._write_all(solve(state.pods, verdict.weights, self._ledger.originals()))
        except HostError as error:
            self._context.log.error("journal_failed", detail=str(error))
            await self._say(verdict, "failed", rule="journal", reason=str(error))
            return
        seconds = time.perf_counter() - started
        self._metrics.duration.observe(seconds)
        self._metrics.loop.observe(max(0.0, self._context.clock.monotonic() - seen_at))
        self._context.metrics.step.labels("execute").observe(seconds)
        results = {write.result for write in writes}
        outcome = "applied" if "applied" in results else "held" if results <= {"unchanged"} and results else "failed"
        reason = None
        if not writes:
            outcome, reason = "skipped", "no pod of these classes can be written"
        elif outcome == "failed":
            reason = next((write.reason for write in writes if write.reason), None)
        if any(write.reason == "read_only" for write in writes):
            self._say_writable("the kernel refused a write: the files are read-only here")
        await self._say(
            verdict, outcome, reason=reason, writes=tuple(writes), overridden=tuple(overridden), seconds=seconds
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

    def _write_all(self, targets: list[Target]) -> tuple[list[PodWrite], list[str]]:
        """Journals, writes and reads back every target. Raises HostError, before any write, if the journal fails."""
        now = self._context.clock.monotonic()
        writes: list[PodWrite] = []
        overridden: list[str] = []
        ready: list[tuple[Target, str]] = []
        records: list[dict[str, object]] = []
        first_writes = False
        for target in targets:
            try:
                found = self._writer.read(target.group)
            except ValueError as error:  # a state that names what is no pod group costs that pod, not the cycle
                self._context.log.error("group_refused", detail=str(error))
                writes.append(self._skipped(target, None, "not_a_pod_group"))
                continue
            if found is None:
                self._ledger.forget(target.group)
                writes.append(self._skipped(target, None, "gone"))
                continue
            identity, text = found
            if text.strip() == "0":
                writes.append(self._skipped(target, 0, "idle"))
                continue
            owner = self._ledger.owner(target.group, identity, text)
            if owner == "foreign":
                self._metrics.foreign.inc()
                overridden.append(target.group)
                records.append({"kind": "rebase", "group": target.group, "value": text})
                left = self._ledger.yielded(
                    target.group, text, now, self._config.foreign_writes_to_yield, self._config.yield_seconds
                )
                self._context.log.warning("foreign_write", group=target.group, weight=text.strip(), left_alone=left)
            elif owner == "ours":
                self._ledger.stayed(target.group)
            if self._ledger.left_alone(target.group, now):
                writes.append(self._skipped(target, _number(text), "foreign"))
                continue
            if text.strip() == str(target.weight):
                writes.append(_write(target, text, text, "unchanged"))
                continue
            if owner == "new":
                self._ledger.begin(target.group, identity, text)
                records.append({"kind": "original", "group": target.group, "identity": identity, "value": text})
                first_writes = True
            records.append({"kind": "intend", "group": target.group, "value": str(target.weight)})
            ready.append((target, text))
        if records:
            self._journal.append(records, sync=first_writes)
        for target, text in ready:
            writes.append(self._write_one(target, text))
        for write in writes:
            self._metrics.writes.labels(write.result).inc()
        return writes, overridden

    def _write_one(self, target: Target, before: str) -> PodWrite:
        wanted = str(target.weight)
        self._ledger.intend(target.group, wanted)
        result = self._writer.write(target.group, wanted)
        if result.error == "gone":
            self._ledger.forget(target.group)
        if result.error is not None:
            return self._skipped(target, _number(before), result.error)
        if result.after is None or result.after.strip() != wanted:
            return _write(target, before, result.after, "mismatch", "somebody else wrote in between")
        self._ledger.wrote(target.group, wanted)
        old = _number(before) or target.weight
        self._metrics.step_ratio.observe(max(old, target.weight) / max(1, min(old, target.weight)))
        return _write(target, before, result.after, "applied")

    def _skipped(self, target: Target, before: int | None, reason: str) -> PodWrite:
        return PodWrite(
            uid=target.uid,
            group=target.group,
            before=before,
            wanted=target.weight,
            after=before,
            result="skipped",
            reason=reason,
        )

    # ---- the ways back ----

    async def _roll_back(self, command: Command) -> None:
        last = self._last
        if last is None or (last.boot, last.cycle) != (command.boot, command.cycle) or last.outcome != "applied":
            self._context.messenger.drop(command, "not_applied")
            return
        targets = [
            Target(write.uid, write.group, write.before)
            for write in last.writes
            if write.result == "applied" and write.before
        ]
        self._last = None
        try:
            writes, overridden = self._write_all(targets)
        except HostError as error:
            self._context.log.error("journal_failed", detail=str(error))
            writes, overridden = [], []
        await self._publish(
            command.boot,
            command.cycle,
            "rolled_back",
            reason=command.reason,
            weights=command.weights,
            writes=tuple(writes),
            overridden=tuple(overridden),
        )

    async def _restore_and_say(self, reason: str, label: str | None = None) -> None:
        writes = self._restore(label or reason)
        self._last = None
        boot = self._order.boot
        if boot is not None:
            await self._publish(boot, self._order.cycle, "restored", reason=reason, writes=tuple(writes))

    def _restore(self, label: str) -> list[PodWrite]:
        """Writes every original back, byte for byte, except over somebody else's value; empties the journal if all
        of it is settled."""
        writes: list[PodWrite] = []
        settled = True
        for entry in list(self._ledger.entries.values()):
            write = self._restore_one(entry)
            writes.append(write)
            if write.result == "failed":
                settled = False
            else:
                self._ledger.forget(entry.group)
        if settled:
            try:
                self._journal.clear()
            except HostError as error:
                self._context.log.error("journal_failed", detail=str(error))
        self._metrics.restores.labels(label).inc()
        failed = [write.group for write in writes if write.result == "failed"]
        self._context.log.info("restored", why=label, groups=len(writes), failed=len(failed))
        return writes

    def _restore_one(self, entry: Entry) -> PodWrite:
        found = self._writer.read(entry.group)
        identity, current = found if found is not None else (None, None)
        step = restore_step(entry, identity, current)
        target = Target("", entry.group, _number(entry.original) or 0)
        if step != "write":
            if step == "foreign":
                self._metrics.foreign.inc()
            return _write(target, current, current, "unchanged" if step == "done" else "skipped", step)
        result = self._writer.write(entry.group, entry.original)
        if result.error == "gone":
            return _write(target, current, None, "skipped", "gone")
        good = result.error is None and result.after is not None and result.after.strip() == entry.original.strip()
        return _write(target, current, result.after, "applied" if good else "failed", result.error)

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


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdigit() else None


def _write(target: Target, before: str | None, after: str | None, result: str, reason: str | None = None) -> PodWrite:
    return PodWrite(
        uid=target.uid,
        group=target.group,
        before=_number(before),
        wanted=target.weight or None,
        after=_number(after),
        result=result,
        reason=reason,
    )
