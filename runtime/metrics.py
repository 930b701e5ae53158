"""The metrics that every process exports (docs/metrics.md). Prefix `trimtab_`, base units, no pod or cycle labels."""

import platform
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

FAST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bounds in seconds for what should take milliseconds."""


def product_version() -> str:
    """The installed version of Trimtab."""
    try:
        return version("trimtab")
    except PackageNotFoundError:
        return "0+source"


class CommonMetrics:
    """What every service counts. One registry per process."""

    def __init__(self, service: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("trimtab_build", "Version of this process", registry=self.registry)
        build.info({"version": product_version(), "python": platform.python_version(), "service": service})
        self.received = Counter(
            "trimtab_messages_received", "Messages read and accepted", ["kind"], registry=self.registry
        )
        self.published = Counter("trimtab_messages_published", "Messages sent", ["kind"], registry=self.registry)
        self.dropped = Counter(
            "trimtab_messages_dropped",
            "Messages not used, by reason",
            ["kind", "reason"],
            registry=self.registry,
        )
        self.age = Histogram(
            "trimtab_message_age_seconds",
            "Age of a message when it was read",
            ["kind"],
            buckets=FAST_BUCKETS,
            registry=self.registry,
        )
        self.handle = Histogram(
            "trimtab_handle_duration_seconds",
            "Time spent on one message",
            ["kind"],
            buckets=FAST_BUCKETS,
            registry=self.registry,
        )
        self.step = Histogram(
            "trimtab_step_duration_seconds",
            "Time spent in one of the twelve steps",
            ["step"],
            buckets=FAST_BUCKETS,
            registry=self.registry,
        )
        self.last_tick = Gauge(
            "trimtab_last_tick_timestamp_seconds", "When the loop last ticked here", registry=self.registry
        )
        self.bus_connected = Gauge("trimtab_bus_connected", "1 while connected to NATS", registry=self.registry)
        self.reconnects = Counter("trimtab_bus_reconnects", "Connections regained", registry=self.registry)
