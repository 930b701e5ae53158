"""The client of nats-py as we want it: without aiohttp, and never in clear text where TLS is asked for.

All names of nats-py that the bus is made of come from here: the first import of nats-py decides what it takes along.
"""

import logging
import sys
from typing import Any

# nats-py imports aiohttp, for websockets, wherever it is installed: 10 MiB in each of five processes for nothing.
_aiohttp = sys.modules.get("aiohttp")
sys.modules["aiohttp"] = None  # type: ignore[assignment]  # an import of it now fails, which nats-py expects
from nats.aio.client import Client  # noqa: E402
from nats.aio.msg import Msg  # noqa: E402
from nats.aio.subscription import Subscription  # noqa: E402
from nats.errors import (  # noqa: E402
    ConnectionClosedError,
    ConnectionDrainingError,
    ConnectionReconnectingError,
    Error,
    MaxPayloadError,
    OutboundBufferLimitError,
    SlowConsumerError,
)
from nats.js import JetStreamContext  # noqa: E402
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: E402
from nats.js.errors import NotFoundError, ServiceUnavailableError  # noqa: E402

if _aiohttp is None:
    del sys.modules["aiohttp"]
else:
    sys.modules["aiohttp"] = _aiohttp

from runtime.bus_login import NO_TLS, Login  # noqa: E402

__all__ = [
    "AckPolicy",
    "Client",
    "ConnectionClosedError",
    "ConnectionDrainingError",
    "ConnectionReconnectingError",
    "ConsumerConfig",
    "DeliverPolicy",
    "Error",
    "JetStreamContext",
    "MaxPayloadError",
    "Msg",
    "NotFoundError",
    "OutboundBufferLimitError",
    "SecureClient",
    "ServiceUnavailableError",
    "SlowConsumerError",
    "Subscription",
]


class SecureClient(Client):
    """nats-py's client, which would go on in clear text with a server that offers no TLS, whatever it was given."""

    def __init__(self, login: Login) -> None:
        super().__init__()
        self._needs_tls = login.tls is not None
        self._public_nkey = login.public_key  # nats-py itself takes it from a file only, with the package `nkeys`
        logging.getLogger("asyncio").addFilter(_is_worth_saying)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        if initial_connection and self._needs_tls and not info.get("tls_required"):
            raise Error(NO_TLS)
        await super()._process_info(info, initial_connection)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Asyncio warns of what nats-py's protocol returns whenever a TLS connection ends: nothing that anyone can mend."""
    return not record.getMessage().startswith("returning true from eof_received()")
