"""What is said again is heard under the root of replays alone, at the spacing that was asked for."""

import pytest

from lab.record.items import Closed, Stored
from lab.replay import publish
from lab.replay.publish import Pace, Publisher
from runtime.access import access_of
from runtime.errors import BusDown, TrimtabError
from runtime.memory_bus import MemoryBus, matches
from schemas.codec import decode, encode
from schemas.messages import CollectRequest, Heartbeat
from schemas.subjects import KINDS, SERVICES, replay_subject, subject_of
from services.decider.config import DeciderConfig
from services.decider.service import DeciderService
from services.guard.config import GuardConfig
from services.guard.service import GuardService
from services.rewarder.config import RewarderConfig
from services.rewarder.service import RewarderService
from tests.support.builders import NODE, action, actuation, command, reward, state, verdict
from tests.support.harness import harness

MESSAGES = {"state": state, "action": action, "verdict": verdict, "actuation": actuation, "reward": reward}
LIVE = {
    "decider": (DeciderConfig, DeciderService),
    "guard": (GuardConfig, GuardService),
    "rewarder": (RewarderConfig, RewarderService),
}


def stored(message, sequence: int = 1, stored_ns: int = 0) -> Stored:
    return Stored(
        stream="S", sequence=sequence, stored_ns=stored_ns, subject=subject_of(message), payload=encode(message)
    )


@pytest.mark.parametrize("run", ["night-1", "A", "x" * 63])
def test_each_kind_has_a_subject_of_the_run_and_none_is_live(run):
    for kind in KINDS:
        message = command() if kind == "command" else MESSAGES[kind]()
        assert replay_subject(run, message) == f"trimtabsim.{run}.{kind}.{NODE}"
        for role in SERVICES:
            assert not any(matches(pattern, replay_subject(run, message)) for pattern in access_of(role).subscribe)
            assert not any(matches(pattern, replay_subject(run, message)) for pattern in access_of(role).publish)


@pytest.mark.parametrize("run", ["", "a.b", "*", ">", "a b", "x" * 64, "-a", "é", "a\n", "trimtab.v1"])
def test_what_is_no_token_names_no_run(run):
    with pytest.raises(ValueError, match="is no name for a replay"):
        replay_subject(run, state())


def test_what_is_of_no_loop_is_not_replayed():
    ids = {"node": NODE, "boot": "b", "cycle": 1, "at": 1}
    for message in (CollectRequest(**ids), Heartbeat(**ids, service="guard")):
        with pytest.raises(ValueError, match="is not replayed"):
            replay_subject("run", message)


async def test_all_that_was_recorded_is_said_as_it_was_under_the_run(tape):
    bus = MemoryBus()
    publisher = Publisher(bus, "night")
    for item in tape.items:
        await publisher.say(item)
    recorded = [item for item in tape.items if isinstance(item, Stored)]
    assert [said.payload for said in bus.history] == [item.payload for item in recorded]
    assert {said.subject for said in bus.history} == {
        f"trimtabsim.night.{kind}.simulated" for kind in ("state", "action", "verdict", "actuation", "reward")
    }
    assert (publisher.said, publisher.left_out) == (len(recorded), 0)
    await bus.close()


async def test_rubbish_is_left_out_and_so_are_other_nodes_if_one_is_asked_for():
    bus = MemoryBus()
    publisher = Publisher(bus, "night", node=NODE)
    rubbish = Stored(stream="S", sequence=1, stored_ns=0, subject="trimtab.v1.state.x", payload=b"{}")
    for item in (rubbish, stored(state(node="another")), stored(state()), Closed(messages={})):
        await publisher.say(item)
    assert [decode(said.payload) for said in bus.history] == [state()]
    assert (publisher.said, publisher.left_out) == (1, 1)
    await bus.close()


async def test_what_the_server_refuses_is_asked_for_behind_all_that_was_said_and_counted():
    class Strict:
        def __init__(self) -> None:
            self.flushed = 0

        async def flush(self) -> None:
            self.flushed += 1

        def refusal_of(self, subject: str) -> str | None:
            return f"not {subject}" if self.flushed and ".reward." in subject else None

    bus, server = MemoryBus(), Strict()
    publisher = Publisher(bus, "night")
    for message in (state(), reward(), reward(cycle=2), action()):
        await publisher.say(stored(message))
    assert await publisher.finish(server) == f"not trimtabsim.night.reward.{NODE}"
    assert (publisher.said, publisher.refused) == (4, 2)
    other = Publisher(bus, "night")
    await other.say(stored(state()))
    assert await other.finish(server) is None
    assert (other.refused, server.flushed) == (0, 2)
    await bus.close()


@pytest.mark.parametrize("name", LIVE)
async def test_live_services_hear_nothing_of_a_replay(name, tape):
    section, create = LIVE[name]
    async with harness(name, section, create, {"node": "simulated"}) as service:
        publisher = Publisher(service.bus, "night")
        for item in tape.items:
            await publisher.say(item)
        await service.advance(30.0)
        assert service.service.cycle == 0
        own = [said for said in service.bus.history if not said.subject.startswith("trimtabsim.night.")]
        assert [said for said in own if ".action." in said.subject or ".reward." in said.subject] == []
        assert [said for said in own if ".verdict." in said.subject] == []


async def test_a_server_that_takes_nothing_for_a_moment_loses_nothing(monkeypatch):
    monkeypatch.setattr(publish, "_RETRY_SECONDS", 0.001)

    class Moody:
        def __init__(self) -> None:
            self.tries = 0
            self.said: list[str] = []

        async def publish(self, subject: str, payload: bytes, *, msg_id: str | None = None) -> None:
            self.tries += 1
            if self.tries < 3:
                raise BusDown("full")
            self.said.append(subject)

    bus = Moody()
    await Publisher(bus, "night").say(stored(state()))
    assert bus.said == [f"trimtabsim.night.state.{NODE}"]
    bus.tries = -100_000
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(TrimtabError, match="check the server"):
        await Publisher(bus, "night").say(stored(state()))


@pytest.mark.parametrize(("speed", "waits"), [(1.0, [2.0, 1.0]), (4.0, [0.5, 0.25]), (None, [])])
async def test_messages_follow_each_other_as_recorded_or_so_many_times_as_fast(speed, waits):
    now, slept = 100.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(speed, lambda: now, sleep)
    for stored_ns in (5_000_000_000, 7_000_000_000, 8_000_000_000, 8_000_000_000):
        await pace.wait_for(stored(state(), stored_ns=stored_ns))
    assert slept == pytest.approx(waits)


async def test_what_took_long_is_caught_up():
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = Pace(1.0, lambda: now, sleep)
    await pace.wait_for(stored(state(), stored_ns=0))
    now = 10.0
    await pace.wait_for(stored(state(), stored_ns=2_000_000_000))
    assert slept == []
