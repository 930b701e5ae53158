"""A TCP proxy before the server that knows NATS frames: cuts, holds, repeats, delays and swaps what one client hears."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

Wire: TypeAlias = Literal["whole", "held", "cut"]
"""`held`: nothing passes, and nothing is lost, as in a partition that TCP survives. `cut`: closed and refused."""


@dataclass
class Tamper:
    """What happens to the messages of one kind on their way to the client."""

    kind: str
    copies: int = 1
    delay_seconds: float = 0.0
    swap: bool = False
    """Each second message goes before the one that came before it."""

    touched: int = 0


@dataclass
class Proxy:
    """One client's way to the server."""

    upstream: str
    wire: Wire = "whole"
    tamper: Tamper | None = None
    url: str = ""
    _server: asyncio.Server | None = None
    _passing: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 21)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def set_wire(self, wire: Wire) -> None:
        self.wire = wire
        if wire == "held":
            self._passing.clear()
        else:
            self._passing.set()
        if wire == "cut":
            for writer in list(self._writers):
                writer.transport.abort()

    def close(self) -> None:
        self.set_wire("cut")
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.wire == "cut":
            writer.transport.abort()
            return
        where = urlsplit(self.upstream)
        try:
            up_reader, up_writer = await asyncio.open_connection(where.hostname, where.port, limit=1 << 21)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        out = self._task(self._bytes(reader, up_writer))
        back = self._task(self._frames(up_reader, writer))
        await asyncio.wait({out, back}, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, up_writer):
            each.transport.abort()
            self._writers.discard(each)

    def _task(self, work: object) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _bytes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while block := await reader.read(65536):
                await self._passing.wait()
                writer.write(block)
                await writer.drain()

    async def _frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept: list[bytes] = []
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                frame, subject = line, ""
                if line[:4] in (b"MSG ", b"HMSG"):
                    parts = line.split()
                    subject = parts[1].decode("ascii", "replace")
                    frame += await reader.readexactly(int(parts[-1]) + 2)
                await self._passing.wait()
                for late, out in self._fate(subject, frame, kept):
                    if late:
                        self._task(_later(late, writer, out))
                    else:
                        writer.write(out)
                await writer.drain()

    def _fate(self, subject: str, frame: bytes, kept: list[bytes]) -> list[tuple[float, bytes]]:
        tamper = self.tamper
        if tamper is None or not subject.startswith(f"trimtab.v1.{tamper.kind}."):
            return [(0.0, frame)]
        tamper.touched += 1
        if tamper.swap:
            if not kept:
                kept.append(frame)
                return []
            return [(0.0, frame), (0.0, kept.pop())]
        return [(tamper.delay_seconds, frame)] * tamper.copies


async def _later(seconds: float, writer: asyncio.StreamWriter, frame: bytes) -> None:
    await asyncio.sleep(seconds)
    if not writer.transport.is_closing():
        writer.write(frame)
