"""The five services as children of one process: started, watched, started again, ended in order."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtime.processes import Spec, Supervisor, spawn
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
        """Ends all five. An actuator that was killed at the last moment could not restore: its journal still can."""
        await self.supervisor.stop_all(STOP_ORDER)
        actuator = self.supervisor.children.get("actuator")
        if actuator is not None and actuator.process.returncode != 0:
            spec = self._spec("actuator")
            child = await spawn(spec.name, [*spec.argv, "--restore"], log=spec.log, env=spec.env)
            async with asyncio.timeout(_RESTORE_SECONDS):
                await child.process.wait()
            child.close()

    def pids(self) -> dict[str, int]:
        """Process ids by service."""
        return self.supervisor.pids()

    def _spec(self, name: str) -> Spec:
        return Spec(
            name=name,
            argv=[sys.executable, "-m", f"services.{name}", "--config", str(self.config), *self.flags],
            log=self.run_dir / "logs" / f"{name}.log",
            env={**os.environ, **self.env},
        )

    def _write_pids(self, pids: dict[str, int]) -> None:
        fresh = self.run_dir / "pids.json.new"
        fresh.write_text(json.dumps(pids) + "\n", encoding="utf-8")
        fresh.replace(self.run_dir / "pids.json")
