"""The collector's own settings."""

from typing import Annotated, Final

from msgspec import Meta

from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared
from services.collector.core.latency_source import unit_of

READING_RATIO: Final = 0.2
"""How much longer than `scrape_timeout_seconds` a round of scrapes may take, to read what came at the last moment."""


class CollectorConfig(Section, frozen=True, kw_only=True):
    """What is looked at, and what counts as evidence."""

    workloads: str | None = None
    """YAML file that lists the workloads (docs/operations.md). Read again when it changes."""

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
        """Raises SettingsError for a scrape that would outlast the settle time, or no label keys."""
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
