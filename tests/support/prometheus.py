"""A real Prometheus on loopback over samples that are written down: no scraping, no waiting for samples to come."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

HOST = "127.0.0.1"
DEADLINE_SECONDS = 60.0
"""For each thing that is waited for. It ends a hung run; a busy machine stays far below it."""

_ATTEMPTS = 3
_BETWEEN_LOOKS_SECONDS = 0.05
_MISSING = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]

WHY_NOT = f"no {' and no '.join(_MISSING)} on the PATH (Debian: apt install prometheus)" if _MISSING else ""
"""Why there can be no server here; empty if there can."""


@dataclass(frozen=True)
class Prometheus:
    """A server that answers. What it holds never changes."""

    port: int

    def query(self, promql: str, at_seconds: float) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value of each series that it gives. NaN stays NaN."""
        found = self._ask("/api/v1/query", {"query": promql, "time": repr(at_seconds)})
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def version(self) -> str:
        """Such as 2.42.0+ds."""
        return self._ask("/api/v1/status/buildinfo", {})["version"]

    def is_ready(self) -> bool:
        """Whether it answers queries by now."""
        try:
            return self._get("/-/ready")[0] == http.client.OK
        except OSError:
            return False

    def _ask(self, path: str, parameters: dict[str, str]):
        status, body = self._get(f"{path}?{urlencode(parameters)}")
        answer = json.loads(body)
        if status != http.client.OK or answer["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {status} {answer.get('error')}")
        return answer["data"]

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=DEADLINE_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def prometheus(folder: Path, openmetrics: str) -> Iterator[Prometheus]:
    """A server that holds the samples of this text, each with its timestamp. It lives in `folder`, which is removed."""
    try:
        _store(folder, openmetrics)
        process, server = _start(folder)
        try:
            yield server
        finally:
            process.terminate()
            try:
                process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder)


def _store(folder: Path, openmetrics: str) -> None:
    (folder / "samples").write_text(openmetrics)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", "samples", "storage"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(folder),
        timeout=DEADLINE_SECONDS,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.returncode} {done.stderr}")


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], Prometheus]:
    """The server can be told a port and not asked for one: if another took the free one meanwhile, once more."""
    (folder / "config").write_text("scrape_configs: []\n")
    for _ in range(_ATTEMPTS):
        with socket.create_server((HOST, 0)) as listener:
            server = Prometheus(listener.getsockname()[1])
        command = [
            "prometheus",
            "--config.file=config",
            "--storage.tsdb.path=storage",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={HOST}:{server.port}",
            "--log.level=warn",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=_environment(folder), stdout=log, stderr=log)
        if _becomes_ready(process, server):
            return process, server
    raise AssertionError(f"prometheus ended before it was ready: {(folder / 'log').read_text()[-2000:]}")


def _becomes_ready(process: subprocess.Popen[bytes], server: Prometheus) -> bool:
    """Whether it got as far; False if it ended instead. It is looked at again and again, and its end ends that."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            process.wait(_BETWEEN_LOOKS_SECONDS)
        except subprocess.TimeoutExpired:
            if server.is_ready():
                return True
        else:
            return False
    process.kill()
    process.wait()
    raise AssertionError(f"prometheus was not ready within {DEADLINE_SECONDS:g} s")


def _environment(folder: Path) -> dict[str, str]:
    """The search path alone: no proxy, no home but the folder."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
