"""The simulated node as a process: first line, pages, weights, commands, and every way to end it."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.simnode_scenario import CLASS_LABEL

DEADLINE_SECONDS = 30.0


class Node:
    """A running node and its first line."""

    def __init__(self, process: asyncio.subprocess.Process, first: dict[str, Any]) -> None:
        self.process = process
        self.first = first
        self.workloads = {workload["name"]: workload for workload in first["workloads"]}

    def path(self, name: str, file: str) -> Path:
        return Path(self.first["cgroup_root"], self.first["pods_root"], self.workloads[name]["group"], file)

    def usage_usec(self, name: str) -> int:
        return int(self.path(name, "cpu.stat").read_text().split()[1])

    async def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        return await read_line(self.process)

    async def page(self, name: str) -> str:
        def get() -> str:
            with urllib.request.urlopen(self.workloads[name]["metrics_url"], timeout=DEADLINE_SECONDS) as response:
                assert response.headers["Content-Type"].startswith("text/plain")
                return response.read().decode()

        return await asyncio.to_thread(get)

    async def value(self, name: str, series: str) -> float:
        lines = (await self.page(name)).splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{series} "))

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.process.wait()


async def read_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_SECONDS):
        line = await process.stdout.readline()
    assert line, "the node ended without a word"
    return json.loads(line)


@contextlib.asynccontextmanager
async def started(*flags: str) -> AsyncIterator[Node]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lab.simnode", *flags, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Node(process, await read_line(process))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until(condition: Callable[[], bool]) -> None:
    # A file changes, which no event tells: so this polls.
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


async def failed_start(*flags: str, stdin: int = subprocess.PIPE) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lab.simnode", *flags, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_the_first_line_leads_to_files_that_move_and_pages_that_answer(tmp_path):
    async with started("--dir", str(tmp_path / "node")) as node:
        assert node.first["ready"] is True
        assert node.first["pid"] == node.process.pid
        assert node.first["pods_root"] == "kubepods"
        assert set(node.workloads) == {"api", "batch", "monitor"}
        assert node.workloads["api"]["labels"][CLASS_LABEL] == "latency-critical"
        assert Path(node.first["proc_root"], "pressure/cpu").exists()
        before = node.usage_usec("batch")
        await until(lambda: node.usage_usec("batch") > before)
        assert 'http_request_duration_seconds_bucket{le="+Inf"}' in await node.page("api")
        assert "_created" not in await node.page("api")
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await node.value("batch", "batch_work_done_total") == 0.0:
                await asyncio.sleep(0.02)
        assert await node.ask('{"quit": true}') == {"ok": True}
        assert await node.ended() == 0


async def test_weights_and_commands_are_taken_up_while_it_runs(tmp_path):
    async with started("--dir", str(tmp_path / "node")) as node:
        assert await node.ask('{"set_rate": {"api": 400}}') == {"ok": True}
        assert "error" in await node.ask('{"set_rate": {"nobody": 1}}')
        assert "error" in await node.ask("x" * 100_000)
        for name, weight in (("api", "10000"), ("batch", "1")):
            node.path(name, "cpu.weight").write_text(weight)
        await until(lambda: node.usage_usec("batch") > 0)
        api, batch = node.usage_usec("api"), node.usage_usec("batch")
        # Starved by its first weight the API would get a tenth of what batch gets; now it is the other way round.
        await until(lambda: node.usage_usec("api") - api > 500_000)
        assert node.usage_usec("api") - api > node.usage_usec("batch") - batch
        node.path("api", "cpu.weight").write_text("70000\n")
        await until(lambda: node.path("api", "cpu.weight").read_text() == "10000\n")
        assert (await node.ask('{"status": true}'))["refused_weights"] == 1


async def test_sigterm_ends_it_with_whole_records(tmp_path):
    async with started("--dir", str(tmp_path / "node"), "--record-dir", str(tmp_path / "records")) as node:
        await until(lambda: all((tmp_path / "records" / f"{name}.jsonl").stat().st_size for name in ("api", "batch")))
        node.process.send_signal(signal.SIGTERM)
        assert await node.ended() == 0
    for name in node.workloads:
        text = (tmp_path / "records" / f"{name}.jsonl").read_text()
        assert text == "" or text.endswith("\n")
        for line in text.splitlines():
            json.loads(line)
    assert node.path("api", "cpu.weight").read_text() == "10\n"


async def test_it_ends_when_its_parent_is_gone(tmp_path):
    async with started("--dir", str(tmp_path / "node")) as node:
        assert node.process.stdin is not None
        node.process.stdin.close()
        assert await node.ended() == 0


async def test_it_ends_with_a_line_when_its_directory_is_taken_away(tmp_path):
    async with started("--dir", str(tmp_path / "node")) as node:
        (tmp_path / "node").rename(tmp_path / "elsewhere")
        assert await node.ended() == 1


@pytest.mark.parametrize(
    ("scenario", "stdin", "code", "said"),
    [
        ("cores: 0\npods: []\n", subprocess.PIPE, 2, "cores"),
        ("pods: []\n", subprocess.DEVNULL, 1, "stdin must be a pipe"),
    ],
)
async def test_a_start_that_cannot_work_is_one_line_and_a_code(tmp_path, scenario, stdin, code, said):
    (tmp_path / "scenario.yaml").write_text(scenario)
    flags = ("--dir", str(tmp_path / "node"), "--scenario", str(tmp_path / "scenario.yaml"))
    exit_code, text = await failed_start(*flags, stdin=stdin)
    assert exit_code == code
    assert said in text
    assert text.count("\n") == 1


async def test_a_directory_in_use_is_refused(tmp_path):
    (tmp_path / "cgroup").mkdir()
    exit_code, text = await failed_start("--dir", str(tmp_path))
    assert exit_code == 6
    assert "new directory" in text
