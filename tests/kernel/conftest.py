"""Tests on real cgroups: a sandbox each, or a skip that says why, repeated at the end of the run."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.cgroup_sandbox import CgroupSandbox, SandboxUnavailable, open_sandbox

_BURN = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
_why_not: list[str] = []


@pytest.fixture
def sandbox() -> Iterator[CgroupSandbox]:
    """A group of our own on the real kernel; removed, with all that runs in it, at the end."""
    try:
        opened = open_sandbox()
    except SandboxUnavailable as error:
        reason = f"no real cgroups: {error.reason}; {error.remedy}"
        _why_not.append(reason)
        pytest.skip(reason)
    try:
        yield opened
    finally:
        assert opened.remove() == []


@pytest.fixture
def burn(sandbox) -> Iterator[object]:
    """Starts a busy loop in a group of the sandbox, on the first CPU."""
    running: list[subprocess.Popen[bytes]] = []

    def start(group: str) -> None:
        join = sandbox.enter(group)
        running.append(subprocess.Popen([sys.executable, "-c", _BURN], preexec_fn=join))  # noqa: PLW1509 - no threads

    yield start
    for process in running:
        process.kill()
        process.wait()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line on the real-kernel tests: how many ran, or why none could."""
    passed = [r for r in terminalreporter.stats.get("passed", []) if "tests/kernel" in r.nodeid and r.when == "call"]
    failed = [r for r in terminalreporter.stats.get("failed", []) if "tests/kernel" in r.nodeid]
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if "tests/kernel" in r.nodeid]
    if not passed and not failed and not skipped:
        return
    line = (
        f"real-kernel tests on {os.uname().release}: {len(passed)} passed, {len(failed)} failed, {len(skipped)} not run"
    )
    if _why_not:
        line += f" ({_why_not[0]})"
    terminalreporter.write_line(line, yellow=bool(skipped))
