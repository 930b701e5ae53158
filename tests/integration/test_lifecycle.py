"""The life of a process: started, watched, drained, and its errors as one line with a code."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings
from schemas.codec import decode, encode
from schemas.messages import Command, Heartbeat
from schemas.subjects import heartbeat_subject, subject_of
from tests.support.heard import DEADLINE_SECONDS, Heard

PROGRAM = Path(__file__).parent / "tiny_service.py"
SHORT_LOOP = ("--set", "loop={tick_seconds: 0.2, settle_seconds: 0.05, decision_budget_seconds: 0.05}")


class Process:
    """One tiny service: its log lines as they come, and its HTTP port once known."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = 0

    async def logged(self, event: str) -> dict[str, object]:
        """Reads on until this event."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while raw := await self.process.stderr.readline():
                self.lines.append(raw.decode().rstrip("\n"))
                if raw.startswith(b"{") and (fields := json.loads(raw))["event"] == event:
                    self.port = fields.get("port", self.port)
                    return fields
        raise AssertionError(f"it ended without {event}: {self.lines}")

    async def end(self) -> int:
        """Reads to the end; the exit code."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            self.lines += (await self.process.stderr.read()).decode().splitlines()
            return await self.process.wait()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.lines if line.startswith("{")]

    def complaints(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("{")]

    async def get(self, path: str) -> tuple[int, str]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            await writer.wait_closed()
        return int(head.split()[1]), body.strip()


Start = Callable[..., "asyncio.Future[Process]"]


@pytest.fixture
async def start(node) -> AsyncIterator[Start]:
    running: list[asyncio.subprocess.Process] = []

    async def run(url: str, *flags: str, env: dict[str, str] | None = None, **more) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *("--http-port", "0", "--nats-url", url, "--node", node, *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
            **more,
        )
        running.append(process)
        return Process(process)

    yield run
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def silent_listener() -> tuple[asyncio.Event, asyncio.Server]:
    """Accepts connections, says nothing, and tells of the first."""
    looking = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        looking.set()
        with contextlib.suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()

    return looking, await asyncio.start_server(say_nothing, "127.0.0.1", 0)


# ---- a good end ----


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_service_while_the_bus_still_runs_and_ends_with_0(start, nats_server, signum):
    tiny = await start(nats_server.url)
    await tiny.logged("started")
    tiny.process.send_signal(signum)
    assert await tiny.end() == 0
    assert tiny.events()[-3:] == ["stopping", "tiny_stop", "stopped"]
    assert json.loads(tiny.lines[-2])["connected"] is True
    assert tiny.complaints() == []


async def test_it_ends_in_the_same_way_when_its_lifeline_closes(start, nats_server):
    reader, writer = os.pipe()
    tiny = await start(nats_server.url, env={"TRIMTAB_LIFELINE_FD": str(reader)}, pass_fds=(reader,))
    os.close(reader)
    await tiny.logged("started")
    os.close(writer)
    assert await tiny.end() == 0
    assert tiny.events()[-4:] == ["parent_gone", "stopping", "tiny_stop", "stopped"]


async def test_a_lifeline_that_did_not_come_along_is_told_and_no_reason_to_die(start, nats_server):
    tiny = await start(nats_server.url, env={"TRIMTAB_LIFELINE_FD": "99"})
    await tiny.logged("started")
    assert "lifeline_unusable" in tiny.events()
    tiny.process.terminate()
    assert await tiny.end() == 0


