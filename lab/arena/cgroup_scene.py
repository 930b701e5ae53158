"""Owns a scenario on real cgroups: a group and processes per pod, clients beside them, spinners that come and go."""

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from hostfs.cgroup_files import parse_cpu_stat
from hostfs.weights import MAX_WEIGHT, shares_from_millicpu, weight_from_shares
from lab.arena.cgroup_loads import count_at, most_at_once, own_work_ms, schedule_text
from lab.arena.scenario import BOUNDED_QUEUE, BOUNDED_TIMEOUT_SECONDS, Pod, Scenario, ServicePod, SpinnerPod
from lab.cgroup_sandbox import SandboxUnavailable
from lab.cgroup_stage import CgroupStage
from lab.stage import StagedPod
from runtime.errors import HostError, TrimtabError
from runtime.processes import Child

UNBOUNDED_TIMEOUT_SECONDS: Final = 600.0
"""What stands for no time-out: the longest that the load generator knows, and longer than a run should be."""

UNBOUNDED_QUEUE: Final = 100_000
_UNBOUNDED_CONNECTIONS: Final = 512
"""As many as the load generator can hold; the rest waits in the client, and counts from when it was due as well."""

_BOUNDED_CONNECTIONS: Final = 256
_GROUPS: Final = ("kubepods", "kubepods/burstable", "agent", "load")
CLIENTS: Final = "clients"
"""Under what name the clients' CPU is told, beside the pods'."""

AGENT: Final = "agent"
"""As CLIENTS, for the five services."""

_AGENT_WEIGHT: Final = 1000
_METRIC: Final = "http_request_duration_seconds"


def open_scene(scenario: Scenario, cycles: int, cycle_seconds: float, seed: int, overhead_seconds: float) -> "Scene":
    """The scene, with its corner of the cgroup tree claimed. Raises HostError that says what would make it possible."""
    try:
        return Scene(
            duration_seconds=cycles * cycle_seconds,
            seed=seed,
            scenario=scenario,
            cycles=cycles,
            cycle_seconds=cycle_seconds,
            overhead_seconds=overhead_seconds,
        )
    except SandboxUnavailable as error:
        raise HostError(f"no real cgroups: {error.reason}. To use them: {error.remedy}. Else: --backend sim") from error


def pod_weight(millicpu: int) -> int:
    """The weight that the kubelet gives for a request."""
    return weight_from_shares(shares_from_millicpu(millicpu)) or 1


