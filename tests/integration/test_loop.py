"""The whole loop: five processes, a real NATS server, a simulated node; killed and started again."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import pytest

from lab.rig import Rig, RigOptions
from lab.sim_stage import SimStage
from schemas.messages import Actuation, AnyMessage, CollectRequest, Heartbeat, State, Verdict
from schemas.subjects import SERVICES, kind_of

WHOLE = ("state.before", "action", "verdict", "actuation", "state.after", "reward")
WAYS_BACK = ("rolled_back", "restored")
DEADLINE_SECONDS = 45.0


class Ear:
    """Hears all messages and wakes those who wait for something about them to come true."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self._changed = asyncio.Event()

    def __call__(self, message: AnyMessage) -> None:
        self.messages.append(message)
        self._changed.set()

    async def until(self, claim: Callable[[list[AnyMessage]], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not claim(self.messages):
                self._changed.clear()
                await self._changed.wait()

    def cycles(self) -> dict[tuple[str, int], list[str]]:
        found: dict[tuple[str, int], list[str]] = defaultdict(list)
        for message in self.messages:
            if isinstance(message, Heartbeat | CollectRequest):
                continue
            kind = f"state.{message.phase}" if isinstance(message, State) else kind_of(message)
            if isinstance(message, Actuation) and message.outcome in WAYS_BACK:
                kind = f"actuation.{message.outcome}"
            found[(message.boot, message.cycle)].append(kind)
        return found

    def complete(self) -> int:
        return sum(set(kinds) >= set(WHOLE) for kinds in self.cycles().values())

    def late(self) -> set[tuple[str, int]]:
        return {(m.boot, m.cycle) for m in self.messages if isinstance(m, Verdict) and m.outcome == "late"}

    def applied(self) -> list[Actuation]:
        return [m for m in self.messages if isinstance(m, Actuation) and m.outcome == "applied"]


@pytest.fixture
async def loop(tmp_path) -> AsyncIterator[tuple[Rig, Ear]]:
    ear = Ear()
    rig = Rig(SimStage(seed=1), RigOptions(tmp_path, tick_seconds=1.0), on_message=ear)
    try:
        await rig.start()
        await rig.stage.start_batch()
        await rig.order("active", "a test")
        yield rig, ear
    finally:
        assert await rig.close(), rig.troubles


@pytest.mark.timeout(120)
async def test_every_cycle_tells_its_whole_story_and_the_weights_return(loop):
    rig, ear = loop
    await ear.until(lambda _: ear.complete() >= 8 and len(ear.applied()) >= 2)
    # All but the cycle under way and those before the services were ready: each kind once, in the order of the loop.
    cycles = ear.cycles()
    whole = [key for key, kinds in cycles.items() if set(kinds) >= set(WHOLE)]
    (boot,) = {boot for boot, _ in whole}
    for cycle in range(whole[0][1], whole[-1][1] + 1):
        kinds = [kind for kind in cycles[boot, cycle] if kind in WHOLE]
        # The guard judges without the proposal where that is late: then it comes when it comes.
        unordered = {"action"} if (boot, cycle) in ear.late() else set()
        assert sorted(kinds) == sorted(WHOLE), (cycle, kinds)
        assert [kind for kind in kinds if kind not in unordered] == [kind for kind in WHOLE if kind not in unordered]
    assert rig.stage.weights() != rig.originals
    for actuation in ear.applied():
        for write in actuation.writes:
            assert 1 <= (write.after or 0) <= 10_000
    await rig.fleet.stop()
    assert rig.stage.weights() == rig.originals


@pytest.mark.timeout(180)
@pytest.mark.parametrize("victim", SERVICES)
async def test_a_killed_service_is_started_again_rejoins_and_leaves_no_weight_behind(loop, victim):
    rig, ear = loop
    await ear.until(lambda _: len(ear.applied()) >= 1)
    old = rig.fleet.pids()
    os.kill(old[victim], signal.SIGKILL)
    await ear.until(lambda _: rig.fleet.pids()[victim] != old[victim])
    before = ear.complete()
    await ear.until(lambda _: ear.complete() >= before + 3)
    now = rig.fleet.pids()
    assert {name for name in SERVICES if now[name] != old[name]} == {victim}
    await rig.fleet.stop()
    assert rig.stage.weights() == rig.originals


@pytest.mark.timeout(120)
async def test_all_killed_at_once_without_a_supervisor_leave_a_journal_that_restores(loop, tmp_path):
    rig, ear = loop
    await ear.until(lambda _: len(ear.applied()) >= 1)
    supervisor = rig.fleet.supervisor
    pids = rig.fleet.pids()
    for task in supervisor._tasks.values():
        task.cancel()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    for child in supervisor.children.values():
        await child.process.wait()
    assert rig.stage.weights() != rig.originals
    spec = rig.fleet._spec("actuator")
    alone = await asyncio.create_subprocess_exec(*spec.argv, "--http-port", "0", env=spec.env)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while rig.stage.weights() != rig.originals:
                await asyncio.sleep(0.05)
    finally:
        alone.terminate()
        assert await alone.wait() == 0


@pytest.mark.timeout(120)
async def test_an_actuator_killed_at_the_last_moment_still_leaves_no_weight_behind(loop):
    rig, ear = loop
    await ear.until(lambda _: len(ear.applied()) >= 1)
    child = rig.fleet.supervisor.children["actuator"]
    os.kill(child.pid, signal.SIGKILL)
    await child.process.wait()
    await rig.fleet.stop()
    assert rig.stage.weights() == rig.originals


@pytest.mark.timeout(120)
async def test_a_restarted_actuator_restores_without_a_bus(loop):
    rig, ear = loop
    await ear.until(lambda _: len(ear.applied()) >= 1)
    await rig.server.stop()
    child = rig.fleet.supervisor.children["actuator"]
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while rig.stage.weights() != rig.originals:
            await asyncio.sleep(0.05)


@pytest.mark.timeout(120)
async def test_a_silent_guard_lets_the_dead_man_restore(loop):
    rig, ear = loop
    await ear.until(lambda _: len(ear.applied()) >= 1)
    guard = rig.fleet.supervisor.children["guard"]
    os.kill(guard.pid, signal.SIGSTOP)
    try:
        await ear.until(lambda heard: any(isinstance(m, Actuation) and m.outcome == "restored" for m in heard))
        assert rig.stage.weights() == rig.originals
    finally:
        os.kill(guard.pid, signal.SIGCONT)
