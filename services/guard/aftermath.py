"""Step 11: what came of a change. Keeps it, takes it back, or opens the breaker; and judges the one change of a
half-open breaker for as long as that takes.
"""

import math
from collections.abc import Iterable

from runtime.lifecycle import Context
from schemas.messages import Actuation, State
from services.guard.config import GuardConfig
from services.guard.core.breaker import Breaker
from services.guard.core.excuses import Excuses
from services.guard.core.past import BREAKER_OPENED, BreakerPast
from services.guard.core.regression import Evidence, Regression, find_regression
from services.guard.core.trial import is_no_worse
from services.guard.cycles import Cycle
from services.guard.metrics import GuardMetrics
from services.guard.orders import Orders


class Aftermath:
    """Compares, and orders back. `moved_at` is when it last did so, in monotonic seconds."""

    def __init__(self, context: Context, config: GuardConfig, metrics: GuardMetrics, orders: Orders) -> None:
        self._context = context
        self._config = config
        self._metrics = metrics
        self._orders = orders
        self._trial: Cycle | None = None
        self._lost: Cycle | None = None  # it was taken back, and the breaker's order is still to be given
        self.moved_at = -math.inf
        self.breaker = Breaker(
            config.rollbacks_to_open, config.rollback_window_seconds, config.cool_down_seconds, config.trial_seconds
        )

    async def take_up(self, past: BreakerPast) -> None:
        """Takes up where an earlier run stood. A change that was under trial is taken back: nobody judges it now."""
        now = self._now()
        opened_at = None if past.opened is None else now - past.opened
        counts_seconds = max(self._config.rollback_window_seconds, self._config.cool_down_seconds)
        self.breaker.resume((now - age for age in past.rollbacks if age <= counts_seconds), opened_at)
        if self.breaker.state(now) == "half_open":
            await self._orders.restore(None, "half_open", "the guard started anew while its breaker was half open")

    def let_through(self, cycle: Cycle, now: float) -> None:
        """A change was let through."""
        self.breaker.tried(now)
        self._trial = cycle if self.breaker.is_trying else None

    def taken_back(self) -> None:
        """Weights were ordered back, or a mode that stands still was: nothing is under trial any more. What had been
        carried out and could not be judged to its end counts as what failed.
        """
        trial, self._trial = self._trial, None
        if trial is not None and trial.applied:
            trial.settled, self._lost = True, trial
            self.breaker.reopen(self._now())
        else:
            self.breaker.not_tried()

    async def on_actuation(self, cycle: Cycle, actuation: Actuation, *, stands_still: str | None) -> None:
        """What the actuator did about a cycle. `stands_still`: the mode in force, if it is one in which nothing is
        written.
        """
        if cycle.settled:
            return
        if actuation.outcome != "applied":
            cycle.settled = True  # nothing was done, or it was taken back before we looked
            if cycle is self._trial:
                self.taken_back()
            return
        if not cycle.applied and stands_still is not None:  # the order to stand still overtook our verdict
            reason = f"a change was applied while the mode is {stands_still}"
            await self._orders.restore(cycle.state, "mode", reason)
        cycle.applied = True
        cycle.written = {
            write.group: write.after for write in actuation.writes if write.result == "applied" and write.after
        }

    async def compare(self, cycle: Cycle) -> None:
        """Judges a change that is known to be in force by the look that was taken after it."""
        after = cycle.after
        if after is None or not cycle.applied or cycle.settled:
            return
        if cycle is self._trial and cycle.is_undone_in(after):
            self.taken_back()
            return
        evidence, regression = self._find(cycle, after)
        self._metrics.evidence.labels(evidence).inc()
        if evidence == "unknown" and cycle is self._trial:
            return  # it is looked at again
        cycle.settled = True
        await self._conclude(cycle, evidence, regression)

    async def look_again(self, states: Iterable[State]) -> None:
        """Judges the change under trial by later looks, and takes it back when that has lasted too long."""
        for state in states:
            if self._trial is not None and self._trial.is_undone_in(state):
                self.taken_back()
        if self._lost is not None:
            lost, self._lost = self._lost, None
            await self._open(lost, "the change under trial was taken back before it was judged")
        trial = self._trial
        if trial is None:
            return
        for state in states:
            evidence, regression = self._find(trial, state)
            if trial.applied and evidence != "unknown":
                trial.settled = True
                await self._conclude(trial, evidence, regression)
                return
            if trial.applied and self.breaker.is_due(self._now()) and self._is_no_worse(trial, state):
                trial.settled = True
                await self._conclude(trial, "keep", None)
                return
        if self.breaker.gives_up(self._now()):
            trial.settled = True
            self._trial = None
            reason = f"the change under trial gave no evidence in {self._config.trial_seconds:g} s"
            await self._open(trial, reason)

    def _find(self, cycle: Cycle, after: State) -> tuple[Evidence, Regression | None]:
        with self._context.metrics.step.labels("roll_back").time():
            return find_regression(
                cycle.state,
                after,
                limit_ratio=self._config.regression_ratio,
                floor_ratio=self._config.regression_floor_ratio,
                wait_ratio=self._config.regression_wait_ratio,
                min_requests=self._config.min_requests,
                excuses=Excuses(
                    self._context.shared.classes,
                    self._config.regression_lost_ratio,
                    node_wide=cycle.verdict is not None and cycle.verdict.canary_ratio is None,
                ),
            )

    def _is_no_worse(self, trial: Cycle, after: State) -> bool:
        return is_no_worse(
            trial.state,
            after,
            self._context.shared.classes,
            lost_ratio=self._config.regression_lost_ratio,
            min_requests=self._config.min_requests,
            wait_ratio=self._config.regression_wait_ratio,
        )

    async def _conclude(self, cycle: Cycle, evidence: Evidence, regression: Regression | None) -> None:
        now = self._now()
        if regression is not None:
            await self._roll_back(cycle, regression, now)
        elif evidence == "keep":
            self.breaker.kept(now)
        if cycle is self._trial:
            self._trial = None

    async def _roll_back(self, cycle: Cycle, regression: Regression, now: float) -> None:
        self._metrics.rollbacks.inc()
        self.moved_at = math.nextafter(now, math.inf)  # after whatever state it came of
        was_tried = self.breaker.is_trying
        opened = self.breaker.rolled_back(now)
        weights = cycle.verdict.previous_weights if cycle.verdict is not None else None
        await self._orders.roll_back(cycle.state, regression, weights)
        if opened:
            many = f"{self._config.rollbacks_to_open} rollbacks"
            await self._open(cycle, f"{'the change under trial' if was_tried else many}: the breaker opened")

    async def _open(self, cycle: Cycle, reason: str) -> None:
        self.moved_at = math.nextafter(self._now(), math.inf)
        self._context.log.warning("breaker_opened", cool_down_seconds=self._config.cool_down_seconds, detail=reason)
        await self._orders.restore(cycle.state, BREAKER_OPENED, reason)

    def _now(self) -> float:
        return self._context.clock.monotonic()
