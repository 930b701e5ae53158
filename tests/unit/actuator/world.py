"""A folder that looks like a cgroup tree, the faults that only a kernel makes, and the actuator on top of both."""

import itertools
import os
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from runtime.logs import get_log
from services.actuator import cgroup_writer
from services.actuator.cgroup_writer import CgroupWriter
from services.actuator.config import ActuatorConfig
from services.actuator.journal import Journal
from services.actuator.metrics import ActuatorMetrics
from services.actuator.service import ActuatorService
from services.actuator.weights import Weights
from tests.support.builders import BATCH, CRITICAL, pod, state, verdict
from tests.support.harness import harness

PODS_ROOT = "kubepods"
BOOT_ID = "8f6f0c7e-4f0e-4d0c-9f53-3a7d3f1f0a11"
API, JOB = "pod-api", "pod-job"


class Tree:
    """Pod groups below `kubepods`. A group that was removed keeps its inode, so that no later one gets it."""

    def __init__(self, path: Path) -> None:
        self.root = path / "cgroup"
        self.base = self.root / PODS_ROOT
        self.base.mkdir(parents=True)
        self.proc = path / "proc"
        (self.proc / "sys/kernel/random").mkdir(parents=True)
        (self.proc / "sys/kernel/random/boot_id").write_text(BOOT_ID + "\n")
        self._graves = path / "graves"
        self._graves.mkdir()
        self._numbers = itertools.count()

    def add(self, group: str, weight: str = "100\n", idle: str = "0\n") -> Path:
        folder = self._graves / str(next(self._numbers))
        folder.mkdir()
        (folder / "cpu.weight").write_text(weight)
        (folder / "cpu.idle").write_text(idle)
        (self.base / group).parent.mkdir(parents=True, exist_ok=True)
        folder.rename(self.base / group)
        return self.base / group

    def remove(self, group: str) -> None:
        (self.base / group).rename(self._graves / str(next(self._numbers)))

    def again(self, group: str, weight: str = "100\n") -> None:
        """Another group under the same path."""
        self.remove(group)
        self.add(group, weight)

    def weight(self, group: str) -> str:
        return (self.base / group / "cpu.weight").read_text()

    def write(self, group: str, text: str) -> None:
        """What somebody else does."""
        (self.base / group / "cpu.weight").write_text(text)

    def inode(self, group: str) -> int:
        return (self.base / group).stat().st_ino

    def writer(self) -> CgroupWriter:
        return CgroupWriter(str(self.root), PODS_ROOT)


class Faults:
    """Makes writes to some groups fail as a kernel does, and notes every attempt. `then` runs after a real write."""

    def __init__(self, monkeypatch) -> None:
        self.errno_of: dict[str, int] = {}
        self.then: dict[str, object] = {}
        self.attempts: list[str] = []
        self._real = cgroup_writer._write
        monkeypatch.setattr(cgroup_writer, "_write", self._write)

    def _write(self, folder: int, raw: bytes) -> None:
        group = os.readlink(f"/proc/self/fd/{folder}").rpartition(f"/{PODS_ROOT}/")[2]
        self.attempts.append(group)
        number = self.errno_of.get(group, self.errno_of.get("*"))
        if number is not None:
            raise OSError(number, os.strerror(number))
        self._real(folder, raw)
        if group in self.then:
            self.then[group]()


def weights_on(tree: Tree, journal: Path, *, writer: CgroupWriter | None = None, limit: int = 3) -> Weights:
    """Weights that have taken up their journal."""
    made = Weights(
        writer or tree.writer(),
        Journal(journal, BOOT_ID),
        ActuatorMetrics(CollectorRegistry()),
        get_log("actuator"),
        foreign_limit=limit,
        yield_seconds=600.0,
    )
    made.recover()
    return made


def killed(weights: Weights) -> None:
    """What is left of an actuator after SIGKILL: its files. (The kernel lets go of the lock.)"""
    weights._journal.close()


@asynccontextmanager
async def actuator(tree: Tree, journal: Path, settings=None, **options):
    """The service on the tree, on a MemoryBus and a ManualClock."""
    wanted = {
        "host.cgroup_root": str(tree.root),
        "host.pods_root": PODS_ROOT,
        "host.proc_root": str(tree.proc),
        "host.simulated": True,
        "weights.min_weight": 10,
        "actuator.journal": str(journal),
        **(settings or {}),
    }
    async with harness("actuator", ActuatorConfig, ActuatorService, wanted, **options) as made:
        yield made


def at(h, cycle: int, **fields):
    """A state and the verdict that follows it, of this cycle and of the harness's present."""
    now = h.clock.now_ns()
    pods = fields.pop("pods", (pod("api", CRITICAL, 100), pod("job", BATCH, 100)))
    boot = fields.pop("boot", "boot1")
    return (
        state(boot=boot, cycle=cycle, at=now, pods=pods),
        verdict(boot=boot, cycle=cycle, at=now, **{"deadline": now + 600_000_000, **fields}),
    )
