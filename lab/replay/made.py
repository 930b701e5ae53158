"""A recording made in simulated time: the real decider, guard and rewarder on a simulated node, without a server.

The collector and the actuator are played here, on the arena's world. What the three say goes over a bus in memory and
into a file by the recorder that `trimtab record` uses.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lab.arena.scenarios import named
from lab.arena.sim_world import SimWorld
from lab.record.recorder import new_header, record_now
from lab.record.settings import settings_of
from runtime.bus import Received
from runtime.clock import ManualClock, settle
from runtime.config import Config
from runtime.health import Health
from runtime.lifecycle import Context, Service
from runtime.logs import get_log
from runtime.memory_bus import MemoryBus
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from runtime.settings import BusSettings, HostSettings, HttpSettings, LogSettings
from runtime.streams import MODELS
from schemas.codec import decode, encode
from schemas.messages import Actuation, ActuationOutcome, AnyMessage, CollectRequest, Command, PodWrite, State, Verdict
from schemas.subjects import ROOT, message_id, node_token, subject_of
from services.decider.config import DeciderConfig
from services.decider.service import DeciderService
from services.guard.config import GuardConfig
from services.guard.service import GuardService
from services.rewarder.config import RewarderConfig
from services.rewarder.service import RewarderService

if TYPE_CHECKING:
    from schemas.settings import Section, Shared

NODE: Final = "simulated"

FIRST_MODEL: Final = "first model"

_MESSAGE_NS: Final = 1000
"""What each message takes in simulated time, so that none is stored at the moment of another."""


@dataclass(frozen=True)
class Plan:
    """What is to be recorded. The decider is ended and started anew before the cycles `restarts`, and is not there in
    the cycles `late`. `orders` are cycles before which it is told to go on from the first model that it stored
    (FIRST_MODEL), or to put a policy in charge (its name).
    """

    cycles: int
    scenario: str = "swap"
    seed: int = 1
    restarts: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    orders: tuple[tuple[int, str], ...] = ()
    decider: DeciderConfig = field(default_factory=lambda: DeciderConfig(seed=1))
    guard: GuardConfig = field(default_factory=GuardConfig)
    tick_seconds: float = 5.0


def make_recording(path: Path, plan: Plan, on_cycle: Callable[[int], None] = lambda _: None) -> None:
    """Plays the plan and writes the recording. Raises TrimtabError where the file cannot be made."""
    asyncio.run(_make(path, plan, on_cycle))


async def _make(path: Path, plan: Plan, on_cycle: Callable[[int], None]) -> None:
    stage = _Stage(plan)
    await stage.start()
    try:
        for number in range(1, plan.cycles + 1):
            await stage.turn(number)
            on_cycle(number)
    finally:
        await stage.stop()
    if stage.bus.errors:
        raise stage.bus.errors[0]
    settings = settings_of(stage.config, NODE)
    await record_now(stage.bus, path, new_header(time.time_ns(), [settings]))
    await stage.bus.close()


class _Clocked(MemoryBus):
    """Every message is stored a moment after the one before."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(self._server_ns)
        self._clock = clock

    def _server_ns(self) -> int:
        return self._clock.now_ns() + _MESSAGE_NS * len(self.history)


