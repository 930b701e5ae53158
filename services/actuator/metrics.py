"""The actuator's metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from runtime.metrics import FAST_BUCKETS


class ActuatorMetrics:
    """Writes, foreign changes, restores, and how long a state took to become a write."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter("trimtab_actuator_writes", "Pod weights by result", ["result"], registry=registry)
        self.outcomes = Counter("trimtab_actuator_actuations", "Cycles by outcome", ["outcome"], registry=registry)
        self.foreign = Counter(
            "trimtab_actuator_foreign_changes", "Weights that somebody else had rewritten", registry=registry
        )
        self.restores = Counter("trimtab_actuator_restores", "Returns to the originals", ["reason"], registry=registry)
        self.duration = Histogram(
            "trimtab_actuator_write_duration_seconds",
            "Time to write and read back all pods of a cycle",
            buckets=FAST_BUCKETS,
            registry=registry,
        )
        self.loop = Histogram(
            "trimtab_loop_duration_seconds",
            "Time from a state to its weights being written",
            buckets=FAST_BUCKETS,
            registry=registry,
        )
        self.step_ratio = Histogram(
            "trimtab_actuator_weight_step_ratio",
            "Factor by which a pod weight changed (larger over smaller)",
            buckets=(1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 100.0),
            registry=registry,
        )
        self.lost = Gauge(
            "trimtab_actuator_originals_lost",
            "1 while a damaged journal lies beside the present one: some originals may not be known",
            registry=registry,
        )
        self.writable = Gauge("trimtab_actuator_writable", "1 while weights can be written", registry=registry)
