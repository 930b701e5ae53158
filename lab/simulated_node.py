"""A simulated node as its observers see it: kernel files, `/metrics` per pod and records, moved forward by a caller.

No clock and no sockets: `advance` says how much time has passed, and the pods' registries are served by whoever owns
the ports.
"""

import random
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

from lab.simnode_scenario import PODS_ROOT, BatchSpec, PodSpec, Scenario, ServiceSpec, tree_of
from lab.simulated_tree import SimulatedTree
from lab.simulator import Completion, NodeSimulator
from lab.workloads.metrics import latency_histogram
from lab.workloads.record_writer import RecordWriter


class CommandError(ValueError):
    """A command that was not carried out; nothing of it was."""


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the control channel. What is left out stays as it is."""

    set_rate: dict[str, float] = {}
    """New arrival rates by service, in requests per second."""

    batch: dict[str, bool] = {}
    """Which batch pods run from now on."""

    status: bool = False
    """Ask for the simulated time and what was refused."""

    quit: bool = False
    """End the process."""


class ServicePod:
    """A service's latency histogram and its records.

    A request that was given up counts with its timeout, since leaving it out would hide the slowest; one that was shed
    was never begun and counts apart.
    """

    def __init__(self, pod: PodSpec, metric: str, record: Path | None) -> None:
        self.pod = pod
        self.registry = CollectorRegistry()
        self.writer = RecordWriter(record)
        self._latency: Histogram = latency_histogram(
            metric, "Seconds from a request's arrival to its answer or its timeout.", self.registry
        )
        self._shed = Counter(
            "http_requests_rejected", "Requests that found the waiting line full.", registry=self.registry
        )

    def add(self, request: Completion, unix_zero_seconds: float) -> None:
        """Takes in one request that ended; `unix_zero_seconds` is when the simulated time was 0."""
        if request.status == "shed":
            self._shed.inc()
        else:
            self._latency.observe(request.latency_seconds)
        self.writer.add_request(unix_zero_seconds + request.arrived_seconds, request.latency_seconds, request.status)


class BatchPod:
    """A batch pod's cumulative work, in whole units."""

    def __init__(self, pod: PodSpec, spec: BatchSpec, record: Path | None) -> None:
        self.pod = pod
        self.registry = CollectorRegistry()
        self.writer = RecordWriter(record)
        self._work_per_core_second = spec.work_per_core_second
        self._work = 0
        self._done = Counter("batch_work_done", "Units of work done.", registry=self.registry)

    def set_usage(self, usage_seconds: float, at_unix_seconds: float) -> None:
        """Takes in the CPU time that the pod has had so far."""
        work = int(usage_seconds * self._work_per_core_second)
        self._done.inc(work - self._work)
        self._work = work
        self.writer.add_work(at_unix_seconds, work)


class SimulatedNode:
    """The simulator, its directory and its pods' metrics and records, kept in step.

    Raises HostError if the directory cannot be made and WorkloadError if a record cannot be written.
    """

    def __init__(
        self, scenario: Scenario, directory: Path, record_dir: Path | None, *, boot_id: str, boot_unix_seconds: int
    ) -> None:
        rng = random.Random(scenario.seed)  # noqa: S311 - a simulation, no secrets
        self._simulator = NodeSimulator(cores=scenario.cores, root=tree_of(scenario), rng=rng)
        self.tree = SimulatedTree(directory, scenario, boot_id=boot_id, boot_unix_seconds=boot_unix_seconds)
        self.scenario = scenario
        self.services: dict[str, ServicePod] = {}
        self.batches: dict[str, BatchPod] = {}
        for pod in scenario.pods:
            record = record_dir / f"{pod.name}.jsonl" if record_dir is not None else None
            if isinstance(pod.workload, ServiceSpec):
                self.services[pod.name] = ServicePod(pod, scenario.metric, record)
            elif isinstance(pod.workload, BatchSpec):
                self.batches[pod.name] = BatchPod(pod, pod.workload, record)
        self.tree.show(self._simulator.reading())

    @property
    def now_seconds(self) -> float:
        """Simulated seconds since the start."""
        return self._simulator.now_seconds

    @property
    def observed(self) -> dict[str, ServicePod | BatchPod]:
        """The pods that have metrics and records, by name."""
        return {**self.services, **self.batches}

    def advance(self, seconds: float, unix_now_seconds: float) -> None:
        """Takes up the weights that others wrote, then lets `seconds` pass up to `unix_now_seconds`."""
        for group, weight in self.tree.changed_weights().items():
            self._simulator.set_weight(group, weight)
        ended = self._simulator.step(seconds)
        unix_zero_seconds = unix_now_seconds - self.now_seconds
        for request in ended:
            self.services[request.name].add(request, unix_zero_seconds)
        reading = self._simulator.reading()
        for batch in self.batches.values():
            batch.set_usage(reading.groups[f"{PODS_ROOT}/{batch.pod.group}"].usage_seconds, unix_now_seconds)
        self.tree.show(reading)

    def obey(self, command: Command) -> None:
        """Changes rates and phases from now on. Raises CommandError before anything is changed."""
        for name, rate in command.set_rate.items():
            if name not in self.services:
                raise CommandError(f"set_rate: no service {name!r}; there are {', '.join(self.services) or 'none'}")
            if not 0.0 <= rate <= 100_000.0:  # noqa: PLR2004 - the scenario's own limit
                raise CommandError(f"set_rate: {rate} requests per second for {name!r} is not within 0-100000")
        for name in command.batch:
            if name not in self.batches:
                raise CommandError(f"batch: no batch pod {name!r}; there are {', '.join(self.batches) or 'none'}")
        for name, rate in command.set_rate.items():
            self._simulator.set_rate(name, rate)
        for name, running in command.batch.items():
            self._simulator.set_batch_running(name, running)

    def close(self) -> None:
        """Writes out the records. The directory stays: who steers the node may still want to restore weights."""
        for pod in self.observed.values():
            pod.writer.close()
