"""The rewarder's metrics."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_VALUE_BUCKETS = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class RewarderMetrics:
    """Rewards, their terms, and what was censored."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.value = Histogram(
            "trimtab_reward_value", "Rewards and their terms", ["term"], buckets=_VALUE_BUCKETS, registry=registry
        )
        self.rewards = Counter("trimtab_rewarder_rewards", "Cycles by outcome", ["outcome"], registry=registry)
        self.censored = Counter("trimtab_rewarder_censored", "Censored cycles by reason", ["reason"], registry=registry)
        self.violations = Counter(
            "trimtab_rewarder_slo_violations",
            "Cycles in which a class missed its objective",
            ["slo"],
            registry=registry,
        )
        self.delay = Histogram(
            "trimtab_rewarder_reward_delay_seconds",
            "Time from a state to its reward",
            buckets=(0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0),
            registry=registry,
        )
