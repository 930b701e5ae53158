"""A recording to read, wherever it is: a file, or the streams of a server as they are now."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from lab.record.file import Recording, read_recording
from lab.record.items import Settings
from lab.record.recorder import new_header, record_now
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings

LIVE: Final = "live"
"""What is written instead of a file's name to mean the streams."""


@contextlib.contextmanager
def open_source(
    text: str,
    bus: Callable[[], BusSettings],
    *,
    node: str | None = None,
    since_ns: int | None = None,
    settings_for: Callable[[str], Settings | None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Recording]:
    """The recording in the file `text`, or of what the streams have now, where it is `live`: `bus` says where they are.

    Of the streams only `node` is read, if one is given, and what was stored since `since_ns`; a file is as it is. What
    they have is recorded to a temporary file: the items are the same, and memory does not grow with them. Not for use
    inside an event loop. Raises TrimtabError.
    """
    if text != LIVE:
        yield read_recording(text)
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-source-") as folder:
        path = Path(folder) / "streams.recording"
        own = settings_for(node) if node is not None else None
        header = new_header(time.time_ns(), [own] if own is not None else [], node=node, since_ns=since_ns)

        async def fetch() -> None:
            client = await connect(bus(), "trimtab-source", ignore_events)
            try:
                await record_now(client, path, header, settings_for=settings_for, say=say)
            finally:
                await client.close()

        asyncio.run(fetch())
        yield read_recording(path)
