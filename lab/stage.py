"""A stage is a node to demonstrate on: pods with workloads, and the files that the services read and write.

Two of them: real workloads in real cgroups, and the simulated node. The demo treats them alike.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.processes import Spec


@dataclass(frozen=True)
class StagedPod:
    """One pod on the stage, as the static workload file lists it."""

    uid: str
    name: str
    cls: str
    group: str
    metrics_url: str | None = None
    latency_metric: str | None = None


@dataclass(frozen=True)
class Host:
    """Settings of `host:` that make the services see this stage."""

    cgroup_root: str
    pods_root: str
    proc_root: str
    simulated: bool


class Stage(Protocol):
    """Where the demo runs."""

    backend: str
    """"cgroup" or "sim"."""

    cpus: int
    """CPUs that the workloads share."""

    host: Host
    pods: tuple[StagedPod, ...]

    async def open(self, run_dir: Path) -> None:
        """Makes the groups and starts the API and the monitor. No load and no batch yet."""
        ...

    async def start_load(self) -> None:
        """Requests begin to arrive: after the agent is up, so that its start is not what is measured."""
        ...

    async def start_batch(self) -> None:
        """The batch pod starts to compute."""
        ...

    def place(self, spec: Spec) -> Spec:
        """The same process, placed where a node agent would run."""
        ...

    def weights(self) -> dict[str, str]:
        """Every pod group's `cpu.weight`, as read."""
        ...

    def record_of(self, pod: str) -> Path:
        """The record file of the pod's latencies or work (lab/latency_records.py)."""
        ...

    async def close(self) -> list[str]:
        """Ends the workloads and removes the groups; what could not be removed."""
        ...
