"""What is tried as soon as there is a connection, since it would end in silence later: answers, and the streams."""

import asyncio
from typing import Any

from runtime.bus_login import Login
from runtime.bus_refusals import Refusals
from runtime.errors import BusError
from runtime.nats_bus_client import Client, Error, JetStreamContext
from runtime.settings import BusSettings
from runtime.streams import ensure_streams


async def check_permissions(
    client: Client, jetstream: JetStreamContext, settings: BusSettings, login: Login, refusals: Refusals
) -> None:
    """Finds out now what would else end in silence later, and makes the streams. Raises BusError."""
    if login.sign is not None:
        await _check_inbox(client, refusals, login.inbox_prefix)
    if settings.declare_streams:
        await _declare_streams(jetstream, refusals)


async def _check_inbox(client: Client, refusals: Refusals, prefix: str) -> None:
    """Raises BusError where answers would not arrive: every request would end in silence."""
    try:
        probe = await client.subscribe(client.new_inbox())
        await client.flush()  # nats-py lets this PING overtake what is pending; the next comes after it
        await client.flush()
        await probe.unsubscribe()
    except Error as error:
        raise BusError(f"bus.inbox_prefix: {prefix} cannot be tried ({type(error).__name__}: {error})") from error
    if refusals.first.done():
        raise BusError(
            f"bus.inbox_prefix: answers cannot arrive: {refusals.first.result()}; "
            f"set it to the prefix that belongs to this credential (`trimtab creds show DIR`)"
        )


async def _declare_streams(jetstream: JetStreamContext, refusals: Refusals) -> None:
    """Raises BusError when JetStream or the permissions refuse."""
    declaring = asyncio.create_task(ensure_streams(jetstream))
    try:
        waits: set[asyncio.Future[Any]] = {declaring, refusals.first}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not declaring.done():
            declaring.cancel()
            await asyncio.wait({declaring})
    if declaring.cancelled():
        raise BusError(
            f"bus.declare_streams: {refusals.first.result()}; set it to false, and let `trimtab creds declare DIR` "
            f"make the streams"
        )
    declaring.result()