@dataclass(kw_only=True)
class Scene(CgroupStage):
    """A stage (lab/stage.py) for `scenario`, which must be scaled to this machine already.

    `overhead_seconds` is what a request costs its pod beside its work, which is made smaller by that. Time counts from
    `begins_at` (Unix seconds), known after `start_load`. Where `with_batch` is False no spinner of class batch runs.
    """

    scenario: Scenario
    cycles: int
    cycle_seconds: float
    overhead_seconds: float = 0.0
    with_batch: bool = True
    begins_at: float = 0.0
    _ports: dict[str, int] = field(default_factory=dict)
    _spinning: dict[str, list[int]] = field(default_factory=dict)
    _awake: dict[str, int] = field(default_factory=dict)

    async def open(self, run_dir: Path) -> None:
        """Groups with the kubelet's weights; the services answer, the spinners are there and held."""
        self._run_dir = run_dir
        pods = self.scenario.pods
        total = sum(pod.request_millicpu for pod in pods)
        weights = (pod_weight(1000 * self.cpus), pod_weight(total), _AGENT_WEIGHT, MAX_WEIGHT)
        for group, weight in zip(_GROUPS, weights, strict=True):
            self._sandbox.add(group, weight)
        staged: list[StagedPod] = []
        for number, pod in enumerate(pods, 1):
            uid = f"0a1e7f52-6c0d-4b8e-9d35-{number:012x}"
            group = f"burstable/pod{uid}"
            self._sandbox.add(f"kubepods/{group}", pod_weight(pod.request_millicpu))
            if isinstance(pod, ServicePod):
                url = await self._open_service(pod, f"kubepods/{group}", number)
                staged.append(StagedPod(uid, pod.name, pod.cls, group, url, _METRIC))
            else:
                await self._open_spinner(pod, f"kubepods/{group}")
                staged.append(StagedPod(uid, pod.name, pod.cls, group))
        self.pods = tuple(staged)

    async def _open_service(self, pod: ServicePod, group: str, number: int) -> str:
        is_bounded = self.scenario.queue == "bounded"
        ready = await self._launch(
            "api", group, "--work-ms", f"{own_work_ms(pod.work_seconds, self.overhead_seconds):.4f}",
            "--work-distribution", pod.distribution, "--work-jitter", str(min(pod.spread, 2.0)),
            "--workers", str(pod.workers), "--seed", str(self.seed * 100 + number),
            "--max-queue", str(BOUNDED_QUEUE if is_bounded else UNBOUNDED_QUEUE),
            "--queue-timeout-seconds", str(BOUNDED_TIMEOUT_SECONDS if is_bounded else 0.0),
            name=pod.name,
        )  # fmt: skip
        self._ports[pod.name] = int(str(ready["port"]))
        return f"http://127.0.0.1:{self._ports[pod.name]}/metrics"

    async def _open_spinner(self, pod: SpinnerPod, group: str) -> None:
        most = most_at_once(pod.processes, self.cycles)
        if most == 0 or (pod.cls == "batch" and not self.with_batch):
            return
        ready = await self._launch(
            "batch", group, "--processes", str(most), "--record", str(self.record_of(pod.name)), name=pod.name
        )
        self._spinning[pod.name] = [int(pid) for pid in cast("list[int]", ready["children"])]
        self._awake[pod.name] = most
        self._hold(pod, 0)

    async def start_load(self) -> None:
        """Starts the clients; when all are ready they begin as one, at `begins_at`."""
        services = [pod for pod in self.scenario.pods if isinstance(pod, ServicePod)]
        is_bounded = self.scenario.queue == "bounded"
        timeout = BOUNDED_TIMEOUT_SECONDS if is_bounded else UNBOUNDED_TIMEOUT_SECONDS
        connections = _BOUNDED_CONNECTIONS if is_bounded else _UNBOUNDED_CONNECTIONS
        for number, pod in enumerate(services, 1):
            await self._launch(
                "loadgen", "load", "--target", f"http://127.0.0.1:{self._ports[pod.name]}/work",
                "--schedule", schedule_text(pod.rate, self.cycles, self.cycle_seconds),
                "--duration", str(self.cycles * self.cycle_seconds + 1.0), "--seed", str(self.seed * 1000 + number),
                "--timeout-seconds", str(timeout), "--max-in-flight", str(UNBOUNDED_QUEUE),
                "--connections", str(connections), "--wait-seconds", "30", "--wait-for-stdin",
                "--record", str(self.record_of(pod.name)), name=f"{pod.name}-client",
            )  # fmt: skip
        for child in self._clients():
            if child.process.stdin is not None and child.alive:
                child.process.stdin.write(b"begin\n")
        self.begins_at = time.time()

    async def start_batch(self) -> None:
        """Nothing: what spins when is the scenario's affair."""

    def turn_to(self, cycle: int) -> None:
        """Wakes and holds spinning processes as the scenario has it in that cycle."""
        for pod in self.scenario.pods:
            if isinstance(pod, SpinnerPod) and pod.name in self._spinning:
                self._hold(pod, count_at(pod.processes, cycle))

    def _hold(self, pod: Pod, awake: int) -> None:
        pids, before = self._spinning[pod.name], self._awake[pod.name]
        for pid in pids[before:awake]:
            _tell(pid, signal.SIGCONT)
        for pid in pids[awake:before]:
            _tell(pid, signal.SIGSTOP)
        self._awake[pod.name] = awake

    def cpu_seconds(self) -> dict[str, float]:
        """CPU that each pod has used so far, and the clients and the agent (as CLIENTS and AGENT). What cannot be read
        is left out.
        """
        groups = {pod.name: f"kubepods/{pod.group}" for pod in self.pods} | {CLIENTS: "load", AGENT: "agent"}
        found: dict[str, float] = {}
        for name, group in groups.items():
            with contextlib.suppress(OSError):
                text = (self._sandbox.path / group / "cpu.stat").read_text(encoding="ascii")
                if (stat := parse_cpu_stat(text)) is not None:
                    found[name] = stat.usage_usec / 1e6
        return found

    def set_weight(self, pod: str, weight: int) -> None:
        """Sets a pod's weight by hand, where no agent runs."""
        group = next(staged.group for staged in self.pods if staged.name == pod)
        self._sandbox.add(f"kubepods/{group}", weight)

    def check_alive(self) -> None:
        """Raises TrimtabError if a pod's process has ended, which none should."""
        clients = self._clients()
        for child in self._children:
            if child not in clients and not child.alive:
                log = self._run_dir / "logs" / f"{child.name}.log"
                raise TrimtabError(f"the workload {child.name} ended; see {log}")

    async def stop_clients(self) -> None:
        """Ends the clients, so that their records are whole; those in flight are cut."""
        await asyncio.gather(*(child.stop(seconds=5.0) for child in self._clients()))

    def _clients(self) -> list[Child]:
        names = {f"{pod.name}-client" for pod in self.scenario.pods}
        return [child for child in self._children if child.name in names]


def _tell(pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
