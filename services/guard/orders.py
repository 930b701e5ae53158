"""The guard's commands: take one change back, or all originals."""

from runtime.lifecycle import Context
from schemas.messages import Command, CommandVerb, Message
from services.guard.core.regression import Regression


class Orders:
    """Gives orders, each about the cycle that gave the reason for it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def roll_back(self, about: Message, regression: Regression, weights: dict[str, int] | None) -> None:
        """Orders back the weights from before the change of this cycle."""
        reason = str(regression)
        p99 = (regression.before, regression.after) if regression.signal == "latency" else (None, None)
        sent = await self._send(about, "rollback", "regression", reason, weights=weights, p99=p99)
        self._context.log.info("rolled_back", cycle=about.cycle, reason=reason, sent=sent)

    async def restore(self, about: Message | None, why: str, reason: str) -> bool:
        """Orders all originals back; False if the order could not leave. `why` is one word for each kind of reason:
        one restore of a kind is stored for a cycle. `about` is None where no cycle has been seen yet.
        """
        sent = await self._send(about, "restore", why, reason)
        self._context.log.warning("restore_ordered", why=why, reason=reason, sent=sent)
        return sent

    async def _send(
        self,
        about: Message | None,
        verb: CommandVerb,
        why: str,
        reason: str,
        *,
        weights: dict[str, int] | None = None,
        p99: tuple[float | None, float | None] = (None, None),
    ) -> bool:
        boot, cycle = (about.boot, about.cycle) if about is not None else (self._context.boot, 0)
        return await self._context.messenger.send(
            Command(
                node=self._context.shared.node,
                boot=boot,
                cycle=cycle,
                at=self._context.clock.now_ns(),
                verb=verb,
                by="guard",
                reason=reason,
                weights=weights,
                p99_before_seconds=p99[0],
                p99_after_seconds=p99[1],
                id=f"guard-{boot}-{cycle}-{why}",
            )
        )