async def test_a_signal_that_comes_while_it_still_looks_for_the_bus_ends_it_too(start):
    looking, listener = await silent_listener()
    tiny = await start(f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    await looking.wait()
    tiny.process.terminate()
    assert await tiny.end() == 0
    assert tiny.complaints() == []
    listener.close()


async def test_a_service_that_has_nothing_more_to_do_ends_with_0(start, nats_server):
    tiny = await start(nats_server.url, "--set", "tiny.fails_in=return")
    assert await tiny.end() == 0
    assert tiny.events()[-1] == "stopped"


async def test_a_stop_that_hangs_is_cut_off_and_told(start, nats_server):
    tiny = await start(nats_server.url, "--set", "tiny.fails_in=stop_hangs")
    await tiny.logged("started")
    tiny.process.terminate()
    assert await tiny.end() == 0
    assert tiny.events()[-3:] == ["tiny_stop", "stop_unfinished", "stopped"]


# ---- health ----


@pytest.mark.parametrize(("paces_itself", "status"), [("true", 503), ("false", 200)])
async def test_healthz_follows_the_own_loop_of_a_service_that_has_one(start, nats_server, node, paces_itself, status):
    beats: Heard[bytes] = Heard()
    bus = await listen(nats_server.url, heartbeat_subject("tiny", node), beats)
    tiny = await start(nats_server.url, "--set", f"tiny.paces_itself={paces_itself}", *SHORT_LOOP)
    await tiny.logged("started")
    assert (await tiny.get("/healthz"))[0] == 200
    tiny.process.send_signal(signal.SIGUSR1)
    beats.items.clear()
    await beats.until(lambda got: len(got) >= 3)  # its event loop turns, whatever its own loop does
    answer = await tiny.get("/healthz")
    assert answer[0] == status
    if status == 503:
        assert answer[1].startswith("last tick 3600.")
        assert answer[1].endswith("limit 5.6 s")
    await bus.close()


async def listen(url: str, where: str, heard: Heard[bytes]):
    bus = await connect(BusSettings(url=url), "listener", ignore_events)

    async def hear(received) -> None:
        heard.add(received.payload)

    await bus.subscribe(where, hear)
    return bus


async def test_heartbeats_tell_who_lives_and_that_it_is_well(start, nats_server, node):
    beats: Heard[bytes] = Heard()
    bus = await listen(nats_server.url, heartbeat_subject("*", node), beats)
    tiny = await start(nats_server.url)
    boot = (await tiny.logged("started"))["boot"]
    beat = decode((await beats.until(bool))[0])
    assert isinstance(beat, Heartbeat)
    assert (beat.node, beat.service, beat.boot, beat.cycle, beat.status) == (node, "tiny", boot, 7, "ok")
    await bus.close()


async def test_readyz_says_why_while_the_bus_is_down_and_recovers(start, fresh_server):
    tiny = await start(fresh_server.url, "--set", "bus.reconnect_wait_seconds=0.05")
    await tiny.logged("started")
    assert await tiny.get("/readyz") == (200, "ready")
    await fresh_server.stop()
    await tiny.logged("bus_disconnected")
    assert await tiny.get("/readyz") == (503, f"bus: not connected to {fresh_server.url}")
    assert (await tiny.get("/healthz"))[0] == 200
    assert "trimtab_bus_connected 0.0" in (await tiny.get("/metrics"))[1]
    await fresh_server.start()
    await tiny.logged("bus_reconnected")
    assert await tiny.get("/readyz") == (200, "ready")
    assert "trimtab_bus_reconnects_total 1.0" in (await tiny.get("/metrics"))[1]


async def test_who_waits_for_the_bus_is_alive(start):
    looking, server = await silent_listener()
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    port = free_port()
    tiny = await start(url, "--http-port", str(port), "--set", "bus.connect_timeout_seconds=60")
    tiny.port = port
    async with asyncio.timeout(DEADLINE_SECONDS):
        await looking.wait()
        ages = [0.0]
        while ages[-1] >= ages[-2 if len(ages) > 1 else -1]:  # until one is younger than the one before: it beats
            status, text = await tiny.get("/healthz")
            assert status == 200
            ages.append(float(text.removeprefix("last tick ").removesuffix(" s ago")))
    server.close()


async def test_readyz_is_not_ready_before_there_ever_was_a_bus(start):
    looking, listener = await silent_listener()
    url = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    port = free_port()
    tiny = await start(url, "--http-port", str(port))
    await looking.wait()
    tiny.port = port
    assert await tiny.get("/readyz") == (503, f"bus: not yet connected to {url}; service: starting")
    tiny.process.terminate()
    assert await tiny.end() == 0
    listener.close()


async def test_a_handler_that_fails_is_logged_and_counted(start, nats_server, node):
    tiny = await start(nats_server.url)
    await tiny.logged("started")
    bus = await connect(BusSettings(url=nats_server.url), "operator", ignore_events)
    command = Command(node=node, boot="b", cycle=1, at=1, verb="restore", by="test", reason="nonsense")
    await bus.publish(subject_of(command), encode(command))
    assert "ValueError: nonsense" in str((await tiny.logged("bus_handler_failed"))["detail"])
    _, metrics = await tiny.get("/metrics")
    assert 'trimtab_messages_dropped_total{kind="any",reason="handler_failed"} 1.0' in metrics
    await bus.close()


# ---- errors: one line, a code, no traceback ----


async def complaint(start: Start, code: int, *arguments, **more) -> str:
    tiny = await start(*arguments, **more)
    assert await tiny.end() == code
    assert len(tiny.complaints()) == 1
    return tiny.complaints()[0]


async def test_an_unreachable_server_is_code_3_and_one_line_in_all(start):
    url = f"nats://127.0.0.1:{free_port()}"
    tiny = await start(url, "--set", "bus.connect_timeout_seconds=0.2")
    assert await tiny.end() == 3
    (line,) = tiny.lines
    assert line.startswith(f"trimtab tiny: bus.url: no NATS server at {url} within 0.2 s")
    assert "--nats-url" in line


async def test_a_port_in_use_is_code_5(start, nats_server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = await complaint(start, 5, nats_server.url, "--http-port", str(port))
    assert text.startswith(f"trimtab tiny: http: cannot listen on 127.0.0.1:{port}: another process does;")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--set", "weights.min_weight=0"), "flag --set: weights.min_weight: expected `int` >= 1"),
        (("--set", "tick=3"), "flag --set: 'tick': no such setting; write --set section.field=value"),
        (("--set", "tick"), "flag --set tick: write --set section.field=value"),
        (("--mode", "reckless"), "flag --mode: invalid choice: 'reckless'"),
        (("--http-port", "x"), "flag --http-port: invalid int value: 'x'"),
        (("--no-such",), "unrecognized arguments: --no-such; see "),
        (("--config", "/no/such.yaml"), "/no/such.yaml: cannot be read: No such file or directory"),
        (("--http-port", "70000"), "http.host: cannot listen on 127.0.0.1:70000"),
        (("--set", "http.host=192.0.2.1"), "http.host: cannot listen on 192.0.2.1:0"),
        (("--node", "Node_1"), "flag --node: node: node name 'Node_1' is not"),
    ],
)
async def test_a_wrong_setting_is_code_2(start, nats_server, flags, expected):
    assert (await complaint(start, 2, nats_server.url, *flags)).startswith(f"trimtab tiny: {expected}")


