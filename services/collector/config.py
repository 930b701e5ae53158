"""The collector's own settings."""

from typing import Annotated, Final

from msgspec import Meta

from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared
from services.collector.core.latency_source import unit_of

READING_RATIO: Final = 0.2
"""How much longer than `scrape_timeout_seconds` a round of scrapes may take, to read what came at the last moment."""


NO_SOURCE: Final = (
    "collector.workloads: is not set and collector.kubernetes is not true; name the YAML file that lists this node's "
    "workloads, or set kubernetes to true on a cluster"
)
"""What is said where neither source of workloads is configured."""


class CollectorConfig(Section, frozen=True, kw_only=True):
    """What is looked at, and what counts as evidence."""

    workloads: str | None = None
    """YAML file that lists the workloads (docs/operations.md). Read again when it changes. Either this or
    `kubernetes`."""

    kubernetes: bool = False
    """Whether the Kubernetes API says which pods are on this node. False: a node without a cluster needs no API."""

    kubeconfig: str | None = None
    """kubeconfig file to reach the API with. None: the service account of the pod that this runs in. The variable
    KUBECONFIG is not read: a shell's choice of cluster must not steer a node."""

    relist_seconds: Annotated[float, Meta(ge=10.0, le=86_400.0)] = 300.0
    """Seconds after which all pods are listed anew, whatever the watch said; up to a tenth sooner, so that nodes do not
    ask all at once. 300: a pod that was missed is not missed for long, and a list an API server answers from its cache
    costs little."""

    watch_timeout_seconds: Annotated[float, Meta(ge=1.0, le=3600.0)] = 70.0
    """Seconds without a byte after which a watch counts as dead. It is opened again where it ended; where that dies
    too, pods are listed anew. Servers are asked to end a watch after seven tenths of this, so on a quiet node it is
    renewed and nothing is listed. 70: renewed every 49 s, at little cost for a server of thousands of nodes."""

    max_view_age_seconds: Seconds = 90.0
    """Seconds after the last list, event, bookmark or watch that the server agreed to, beyond which no weight is
    written and pods are listed anew. 90: `watch_timeout_seconds` and the time to connect and watch again."""

    include_namespaces: tuple[str, ...] | None = None
    """Namespaces whose pods are classified. None: all."""

    exclude_namespaces: tuple[str, ...] = ("kube-system",)
    """Namespaces whose pods are seen and never classified. kube-system: what the node itself needs."""

    class_labels: tuple[str, ...] = ("trimtab.dev/workload-class", "node-controller-workload-class", "workload-type")
    """Label keys that name a pod's class; the first one present decides. Values are compared exactly."""

    latency_metrics: tuple[str, ...] = (
        "http_request_duration_seconds",
        "http_server_request_duration_seconds",
        "http_server_requests_seconds",
        "grpc_server_handling_seconds",
        "rpc_server_duration_seconds",
        "rpc_server_call_duration_seconds",
        "http_server_duration_milliseconds",
        "rpc_server_duration_milliseconds",
        "http_request_duration_milliseconds",
        "http_request_duration_ms",
        "request_duration_seconds",
        "http_requests_duration_seconds",
        "istio_request_duration_milliseconds",
    )
    """What is looked for on a page, in this order, where a workload names none: first as histograms, then as summaries.
    The unit is the one at the end of the name."""

    scrape_timeout_seconds: Seconds = 1.0
    """Seconds for one scrape in all: connecting, headers and body, and for all scrapes of a round together. 1.0: half
    of the settle time. Reading the pages may take a fifth more."""

    scrape_max_bytes: Annotated[int, Meta(ge=1024, le=64 << 20)] = 8 << 20
    """Largest page read, after decompression, in bytes. 8 MiB: about a hundred thousand lines."""

    scrape_concurrency: Annotated[int, Meta(ge=1, le=256)] = 128
    """Most scrapes at one time. 128: all pods of a usual node, so that none waits for another that is slow."""

    tls_ca_file: str | None = None
    """PEM file of the authorities that pods' certificates are checked against. None: the system's. Read again when it
    changes, as the other two."""

    tls_cert_file: str | None = None
    """PEM file of the certificate (and its chain) that is shown to pods that ask for one. None: none is."""

    tls_key_file: str | None = None
    """PEM file of its key. None: the key is in `tls_cert_file`."""

    tls_server_name: str | None = None
    """Name that pods' certificates must have. None: the host in the URL, which for a pod is its IP address."""

    tls_verify: bool = True
    """Whether certificates are checked at all. True: a page from somebody else would steer the node."""

    min_requests: Annotated[int, Meta(ge=1)] = 20
    """Requests that a window needs for its quantiles. Below it the window before a decision grows."""

    max_window_seconds: Seconds = 30.0
    """Longest window before a decision. 30: six ticks; older requests say little of now."""

    contended_pressure_ratio: Ratio = 0.05
    """Part of the window in which some task of a class must have waited for the node to count as contended."""

    contended_run_queue: Annotated[float, Meta(gt=0.0, le=100.0)] = 0.5
    """Waiting tasks per CPU that count as contention where the kernel has no pressure files."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for a scrape that would outlast the settle time, no label keys, or two sources."""
        if self.scrape_timeout_seconds > shared.loop.settle_seconds:
            raise SettingsError(
                f"collector.scrape_timeout_seconds: {self.scrape_timeout_seconds} is more than loop.settle_seconds "
                f"{shared.loop.settle_seconds}; a slow endpoint would hold up the cycle"
            )
        loop = shared.loop
        cycle = (
            2 * (1 + READING_RATIO) * self.scrape_timeout_seconds + loop.settle_seconds + loop.decision_budget_seconds
        )
        if cycle >= loop.tick_seconds:
            raise SettingsError(
                f"collector.scrape_timeout_seconds: two scrapes of {self.scrape_timeout_seconds} s, reading, "
                f"settling and deciding make {cycle:g} s, more than loop.tick_seconds {loop.tick_seconds}; shorten one"
            )
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise SettingsError("collector.tls_key_file: is set and collector.tls_cert_file is not; name both")
        for name in self.latency_metrics:
            if unit_of(name) is None:
                raise SettingsError(
                    f"collector.latency_metrics: {name!r} does not end in a unit of time, as in _seconds; name it at "
                    f"the workloads that have it, with its unit"
                )
        if not self.class_labels:
            raise SettingsError("collector.class_labels: is empty; name at least one label key")
        self._check_source()

    def _check_source(self) -> None:
        if self.kubernetes and self.workloads is not None:
            raise SettingsError(
                "collector.workloads: is set and collector.kubernetes is true; set workloads to null to follow the "
                "API, or kubernetes to false to go by the file"
            )
        if self.kubeconfig is not None and not self.kubernetes:
            raise SettingsError(
                "collector.kubeconfig: is set and collector.kubernetes is not; set kubernetes to true, or drop it"
            )
        if self.max_view_age_seconds <= self.watch_timeout_seconds:
            raise SettingsError(
                f"collector.max_view_age_seconds: {self.max_view_age_seconds:g} is not more than "
                f"collector.watch_timeout_seconds {self.watch_timeout_seconds:g}; one connection that dies would "
                f"stop all writes"
            )
        if self.include_namespaces is not None and not set(self.include_namespaces) - set(self.exclude_namespaces):
            raise SettingsError(
                "collector.include_namespaces: none of them is left after collector.exclude_namespaces; name one, or "
                "null for all"
            )
