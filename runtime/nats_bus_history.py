"""What streams have stored, read back: the newest messages of a subject, and since when all of them are there."""

import contextlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from runtime.bus import Stored
from runtime.bus_refusals import WHO_MAY, Refusals
from runtime.errors import BusError
from runtime.nats_bus_client import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Error,
    JetStreamContext,
    NotFoundError,
    ServiceUnavailableError,
)

_SHARED_BY: Final = 64


class History:
    """Reads by consumers of its own, each only as long as it takes. `fetch_seconds` is for each batch."""

    def __init__(self, jetstream: Callable[[], JetStreamContext], fetch_seconds: float, refusals: Refusals) -> None:
        self._jetstream = jetstream
        self._fetch_seconds = fetch_seconds
        self._refusals = refusals

    async def stored(self, stream: str, subject: str, limit: int) -> list[Stored]:
        """Up to `limit` newest stored messages of `subject`, oldest first; empty where nothing is stored.

        Raises BusError when the server does not answer: no answer is not an empty history.
        """
        try:
            return await self._last(stream, subject, limit)
        except (NotFoundError, ServiceUnavailableError):
            return []
        except (Error, TimeoutError) as error:
            why = why_not_read(self._refusals, stream, error)
            raise BusError(f"{stream}: {subject} cannot be read {why}") from error

    async def kept_since_ns(self, stream: str) -> int:
        """When the oldest message that the stream still has was stored; 0 if it has all that it ever had."""
        try:
            info = await self._jetstream().stream_info(stream)
            state = info.state
            if state.first_seq <= 1:
                return 0
            if state.messages == 0:  # all too old
                return time.time_ns() - int((info.config.max_age or 0.0) * 1e9)
            first = await self._jetstream().get_msg(stream, seq=state.first_seq, subject=">", next=True)
        except (Error, TimeoutError) as error:
            why = why_not_read(self._refusals, stream, error)
            raise BusError(f"{stream}: its oldest message cannot be read {why}") from error
        return ns_of(first.time) if first.time is not None else 0

    async def _last(self, stream: str, subject: str, limit: int) -> list[Stored]:
        js = self._jetstream()
        state = (await js.stream_info(stream, subjects_filter=subject)).state
        total = (state.subjects or {}).get(subject, 0)
        wanted = min(limit, total)
        if wanted <= 0:
            return []
        # Other subjects share the stream: start far enough back that `limit` of ours should follow, not at its begin.
        reach = limit * _SHARED_BY if total > limit else state.last_seq
        while True:
            start = max(state.first_seq, state.last_seq - reach, 1)
            subscription = await js.pull_subscribe(
                subject,
                stream=stream,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=start,
                    ack_policy=AckPolicy.NONE,
                    filter_subject=subject,
                    inactive_threshold=30.0,
                    mem_storage=True,
                ),
            )
            try:
                left = (await subscription.consumer_info()).num_pending or 0
                if left < wanted and start > state.first_seq:
                    reach *= _SHARED_BY
                    continue
                return await self._read(subscription, left, limit)
            finally:
                with contextlib.suppress(Error):
                    await subscription.unsubscribe()

    async def _read(self, subscription: JetStreamContext.PullSubscription, left: int, limit: int) -> list[Stored]:
        found: list[Stored] = []
        while left > 0:
            try:
                batch = await subscription.fetch(min(256, left), timeout=self._fetch_seconds)
            except TimeoutError:
                if (await subscription.consumer_info()).num_pending:
                    raise
                break  # the rest has just grown too old
            left = batch[-1].metadata.num_pending
            read = [Stored(message.data, ns_of(message.metadata.timestamp)) for message in batch]
            found = (found + read)[-limit:]
        return found


def why_not_read(refusals: Refusals, stream: str, error: Exception) -> str:
    """The rest of a message that a stream could not be read: what came, and what helps."""
    refused = refusals.about(lambda where: stream.lower() in where.split("."))
    helps = refused or f"check that the server answers, and that this credential may read it: {WHO_MAY}"
    return f"({type(error).__name__}: {error}); {helps}"


def ns_of(at: datetime) -> int:
    """A time of the server, in nanoseconds since the Unix epoch."""
    return int(at.timestamp() * 1_000_000) * 1000