class _Stage:
    """The node, and those who work on it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.clock = ManualClock()
        self.bus = _Clocked(self.clock)
        self.world = SimWorld(named(plan.scenario), plan.seed, cycle_seconds=plan.tick_seconds)
        sections: dict[str, Section] = {
            "decider": plan.decider,
            "guard": plan.guard,
            "rewarder": RewarderConfig(),
        }
        shared: Shared = msgspec.structs.replace(self.world.shared, node=NODE, mode="active")
        self.config = Config(shared, BusSettings(), HttpSettings(), LogSettings(), HostSettings(), sections, {})
        self._boots = 0
        self._running: dict[str, tuple[Service, Context, asyncio.Task[None]]] = {}
        self._state: State | None = None

    async def start(self) -> None:
        """Everybody listens."""
        await self.bus.subscribe(f"{ROOT}.verdict.{NODE}", self._on_verdict)
        await self.bus.subscribe(f"{ROOT}.command.{NODE}", self._on_command)
        await self.bus.subscribe(f"{ROOT}.rpc.collector.{NODE}.collect", self._on_collect)
        await self._start("guard", GuardService)
        await self._start("decider", DeciderService)
        await self._start("rewarder", RewarderService)

    async def stop(self) -> None:
        """Everybody leaves."""
        for name in list(self._running):
            await self._stop(name)

    async def turn(self, number: int) -> None:
        """One cycle, from its first look to the end of its tick."""
        if number in self._plan.restarts:
            await self._stop("decider")
            await self._start("decider", DeciderService)
        if number in self._plan.late:
            await self._stop("decider")
        for cycle, wanted in self._plan.orders:
            if cycle == number:
                await self._order(wanted)
        state = self._signed(self.world.before())
        self._state = state
        await self._say(state)
        await settle(60)
        loop = self.config.shared.loop
        spent = 0.0
        while spent < loop.settle_seconds + loop.decision_budget_seconds + 0.1:
            await self.clock.advance(0.1)
            spent += 0.1
        if number in self._plan.late:
            await self._start("decider", DeciderService)
        self.world.finish()
        await self.clock.advance(loop.tick_seconds - spent)

    async def _start(self, name: str, create: Callable[[Context], Service]) -> None:
        self._boots += 1
        metrics, log = CommonMetrics(name), get_log(name, node=NODE)
        health = Health(stall_seconds=60.0, last_beat=self.clock.monotonic())
        messenger = Messenger(self.bus, NODE, metrics, self.clock, log)
        boot = f"{name}-{self._boots}"
        context = Context(self.config, messenger, metrics, health, self.clock, log, boot=boot)
        service = create(context)
        await service.start()
        self._running[name] = service, context, asyncio.create_task(service.run())
        await settle()

    async def _stop(self, name: str) -> None:
        service, context, running = self._running.pop(name)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await service.stop()
        await context.messenger.stop()

    async def _order(self, wanted: str) -> None:
        digests = await self.bus.list_objects(MODELS, NODE)
        model = digests[0].rpartition("/")[2] if wanted == FIRST_MODEL else wanted
        order = Command(
            node=NODE,
            boot="operator",
            cycle=0,
            at=self.clock.now_ns(),
            verb="model",
            by="a person",
            reason="as planned",
            model=model,
            id=f"order-{len(self.bus.history)}",
        )
        await self._say(order)
        await settle(60)

    # ---- collector ----

    def _signed(self, state: State) -> State:
        return msgspec.structs.replace(state, node=NODE, boot="collector-1", at=self.clock.now_ns())

    async def _on_collect(self, received: Received) -> None:
        request = decode(received.payload)
        if isinstance(request, CollectRequest) and request.cycle == self.world.cycle:
            await self._say(self._signed(self.world.after()))

    # ---- actuator ----

    async def _on_verdict(self, received: Received) -> None:
        verdict = decode(received.payload)
        if not isinstance(verdict, Verdict):
            return
        if verdict.execute and verdict.weights is not None:
            await self._act(verdict, "applied", self.world.apply(verdict.weights, verdict.arm))
        else:
            await self._act(verdict, "held" if verdict.outcome == "hold" else "skipped", ())

    async def _on_command(self, received: Received) -> None:
        command = decode(received.payload)
        if not isinstance(command, Command) or self._state is None:
            return
        if command.verb == "rollback" and command.weights is not None:
            self.world.roll_back(command.weights)
            await self._act(self._state, "rolled_back", (), rule=command.reason)
        elif command.verb == "restore" or command.mode in ("shadow", "frozen"):
            self.world.restore()
            await self._act(self._state, "restored", (), rule="command")

    async def _act(
        self,
        of: Verdict | State,
        outcome: ActuationOutcome,
        writes: tuple[PodWrite, ...],
        rule: str | None = None,
    ) -> None:
        told: dict[str, Any] = {}
        if isinstance(of, Verdict):
            told = {"arm": of.arm, "weights": of.weights if outcome == "applied" else None, "rule": of.rule}
        await self._say(
            Actuation(
                node=of.node,
                boot=of.boot,
                cycle=of.cycle,
                at=self.clock.now_ns(),
                outcome=outcome,
                writes=writes,
                **{"rule": rule, **told},
            )
        )

    async def _say(self, message: AnyMessage) -> None:
        await self.bus.publish(subject_of(message), encode(message), msg_id=message_id(message))


assert node_token(NODE) == NODE  # its subjects are written out above
