"""What the bus says, heard from outside the cluster by a thread, and waits for it to have said something."""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime.bus import Received
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings
from schemas.codec import DecodeError, decode, encode
from schemas.messages import Actuation, AnyMessage, Command, Mode, State, Verdict
from schemas.subjects import ROOT, message_id, subject_of
from tests.kube.cluster import WAIT_SECONDS


class Listener:
    """All messages in order of arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.messages: list[AnyMessage] = []
        self.on_state: Callable[[State], None] = lambda _: None
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="listener", daemon=True)

    def until(self, claim: Callable[[list[AnyMessage]], bool], seconds: float = WAIT_SECONDS) -> None:
        """Looks whenever something was said."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not claim(self.messages):
                left = deadline - time.monotonic()
                assert left > 0, f"never came true within {seconds:g} s; said last: {self.messages[-4:]}"
                self._changed.wait(left)

    def cycles(self, count: int, seconds: float) -> tuple[float, float]:
        """Waits until `count` more cycles have begun; when that was, from and to, in Unix seconds."""
        had = len(self.befores())
        self.until(lambda _: len(self.befores()) > had + count, seconds)
        states = self.befores()
        return states[had].at / 1e9, states[had + count].at / 1e9

    def befores(self) -> list[State]:
        return [one for one in list(self.messages) if isinstance(one, State) and one.phase == "before"]

    def actuations(self, since: int = 0) -> list[Actuation]:
        return [one for one in self.messages[since:] if isinstance(one, Actuation)]

    def verdicts(self, since: int = 0) -> list[Verdict]:
        return [one for one in self.messages[since:] if isinstance(one, Verdict)]

    def order_mode(self, node: str, mode: Mode) -> None:
        """Orders a mode as an operator does, over the connection that stands, and waits until the guard judges by it."""
        order = Command(
            node=node, boot="operator", cycle=0, at=time.time_ns(), verb="mode", by="a test", reason="a test", mode=mode,
            id=secrets.token_hex(4),
        )  # fmt: skip
        sent = self._bus.publish(subject_of(order), encode(order), msg_id=message_id(order))
        asyncio.run_coroutine_threadsafe(sent, self._loop).result(WAIT_SECONDS)
        since = len(self.messages)
        self.until(lambda _: any(one.mode == mode for one in self.verdicts(since)))

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(WAIT_SECONDS)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._bus.close(), self._loop).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        settings = BusSettings(url=self.url, declare_streams=False, connect_timeout_seconds=60.0)
        self._bus = await connect(settings, "trimtab-test", ignore_events)
        await self._bus.subscribe(f"{ROOT}.>", self._hear, limit=10_000)

    async def _hear(self, received: Received) -> None:
        try:
            message = decode(received.payload)
        except DecodeError:
            return
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        if isinstance(message, State):
            self.on_state(message)


@contextmanager
def listening(url: str) -> Iterator[Listener]:
    """A listener that hears; stopped afterwards."""
    listener = Listener(url)
    listener.start()
    try:
        yield listener
    finally:
        listener.stop()
