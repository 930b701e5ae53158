"""The stage on a real kernel: real workloads under real contention in real cgroups."""

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from hostfs.weights import shares_from_millicpu, weight_from_shares
from lab.cgroup_sandbox import CgroupSandbox, open_sandbox
from lab.stage import Host, StagedPod
from runtime.errors import TrimtabError
from runtime.processes import Child, Spec, spawn

_MAX_CPUS = 2
_READY_SECONDS = 60.0
_AGENT_WEIGHT = 1000
_LOAD_WEIGHT = 10_000


@dataclass(frozen=True)
class Load:
    """How hard the API is driven. On two CPUs it needs most of one core, alone far from saturation. A single one has
    the agent, the bus and the clients on it as well, and is often a guest's, whose speed is not its own: a third of it
    leaves room for half the speed.
    """

    requests_per_second: float
    work_ms: float
    batch_processes: int


def load_for(cpus: int) -> Load:
    """The load that shows the conflict on this many CPUs."""
    return Load(requests_per_second=50.0 * cpus if cpus > 1 else 30.0, work_ms=7.0, batch_processes=2 * cpus)


def usable_cpus() -> tuple[int, ...]:
    """The CPUs that a stage uses: at most two of those that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0))[:_MAX_CPUS])


def _weight(millicpu: int) -> int:
    return weight_from_shares(shares_from_millicpu(millicpu)) or 1


@dataclass
class CgroupStage:
    """Real groups as a kubelet lays them out, one process tree per pod, the load beside them."""

    duration_seconds: float
    seed: int
    backend: str = "cgroup"
    cpus: int = 1
    host: Host = field(init=False)
    pods: tuple[StagedPod, ...] = ()
    _sandbox: CgroupSandbox = field(init=False)
    _children: list[Child] = field(default_factory=list)
    _run_dir: Path = field(init=False)
    _cpus: tuple[int, ...] = ()
    _api_port: int = 0

    def __post_init__(self) -> None:
        """Claims the sandbox. Raises SandboxUnavailable where there can be none."""
        self._sandbox = open_sandbox()
        self._cpus = usable_cpus()
        self.cpus = len(self._cpus)
        kubepods = f"{self._sandbox.name}/kubepods"
        self.host = Host(str(self._sandbox.root), kubepods, "/proc", simulated=False)

    async def open(self, run_dir: Path) -> None:
        """Groups with the kubelet's weights; API and monitor running, and answering."""
        self._run_dir = run_dir
        load = load_for(self.cpus)
        self._sandbox.add("kubepods", _weight(self.cpus * 1000))
        self._sandbox.add("kubepods/burstable", _weight(4350))
        self._sandbox.add("agent", _AGENT_WEIGHT)
        self._sandbox.add("load", _LOAD_WEIGHT)
        uids = {
            name: f"0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e0{n}" for n, name in enumerate(("api", "batch", "monitor"), 1)
        }
        groups = {name: f"burstable/pod{uid}" for name, uid in uids.items()}
        for name, millicpu in (("api", 250), ("batch", 4000), ("monitor", 100)):
            self._sandbox.add(f"kubepods/{groups[name]}", _weight(millicpu))
        api = await self._start(
            "api", f"kubepods/{groups['api']}", "--work-ms", str(load.work_ms), "--workers", str(max(2, self.cpus)),
            "--max-queue", "128",
        )  # fmt: skip
        monitor = await self._start(
            "monitor", f"kubepods/{groups['monitor']}", "--interval-ms", "50", "--work-ms", "3", "--record",
            str(self.record_of("monitor")),
        )  # fmt: skip
        self.pods = (
            StagedPod(
                uids["api"], "api", "latency-critical", groups["api"], _url(api), "http_request_duration_seconds"
            ),
            StagedPod(uids["batch"], "batch", "batch", groups["batch"]),
            StagedPod(
                uids["monitor"], "monitor", "default", groups["monitor"], _url(monitor), "monitor_run_duration_seconds"
            ),
        )
        self._api_port = api

    async def start_load(self) -> None:
        """Requests arrive, open loop, from a group of their own."""
        load = load_for(self.cpus)
        await self._start(
            "loadgen", "load", "--target", f"http://127.0.0.1:{self._api_port}/work",
            "--rate", str(load.requests_per_second), "--duration", str(min(3600.0, self.duration_seconds + 60.0)),
            "--timeout-seconds", "5",
            "--max-in-flight", "128", "--connections", "128", "--seed", str(self.seed), "--record",
            str(self.record_of("api")),
        )  # fmt: skip

    async def start_batch(self) -> None:
        """The batch pod that requests sixteen times what the API does."""
        group = next(pod.group for pod in self.pods if pod.name == "batch")
        processes = str(load_for(self.cpus).batch_processes)
        await self._start(
            "batch", f"kubepods/{group}", "--processes", processes, "--record", str(self.record_of("batch"))
        )

    def place(self, spec: Spec) -> Spec:
        """In a group beside the pods, as a system daemon is."""
        return replace(spec, enter=self._sandbox.enter("agent"))

    def weights(self) -> dict[str, str]:
        """Every pod group's weight, as read; groups that are gone are left out."""
        found: dict[str, str] = {}
        for pod in self.pods:
            with contextlib.suppress(OSError):
                path = self._sandbox.path / "kubepods" / pod.group / "cpu.weight"
                found[pod.group] = path.read_text(encoding="ascii")
        return found

    def record_of(self, pod: str) -> Path:
        """Where the pod's record is."""
        return self._run_dir / "records" / f"{pod}.jsonl"

    async def close(self) -> list[str]:
        """Ends the load first, then the pods, then the groups."""
        for child in reversed(self._children):
            await child.stop(seconds=3.0)
        return await asyncio.to_thread(self._sandbox.remove)

    async def _start(self, name: str, group: str, *flags: str) -> int:
        """Starts one workload in a group; the port it listens on. Raises TrimtabError with its own words."""
        return int(str((await self._launch(name, group, *flags)).get("port") or 0))

    async def _launch(self, workload: str, group: str, *flags: str, name: str = "") -> dict[str, object]:
        """Starts `lab.workloads.<workload>` in a group, with a log under `name` (the workload's, if none is given); its
        readiness line. Raises TrimtabError with its own words.
        """
        join, cpus = self._sandbox.enter(group), self._cpus

        def enter() -> None:
            join()
            os.sched_setaffinity(0, cpus)

        name = name or workload
        log = self._run_dir / "logs" / f"{name}.log"
        argv = [sys.executable, "-m", f"lab.workloads.{workload}", *flags]
        child = await spawn(name, argv, log=log, enter=enter, pipes=True)
        self._children.append(child)
        assert child.process.stdout is not None
        try:
            async with asyncio.timeout(_READY_SECONDS):
                line = await child.process.stdout.readline()
            ready = json.loads(line)
            return {str(key): value for key, value in ready.items()}
        except (TimeoutError, ValueError, AttributeError) as error:
            said = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1] if log.exists() else ""
            raise TrimtabError(f"the workload {name} did not start: {said or 'it said nothing'}; see {log}") from error


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"
