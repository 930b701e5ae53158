"""The guard's metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class GuardMetrics:
    """Verdicts, rules, rollbacks, and whether the guard stands still."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.verdicts = Counter("trimtab_guard_verdicts", "Verdicts by outcome", ["verdict"], registry=registry)
        self.rule_hits = Counter("trimtab_guard_rule_hits", "Rules that decided", ["rule"], registry=registry)
        self.would_refuse = Counter(
            "trimtab_guard_would_refuse", "What watched rules would have refused", ["rule"], registry=registry
        )
        self.rollbacks = Counter("trimtab_guard_rollbacks", "Changes taken back for a regression", registry=registry)
        self.evidence = Counter(
            "trimtab_guard_evidence", "What the second look said of a change", ["evidence"], registry=registry
        )
        self.frozen = Gauge("trimtab_guard_frozen", "1 while frozen or the breaker is open", registry=registry)
        self.mode = Gauge("trimtab_mode", "1 for the mode in force", ["mode"], registry=registry)
