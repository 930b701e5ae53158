"""Child processes that never outlive their parent, and a supervisor that starts them again when they die.

A child gets a lifeline pipe (its end closes when the parent dies) and, on Linux, a parent-death signal for programs
that know nothing of the lifeline.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runtime.config import LIFELINE
from runtime.errors import TrimtabError

START_SECONDS: Final = 30.0
"""Until then a child is starting. 30: three times as long as a service waits for its bus."""

_WORKED_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1

try:
    _libc: ctypes.CDLL | None = ctypes.CDLL(None, use_errno=True)
except OSError:  # pragma: no cover - no C library to call: the lifeline remains
    _libc = None


def _prepare(enter: Callable[[], None] | None) -> Callable[[], None]:
    parent = os.getpid()

    def run_in_child() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # the parent died between fork and here
        if enter is not None:
            enter()

    return run_in_child


@dataclass
class Child:
    """One running child."""

    name: str
    process: asyncio.subprocess.Process
    lifeline: int

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.returncode is None

    async def stop(self, seconds: float = 10.0) -> int:
        """SIGTERM, then after `seconds` SIGKILL; the exit code."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(seconds):
                    await self.process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
        code = await self.process.wait()
        self.close()
        return code

    def close(self) -> None:
        """Lets go of the lifeline."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


async def spawn(
    name: str,
    argv: Sequence[str],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    enter: Callable[[], None] | None = None,
    pipes: bool = False,
) -> Child:
    """Starts a child in a session of its own, so that Ctrl-C reaches the parent alone and the end is orderly.

    `log` takes its stdout and stderr; `pipes` gives stdin and stdout to the parent instead (stderr to `log`); `enter`
    runs in the child before the program, for example to join a cgroup. Raises TrimtabError if it cannot start.
    """
    reader, writer = os.pipe()
    output = None
    try:
        output = log.open("ab") if log is not None else None
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if pipes else output,
            stderr=output,
            env={**(env if env is not None else os.environ), LIFELINE: str(reader)},
            pass_fds=(reader,),
            preexec_fn=_prepare(enter),
            start_new_session=True,
        )
    except BaseException as error:
        os.close(writer)
        if isinstance(error, OSError | subprocess.SubprocessError):
            raise TrimtabError(f"{name}: cannot start {argv[0]}: {error}") from error
        raise
    finally:
        os.close(reader)
        if output is not None:
            output.close()
    return Child(name, process, writer)


@dataclass
class Spec:
    """What to run, and when to give up on it."""

    name: str
    argv: Sequence[str]
    log: Path | None = None
    env: Mapping[str, str] | None = None
    enter: Callable[[], None] | None = None


@dataclass
class Supervisor:
    """Keeps children running: one that dies is started again after a pause that doubles from 0.2 s to 5 s.

    A child that exits with a code for wrong settings (2-6) within START_SECONDS of its first start is not tried again:
    `failed` says so, and so it does when a child can no longer be watched.
    """

    on_change: Callable[[dict[str, int]], None] = lambda _: None
    children: dict[str, Child] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    failed: asyncio.Future[str] | None = None
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def start(self, spec: Spec) -> None:
        """Starts and from then on watches one child."""
        if self.failed is None:
            self.failed = asyncio.get_running_loop().create_future()
        self.children[spec.name] = await self._spawn(spec)
        task = self._tasks[spec.name] = asyncio.create_task(self._watch(spec))
        task.add_done_callback(lambda done: self._unwatched(spec.name, done))
        self.on_change(self.pids())

    def pids(self) -> dict[str, int]:
        """The process ids by name."""
        return {name: child.pid for name, child in self.children.items()}

    async def stop(self, name: str, seconds: float = 12.0) -> None:
        """Ends one child for good."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        child = self.children.get(name)
        if child is not None:
            await child.stop(seconds)

    async def stop_all(self, order: Sequence[str] = ()) -> None:
        """Ends all, first those in `order`, one after the other, then the rest."""
        for name in [*order, *(name for name in self.children if name not in order)]:
            await self.stop(name)

    async def _spawn(self, spec: Spec) -> Child:
        return await spawn(spec.name, spec.argv, log=spec.log, env=spec.env, enter=spec.enter)

    async def _watch(self, spec: Spec) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE_SECONDS
        while True:
            child = self.children[spec.name]
            started = loop.time()
            code = await child.process.wait()
            child.close()
            lived = loop.time() - started
            if not self.restarts.get(spec.name) and lived < START_SECONDS and code in range(2, 7):
                self._fail(f"{spec.name} ended with code {code}: {last_line(spec.log)}")
                return
            if lived > _WORKED_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
            self.restarts[spec.name] = self.restarts.get(spec.name, 0) + 1
            try:
                self.children[spec.name] = await self._spawn(spec)
            except TrimtabError:
                continue
            self.on_change(self.pids())

    def _fail(self, reason: str) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(reason)

    def _unwatched(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{name} is no longer watched: {type(error).__name__}: {error}")


def last_line(log: Path | None) -> str:
    """What a child said last, or where it would have."""
    if log is None:
        return "see its output"
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
    return f"see {log}"
