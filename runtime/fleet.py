"""The five services as children of one process: started, watched, started again, ended in order."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtime.config import ENV_PREFIX
from runtime.errors import HostError, TrimtabError
from runtime.processes import Child, Spec, Supervisor, last_line, spawn
from schemas.subjects import SERVICES

STOP_ORDER = ("collector", "decider", "rewarder", "guard", "actuator")
"""The actuator goes last: it restores every original on its way out, and says so while the bus still runs."""

_RESTORE_SECONDS = 15.0


@dataclass
class Fleet:
    """Runs `python -m services.<name> --config FILE` five times. `run_dir` gets a log each and `pids.json`."""

    config: Path
    run_dir: Path
    flags: tuple[str, ...] = ()
    place: Callable[[Spec], Spec] = lambda spec: spec
    env: dict[str, str] = field(default_factory=dict)
    inherit_settings: bool = True
    """Whether `TRIMTAB_*` variables of this process are settings of the services, too."""

    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        """Prepares the supervisor that keeps `pids.json` current."""
        self.supervisor = Supervisor(on_change=self._write_pids)

    async def start(self) -> None:
        """Starts all five."""
        (self.run_dir / "logs").mkdir(parents=True, exist_ok=True)
        for name in SERVICES:
            await self.supervisor.start(self.place(self._spec(name)))

    async def stop(self) -> None:
        """Ends all five, then asks the journal: an actuator that was killed at the last moment, or could not write,
        has not restored everything. Where it has, that is a look at an empty file.

        Raises HostError, once all are ended, if that failed too.
        """
        await self.supervisor.stop_all(STOP_ORDER)
        if "actuator" in self.supervisor.children:
            await self._restore()

    def pids(self) -> dict[str, int]:
        """Process ids by service."""
        return self.supervisor.pids()

    async def _restore(self) -> None:
        spec = self._spec("actuator")
        argv = [*spec.argv, "--restore"]
        try:
            child = await spawn(spec.name, argv, log=spec.log, env=spec.env)
        except TrimtabError as error:
            trouble = str(error)
        else:
            code = await _exit_code(child)
            if code == 0:
                return
            trouble = f"no end after {_RESTORE_SECONDS:g} s" if code is None else last_line(spec.log)
        raise HostError(
            f"weights may not be what they were: {trouble}; see {spec.log}, put that right, then run "
            f"`{shlex.join(argv)}`"
        )

    def _spec(self, name: str) -> Spec:
        inherited = {
            key: value for key, value in os.environ.items() if self.inherit_settings or not key.startswith(ENV_PREFIX)
        }
        return Spec(
            name=name,
            argv=[sys.executable, "-m", f"services.{name}", "--config", str(self.config), *self.flags],
            log=self.run_dir / "logs" / f"{name}.log",
            env={**inherited, **self.env},
        )

    def _write_pids(self, pids: dict[str, int]) -> None:
        fresh = self.run_dir / "pids.json.new"
        fresh.write_text(json.dumps(pids) + "\n", encoding="utf-8")
        fresh.replace(self.run_dir / "pids.json")


async def _exit_code(child: Child) -> int | None:
    """The exit code; None for one that had to be killed."""
    try:
        async with asyncio.timeout(_RESTORE_SECONDS):
            return await child.process.wait()
    except TimeoutError:
        return None
    finally:
        await child.stop(seconds=0.0)