@pytest.mark.parametrize("where", ["create", "start", "run", "stop"])
async def test_a_service_that_gives_up_ends_in_order_with_its_code(start, nats_server, where):
    tiny = await start(nats_server.url, "--set", f"tiny.fails_in={where}")
    if where == "stop":
        await tiny.logged("started")
        tiny.process.terminate()
    assert await tiny.end() == 6
    assert tiny.complaints() == [f"trimtab tiny: tiny: {where} failed; this is a test"]
    assert ("tiny_stop" in tiny.events()) == (where != "create")
    assert "stopping" in tiny.events()


async def test_a_bus_that_ends_it_for_good_ends_the_service_in_order(start):
    expire = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true}\r\n')
        while (await reader.readline()).strip() != b"PING":
            pass
        writer.write(b"PONG\r\n")
        await expire.wait()
        writer.write(b"-ERR 'User Authentication Expired'\r\n")
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    tiny = await start(url, "--set", "bus.declare_streams=false")
    await tiny.logged("started")
    expire.set()
    assert await tiny.end() == 3
    assert tiny.complaints()[0].startswith("trimtab tiny: bus.url: the server ended the connection for good")
    assert "tiny_stop" in tiny.events()
    listener.close()


# ---- --print-config ----


async def test_print_config_is_data_on_stdout_with_origins_and_without_secrets(start, tmp_path):
    file = tmp_path / "trimtab.yaml"
    file.write_text("mode: canary\nbus: {password: hunter2}\n")
    tiny = await start(
        "nats://me:hunter2@h:4222", "--config", str(file), "--print-config", env={"TRIMTAB_LOOP__TICK_SECONDS": "7"}
    )
    out, err = await tiny.process.communicate()
    lines = out.decode().splitlines()
    assert (tiny.process.returncode, err) == (0, b"")
    assert f'mode: "canary"  # file {file}' in lines
    assert "loop.tick_seconds: 7.0  # env TRIMTAB_LOOP__TICK_SECONDS" in lines
    assert 'bus.url: "nats://***@h:4222"  # flag --nats-url' in lines
    assert 'tiny.fails_in: ""  # default' in lines
    assert "hunter2" not in out.decode()


async def test_a_mistyped_variable_is_told_at_start(start, nats_server):
    tiny = await start(nats_server.url, env={"TRIMTAB_LOP__TICK_SECONDS": "7"})
    assert "TRIMTAB_LOP__TICK_SECONDS: no such setting" in str((await tiny.logged("setting_ignored"))["detail"])
