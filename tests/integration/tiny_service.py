"""A service that does nothing but live: run as a program by `test_lifecycle.py`. SIGUSR1 moves its clock an hour."""

import asyncio
import signal
import sys

import runtime.lifecycle
from runtime.clock import SystemClock
from runtime.errors import HostError
from runtime.lifecycle import Context, ServiceDefinition, run_service
from schemas.messages import Command
from schemas.settings import Section


class TinyConfig(Section, frozen=True, kw_only=True):
    """How it behaves."""

    paces_itself: bool = False
    fails_in: str = ""
    password: str | None = None


class JumpingClock(SystemClock):
    """The machine's clock, plus an hour for every SIGUSR1."""

    def __init__(self) -> None:
        self._ahead = 0.0
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._jump)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return super().monotonic() + self._ahead

    def _jump(self) -> None:
        self._ahead += 3600.0


class Tiny:
    """Logs what the lifecycle does with it."""

    cycle = 7
    mode = None

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config = context.config.section("tiny", TinyConfig)
        self.paces_itself = self._config.paces_itself
        self._fail("create")

    async def start(self) -> None:
        """Subscribes."""
        await self._context.messenger.listen(Command, self._on_command)
        self._fail("start")

    async def run(self) -> None:
        """Waits, after one beat."""
        self._context.health.beat(self._context.clock.monotonic())
        self._fail("run")
        if self._config.fails_in == "return":
            return
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Says that it was told to."""
        self._context.log.info("tiny_stop", connected=self._context.messenger.connected)
        self._fail("stop")
        if self._config.fails_in == "stop_hangs":
            await asyncio.Event().wait()

    async def _on_command(self, command: Command) -> None:
        raise ValueError(command.reason)

    def _fail(self, where: str) -> None:
        if self._config.fails_in == where:
            raise HostError(f"tiny: {where} failed; this is a test")


if __name__ == "__main__":
    runtime.lifecycle.SystemClock = JumpingClock
    runtime.lifecycle.STOP_SECONDS = 0.2
    sys.exit(run_service(ServiceDefinition("tiny", TinyConfig, Tiny)))
