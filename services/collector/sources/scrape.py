"""Metrics pages over HTTP: one deadline for all of a scrape, a bounded body, and a slow endpoint costs only itself."""

import asyncio
from collections.abc import Iterable

import aiohttp

from services.collector.core.exposition import ExpositionError, parse_histogram
from services.collector.core.histogram import Series
from services.collector.core.workload import Workload

_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
_CHUNK = 64 * 1024


class Scraper:
    """Scrapes workloads side by side. `pages` are histograms by uid, `errors` words by uid."""

    def __init__(self, *, timeout_seconds: float, max_bytes: int, concurrency: int, metrics: tuple[str, ...]) -> None:
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._slots = asyncio.Semaphore(concurrency)
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None
        self._slow: frozenset[str] = frozenset()

    async def scrape(self, workloads: Iterable[Workload]) -> tuple[dict[str, Series], dict[str, str]]:
        """Pages and errors of the workloads that have a URL. Takes no longer than the timeout, queueing included.

        Those that took up their time in vain queue behind the others the next time: however many they are, in the end
        they cost themselves.
        """
        targets = [workload for workload in workloads if workload.metrics_url is not None]
        targets.sort(key=lambda workload: workload.uid in self._slow)
        pages: dict[str, Series] = {}
        errors: dict[str, str] = {}
        if targets:
            # One moment for all: with a timer each, a slot freed by the first to end would go to one that has no time
            # left, and that one would be blamed for being slow.
            deadline = asyncio.get_running_loop().time() + self._timeout
            await asyncio.gather(*(self._one(workload, deadline, pages, errors) for workload in targets))
        self._slow = frozenset(
            uid for uid, word in errors.items() if word == "timeout" or (word == "queued" and uid in self._slow)
        )
        return pages, errors

    async def close(self) -> None:
        """Closes kept connections."""
        if self._session is not None:
            await self._session.close()

    async def _one(self, workload: Workload, deadline: float, pages: dict[str, Series], errors: dict[str, str]) -> None:
        word = "queued"
        try:
            async with asyncio.timeout_at(deadline), self._slots:
                word = "timeout"
                body, content_type = await self._fetch(workload.metrics_url or "")
            names = (workload.latency_metric,) if workload.latency_metric else self._metrics
            found = parse_histogram(body, content_type, names)
        except TimeoutError:
            errors[workload.uid] = word
        except aiohttp.ClientPayloadError as error:
            errors[workload.uid] = f"unreadable: {' '.join(str(error).split())}"
        except (aiohttp.ClientError, OSError) as error:
            errors[workload.uid] = f"unreachable: {type(error).__name__}"
        except (ExpositionError, UnicodeDecodeError) as error:
            errors[workload.uid] = f"unreadable: {error}"
        except Exception as error:  # noqa: BLE001 - whatever an endpoint manages to break is its own loss
            errors[workload.uid] = f"failed: {type(error).__name__}"
        else:
            if found is None:
                errors[workload.uid] = "no_histogram"
            else:
                name, series = found  # the name is part of the key: another histogram is no continuation of this one
                pages[workload.uid] = {(name, *labels): buckets for labels, buckets in series.items()}

    async def _fetch(self, url: str) -> tuple[str, str]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Accept": _ACCEPT, "User-Agent": "trimtab"},
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0, force_close=False),
                trust_env=False,
            )
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:  # noqa: PLR2004 - HTTP's own number
                raise ExpositionError(f"HTTP status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > self._max_bytes:
                    raise ExpositionError(f"body too large: more than {self._max_bytes} bytes")
            return body.decode("utf-8"), response.headers.get("Content-Type", "")
