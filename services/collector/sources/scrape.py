"""Metrics pages over HTTP: one deadline for all of a scrape, a bounded body, and a slow endpoint costs only itself."""

import asyncio
import heapq
import math
import os
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from services.collector.config import READING_RATIO
from services.collector.core.exposition import Exposition, ExpositionError, LabelTexts
from services.collector.core.latency_source import NoLatency, find_latency
from services.collector.core.page import HistogramPage, Page, reason
from services.collector.core.targets import Target
from services.collector.sources.tls import TlsContext

_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
_CHUNK = 64 * 1024


_HEAD_START_RATIO: Final = 0.25
_HELD_BYTES: Final = 32 << 20
_BELIEVED_REQUESTS: Final = 100


class _CrowdedError(Exception):
    """More is coming at one time than there is room for, and this is one of the large ones."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    target: Target
    body: bytearray
    content_type: str


@dataclass(slots=True)
class _Round:
    """What one round has brought so far; bodies wait to be read, the smallest first."""

    pages: dict[str, Page] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    held_bytes: int = 0
    coming_bytes: int = 0
    large: set[str] = field(default_factory=set)
    _unread: list[tuple[int, int, _Fetched]] = field(default_factory=list)
    _came: int = 0

    def leave(self, fetched: _Fetched) -> None:
        """Leaves a body to be read. Beyond what may be held, the largest that waits is given up."""
        self._came += 1
        self.held_bytes += len(fetched.body)
        heapq.heappush(self._unread, (len(fetched.body), self._came, fetched))
        while self.held_bytes > _HELD_BYTES:
            largest = max(self._unread)
            self._unread.remove(largest)
            heapq.heapify(self._unread)
            self.held_bytes -= largest[0]
            self.give_up(largest[2].target)

    def give_up(self, target: Target) -> None:
        """A page that was fetched is not read: the pod sends more than there is time or room for."""
        self.errors[target.uid] = "queued"
        self.large.add(target.uid)

    def take(self) -> _Fetched | None:
        """The next body to read, None if none is left for now."""
        if not self._unread:
            return None
        size, _, fetched = heapq.heappop(self._unread)
        self.held_bytes -= size
        return fetched


class Scraper:
    """Scrapes targets side by side. `pages` are latency metrics by uid, `errors` words by uid."""

    def __init__(
        self,
        *,
        timeout_seconds: float,
        max_bytes: int,
        concurrency: int,
        metrics: tuple[str, ...],
        tls: TlsContext | None = None,
        tls_server_name: str | None = None,
    ) -> None:
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._slots = asyncio.Semaphore(concurrency)
        self._metrics = metrics
        self._tls = tls
        self._tls_server_name = tls_server_name
        self._session: aiohttp.ClientSession | None = None
        self._slow: set[str] = set()
        self._waited: dict[str, int] = {}
        self._metric_of: dict[str, tuple[str, bool]] = {}
        self._labels = {form: LabelTexts(is_openmetrics=form) for form in (False, True)}
        # Pages are read beside the event loop, which then answers in time; one after the other, so that they never
        # take more than one core.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="pages")

    async def scrape(self, targets: Iterable[Target]) -> tuple[dict[str, Page], dict[str, str]]:
        """Pages and errors of the targets. Fetching takes no longer than the timeout, queueing included, and reading
        what came goes on for `READING_RATIO` of it beyond.

        Those that took up their time in vain queue behind the others the next time: however many they are, in the end
        they cost themselves.
        """
        ordered = sorted(targets, key=self._rank)
        now = _Round()
        if ordered:
            # One moment for all: with a timer each, a slot freed by the first to end would go to one that has no time
            # left, and that one would be blamed for being slow.
            start = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                fetches = {group.create_task(self._one(target, start + self._timeout, now)) for target in ordered}
                # The fetches have the CPU to themselves at first, or reading would make them late.
                await asyncio.wait(fetches, timeout=_HEAD_START_RATIO * self._timeout)
                await self._read_fetched(fetches, start + (1.0 + READING_RATIO) * self._timeout, now)
        queued = {uid for uid, word in now.errors.items() if word == "queued"}
        self._slow = now.large | (queued & self._slow) | {uid for uid, word in now.errors.items() if word == "timeout"}
        self._waited = {uid: self._waited.get(uid, 0) + 1 for uid in queued - now.large}
        self._metric_of = {
            target.uid: self._metric_of[target.uid] for target in ordered if target.uid in self._metric_of
        }
        for target in ordered:  # closed while it ran: that is no word on any endpoint
            if target.uid not in now.pages:
                now.errors.setdefault(target.uid, reason("failed", "the agent is on its way out"))
        return now.pages, now.errors

    def _rank(self, target: Target) -> tuple[bool, int]:
        """Who took up time in vain comes last; of those, as of the others, who waited longest in vain comes first."""
        return target.uid in self._slow, -self._waited.get(target.uid, 0)

    async def close(self) -> None:
        """Closes kept connections, and the thread that reads pages."""
        self._reader.shutdown(wait=False)
        if self._session is not None:
            await self._session.close()

    async def _one(self, target: Target, deadline: float, now: _Round) -> None:
        """Fetches one page, and leaves it to be read."""
        word = "queued"
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
            try:
                left = deadline - asyncio.get_running_loop().time()
                word = "timeout" if left >= self._timeout / 2 else "queued"  # a late start is no fault of its own
                async with asyncio.timeout_at(deadline):
                    now.leave(await self._fetch(target, now))
            finally:
                self._slots.release()
        except TimeoutError:
            now.errors[target.uid] = word
        except _CrowdedError:
            now.give_up(target)
        except (ExpositionError, aiohttp.ClientPayloadError) as error:
            now.errors[target.uid] = reason("unreadable", str(error))
        except Exception as error:  # noqa: BLE001 - whatever an endpoint manages to break is its own loss
            now.errors[target.uid] = _reason(error)

    async def _read_fetched(self, fetches: set[asyncio.Task[None]], deadline: float, now: _Round) -> None:
        """Reads pages as they come, the smallest first: who sends much waits for the others."""
        loop = asyncio.get_running_loop()
        while True:
            fetched = now.take()
            if fetched is not None and loop.time() < deadline:
                await self._read(fetched, now)
            elif fetched is not None:
                now.give_up(fetched.target)
            elif pending := {fetch for fetch in fetches if not fetch.done()}:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            else:
                return

    async def _read(self, fetched: _Fetched, now: _Round) -> None:
        uid = fetched.target.uid
        had, _ = self._metric_of.get(uid, ("", False))
        try:
            page = await asyncio.get_running_loop().run_in_executor(self._reader, self._page, fetched)
            now.pages[uid] = page
            self._metric_of[uid] = (page.metric, self._is_believed(uid, page))
        except NoLatency as error:
            lost = bool(had) and error.word != "unit_suspect"  # half a page, or one of a process that is just starting
            text = f"{error}; it had {had} before" if lost else str(error)
            now.errors[uid] = reason("unreadable" if lost else error.word, text)
        except (ExpositionError, UnicodeDecodeError) as error:
            now.errors[uid] = reason("unreadable", str(error))
        except Exception as error:  # noqa: BLE001 - a page that breaks our own code is that pod's loss as well
            now.errors[uid] = _reason(error)

    def _page(self, fetched: _Fetched) -> Page:
        labels = self._labels[_is_openmetrics(fetched.content_type)]
        target = fetched.target
        text = fetched.body.decode("utf-8-sig")
        if not text.strip():
            raise ExpositionError("an empty page")
        if "html" in fetched.content_type.lower():
            raise ExpositionError(f"no metrics page, but {fetched.content_type}")
        had, is_believed = self._metric_of.get(target.uid, ("", False))
        believed = had if is_believed else None
        return find_latency(Exposition(text, labels), target.metric, target.unit, self._metrics, believed=believed)

    def _is_believed(self, uid: str, page: Page) -> bool:
        """Whether the unit of the pod's histogram has proved right: over enough requests, on this page or before."""
        if not isinstance(page, HistogramPage):
            return False
        counted = sum(buckets.get(math.inf, 0.0) for buckets in page.series.values())
        return counted >= _BELIEVED_REQUESTS or self._metric_of.get(uid) == (page.metric, True)

    async def _fetch(self, target: Target, now: _Round) -> _Fetched:
        url = target.url
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Accept": _ACCEPT, "User-Agent": "trimtab"},
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0, force_close=False),
                trust_env=False,
            )
        context = self._tls.get() if self._tls is not None else None
        async with self._session.get(
            url,
            allow_redirects=False,
            ssl=context if context is not None else True,
            server_hostname=self._tls_server_name if url.startswith("https:") else None,
        ) as response:
            if response.status != 200:  # noqa: PLR2004 - HTTP's own number
                raise ExpositionError(f"HTTP status {response.status}")
            body = bytearray()
            try:
                async for chunk in response.content.iter_chunked(_CHUNK):
                    body += chunk
                    now.coming_bytes += len(chunk)
                    if len(body) > self._max_bytes:
                        text = (
                            f"body too large: more than {self._max_bytes} bytes; collector.scrape_max_bytes allows more"
                        )
                        raise ExpositionError(text)
                    if now.coming_bytes > _HELD_BYTES and len(body) > _HELD_BYTES / 32:
                        raise _CrowdedError
            finally:
                now.coming_bytes -= len(body)
            content_type = response.headers.get("Content-Type", "")
            # Without a length the end of a page cannot be told from a connection that was cut.
            has_length = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
            if not has_length and not body.endswith(b"\n") and not _is_openmetrics(content_type):
                raise ExpositionError("a page without a length that does not end in a line feed: it may be cut off")
            return _Fetched(target, body, content_type)


def _is_openmetrics(content_type: str) -> bool:
    return "openmetrics-text" in content_type.lower()


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    tls: ssl.SSLError | None = None
    while cause is not None:  # aiohttp's own errors are SSLErrors too, without the words
        tls = cause if isinstance(cause, ssl.SSLError) else tls
        cause = cause.__cause__
    if tls is not None:
        text = getattr(tls, "verify_message", "") or tls.reason or str(tls)
        return reason("tls", f"{text}; collector.tls_ca_file, tls_server_name and tls_cert_file say who is trusted")
    if isinstance(error, aiohttp.ClientResponseError):
        return reason("unreadable", f"{error.message or type(error).__name__}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return reason("unreachable", "the pod closed the connection without an answer")
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        text = os.strerror(number) if number > 0 else error.os_error.strerror or str(error.os_error)
        return reason("unreachable", f"{error.host}:{error.port}: {text}; check address and port")
    word = "unreachable" if isinstance(error, (aiohttp.ClientError, OSError)) else "failed"
    return reason(word, type(error).__name__)
