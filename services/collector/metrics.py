"""The collector's metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from runtime.metrics import FAST_BUCKETS


class CollectorMetrics:
    """Cycles, pods, scrapes, contention."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycles = Counter("trimtab_collector_cycles", "Cycles started", registry=registry)
        self.failed = Counter(
            "trimtab_collector_failed_cycles", "Cycles lost to an error in our code", registry=registry
        )
        self.missed = Counter("trimtab_collector_missed_ticks", "Ticks that came too late to run", registry=registry)
        self.pods = Gauge("trimtab_collector_tracked_pods", "Pods seen, by class", ["class"], registry=registry)
        self.collect = Histogram(
            "trimtab_collector_scrape_duration_seconds",
            "Time to read one kind of source",
            ["source"],
            buckets=FAST_BUCKETS,
            registry=registry,
        )
        self.scrape_errors = Counter(
            "trimtab_collector_scrape_errors", "Scrapes without a usable answer", ["reason"], registry=registry
        )
        self.contended = Gauge("trimtab_collector_contended", "1 while CPUs are fought over", registry=registry)
        self.p99 = Gauge(
            "trimtab_collector_class_p99_seconds", "P99 of the last window, by class", ["class"], registry=registry
        )
        self.share = Gauge(
            "trimtab_collector_class_share_ratio", "Effective CPU share by weights", ["class"], registry=registry
        )
        self.weight = Gauge(
            "trimtab_collector_class_weight", "Class weight on the profile scale", ["class"], registry=registry
        )
        self.unclassified = Gauge(
            "trimtab_collector_unclassified_pods",
            "Pods whose class label names no class, by its value",
            ["value"],
            registry=registry,
        )
        self.view_age = Gauge(
            "trimtab_collector_pods_view_age_seconds",
            "Time since the Kubernetes API last proved the view of the pods current",
            registry=registry,
        )
        self.lists = Counter("trimtab_collector_pod_lists", "Lists of pods taken from the API", registry=registry)
        self.events = Counter("trimtab_collector_pod_events", "Watch events taken from the API", registry=registry)
        self.api_failures = Counter(
            "trimtab_collector_api_failures", "Lists and watches that failed", ["reason"], registry=registry
        )
