"""What a simulated node is made of: the scenario file, its checks, and the tree of weights that follows from it.

A scenario is YAML or JSON:

    cores: 2
    seed: 1
    metric: http_request_duration_seconds
    pods:
      - uid: 11111111-1111-4111-8111-111111111111
        name: api
        labels: {trimtab.dev/workload-class: latency-critical}
        qos: burstable
        request_millicpu: 250
        workload: {kind: service, rate_per_second: 100, work_seconds: 0.006, workers: 4}
      - uid: 22222222-2222-4222-8222-222222222222
        name: batch
        request_millicpu: 4000
        workload: {kind: batch, processes: 4}

Unknown fields are errors. Every field of a pod and of a workload is a field of the structs below.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hostfs.weights import MAX_WEIGHT, MIN_WEIGHT, shares_from_millicpu, weight_from_shares
from lab.simulator import Batch, Group, Idle, Service, Workload
from runtime.errors import ConfigError

PODS_ROOT: Final = "kubepods"
CLASS_LABEL: Final = "trimtab.dev/workload-class"

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Uid: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Positive: TypeAlias = Annotated[float, Meta(gt=0.0, le=86_400.0)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1024)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in a scenario."""


class ServiceSpec(_Part, frozen=True, kw_only=True, tag_field="kind", tag="service"):
    """A pod that answers requests; see `lab.service_queue.Service` for the meaning of the fields."""

    rate_per_second: Annotated[float, Meta(ge=0.0, le=100_000.0)]
    work_seconds: Positive
    distribution: Literal["exponential", "lognormal"] = "exponential"
    spread: Annotated[float, Meta(ge=0.0, le=5.0)] = 0.5
    workers: Count = 4
    max_queue: Annotated[int, Meta(ge=0, le=1_000_000)] = 512
    timeout_seconds: Positive = 1.0


class BatchSpec(_Part, frozen=True, kw_only=True, tag_field="kind", tag="batch"):
    """A pod that always wants to run. A core does `work_per_core_second` units a second; 1000: CPU milliseconds."""

    processes: Count = 1
    running: bool = True
    work_per_core_second: Positive = 1000.0


class IdleSpec(_Part, frozen=True, kw_only=True, tag_field="kind", tag="idle"):
    """A pod that never wants to run."""


class PodSpec(_Part, frozen=True, kw_only=True):
    """One pod. Its first `cpu.weight` is `cpu_weight` or follows from its request as the kubelet and runc have it."""

    uid: Uid
    name: Name
    workload: ServiceSpec | BatchSpec | IdleSpec
    labels: dict[str, str] = {}
    qos: Literal["guaranteed", "burstable", "besteffort"] = "burstable"
    request_millicpu: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    cpu_weight: Annotated[int, Meta(ge=MIN_WEIGHT, le=MAX_WEIGHT)] | None = None

    @property
    def group(self) -> str:
        """The pod-level group's path below the pods root."""
        return f"pod{self.uid}" if self.qos == "guaranteed" else f"{self.qos}/pod{self.uid}"

    @property
    def weight(self) -> int:
        """The `cpu.weight` that the pod starts with."""
        return self.cpu_weight or linear_weight(self.request_millicpu)


class Scenario(_Part, frozen=True, kw_only=True):
    """A node and its pods. `metric` is the name of the services' latency histogram."""

    pods: tuple[PodSpec, ...]
    cores: Annotated[int, Meta(ge=1, le=1024)] = 2
    seed: int = 1
    metric: Annotated[str, Meta(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")] = "http_request_duration_seconds"

    def __post_init__(self) -> None:
        for what in ("name", "uid"):
            values = [getattr(pod, what) for pod in self.pods]
            if len(set(values)) < len(values):
                raise ValueError(f"two pods have the same {what}")


def linear_weight(millicpu: int) -> int:
    """The `cpu.weight` of a CPU request in thousandths of a core: 250 gives 10, 4000 gives 157.

    The kubelet makes cgroup v1 shares of it and the runtime a weight of those, here by the linear rule. Newer runtimes
    have another curve; a scenario that wants that one sets `cpu_weight`.
    """
    return weight_from_shares(shares_from_millicpu(millicpu)) or MIN_WEIGHT


def workload_of(pod: PodSpec) -> Workload:
    """The pod's workload as the simulator takes it."""
    match pod.workload:
        case ServiceSpec() as spec:
            return Service(name=pod.name, **msgspec.structs.asdict(spec))
        case BatchSpec() as spec:
            return Batch(name=pod.name, processes=spec.processes, running=spec.running)
        case IdleSpec():
            return Idle(name=pod.name)


def tree_of(scenario: Scenario) -> Group:
    """The groups from the pods root down to the pods, with the weights a kubelet gives them.

    The burstable group weighs by the sum of its pods' requests, best effort always 1; guaranteed pods hang directly
    below the pods root.
    """

    def pods(qos: str) -> tuple[Group, ...]:
        return tuple(
            Group(name=f"pod{pod.uid}", weight=pod.weight, workload=workload_of(pod))
            for pod in scenario.pods
            if pod.qos == qos
        )

    requested = sum(pod.request_millicpu for pod in scenario.pods if pod.qos == "burstable")
    burstable = Group(name="burstable", weight=linear_weight(requested), children=pods("burstable"))
    besteffort = Group(name="besteffort", weight=1, children=pods("besteffort"))
    node_weight = linear_weight(scenario.cores * 1000)
    return Group(name=PODS_ROOT, weight=node_weight, children=(burstable, besteffort, *pods("guaranteed")))


def load_scenario(path: Path) -> Scenario:
    """The scenario in a `.json`, `.yaml` or `.yml` file. Raises ConfigError, which says where it is wrong."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(raw, type=Scenario)
        return msgspec.yaml.decode(raw, type=Scenario)
    except OSError as error:
        raise ConfigError(f"cannot read scenario {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"scenario {path}: {' '.join(str(error).split())}") from error


def default_scenario() -> Scenario:
    """Two cores that a batch pod with a large request takes from an API with a small one: the fault to be cured."""
    return Scenario(
        pods=(
            PodSpec(
                uid="0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e01",
                name="api",
                labels={"app": "api", CLASS_LABEL: "latency-critical"},
                request_millicpu=250,
                workload=ServiceSpec(rate_per_second=100.0, work_seconds=0.006),
            ),
            PodSpec(
                uid="0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e02",
                name="batch",
                labels={"app": "batch", CLASS_LABEL: "batch"},
                request_millicpu=4000,
                workload=BatchSpec(processes=4),
            ),
            PodSpec(
                uid="0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e03",
                name="monitor",
                labels={"app": "monitor", CLASS_LABEL: "default"},
                request_millicpu=100,
                workload=ServiceSpec(rate_per_second=10.0, work_seconds=0.003, workers=2),
            ),
        ),
    )
