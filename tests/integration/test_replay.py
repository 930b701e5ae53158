"""`trimtab record` and `trimtab replay` on a real server: the streams and a file of them replay to the byte."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cli.__main__ import main
from lab.record.file import read_recording
from lab.record.items import ModelCopy, Stored
from lab.replay.made import NODE, Plan, make_recording
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import AUDIT, MODELS, STATE
from schemas.codec import decode
from schemas.messages import State
from schemas.subjects import message_id
from services.decider.config import DeciderConfig
from tests.integration.test_record import trimtab
from tests.support.heard import Heard

CYCLES, RESTART = 40, 25


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "made.recording"
    make_recording(
        path,
        Plan(CYCLES, scenario="flood", restarts=(RESTART,), decider=DeciderConfig(seed=1, checkpoint_seconds=50.0)),
    )
    return path


@pytest_asyncio.fixture
async def bus(fresh_server, made) -> AsyncIterator[NatsBus]:
    """To a server whose streams and models are those of the made recording."""
    bus = await connect(BusSettings(url=fresh_server.url), "test", ignore_events)
    for item in read_recording(made).items():
        if isinstance(item, ModelCopy) and item.payload is not None:
            await bus.put_object(MODELS, f"{NODE}/{item.digest}", item.payload)
        if isinstance(item, Stored):
            message = decode(item.payload)
            stream = STATE if isinstance(message, State) else AUDIT
            await bus.publish_stored(item.subject, item.payload, msg_id=message_id(message), stream=stream)
    yield bus
    await bus.close()


@pytest.fixture
def config(made, tmp_path):
    """The settings that it was made under, as a file."""
    (settings,) = read_recording(made).header.settings
    parts = ("decider", "guard", "rewarder")
    shared = settings.values["shared"]
    path = tmp_path / "trimtab.json"
    path.write_text(json.dumps({**shared, **{name: settings.values[name] for name in parts}}))
    return path


async def test_the_streams_and_a_file_of_them_replay_to_the_byte_over_a_restart(bus, fresh_server, config, tmp_path):
    where = ("--nats-url", fresh_server.url, "--config", config)
    code, out, err = await trimtab("replay", "live", *where, "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    assert found["agrees"] is True
    assert {kind: count["agree"] for kind, count in found["kinds"].items()} == dict.fromkeys(
        ("action", "verdict", "reward"), CYCLES
    )
    assert found["models"]["verified"] > 0
    path = tmp_path / "night.recording"
    code, _, err = await trimtab("record", path, *where)
    assert code == 0, err
    code, out, err = await trimtab("replay", path)
    assert code == 0, err
    assert out.splitlines()[-1] == (
        f"{CYCLES} of {CYCLES} actions, {CYCLES} of {CYCLES} verdicts, {CYCLES} of {CYCLES} rewards agree"
    )


async def test_other_settings_than_those_of_the_run_are_said(bus, fresh_server):
    code, out, _ = await trimtab("replay", "live", "--nats-url", fresh_server.url)
    assert code == 1
    assert "of the guard unknown; give their file by --config" in out


async def test_what_is_published_again_is_heard_under_its_run_and_stored_nowhere(bus, fresh_server, made):
    heard: Heard[tuple[str, bytes]] = Heard()
    live: list[str] = []

    async def hear(received) -> None:
        heard.add((received.subject, received.payload))

    async def hear_live(received) -> None:
        live.append(received.subject)

    await bus.subscribe("trimtabsim.>", hear, limit=10_000)
    await bus.subscribe("trimtab.v1.>", hear_live, limit=10_000)
    extents = {stream: await bus.extent(stream) for stream in (STATE, AUDIT)}
    code, _, err = await trimtab("replay", made, "--publish", "night-1", "--nats-url", fresh_server.url)
    assert code == 0, err
    recorded = [item for item in read_recording(made).items() if isinstance(item, Stored)]
    await heard.until(lambda items: len(items) == len(recorded))
    assert [payload for _, payload in heard.items] == [item.payload for item in recorded]
    assert [subject for subject, _ in heard.items] == [
        item.subject.replace("trimtab.v1", "trimtabsim.night-1") for item in recorded
    ]
    assert live == []
    assert {stream: await bus.extent(stream) for stream in (STATE, AUDIT)} == extents
    assert f"{len(recorded)} messages published under trimtabsim.night-1" in err


async def test_a_server_that_is_not_there_is_said(made, capsys):
    code, _, err = await trimtab("replay", made, "--publish", "x", "--nats-url", "nats://127.0.0.1:1", "--timeout", "1")
    assert code == 3
    assert err.startswith("trimtab replay: ")
    assert main(["replay", "no-such-file"]) == 2
    assert "no-such-file" in capsys.readouterr().err
