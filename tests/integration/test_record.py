"""`trimtab record` and `trimtab export` against a real server: what it lets go of, what interrupts, what goes on."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.record.file import read_recording
from lab.record.items import Closed, Damage, Gap, Stored
from lab.record.recorder import new_header, record_now
from lab.record.source import open_source
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import AUDIT, STATE
from schemas.codec import encode
from schemas.messages import AnyMessage
from schemas.subjects import message_id, subject_of
from tests.support.builders import action, actuation, reward, state, verdict

SECONDS = 60.0


@pytest_asyncio.fixture
async def bus(fresh_server) -> AsyncIterator[NatsBus]:
    bus = await connect(BusSettings(url=fresh_server.url), "test", ignore_events)
    yield bus
    await bus.close()


async def say(bus: NatsBus, *messages: AnyMessage) -> None:
    for message in messages:
        stream = STATE if message.__struct_config__.tag == "state" else AUDIT
        await bus.publish_stored(subject_of(message), encode(message), msg_id=message_id(message), stream=stream)


async def play(bus: NatsBus, cycles: range, node: str = "node-1") -> None:
    for n in cycles:
        ids = {"node": node, "cycle": n}
        await say(bus, state(**ids), action(**ids), verdict(**ids), actuation(**ids), reward(**ids))


class Verb:
    """One run of `trimtab`, as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, *words: object) -> "Verb":
        env = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", *map(str, words)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        return cls(process)

    async def end(self) -> tuple[int | None, str, str]:
        async with asyncio.timeout(SECONDS):
            out, err = await self.process.communicate()
        return self.process.returncode, out.decode(), err.decode()


async def trimtab(*words: object) -> tuple[int | None, str, str]:
    return await (await Verb.start(*words)).end()


def told(path: Path) -> list:
    return [
        item.sequence if isinstance(item, Stored) else (item.first, item.last, item.exact)
        for item in read_recording(path).items()
        if isinstance(item, Stored | Gap)
    ]


@pytest.mark.parametrize("node", [None, "node-1"])
async def test_na_06_what_a_bounded_stream_drops_before_it_is_read_is_a_gap_of_that_size(bus, tmp_path, node):
    config = (await bus.jetstream.stream_info(AUDIT)).config
    await bus.jetstream.update_stream(config.evolve(max_msgs=5))
    path = tmp_path / "a.recording"
    for n in range(1, 4):
        await say(bus, action(cycle=n))
    await record_now(bus, path, new_header(1, [], node=node))
    assert told(path) == [1, 2, 3]
    for n in range(4, 13):
        await say(bus, action(cycle=n))
    code, out, _ = await trimtab(
        "record", path, "--nats-url", bus._settings.url, *(("--node", node) if node else ()), "-o", "json"
    )
    assert code == 0
    assert told(path) == [1, 2, 3, (4, 7, node is None), 8, 9, 10, 11, 12]
    assert json.loads(out)[0]["missing"] == 4


async def test_a_recording_is_made_gone_on_with_and_exported(bus, tmp_path):
    path, url = tmp_path / "a.recording", bus._settings.url
    await play(bus, range(1, 31))
    await play(bus, range(1, 6), node="node-2.test")
    code, out, err = await trimtab("record", path, "--nats-url", url, "-o", "json")
    [row] = json.loads(out)
    assert (code, err) == (0, "")
    assert (row["messages"], row["cycles"], row["gaps"], row["in_file"]) == (175, 35, 0, 175)
    assert row["bytes"] == path.stat().st_size
    nodes = [settings.values["shared"]["node"] for settings in read_recording(path).header.settings]
    assert nodes == ["localhost"]

    await play(bus, range(31, 33))
    code, out, err = await trimtab("record", path, "--nats-url", url, "--since", "1h")
    assert code == 0
    assert out.splitlines()[1].split()[1:4] == ["10", "2", "0"]
    assert "--since is for a new file" in err
    assert len(told(path)) == 185
    assert [item for item in read_recording(path).items() if isinstance(item, Damage)] == []

    code, _, err = await trimtab("record", path, "--nats-url", url, "--node", "node-1")
    assert code == 2
    assert "is a recording of all nodes" in err

    code, out, err = await trimtab("export", path, "-o", "jsonl")
    assert (code, err) == (0, "trimtab export: 37 decisions\n")
    assert len(out.splitlines()) == 37


