"""Metrics pages over HTTP: one deadline for all of a scrape, a bounded body, and a slow endpoint costs only itself."""

import asyncio
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import aiohttp

from services.collector.core.exposition import Exposition, ExpositionError, LabelTexts
from services.collector.core.latency_source import NoLatency, find_latency
from services.collector.core.page import Page, reason
from services.collector.core.targets import Target
from services.collector.sources.tls import TlsContext

_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
_CHUNK = 64 * 1024


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
        self._slow: frozenset[str] = frozenset()
        self._labels = {form: LabelTexts(is_openmetrics=form) for form in (False, True)}
        # Pages are read beside the event loop, which then answers in time; one after the other, so that they never
        # take more than one core.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="pages")

    async def scrape(self, targets: Iterable[Target]) -> tuple[dict[str, Page], dict[str, str]]:
        """Pages and errors of the targets. Fetching takes no longer than the timeout, queueing included.

        Those that took up their time in vain queue behind the others the next time: however many they are, in the end
        they cost themselves.
        """
        ordered = sorted(targets, key=lambda target: target.uid in self._slow)
        pages: dict[str, Page] = {}
        errors: dict[str, str] = {}
        if ordered:
            # One moment for all: with a timer each, a slot freed by the first to end would go to one that has no time
            # left, and that one would be blamed for being slow.
            deadline = asyncio.get_running_loop().time() + self._timeout
            await asyncio.gather(*(self._one(target, deadline, pages, errors) for target in ordered))
        self._slow = frozenset(
            uid for uid, word in errors.items() if word == "timeout" or (word == "queued" and uid in self._slow)
        )
        return pages, errors

    async def close(self) -> None:
        """Closes kept connections, and the thread that reads pages."""
        self._reader.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            await self._session.close()

    async def _one(self, target: Target, deadline: float, pages: dict[str, Page], errors: dict[str, str]) -> None:
        word = "queued"
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
            try:
                word = "timeout"
                async with asyncio.timeout_at(deadline):
                    body, content_type = await self._fetch(target.url)
                # Still in its slot: no more pages wait to be read than are fetched at one time.
                pages[target.uid] = await asyncio.get_running_loop().run_in_executor(
                    self._reader, self._read, target, body, content_type
                )
            finally:
                self._slots.release()
        except TimeoutError:
            errors[target.uid] = word
        except NoLatency as error:
            errors[target.uid] = reason(error.word, str(error))
        except (ExpositionError, UnicodeDecodeError, aiohttp.ClientPayloadError) as error:
            errors[target.uid] = reason("unreadable", str(error))
        except Exception as error:  # noqa: BLE001 - whatever an endpoint manages to break is its own loss
            errors[target.uid] = _reason(error)

    def _read(self, target: Target, body: bytearray, content_type: str) -> Page:
        labels = self._labels["openmetrics-text" in content_type.lower()]
        page = Exposition(body.decode("utf-8"), labels)
        return find_latency(page, target.metric, target.unit, self._metrics)

    async def _fetch(self, url: str) -> tuple[bytearray, str]:
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
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > self._max_bytes:
                    raise ExpositionError(f"body too large: more than {self._max_bytes} bytes")
            return body, response.headers.get("Content-Type", "")


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    tls: ssl.SSLError | None = None
    while cause is not None:  # aiohttp's own errors are SSLErrors too, without the words
        tls = cause if isinstance(cause, ssl.SSLError) else tls
        cause = cause.__cause__
    if tls is not None:
        text = getattr(tls, "verify_message", "") or tls.reason or str(tls)
        return reason("tls", f"{text}; collector.tls_ca_file, tls_server_name and tls_cert_file say who is trusted")
    return reason(
        "unreachable" if isinstance(error, (aiohttp.ClientError, OSError)) else "failed", type(error).__name__
    )
