"""The process around a workload: flags with bounds, the readiness line, signals, one-line failures, exit codes."""

import argparse
import asyncio
import json
import os
import selectors
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

EXIT_FAILED: Final = 1
EXIT_BAD_FLAGS: Final = 2


class WorkloadError(Exception):
    """Why a workload cannot start or go on, in one line for the person who started it."""


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class FlagParser(argparse.ArgumentParser):
    """Flags of one workload: help shows every default, an error is one line and exit code 2."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(
            prog=f"python -m lab.workloads.{name}",
            description=description,
            formatter_class=_Help,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """End the process with one line instead of argparse's usage and line."""
        self.exit(EXIT_BAD_FLAGS, f"{self.prog}: {message}\n")

    def add_listen_flags(self) -> None:
        """`--host` and `--port`, for workloads that serve HTTP."""
        self.add_argument("--host", default="127.0.0.1", help="address to listen on")
        self.add_argument("--port", type=whole(0, 65_535), default=0, help="TCP port to listen on; 0 picks a free one")


def number(low: float, high: float) -> Callable[[str], float]:
    """A flag type: a finite number within [low, high]."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return parse


def whole(low: int, high: int) -> Callable[[str], int]:
    """A flag type: a whole number within [low, high]."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return value

    return parse


def announce(port: int, **more: object) -> None:
    """Write the readiness line. Call it once the port answers; `more` adds keys of one workload."""
    report({"ready": True, "port": port, "pid": os.getpid(), **more})


def report(line: dict[str, object]) -> None:
    """Write one JSON line to stdout at once. Raises WorkloadError when nobody can read it any more."""
    try:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise WorkloadError(f"cannot write to stdout: {error}") from error


def run(name: str, body: Callable[[asyncio.Event], Awaitable[None]], *, fine_timers: bool = False) -> int:
    """Run `body` until it returns; SIGTERM and SIGINT set the event it is given. The exit code.

    An exception in a callback also sets the event, so that a broken workload ends and does not limp on.
    `fine_timers` waits with select(2), whose timeout is in microseconds: epoll's, as Python calls it, is rounded up to
    whole milliseconds, which an open-loop schedule would count as latency. It limits the process to 1024 descriptors.
    """
    failures: list[BaseException] = []

    async def supervised() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def fail(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            error = context.get("exception")
            failures.append(error if isinstance(error, BaseException) else WorkloadError(str(context["message"])))
            stop.set()

        loop.set_exception_handler(fail)
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stop.set)
        await body(stop)

    try:
        with asyncio.Runner(loop_factory=_select_loop if fine_timers else None) as runner:
            runner.run(supervised())
    except (WorkloadError, OSError) as error:
        failures.insert(0, error)
    if failures:
        sys.stderr.write(f"{name}: {_one_line(failures[0])}\n")
        return EXIT_FAILED
    return 0


def _select_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, WorkloadError) else f"{type(error).__name__}: {text}"
