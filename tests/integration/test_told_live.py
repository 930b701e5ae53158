"""explain, audit and evaluate on the streams of a real server say what they say on a recording of them."""

import asyncio
import os
import sys

import pytest

from lab.record.items import Stored
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings
from schemas.codec import decode
from schemas.subjects import message_id
from tests.support.records import Loop

CYCLES = 30


@pytest.fixture
def night(fresh_server) -> str:
    """A server whose streams have a loop's cycles; its address."""

    async def play() -> None:
        bus = await connect(BusSettings(url=fresh_server.url), "test", ignore_events)
        try:
            for item in Loop().record(CYCLES).items:
                if isinstance(item, Stored):
                    name = message_id(decode(item.payload))
                    await bus.publish_stored(item.subject, item.payload, msg_id=name, stream=item.stream)
        finally:
            await bus.close()

    asyncio.run(play())
    return fresh_server.url


async def _run(words: tuple[str, ...]) -> tuple[int, str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60.0)
    return process.returncode or 0, out.decode(), err.decode()


def trimtab(*words: str) -> tuple[int, str, str]:
    return asyncio.run(_run(words))


def test_the_streams_and_their_recording_tell_the_same(night, tmp_path):
    path = str(tmp_path / "a.recording")
    assert trimtab("record", path, "--nats-url", night)[0] == 0
    for words in (
        ("explain", "20", "-o", "json"),
        ("explain", "last"),
        ("audit", "-o", "jsonl"),
        ("audit", "--at", "22:14"),
    ):
        live = trimtab(*words, "--nats-url", night)
        assert live[0] == 0, live
        assert live[1] == trimtab(*words, "--recording", path)[1]
        assert live[1]
    live = trimtab("evaluate", "live", "--policy", "hold", "--nats-url", night)
    assert (live[0], live[1]) == trimtab("evaluate", path, "--policy", "hold")[:2]


def test_no_server_is_said():
    code, out, err = trimtab("explain", "last", "--nats-url", "nats://127.0.0.1:1", "--timeout", "0.2")
    assert (code, out) == (3, "")
    assert "127.0.0.1:1" in err
