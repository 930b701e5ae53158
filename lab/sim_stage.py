"""The stage on a simulated node, for machines without a usable cgroup v2 cpu controller."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lab.simnode_scenario import CLASS_LABEL, BatchSpec, default_scenario
from lab.stage import Host, StagedPod
from runtime.errors import TrimtabError
from runtime.processes import Child, Spec, spawn

_READY_SECONDS = 30.0
_STALE_SECONDS = 60.0


@dataclass
class SimStage:
    """`lab.simnode` as a child: files that look like a kernel's, pods that answer /metrics."""

    seed: int
    backend: str = "sim"
    cpus: int = 2
    host: Host = field(init=False)
    pods: tuple[StagedPod, ...] = ()
    _child: Child | None = None
    _run_dir: Path = field(init=False)
    _files: Path | None = None

    async def open(self, run_dir: Path) -> None:
        """Starts the node without its batch load."""
        self._run_dir = run_dir
        self._files = _in_memory(run_dir)
        scenario = default_scenario()
        self.cpus = scenario.cores
        pods = tuple(
            msgspec.structs.replace(pod, workload=msgspec.structs.replace(pod.workload, running=False))
            if isinstance(pod.workload, BatchSpec)
            else pod
            for pod in scenario.pods
        )
        file = run_dir / "scenario.json"
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(scenario, pods=pods, seed=self.seed)))
        argv = [sys.executable, "-m", "lab.simnode", "--dir", str(self._files), "--scenario", str(file)]
        argv += ["--record-dir", str(run_dir / "records")]
        self._child = await spawn("simnode", argv, log=run_dir / "logs" / "simnode.log", pipes=True)
        ready = await self._say(None)
        if not ready.get("ready"):
            raise TrimtabError(f"the simulated node did not start: {ready}; see {run_dir / 'logs' / 'simnode.log'}")
        self.host = Host(str(ready["cgroup_root"]), str(ready["pods_root"]), str(ready["proc_root"]), simulated=True)
        listed = ready["workloads"]
        assert isinstance(listed, list)
        self.pods = tuple(
            StagedPod(
                uid=entry["uid"],
                name=entry["name"],
                cls=entry["labels"][CLASS_LABEL],
                group=entry["group"],
                metrics_url=entry["metrics_url"] if entry["labels"][CLASS_LABEL] != "batch" else None,
                latency_metric=scenario.metric,
            )
            for entry in listed
        )

    async def start_load(self) -> None:
        """Requests arrive from the beginning: the agent takes nothing from a simulated CPU."""

    async def start_batch(self) -> None:
        """The batch pod starts to compute."""
        await self._say({"batch": {"batch": True}})

    def place(self, spec: Spec) -> Spec:
        """Anywhere: the simulated node's CPUs are not this machine's."""
        return spec

    def weights(self) -> dict[str, str]:
        """Every pod group's weight, as read."""
        found: dict[str, str] = {}
        root = Path(self.host.cgroup_root) / self.host.pods_root
        for pod in self.pods:
            with contextlib.suppress(OSError):
                found[pod.group] = (root / pod.group / "cpu.weight").read_text(encoding="ascii")
        return found

    def record_of(self, pod: str) -> Path:
        """Where the pod's record is."""
        return self._run_dir / "records" / f"{pod}.jsonl"

    async def close(self) -> list[str]:
        """Ends the node, if it was ever started."""
        if self._child is not None:
            await self._child.stop(seconds=3.0)
        if self._files is not None:
            await asyncio.to_thread(shutil.rmtree, self._files, ignore_errors=True)
            return [str(self._files)] if self._files.exists() else []
        return []

    async def _say(self, command: dict[str, object] | None) -> dict[str, object]:
        child = self._child
        assert child is not None
        assert child.process.stdin is not None
        assert child.process.stdout is not None
        try:
            async with asyncio.timeout(_READY_SECONDS):
                if command is not None:
                    child.process.stdin.write(json.dumps(command).encode() + b"\n")
                    await child.process.stdin.drain()
                line = await child.process.stdout.readline()
            answer = json.loads(line)
        except (TimeoutError, ValueError, OSError) as error:
            raise TrimtabError(f"the simulated node does not answer: {error}") from error
        return answer if isinstance(answer, dict) else {}


def _in_memory(run_dir: Path) -> Path:
    """A fresh folder, in memory where there is some: the node rewrites its files twenty times a second."""
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a name of its own in it
    if not memory.is_dir():
        return Path(tempfile.mkdtemp(prefix="node-", dir=run_dir))
    remove_stale(memory, time.time())
    return Path(tempfile.mkdtemp(prefix=f"trimtab-node-{os.getpid()}-", dir=memory))


def remove_stale(memory: Path, now: float) -> None:
    """Removes what killed demos left: the process is gone and nothing was written for a minute. A process that cannot
    be seen here may live in another PID namespace, but its node writes all the time.
    """
    for left in memory.glob("trimtab-node-*"):
        pid = left.name.split("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists() and now - _last_write(left) > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _last_write(folder: Path) -> float:
    """When the folder or anything in it was written last, in Unix seconds."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):  # gone meanwhile
            newest = max(newest, path.stat().st_mtime)
    return newest
