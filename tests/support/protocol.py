"""The world of the protocol's model check: the real guard and actuator, and between them everything that can go wrong.

Messages fly until somebody delivers, doubles, loses or replays them; clocks stand still until moved; a process dies at
the point that was chosen for it. Every write to the kernel's files is held against the invariants (docs/safety.md) when
it happens; what does not hold is in `violations`.
"""

import asyncio
import contextlib
import contextvars
import errno
import itertools
import math
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from runtime.bus import Received, Stored
from runtime.clock import ManualClock, settle
from runtime.errors import BusDown
from runtime.health import Health
from runtime.lifecycle import Context
from runtime.logs import get_log
from runtime.memory_bus import MemoryBus, matches
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from schemas.codec import decode, encode
from schemas.messages import AnyMessage, Command, Heartbeat, PodState, State, Verdict
from schemas.profile import on_profile_scale
from schemas.subjects import message_id, subject_of
from services.actuator import cgroup_writer
from services.actuator.config import ActuatorConfig
from services.actuator.core.journal_format import lines_of, records_of
from services.actuator.core.ledger import ledger_of
from services.actuator.service import ActuatorService
from services.guard.config import GuardConfig
from services.guard.service import GuardService
from tests.support.builders import BATCH, CRITICAL, NODE, batch_state, class_state, heartbeat, state
from tests.support.harness import config_of

TICK, DEAD_MAN, LEFT_ALONE = 5.0, 15.0, 600.0
LIFETIME = 0.6
"""Seconds that a verdict is good for: decision budget and time to apply."""
CHANGES = 4
"""Changes a minute that the guard may let through here: few, so that a run gets there."""
FOREIGN_LIMIT = 3
MACHINE = "8f6f0c7e-4f0e-4d0c-9f53-3a7d3f1f0a11"
STEERED = {"burstable/pod-a": CRITICAL, "burstable/pod-b": BATCH, "burstable/pod-c": BATCH}
NOT_OURS = ("", "burstable", "besteffort", "besteffort/pod-x", "burstable/pod-a/container")
"""Groups whose weights are nobody's to write, below the pods root."""

_MACHINE_SETTINGS = {
    "mode": "active",
    "weights.max_changes_per_minute": float(CHANGES),
    "host.pods_root": "kubepods",
    "host.simulated": True,
}
_FILES = {"cpu.weight": "100\n", "cpu.idle": "0\n", "cpu.max": "max 100000\n"}
_owner: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Killed(BaseException):
    """SIGKILL: nothing catches it, nothing is tidied up."""


@dataclass
class Process:
    """One run of a service. `doom` is the point at which it dies, and the how-manieth time it comes there."""

    name: str
    service: GuardService | ActuatorService
    bus: "End"
    doom: tuple[str, int] | None = None
    torn_at: int = 0
    is_dead: bool = False
    is_buried: bool = False
    tasks: list["asyncio.Task[object]"] = field(default_factory=list)

    def passes(self, point: str) -> None:
        """Dies here, if this is where it has to."""
        if self.is_dead:
            raise Killed
        if self.doom is None or self.doom[0] != point:
            return
        self.doom = (point, self.doom[1] - 1)
        if self.doom[1] <= 0:
            self.is_dead = True
            raise Killed


