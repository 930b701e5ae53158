"""The model of a running decider: where it went on from, when it is stored again, and orders to go on from another.

What an action calls its `model` is a stored mind from which the same decisions follow again. So a stored model counts
from the moment it was made of, and only if the mind has not moved on while it was being stored.
"""

import asyncio
import platform
from collections import OrderedDict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from runtime.errors import BusError
from runtime.lifecycle import Context
from runtime.metrics import product_version
from runtime.streams import ORDERS
from schemas.messages import Command
from services.decider.config import DeciderConfig
from services.decider.core.fit import require_fit
from services.decider.core.mind import Mind
from services.decider.core.model import MODEL_VERSION, Model, encode_model
from services.decider.core.snapshot import SnapshotMismatch
from services.decider.core.words import LONGEST_EVENT, not_obeyed, obeyed
from services.decider.metrics import DeciderMetrics
from services.decider.store import ModelStore

_AGAIN_SECONDS: Final = 30.0
"""Seconds after which a model that was not stored, or too late, is tried again, if `checkpoint_seconds` is not less."""

_FRESH_SECONDS: Final = 60.0
"""Age of a model up to which what it remembers of the states before is still of use. A minute: a restart."""

_TRIED_AT_START: Final = 20
"""Models that are tried at start before it begins fresh."""

_TRIES: Final = 3
"""How often a model is stored again at once because the mind moved on meanwhile."""


_ORDERS_READ: Final = 1000
_ORDERS_KNOWN: Final = 1000


class Restored(NamedTuple):
    """What a model that was taken up says of the rewards that it knows."""

    last_lesson: str | None
    made_at: int


