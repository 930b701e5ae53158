"""The guard's own settings; the limits of weights are shared with the decider (`weights:`)."""

from typing import Annotated

from msgspec import Meta

from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared


class GuardConfig(Section, frozen=True, kw_only=True):
    """What may happen, and when it is taken back."""

    apply_within_seconds: Seconds = 0.5
    """Seconds after the decision budget until which a verdict may be applied. 0.5: a starved actuator still makes it,
    and a delayed verdict never acts on a node that has moved on."""

    max_state_age_ticks: Annotated[float, Meta(gt=0.0, le=2.0)] = 2.0
    """Oldest state, in ticks, on which anything is applied."""

    require_contention: bool = True
    """Hold while nobody waits for CPU: weights then change nothing, and nothing can be learned."""

    regression_ratio: Annotated[float, Meta(gt=0.0, le=10.0)] = 0.2
    """Rise of a class's P99 over its snapshot that rolls a change back. 0.2: twenty per cent."""

    regression_floor_ratio: Ratio = 0.0
    """P99s below this part of the class's objective are never called a regression. 0: every rise counts. A service at
    a tenth of its objective gains nothing from rollbacks of its noise: then set 0.5."""

    regression_wait_ratio: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.3
    """Rise of a class's wait for CPU, as a part of the time, that rolls a change back where pressure judges it. 0.3: a
    wait over 2 s differs by 0.1 and more from one window to the next without a change
    (docs/adr/0010-judging-without-latency.md)."""

    min_requests: Annotated[int, Meta(ge=1)] = 100
    """Requests that a window needs before its P99 is evidence for a rollback. 100: the P99 of fewer is their maximum,
    which rose by over a fifth in two of five windows without a change (docs/adr/0009-evidence-for-a-rollback.md)."""

    rollbacks_to_open: Annotated[int, Meta(ge=1, le=100)] = 3
    """Rollbacks within `rollback_window_seconds` that open the breaker: originals return and nothing is tried."""

    rollback_window_seconds: Seconds = 120.0
    """Seconds over which rollbacks are counted. 120: 24 cycles at the 5 s tick."""

    cool_down_seconds: Seconds = 60.0
    """Seconds that the breaker stays open before one change is tried again."""

    blind_after_ticks: Annotated[float, Meta(ge=2.0, le=100.0)] = 6.0
    """Ticks without a fresh state after which originals are restored: weights that nobody watches are not left."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for times that cannot fit into a tick."""
        used = shared.loop.decision_budget_seconds + self.apply_within_seconds
        if used >= shared.loop.tick_seconds:
            raise SettingsError(
                f"guard.apply_within_seconds: {self.apply_within_seconds} + loop.decision_budget_seconds "
                f"{shared.loop.decision_budget_seconds} must be less than loop.tick_seconds {shared.loop.tick_seconds}"
            )