class End(MemoryBus):
    """One process's end of the bus: what it says goes into the air, what it hears somebody delivers."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world
        self.process: Process | None = None

    async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
        if self.process is not None:
            self.process.passes("send")
        if not self.connected:
            raise BusDown(f"{subject}: partitioned")
        self._world.air(subject, payload, msg_id)
        if self.process is not None:
            self.process.passes("sent")

    async def stored(self, stream: str, subject: str, limit: int) -> list[Stored]:
        if not self.connected:
            raise BusDown(f"{stream}: partitioned")
        kept = [(item.payload, at) for item, at in self._world.audit if matches(subject, item.subject)]
        return [Stored(payload, at) for payload, at in kept[-limit:]]

    def hear(self, received: Received) -> None:
        for subscription in list(self.subscriptions):
            if matches(subscription.pattern, received.subject):
                subscription.offer(received, 0)


@dataclass
class Known:
    """What is true of one group: its `original` bytes, whether we wrote last, and how often others wrote over us."""

    original: str
    inode: int
    ours: bool = False
    overwritten: bool = False
    in_a_row: int = 0
    left_alone_until: float = -math.inf


@dataclass(frozen=True)
class Move:
    """One write of ours: to which group, what for, and while which cycle was carried out."""

    group: str
    doing: str
    cycle: tuple[str, int] | None


@dataclass(frozen=True)
class Made:
    """When a state was made, by the clock that never goes back; what had happened until then, and what it showed."""

    at: float
    set_back_seconds: float
    moves: int
    weights: dict[str, int]


class World:
    """Two processes, one node, one network."""

    def __init__(self) -> None:
        shared_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.path = Path(tempfile.mkdtemp(prefix="trimtab-protocol-", dir=shared_memory))
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._task)
        self.loop.set_exception_handler(self._unhandled)
        self.clock = ManualClock()
        self.violations: list[str] = []
        self._numbers = itertools.count(1)
        self._make_tree()
        settings = {
            **_MACHINE_SETTINGS,
            "host.cgroup_root": str(self.path / "cgroup"),
            "host.proc_root": str(self.path / "proc"),
            "actuator.journal": str(self.path / "journal"),
        }
        self._configs = {
            "guard": config_of("guard", GuardConfig, settings),
            "actuator": config_of("actuator", ActuatorConfig, settings),
        }
        # the network
        self.audit: list[tuple[Received, int]] = []
        self._ids: set[str] = set()
        self.flying: list[tuple[str, Received]] = []
        self.landed: list[tuple[str, Received]] = []
        self.cut_off: set[str] = set()
        # the node
        self.boot, self.cycle = "boot1", 0
        self.made: dict[tuple[str, int], Made] = {}
        self.states: dict[tuple[str, int], State] = {}
        self.set_back_seconds = 0.0
        self.set_forward_at: list[float] = []
        self.moves: list[Move] = []
        self.refusals: dict[str, int] = {}
        self.races: dict[str, str] = {}
        self.opted_out: set[str] = set()
        self.refused_at = -math.inf
        self.sign_at = 0.0
        self.lives = 0
        # what the actuator is doing
        self.doing: str | None = None
        self.acting: Verdict | None = None
        self.counted: tuple[str, int] | None = None
        self.applied: dict[tuple[str, int], int] = defaultdict(int)
        self.applied_at: list[float] = []
        self.heard_at: dict[tuple[str, int, str], float] = {}
        self._real_write = cgroup_writer._write
        cgroup_writer._write = self._kernel_write
        self.processes: dict[str, Process] = {}
        self.start("actuator")
        self.start("guard")

    def close(self) -> None:
        cgroup_writer._write = self._real_write
        for process in self.processes.values():
            process.is_dead = True
            self._bury(process)
        self.loop.run_until_complete(settle(3))
        self.loop.close()
        shutil.rmtree(self.path, ignore_errors=True)

    # ---- the node's files ----

    def _make_tree(self) -> None:
        self.base, self._graves = self.path / "cgroup/kubepods", self.path / "graves"
        self._graves.mkdir()
        self.known: dict[str, Known] = {}
        (self.path / "proc/sys/kernel/random").mkdir(parents=True)
        (self.path / "proc/sys/kernel/random/boot_id").write_text(MACHINE + "\n")
        (self.path / "cgroup/system.slice").mkdir(parents=True)
        (self.path / "cgroup/system.slice/cpu.weight").write_text("100\n")
        for group in STEERED:
            self.appears(group, "100\n")
        for group in NOT_OURS:
            (self.base / group).mkdir(parents=True, exist_ok=True)
            (self.base / group / "cpu.weight").write_text("100\n")

    def _touched_elsewhere(self) -> list[str]:
        """Files that are no weight of a steered group, and not what they were."""
        ours = {str(self.base / group / "cpu.weight") for group in STEERED}
        return [
            path
            for folder, _, names in os.walk(self.path / "cgroup")
            for name in names
            if (path := os.path.join(folder, name)) not in ours and Path(path).read_text() != _FILES.get(name)
        ]

    def appears(self, group: str, text: str) -> None:
        folder = self._graves / str(next(self._numbers))
        folder.mkdir()
        for name, usual in _FILES.items():
            (folder / name).write_text(text if name == "cpu.weight" else usual)
        place = self.base / group
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
        self.known[group] = Known(text, place.stat().st_ino)

    def vanishes(self, group: str) -> None:
        (self.base / group).rename(self._graves / str(next(self._numbers)))  # its inode stays taken
        del self.known[group]

    def text(self, group: str) -> str:
        return (self.base / group / "cpu.weight").read_text()

    def somebody_writes(self, group: str, text: str) -> bool:
        """False where that cannot be told from our own write, or there is no such group: then nothing is done."""
        known = self.known.get(group)
        if known is None or text.strip() in self._possibly_ours(group):
            return False
        (self.base / group / "cpu.weight").write_text(text)
        known.original, known.overwritten = text, known.overwritten or known.ours
        known.ours = False
        return True

    def _possibly_ours(self, group: str) -> frozenset[str]:
        """What the journal says that a group may hold by our hand: from such a value nobody can tell who wrote it."""
        try:
            entry = ledger_of(records_of((self.path / "journal").read_bytes(), MACHINE)).entries.get(group)
        except (OSError, ValueError):
            return frozenset()
        return entry.ours if entry is not None else frozenset()

    def _kernel_write(self, folder: int, raw: bytes) -> None:
        group = os.readlink(f"/proc/self/fd/{folder}").removeprefix(f"{self.base}/")
        process = self.processes["actuator"]
        process.passes("write")
        if group not in STEERED:
            self._broken(f"I1: {group} was written")
        number = self.refusals.get(group, self.refusals.get("*"))
        if number is not None:
            self.refused_at = self.clock.monotonic()
            if number == errno.ENODEV:
                self.vanishes(group)
            raise OSError(number, os.strerror(number))
        before = self.text(group)
        self._check_write(group, before, raw.decode())
        self._real_write(folder, raw)
        known = self.known[group]
        if not known.ours:
            known.original = before
        known.ours = self.doing != "return"
        of = None if self.acting is None else (self.acting.boot, self.acting.cycle)
        self.moves.append(Move(group, self.doing or "", of))
        process.passes("written")
        if group in self.races and self.somebody_writes(group, self.races.pop(group)):
            known.overwritten = False
            if self.doing != "return":
                self._count_foreign(known)

    # ---- what must hold ----

    def _broken(self, what: str) -> None:
        self.violations.append(f"{what} (at {self.clock.monotonic():.2f} s, doing {self.doing})")

    def _check_write(self, group: str, before: str, text: str) -> None:
        known, now = self.known[group], self.clock.monotonic()
        if not 1 <= int(text) <= 10_000:
            self._broken(f"I2: {group} got {text!r}")
        if self.doing is None:
            self._broken(f"I1: {group} was written by nobody that we know")
        if self.doing != "apply":
            if not known.ours:
                self._broken(f"I5: {self.doing} wrote {text!r} over somebody else's {before!r} in {group}")
            if self.doing == "return" and text != known.original:
                self._broken(f"I4: {group} got {text!r} back, its original is {known.original!r}")
            return
        if now < known.left_alone_until:
            self._broken(f"I5: {group} was written though it is to be left alone until {known.left_alone_until}")
        verdict = self.acting
        if verdict is None:
            self._broken(f"{group}: an application without a verdict")
            return
        if self.counted != (verdict.boot, verdict.cycle):
            self.counted = (verdict.boot, verdict.cycle)
            self._check_application(verdict, now)

    def _check_application(self, verdict: Verdict, now: float) -> None:
        key = (verdict.boot, verdict.cycle)
        limits = self._configs["guard"].shared.weights
        if verdict.mode not in ("active", "canary") or not verdict.execute:
            self._broken(f"I8: applied in mode {verdict.mode}, execute {verdict.execute}")
        # I3
        if verdict.deadline is None or self.clock.now_ns() > verdict.deadline:
            self._broken("I3: applied after the deadline")
        made = self.made.get(key)
        if made is None:
            self._broken(f"I3: applied on a state that nobody made: {key}")
            return
        # I6: a state that a wall clock set back makes look new can be acted on once more by a later actuator.
        self.applied[key] += 1
        if self.applied[key] > 1 and self.set_back_seconds == made.set_back_seconds:
            self._broken(f"I6: cycle {key} was applied {self.applied[key]} times")
        age, set_back = now - made.at, self.set_back_seconds - made.set_back_seconds
        if age > 2 * TICK + set_back + 1e-6:
            self._broken(f"I3: applied on a state {age:.2f} s old")
        heard = [at for part in ("state", "verdict") if (at := self.heard_at.get((*key, part))) is not None]
        if heard and now - min(heard) > LIFETIME + 1e-6 and set_back > 0:
            self._broken(f"I3: applied {now - min(heard):.2f} s after the actuator heard of it")
        # I2
        self.applied_at.append(now)
        window = 60.0 - LIFETIME
        recent = [at for at in self.applied_at if now - at < window - 1e-6]
        if len(recent) > CHANGES:
            self._broken(f"I2: {len(recent)} applications in {window} s: {recent}")
        for name, weight in (verdict.weights or {}).items():
            if not limits.min_weight <= weight <= limits.max_weight:
                self._broken(f"I2: {name} got {weight}")
            was = made.weights.get(name)
            if was is not None and abs(math.log(weight / was)) > math.log(limits.max_step_ratio) + 1e-6:
                self._broken(f"I2: {name} went from {was} to {weight}")
        if set_back == 0:
            self._check_picture(key, made)

    def _check_picture(self, key: tuple[str, int], made: Made) -> None:
        """A state that was made before weights of ours moved is no picture any more: two steps would count as one."""
        for move in self.moves[made.moves :]:
            if move.cycle == key:
                continue
            self._broken(f"I2: {move} came after the state of {key} was made: two steps of one picture")

    def originals_are_back(self, when: str) -> None:
        """I4, where nothing refuses: every group holds what it held before us, or what somebody else wrote since."""
        for group, known in self.known.items():
            if self.text(group) != known.original:
                self._broken(f"I4: {when}: {group} holds {self.text(group)!r}, its original is {known.original!r}")

    def released(self, key: tuple[str, int]) -> None:
        """Whoever a cycle's state showed as opted out has its original when the cycle's verdict was dealt with."""
        seen = self.states.get(key)
        for pod in seen.pods if seen is not None and not self.refusals else ():
            known = self.known.get(pod.group)
            if pod.cls is None and known is not None and self.text(pod.group) != known.original:
                self._broken(f"I4: {pod.group} was opted out in {key} and holds {self.text(pod.group)!r}")

    def check(self) -> None:
        """What must hold at any time."""
        for group, known in self.known.items():
            if not known.ours and self.text(group) != known.original:
                self._broken(f"I5: somebody else's {known.original!r} in {group} is {self.text(group)!r} now")
        now = self.clock.monotonic()
        if elsewhere := self._touched_elsewhere():
            self._broken(f"I1: {elsewhere} changed")
        silent = now - max(self.sign_at, self.refused_at)
        if "actuator" in self.alive and silent > 2 * DEAD_MAN + 2.0 and not self.refusals:
            self.originals_are_back(f"{silent:.1f} s after the last sign of the guard")
        elif "actuator" in self.alive and now - self.sign_at > DEAD_MAN + 1.01 and self.refused_at < self.sign_at:
            self.originals_are_back(f"{now - self.sign_at:.1f} s after the last sign of the guard")
        assert not self.violations, "; ".join(self.violations)

    # ---- the network ----

    def air(self, subject: str, payload: bytes, msg_id: str | None) -> None:
        """A message leaves: into the audit once, and towards both ends."""
        received = Received(subject, payload)
        if msg_id is None or msg_id not in self._ids:
            self.audit.append((received, self.clock.now_ns()))
            if msg_id is not None:
                self._ids.add(msg_id)
        self.flying += [("guard", received), ("actuator", received)]

    def say(self, message: AnyMessage) -> None:
        """Somebody who is neither guard nor actuator publishes."""
        self.air(subject_of(message), encode(message), message_id(message))

    def land(self, to: str, received: Received) -> None:
        """Delivers to one end, if it is there to hear."""
        process = self.processes.get(to)
        if process is None or process.is_dead or to in self.cut_off:
            return
        message = decode(received.payload)
        if to == "actuator":
            self._heard_by_the_actuator(message)
        process.bus.hear(received)
        self.run(settle())
        if to == "actuator" and not process.is_dead:
            stands_still = isinstance(message, Command) and (
                message.verb == "restore" or message.mode in ("shadow", "frozen")
            )
            if stands_still and not self.refusals:
                self.originals_are_back("after an order")

    def _heard_by_the_actuator(self, message: AnyMessage) -> None:
        now = self.clock.monotonic()
        if isinstance(message, Verdict) or (isinstance(message, Heartbeat) and message.service == "guard"):
            self.sign_at = now
        if isinstance(message, Verdict):
            self.heard_at.setdefault((message.boot, message.cycle, "verdict"), now)
        if isinstance(message, State) and message.phase == "before":
            self.heard_at.setdefault((message.boot, message.cycle, "state"), now)

    def land_all(self) -> None:
        """Delivers whatever flies, in order, and what comes of it."""
        for _ in range(200):
            if not self.flying:
                return
            to, received = self.flying.pop(0)
            self.landed.append((to, received))
            self.land(to, received)

    # ---- the collector, and the guard's pulse ----

    def see(self, boot: str | None = None, cycle: int | None = None) -> State:
        """A truthful state of now, which is not the moment of anything else."""
        self.pass_time(0.001)
        if boot is None:
            self.cycle += 1
        boot, cycle = boot or self.boot, cycle or self.cycle
        weights = {group: int(self.text(group)) for group in self.known}
        sums: dict[str, int] = defaultdict(int)
        for group, weight in weights.items():
            if group not in self.opted_out:
                sums[STEERED[group]] += weight
        scale = on_profile_scale(sums, self._configs["guard"].shared.weights)
        built = {CRITICAL: class_state, BATCH: batch_state}
        seen = state(
            boot=boot,
            cycle=cycle,
            at=self.clock.now_ns(),
            classes={name: built[name](weight=weight, pods_weight=sums[name]) for name, weight in scale.items()},
            pods=tuple(
                PodState(
                    uid=group,
                    name=group,
                    group=group,
                    cls=None if group in self.opted_out else STEERED[group],
                    weight=weight,
                    skip="excluded" if group in self.opted_out else None,
                )
                for group, weight in sorted(weights.items())
            ),
        )
        self.made[boot, cycle] = Made(self.clock.monotonic(), self.set_back_seconds, len(self.moves), scale)
        self.states[boot, cycle] = seen
        self.pass_time(0.001)
        return seen

    def beat(self) -> None:
        """The guard says that it lives, as its lifecycle does."""
        process = self.processes.get("guard")
        if process is None or process.is_dead or "guard" in self.cut_off:
            return
        self.say(
            heartbeat(boot="guard", cycle=process.service.cycle, at=self.clock.now_ns(), mode=process.service.mode)
        )

    # ---- time ----

    def pass_time(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    def step_wall(self, seconds: float) -> None:
        self.clock.step_wall(seconds)
        if seconds < 0:
            self.set_back_seconds -= seconds
        else:
            self.set_forward_at.append(self.clock.monotonic())

    # ---- the processes ----

    @property
    def alive(self) -> set[str]:
        return {name for name, process in self.processes.items() if not process.is_dead}

    def start(self, name: str, doom: tuple[str, int] | None = None) -> None:
        """A new run of a service; it may die while it starts."""
        config = self._configs[name]
        bus, metrics, log = End(self), CommonMetrics(name), get_log(name)
        bus.partition = name in self.cut_off
        self.lives += 1
        context = Context(
            config,
            Messenger(bus, NODE, metrics, self.clock, log),
            metrics,
            Health(stall_seconds=60.0, last_beat=self.clock.monotonic()),
            self.clock,
            log,
            boot=f"{name}-{self.lives}",
        )
        service = (GuardService if name == "guard" else ActuatorService)(context)
        process = self.processes[name] = Process(name, service, bus, doom)
        bus.process = process
        if (
            name == "guard"
            and self.set_forward_at
            and min(self.applied_at, default=math.inf) <= self.set_forward_at[-1]
        ):
            # A new guard counts the changes of the last one by the wall clock, which says that they are long ago.
            self.applied_at.clear()
        if isinstance(service, ActuatorService):
            self.sign_at = self.clock.monotonic()
            for known in self.known.values():
                known.overwritten, known.in_a_row, known.left_alone_until = False, 0, -math.inf
            self._watch(process, service)
        token = _owner.set(process)
        try:
            self.run(self._begin(process))
        finally:
            _owner.reset(token)
        if name == "actuator" and not process.is_dead and not self.refusals:
            self.originals_are_back("after a restart")

    async def _begin(self, process: Process) -> None:
        try:
            await process.service.start()
        except BusDown:  # a guard that cannot read the audit ends, and is started again by somebody
            process.is_dead = True
            return
        self.loop.create_task(process.service.run())
        await settle()

    def terminate(self, name: str) -> None:
        """SIGTERM: it stops in order, and is gone."""
        process = self.processes[name]
        if process.is_dead:
            return
        self.run(process.service.stop())
        if not process.is_dead and name == "actuator" and not self.refusals:
            self.originals_are_back("after SIGTERM")
        process.is_dead = True
        self._bury(process)

    def kill(self, name: str) -> None:
        """SIGKILL between two steps."""
        self.processes[name].is_dead = True
        self._bury(self.processes[name])

    def run(self, call: Coroutine[object, object, None]) -> None:
        with contextlib.suppress(Killed):
            self.loop.run_until_complete(call)
        self.loop.run_until_complete(settle(3))
        self.doing = self.acting = None
        for process in list(self.processes.values()):
            if process.is_dead:
                self._bury(process)
            for error in process.bus.errors:
                self._broken(f"{process.name} failed: {error!r}")
            process.bus.errors.clear()

    def _bury(self, process: Process) -> None:
        if process.is_buried:
            return
        process.is_buried = True
        for _ in range(3):
            for task in process.tasks:
                task.cancel()
            self.loop.run_until_complete(settle(3))
        if isinstance(process.service, ActuatorService):
            process.service._weights._journal.close()  # the kernel lets go of file and lock

    def _task(
        self, loop: asyncio.AbstractEventLoop, call: Coroutine[object, object, object], **options: object
    ) -> object:
        task = asyncio.Task(call, loop=loop, **options)
        process = _owner.get()
        if process is not None:
            process.tasks.append(task)
        return task

    def _unhandled(self, _: object, context: dict[str, object]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Killed):
            self._broken(f"unhandled: {error!r}")

    def _count_foreign(self, known: Known) -> None:
        known.in_a_row += 1
        if known.in_a_row >= FOREIGN_LIMIT:
            known.in_a_row, known.left_alone_until = 0, self.clock.monotonic() + LEFT_ALONE

    def _watch(self, process: Process, service: ActuatorService) -> None:
        """Knows what the actuator is doing whenever it writes, and lets it die in the middle of it."""
        weights, journal = service._weights, service._weights._journal
        apply, give_back, act = weights.apply, weights._return, service._act
        append, rewrite = journal.append, journal.rewrite

        def applies(targets, now, **options):
            self.doing = "rollback" if options.get("only_ours") else "apply"
            self.counted = None
            for target in targets:
                known = self.known.get(target.group)
                if known is None:
                    continue
                if known.overwritten:
                    known.overwritten = False
                    self._count_foreign(known)
                elif known.ours:
                    known.in_a_row = 0
            try:
                return apply(targets, now, **options)
            finally:
                self.doing = None

        def returns(groups):
            groups = set(groups)
            before, self.doing = self.doing, "return"
            try:
                return give_back(groups)
            finally:
                self.doing = before
                for group in groups:
                    if group in self.known:
                        self.known[group].overwritten = False
                        if self.text(group) == self.known[group].original:  # also where it needed no write for that
                            self.known[group].ours = False

        async def acts(verdict, heard_at):
            self.acting = verdict
            key = (verdict.boot, verdict.cycle)
            knew = key in service._states and not service._ending
            try:
                await act(verdict, heard_at)
            finally:
                self.acting = None
            if knew:
                self.released(key)

        def appends(records, *, sync):
            if process.doom == ("append", 1):
                block = lines_of(records)
                os.write(journal._descriptor, block[: process.torn_at % (len(block) + 1)])
            process.passes("append")
            append(records, sync=sync)
            process.passes("appended")

        def rewrites(records):
            process.passes("rewrite")
            rewrite(records)
            process.passes("rewritten")

        weights.apply, weights._return, service._act = applies, returns, acts
        journal.append, journal.rewrite = appends, rewrites