class Keeper:
    """Keeps the model of one mind. `model` is the digest that actions name, "" if none could be stored."""

    def __init__(
        self, context: Context, config: DeciderConfig, mind: Mind, metrics: DeciderMetrics, settings: str
    ) -> None:
        self.model = ""
        self._context = context
        self._config = config
        self._mind = mind
        self._metrics = metrics
        self._settings = settings
        self._store = ModelStore(context, metrics, config.models_kept)
        self._lock = asyncio.Lock()
        self._order: str | None = None
        self._obeyed: OrderedDict[str, None] = OrderedDict()
        self._events: list[str] = []
        self._stored_steps = -1
        self._next_at = context.clock.monotonic() + config.checkpoint_seconds

    @property
    def is_due(self) -> bool:
        """Whether it is time to store what was learned since the last time."""
        return self._context.clock.monotonic() >= self._next_at and self._mind.steps != self._stored_steps

    def take_event(self) -> str | None:
        """What became of the model since this was last asked, if anything."""
        told, self._events = "; ".join(self._events), []
        return told[:LONGEST_EVENT] or None

    # ---- start and stop ----

    async def restore(self) -> Restored | None:
        """Goes on from the newest model of this node that fits; None if there is none, and the mind is fresh."""
        try:
            digests = await self._store.digests()
        except BusError as error:
            self._context.log.warning("models_unknown", detail=str(error))
            return None
        for digest in digests[: -_TRIED_AT_START - 1 : -1]:
            try:
                model = await self._store.fetch(digest)
                require_fit(model, self._config, self._context.shared)
            except SnapshotMismatch as error:
                self._set_aside(digest, error)
                continue
            except BusError as error:
                self._context.log.warning("models_unknown", detail=str(error))
                return None
            age_seconds = (self._context.clock.now_ns() - model.made_at) / 1e9
            self._load(model, digest, outlook=0.0 <= age_seconds <= _FRESH_SECONDS)
            self.model, self._order = digest, model.order
            self._context.log.info("model_restored", model=digest[:12], why=model.why, age_seconds=round(age_seconds))
            return Restored(model.mind.last_lesson, model.made_at)
        return None

    async def begin(self) -> None:
        """Obeys the newest order, if that was given meanwhile, and stores what the run begins with."""
        for order in await self._past_orders():
            self._know(order)
        await self.store("start")

    async def _past_orders(self) -> Sequence[Command]:
        """The orders of a model that were given before. The newest is obeyed, unless it was."""
        try:
            stored = await self._context.messenger.history(ORDERS, Command, _ORDERS_READ)
        except BusError as error:
            self._context.log.warning("orders_unknown", detail=str(error))
            return ()
        orders = [order for order in stored if order.verb == "model"]
        if orders and _id_of(orders[-1]) != self._order:
            await self.obey(orders[-1])
        return orders

    async def end(self) -> None:
        """Stores what was learned since the last time."""
        if self._mind.steps != self._stored_steps:
            await self.store("stop")

    # ---- storing ----

    async def store(self, why: str) -> None:
        """Stores the mind as it is now; actions name it from then on, if nothing has happened to it meanwhile."""
        async with self._lock:
            await self._put(why, self.model or None)

    async def _put(self, why: str, parent: str | None, replaced: str | None = None) -> str | None:
        """The digest under which it was stored, None if it was not."""
        clock, pause = self._context.clock, self._config.checkpoint_seconds
        self._next_at = clock.monotonic() + min(pause, _AGAIN_SECONDS)
        for _ in range(_TRIES):
            steps = self._mind.steps
            digest, raw = encode_model(self._model_of(why, parent, replaced))
            if not await self._store.put(digest, raw, why):
                return None
            if self._mind.steps == steps:
                break
        else:
            return digest
        self.model, self._stored_steps = digest, steps
        self._mind.began()
        self._next_at = clock.monotonic() + pause
        if why != "stop":
            await self._store.prune()
        return digest

    def _model_of(self, why: str, parent: str | None, replaced: str | None) -> Model:
        context = self._context
        warm = getattr(self._mind.policy.policy, "warm", None)
        return Model(
            version=MODEL_VERSION,
            node=context.shared.node,
            run=context.boot,
            why=why,
            made_at=context.clock.now_ns(),
            parent=parent,
            lessons=self._mind.lessons,
            settings=self._settings,
            features_schema=self._mind.schema,
            trimtab=product_version(),
            python=platform.python_version(),
            river=_river_version(),
            prior=warm.provenance.commit if warm is not None else "",
            mind=self._mind.save(),
            order=self._order,
            replaced=replaced,
        )

    # ---- orders ----

    async def obey(self, order: Command) -> bool:
        """Goes on from the model that an order names, or puts the policy of that name in charge; False if it was obeyed
        already. What cannot be obeyed is said and changes nothing.
        """
        if order.verb != "model":
            return True
        async with self._lock:
            if _id_of(order) in self._obeyed:
                return False
            self._know(order)
            try:
                await self._obey(order)
            except (SnapshotMismatch, BusError) as error:
                reason = error.reason if isinstance(error, SnapshotMismatch) else "unreachable"
                self._metrics.resets.labels(reason).inc()
                self._context.log.warning("model_order_refused", by=order.by, model=order.model, detail=str(error))
                self._events.append(f"{not_obeyed(order.model, order.by)}{error}")
            return True

    async def _obey(self, order: Command) -> None:
        wanted = order.model or ""
        named = wanted in self._mind.policies
        model = None if named else await self._store.fetch(wanted)
        if model is not None:
            require_fit(model, self._config, self._context.shared)
        before = await self._put("checkpoint", self.model or None) or self.model or None
        if model is not None:
            self._load(model, wanted, outlook=False, last_lesson=self._mind.last_lesson)
            self.model = wanted
        else:
            self._mind.put_in_charge(wanted)
        self._order = _id_of(order)
        self._context.log.info("model_ordered", model=wanted[:12], by=order.by, reason=order.reason)
        self._events.append(f"{obeyed(wanted, order.by)}{order.reason}")
        await self._put("order", before if named else wanted, replaced=before)

    def _know(self, order: Command) -> None:
        self._obeyed[_id_of(order)] = None
        while len(self._obeyed) > _ORDERS_KNOWN:
            self._obeyed.popitem(last=False)

    # ---- taking over ----

    def _load(self, model: Model, digest: str, *, outlook: bool, last_lesson: str | None = None) -> None:
        left_out = self._mind.load(model.mind, outlook=outlook)
        self._mind.mend()
        if last_lesson is not None:
            self._mind.last_lesson = last_lesson
        for name, why in left_out.items():
            self._metrics.resets.labels(why.partition(":")[0]).inc()
            self._context.log.warning("policy_reset", policy=name, model=digest[:12], detail=why)
            self._events.append(f"policy {name} begins fresh: {why}")

    def _set_aside(self, digest: str, error: SnapshotMismatch) -> None:
        self._metrics.resets.labels(error.reason).inc()
        self._context.log.warning("model_set_aside", model=digest[:12], detail=str(error))
        self._events.append(f"set aside model {digest[:12]}: {error}")


def _id_of(order: Command) -> str:
    return order.id or str(order.at)


def _river_version() -> str:
    try:
        return version("river")
    except PackageNotFoundError:
        return ""