async def test_following_ends_in_an_orderly_way_and_says_how_to_go_on(bus, tmp_path):
    path, url = tmp_path / "a.recording", bus._settings.url
    await play(bus, range(1, 3))
    verb = await Verb.start("record", path, "--nats-url", url, "--follow", "--node", "node-1", "-o", "jsonl")
    async with asyncio.timeout(SECONDS):
        assert b"all 10 messages so far are recorded; following" in await verb.process.stderr.readline()
    await play(bus, range(3, 5))
    await play(bus, range(1, 5), node="node-2")
    verb.process.send_signal(signal.SIGINT)
    code, out, err = await verb.end()
    assert code == 0
    assert f"the same command with {path} goes on from here" in err
    assert isinstance(list(read_recording(path).items())[-1], Closed)
    first = len(told(path))
    assert json.loads(out)["messages"] == first >= 10
    code, out, _ = await trimtab("record", path, "--nats-url", url, "--node", "node-1", "-o", "jsonl")
    assert json.loads(out)["messages"] == 20 - first
    messages = [(item.stream, item.sequence) for item in read_recording(path).items() if isinstance(item, Stored)]
    assert len(messages) == len(set(messages)) == 20


async def test_a_node_that_nobody_has_is_said_with_those_that_were_heard(bus, tmp_path):
    url = bus._settings.url
    code, _, err = await trimtab("record", tmp_path / "none", "--nats-url", url, "--node", "worker-3")
    assert (code, err) == (0, "trimtab record: no message of node worker-3; nodes heard: none\n")
    await play(bus, range(1, 3), node="a.b")
    await play(bus, range(1, 2), node="node-2")
    code, _, err = await trimtab("record", tmp_path / "b", "--nats-url", url, "--node", "worker-3")
    assert (code, err) == (0, "trimtab record: no message of node worker-3; nodes heard: a.b, node-2\n")
    code, _, err = await trimtab("record", tmp_path / "c", "--nats-url", url, "--node", "node-2")
    assert (code, err) == (0, "")
    code, _, err = await trimtab("record", tmp_path / "c", "--nats-url", url, "--node", "node-2")
    assert (code, err) == (0, "")


async def test_a_recorder_that_was_killed_is_gone_on_with(bus, tmp_path):
    path, url = tmp_path / "a.recording", bus._settings.url
    await play(bus, range(1, 4))
    assert (await trimtab("record", path, "--nats-url", url))[0] == 0
    await play(bus, range(4, 6))
    verb = await Verb.start("record", path, "--nats-url", url, "--follow")
    async with asyncio.timeout(SECONDS):
        assert b"following" in await verb.process.stderr.readline()
    verb.process.kill()
    await verb.end()
    code, _, err = await trimtab("record", path, "--nats-url", url)
    assert (code, err) == (0, "")
    assert len(told(path)) == 25
    assert [item for item in read_recording(path).items() if isinstance(item, Damage)] == []


async def test_a_torn_end_is_told_and_read_again(bus, tmp_path):
    path, url = tmp_path / "a.recording", bus._settings.url
    await play(bus, range(1, 4))
    assert (await trimtab("record", path, "--nats-url", url))[0] == 0
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    code, _, err = await trimtab("record", path, "--nats-url", url)
    assert code == 0
    assert "the last block is incomplete" in err
    assert len(told(path)) == 15


async def test_what_is_wrong_with_the_command_is_said_and_no_file_is_left(fresh_server, tmp_path):
    path = tmp_path / "a.recording"
    for words, code, text in (
        (["--nats-url", "nats://127.0.0.1:1", "--timeout", "0.5"], 3, "bus.url"),
        (["--since", "yesterday"], 2, "'yesterday' is no moment"),
        (["--since", "1h", "--until", "2h"], 2, "is not after --since"),
        (["--node", "*"], 2, "DNS-1123"),
        (["--config", "/nonexistent"], 2, "/nonexistent"),
    ):
        found, out, err = await trimtab("record", path, "--nats-url", fresh_server.url, *words)
        assert (found, out) == (code, "")
        assert err.startswith("trimtab record: ")
        assert text in err
        assert not path.exists()
    path.write_text("mine")
    found, _, err = await trimtab("record", path, "--nats-url", fresh_server.url)
    assert found == 2
    assert "is no recording" in err
    assert path.read_text() == "mine"


async def test_the_streams_are_a_source_like_a_file(bus, tmp_path):
    await play(bus, range(1, 6))
    await play(bus, range(1, 3), node="node-2")
    path = tmp_path / "a.recording"
    await record_now(bus, path, new_header(1, [], node="node-1"))

    def read(text: str) -> list:
        with open_source(text, lambda: BusSettings(url=bus._settings.url), node="node-1") as source:
            return list(source.items(strict=True))

    live = await asyncio.to_thread(read, "live")
    assert len(live) == 26
    assert live == await asyncio.to_thread(read, str(path))
