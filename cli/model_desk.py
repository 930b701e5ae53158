"""The desk for models: reads what a node's decider has stored, gives an order, and hears that it has been obeyed."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from cli.tail import notice_of_waiting
from runtime.bus import Bus, Received
from runtime.errors import TrimtabError
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings, mask_url
from runtime.streams import MODELS, ORDERS
from schemas.codec import DecodeError, decode_as, encode
from schemas.messages import Action, Command
from schemas.subjects import message_id, node_token, subject, subject_of
from services.decider.core.model import Model, decode_model
from services.decider.core.snapshot import SnapshotMismatch
from services.decider.core.words import not_obeyed, obeyed

_HEX: Final = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True)
class StoredModel:
    """One object of the store: a model, or why it is none."""

    digest: str
    model: Model | None
    error: str | None = None


@dataclass
class ModelDesk:
    """A connection by which one node's models are read and ordered."""

    bus: Bus
    node: str
    where: str
    actions: list[Action] = field(default_factory=list)
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Hears the node's actions from now on."""
        await self.bus.subscribe(subject("action", self.node), self._hear)

    async def digests(self) -> list[str]:
        """All that the node has stored, oldest first. Raises TrimtabError if that is nothing."""
        names = await self.bus.list_objects(MODELS, node_token(self.node))
        if not names:
            raise TrimtabError(
                f"node {self.node}: no model is stored at {self.where}; a decider stores one as it starts "
                f"(its log says model_not_stored if it could not)"
            )
        return [name.partition("/")[2] for name in names]

    async def fetch(self, digest: str) -> StoredModel:
        """One of them."""
        raw = await self.bus.get_object(MODELS, f"{node_token(self.node)}/{digest}")
        if raw is None:
            return StoredModel(digest, None, "missing: it is not stored any more")
        try:
            return StoredModel(digest, decode_model(raw, digest))
        except SnapshotMismatch as error:
            return StoredModel(digest, None, str(error))

    async def newest(self) -> StoredModel:
        """The newest one that is a model. Raises TrimtabError."""
        for digest in reversed(await self.digests()):
            found = await self.fetch(digest)
            if found.model is not None:
                return found
        raise TrimtabError(f"node {self.node}: what is stored is all damaged; `trimtab models list` says how")

    async def word_for(self, text: str) -> str:
        """What an order must name for `text`: the digest that it begins, or the policy that it is the name of. Raises
        TrimtabError where that is none or several.
        """
        if _HEX.fullmatch(text):
            found = [digest for digest in await self.digests() if digest.startswith(text)]
            if len(found) == 1:
                return found[0]
            if found:
                raise TrimtabError(f"model {text}: {len(found)} digests begin so; write more of it")
        newest = (await self.newest()).model
        names = sorted(newest.mind.policies) if newest is not None else []
        if text in names:
            return text
        raise TrimtabError(
            f"model {text}: node {self.node} has none whose digest begins so, and no policy of that name "
            f"({', '.join(names)}); `trimtab models list` shows what there is"
        )

    async def before_last_order(self) -> str:
        """The digest of what was in force before the last order; without one, of what this run went on from. Raises
        TrimtabError where there is nothing to go back to.
        """
        stored = set(await self.digests())
        found = await self.newest()
        parent = found.model.parent if found.model is not None else None
        seen: set[str] = set()
        while found.model is not None and found.digest not in seen:
            seen.add(found.digest)
            target = found.model.replaced
            if target is not None:
                if target in stored:
                    return target
                raise TrimtabError(f"model {target[:12]}: was in force before the last order, and is not kept any more")
            if found.model.parent is None:
                break
            found = await self.fetch(found.model.parent)
        if parent is not None and parent in stored:
            return parent
        raise TrimtabError(f"node {self.node}: there was no order of a model, and none before the newest one is stored")

    async def give(self, order: Command, wait_seconds: float) -> tuple[str, str | None]:
        """Stores an order and waits for the action that tells of it: the outcome, and what is missing."""
        self.actions.clear()
        await self.bus.publish_stored(subject_of(order), encode(order), msg_id=message_id(order), stream=ORDERS)
        done, refused = obeyed(order.model, order.by), not_obeyed(order.model, order.by)
        try:
            async with asyncio.timeout(wait_seconds):
                while True:
                    for event in (action.event or "" for action in self.actions):
                        if done in event:
                            return "in_force", None
                        if refused in event:
                            return "refused", event.partition(refused)[2]
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            if self.actions:
                return "not_seen", f"the order is stored, and no action told of it within {wait_seconds:g} s"
            return "no_decider", f"no action was heard within {wait_seconds:g} s; the order holds when a decider starts"

    async def _hear(self, received: Received) -> None:
        try:
            self.actions.append(decode_as(received.payload, Action))
        except DecodeError:
            return
        self._heard.set()


@asynccontextmanager
async def model_desk(settings: BusSettings, node: str) -> AsyncIterator[ModelDesk]:
    """A connected desk for one node. Raises BusUnreachable."""
    notice = notice_of_waiting(settings, "models")
    bus = await connect(settings, "trimtab-models", ignore_events)
    notice.cancel()
    try:
        made = ModelDesk(bus, node, mask_url(settings.url))
        await made.listen()
        yield made
    finally:
        await bus.close()


def newest_first(digests: Sequence[str], last: int) -> Sequence[str]:
    """Up to `last` of them, the newest first."""
    return digests[: -last - 1 : -1]
