"""The models of this node in the object store: put, fetched, listed and pruned, and never waited for too long."""

from typing import Final

from runtime.errors import BusError
from runtime.lifecycle import Context
from runtime.streams import MODELS
from runtime.turns import within
from services.decider.core.model import Model, decode_model
from services.decider.core.snapshot import SnapshotMismatch
from services.decider.metrics import DeciderMetrics

_SECONDS: Final = 4.0
"""Seconds for one call, whatever the bus allows each of its answers. 4: less than half of what a service has to stop,
and a server that takes longer for 100 kB has other troubles."""

_PRUNED_AT_ONCE: Final = 20


class ModelStore:
    """Bounded calls. `put` and `prune` tell the log once when they fail, and again when they do not any more."""

    def __init__(self, context: Context, metrics: DeciderMetrics, kept: int) -> None:
        self._messenger = context.messenger
        self._log = context.log
        self._metrics = metrics
        self._kept = kept
        self._is_failing = False

    async def digests(self) -> list[str]:
        """The digests of the stored models, oldest first. Raises BusError."""
        try:
            return await within(_SECONDS, self._messenger.list_objects(MODELS))
        except TimeoutError as error:
            raise BusError(f"{MODELS}: did not say what it holds within {_SECONDS:g} s") from error

    async def fetch(self, digest: str) -> Model:
        """One model. Raises SnapshotMismatch for what is no model with this digest (`missing`: there is none), BusError
        without an answer.
        """
        try:
            raw = await within(_SECONDS, self._messenger.get_object(MODELS, digest))
        except TimeoutError as error:
            raise BusError(f"{MODELS}: {digest[:12]} did not come within {_SECONDS:g} s") from error
        except ValueError as error:
            raise SnapshotMismatch("missing", f"{digest[:80]!r} is no digest") from error
        if raw is None:
            raise SnapshotMismatch("missing", f"no model {digest[:12]} is stored for this node")
        return decode_model(raw, digest)

    async def put(self, digest: str, raw: bytes, why: str) -> bool:
        """Stores a model; False if that failed."""
        try:
            await within(_SECONDS, self._messenger.put_object(MODELS, digest, raw))
        except (BusError, TimeoutError) as error:
            self._metrics.unstored.inc()
            if not self._is_failing:
                self._log.warning(
                    "model_not_stored",
                    detail=str(error) or f"no answer within {_SECONDS:g} s",
                    model=digest[:12],
                    way_out="decisions go on, and actions name the last stored model; see that the server runs with "
                    "JetStream, has space, and gives this credential the models (trimtab creds show DIR)",
                )
            self._is_failing = True
            return False
        if self._is_failing:
            self._log.info("model_stored_again", model=digest[:12])
        self._is_failing = False
        self._metrics.models.labels(why).inc()
        return True

    async def prune(self) -> None:
        """Deletes the oldest models beyond those that are kept, some at a time."""
        try:
            digests = await self.digests()
            for digest in digests[: -self._kept][:_PRUNED_AT_ONCE]:
                await within(_SECONDS, self._messenger.delete_object(MODELS, digest))
        except (BusError, TimeoutError) as error:
            self._log.debug("models_not_pruned", detail=str(error))
