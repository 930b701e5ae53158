"""The guard's own settings; the limits of weights are shared with the decider (`weights:`)."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.messages import Weights
from schemas.settings import Ratio, Seconds, Section, SettingsError, Shared
from services.guard.core.rules import ALWAYS_ENFORCED, WATCHABLE

_A_MODE: Final = "a mode is ordered and no rule; to only watch everything, use mode shadow"
_NO_RULES: Final[Mapping[str, str]] = {
    "breaker": "it is no rule: after repeated rollbacks it refuses every change, whatever the rules say",
    "mode": _A_MODE,
    "shadow": _A_MODE,
    "active": _A_MODE,
}
"""What verdicts and settings speak of beside the rules, and why it cannot be watched."""


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

    regression_floor_ratio: Ratio = 1.0
    """P99s below this part of the class's objective are never called a regression. 1: only a P99 above the objective
    counts, since the rises below it are mostly noise, and each needless rollback counts for the breaker
    (docs/adr/0017-what-a-rollback-is-for.md). 0: every rise counts."""

    regression_lost_ratio: Ratio = 0.9
    """Part of a class's requests over its objective above which a rise of its P99 is no regression. 0.9: it can hardly
    miss its objective more, and whoever gives another class what is lost on it must not be rolled back for that. 1:
    no class counts as lost."""

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

    trial_seconds: Seconds = 60.0
    """Seconds within which the one change that a half-open breaker lets through must show that nothing got worse. 60:
    a dozen looks at the 5 s tick. Without evidence originals return and the breaker opens again."""

    max_clock_skew_seconds: Seconds = 300.0
    """Seconds that the time of an order which lets weights move may differ from the server's: older ones are replays.
    300: what is usual between machines whose clocks are kept right. Orders to stand still are never too old."""

    blind_after_ticks: Annotated[float, Meta(ge=2.0, le=100.0)] = 6.0
    """Ticks without a fresh state after which originals are restored: weights that nobody watches are not left."""

    profiles: dict[str, Weights] = msgspec.field(default_factory=dict)
    """The only profiles that may be asked for: name to class weights, as in `decider.profiles`. Empty: any, since the
    decider's grid is as good as what its bounds allow."""

    min_share_ratio: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.004
    """Least part of the sum of class weights that a class with pods is left. 0.004: below what 100 : 100 : 1 leaves
    (0.00498), the farthest apart that three classes can be; with more classes it begins to refuse."""

    max_class_changes_per_minute: Annotated[float, Meta(gt=0.0, le=600.0)] | None = None
    """Most changes of one class's weight per minute. None: the node's rate (`weights.max_changes_per_minute`)."""

    canary_ratio: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.2
    """Share of the node's pods that is written in mode `canary`, picked by uid, always the same. 0.2: enough pods to
    see something on most nodes, and four of five are out of reach."""

    watch: tuple[str, ...] = ()
    """Rules that are watched instead of enforced: what they would have refused is counted and told. Empty: all are
    enforced, since a rule that is only watched protects nothing."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for times that cannot fit into a tick, and for names that nothing has."""
        self._check_watch()
        self._check_profiles(shared)
        used = shared.loop.decision_budget_seconds + self.apply_within_seconds
        if used >= shared.loop.tick_seconds:
            raise SettingsError(
                f"guard.apply_within_seconds: {self.apply_within_seconds} + loop.decision_budget_seconds "
                f"{shared.loop.decision_budget_seconds} must be less than loop.tick_seconds {shared.loop.tick_seconds}"
            )

    def _check_watch(self) -> None:
        those = f"those to watch are {', '.join(WATCHABLE)}"
        for name in self.watch:
            why_not = ALWAYS_ENFORCED.get(name) or _NO_RULES.get(name)
            if why_not is not None:
                raise SettingsError(f"guard.watch: {name!r} cannot be watched: {why_not}; {those}")
            if name not in WATCHABLE:
                raise SettingsError(f"guard.watch: no rule {name!r}; {those}")

    def _check_profiles(self, shared: Shared) -> None:
        low, high = shared.weights.min_weight, shared.weights.max_weight
        for name, weights in self.profiles.items():
            for cls, weight in weights.items():
                if cls not in shared.classes:
                    known = ", ".join(shared.classes)
                    raise SettingsError(f"guard.profiles.{name}: no class {cls!r} is configured; known are {known}")
                if not low <= weight <= high:
                    raise SettingsError(
                        f"guard.profiles.{name}.{cls}: {weight} is outside weights.min_weight {low} "
                        f"to weights.max_weight {high}"
                    )
