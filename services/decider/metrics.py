"""The decider's metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PROPENSITY_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0)


class DeciderMetrics:
    """Decisions, exploration, lessons."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter(
            "trimtab_decider_decisions", "Decisions by arm", ["policy", "action"], registry=registry
        )
        self.explorations = Counter(
            "trimtab_decider_explorations", "Decisions led by chance", ["policy"], registry=registry
        )
        self.propensity = Histogram(
            "trimtab_decider_propensity_ratio",
            "Probability of the arm that was chosen",
            ["policy"],
            buckets=_PROPENSITY_BUCKETS,
            registry=registry,
        )
        self.updates = Counter("trimtab_decider_updates", "Rewards learned", ["policy"], registry=registry)
        self.rejected = Counter(
            "trimtab_decider_rejected_rewards", "Rewards not learned, by reason", ["reason"], registry=registry
        )
        self.resets = Counter(
            "trimtab_decider_policy_resets", "Stored models and policies set aside", ["reason"], registry=registry
        )
        self.models = Counter("trimtab_decider_models_stored", "Models stored, by occasion", ["why"], registry=registry)
        self.unstored = Counter(
            "trimtab_decider_models_unstored", "Models that the store did not take", registry=registry
        )
        self.allowed = Gauge("trimtab_decider_allowed_arms", "Arms offered in the last decision", registry=registry)
