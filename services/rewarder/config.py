"""The rewarder's own settings: the weights of the reward's terms."""

from typing import Annotated

from msgspec import Meta

from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared


class RewarderConfig(Section, frozen=True, kw_only=True):
    """What counts how much, and how long to wait for the others."""

    violation_weight: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.3
    """Part of the penalty for objectives being broken at all. With `severity_weight` it makes up the whole -1. Never 0:
    a broken objective must cost something, however little it is broken."""

    severity_weight: Ratio = 0.7
    """Part of the penalty for how badly they are broken. The larger one: then every step counts."""

    throughput_weight: Ratio = 1.0
    """Worth of throughput classes having the whole node, once all objectives hold."""

    oscillation_weight: Annotated[float, Meta(ge=0.0, le=0.25)] = 0.05
    """Cost of moving every weight by the full range. Small: it decides between equals, never against an objective."""

    min_requests: Annotated[int, Meta(ge=1)] = 20
    """Requests that the second window needs before its latency is evidence. 20: the policy averages over many rewards,
    so each may be rough; a rollback must be right at once, so the guard asks for more. Below `collector.min_requests`
    there is no latency to judge anyway."""

    answer_timeout_seconds: Seconds = 1.5
    """Seconds to wait for each of the others: a verdict, an actuation, the second state. 1.5: half a second more than
    the slowest scrape (`collector.scrape_timeout_seconds`) may take."""

    require_contention: bool = True
    """Learn only from cycles in which somebody waited for CPU."""

    def check(self, shared: Shared) -> None:  # noqa: ARG002 - as every section's check is called
        """Raises SettingsError for a penalty that cannot fit into the reward's range."""
        whole = self.violation_weight + self.severity_weight
        if whole > 1.0 + 1e-9:
            raise SettingsError(
                f"rewarder.severity_weight: {self.severity_weight} + rewarder.violation_weight {self.violation_weight} "
                f"must not be more than 1; beyond that bad and worse would be worth the same"
            )
