"""Scraping over real sockets: one endpoint can only ever cost itself."""

import asyncio
import gzip
import math
import os
import socket
import threading
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from services.collector.core.workload import Workload
from services.collector.sources.scrape import Scraper
from tests.unit.collector.endpoints import PAGE, Endpoint, dripping, response, running, silent

INF = math.inf
GOOD = {("req_seconds",): {0.1: 90.0, INF: 100.0}}
LIMIT = 4 << 20


@asynccontextmanager
async def scraper(**fields):
    options = {"timeout_seconds": 5.0, "max_bytes": LIMIT, "concurrency": 16, "metrics": ("req_seconds",)}
    made = Scraper(**{**options, **fields})
    try:
        yield made
    finally:
        await made.close()


def pod(name, url, metric=None):
    return Workload(uid=name, name=name, group=f"pod-{name}", metrics_url=url, latency_metric=metric)


async def scraped(endpoint, **fields):
    async with running(endpoint), scraper(**fields) as made:
        return await made.scrape([pod("a", endpoint.url)])


def sockets():
    def target(fd):
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return ""

    return sum(target(fd).startswith("socket:") for fd in os.listdir("/proc/self/fd"))


async def test_a_page_becomes_series_keyed_by_the_metrics_name_and_labels():
    assert await scraped(Endpoint()) == ({"a": GOOD}, {})


async def test_pods_without_a_url_are_not_scraped():
    async with scraper() as made:
        assert await made.scrape([pod("a", None)]) == ({}, {})


async def test_a_pods_own_metric_goes_before_the_usual_names():
    page = PAGE.replace(b"req_", b"own_") + PAGE
    async with running(Endpoint(response(page))) as endpoint, scraper() as made:
        pages, _ = await made.scrape([pod("a", endpoint.url, "own_seconds"), pod("b", endpoint.url)])
    assert {uid: {key[0] for key in series} for uid, series in pages.items()} == {
        "a": {"own_seconds"},
        "b": {"req_seconds"},
    }


async def test_the_request_says_what_it_accepts_and_carries_no_cookies():
    endpoint = Endpoint(response(PAGE, headers="Set-Cookie: a=b\r\n"))
    async with running(endpoint), scraper() as made:
        await made.scrape([pod("a", endpoint.url)])
        await made.scrape([pod("a", endpoint.url)])
    assert b"openmetrics-text" in endpoint.requests[0]
    assert not any(b"Cookie" in request for request in endpoint.requests)


async def test_a_good_endpoints_connection_is_kept():
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        for _ in range(5):
            await made.scrape([pod("a", endpoint.url)])
    assert (len(endpoint.requests), endpoint.connections) == (5, 1)


async def test_redirects_are_not_followed():
    elsewhere = Endpoint()
    async with running(elsewhere):
        answer = response(b"", status="302 Found", headers=f"Location: {elsewhere.url}\r\n")
        pages, errors = await scraped(Endpoint(answer))
    assert (pages, errors) == ({}, {"a": "unreadable: HTTP status 302"})
    assert elsewhere.requests == []


@pytest.mark.parametrize("status", ["204 No Content", "404 Not Found", "500 Internal Server Error"])
async def test_only_status_200_is_an_answer(status):
    pages, errors = await scraped(Endpoint(response(b"" if status.startswith("204") else PAGE, status=status)))
    assert pages == {}
    assert errors == {"a": f"unreadable: HTTP status {status[:3]}"}


async def test_a_refused_connection_is_unreachable():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        async with scraper() as made:
            pages, errors = await made.scrape([pod("a", f"http://127.0.0.1:{reserved.getsockname()[1]}/")])
    assert pages == {}
    assert errors["a"].startswith("unreachable: ")


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"garbage\r\n\r\n", "unreachable: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nreq_sec", "unreadable: "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "un"),
        (response(b"\xff\xfe"), "unreadable: "),
        (response(b""), "no_histogram"),
        (response(b"other 1\n"), "no_histogram"),
        (response(PAGE, content_type="application/openmetrics-text"), "unreadable: an OpenMetrics page without"),
        (response(b'req_seconds_bucket{le="0.1"} 5\nreq_seconds_bucket{le="0.1"} 9\n'), "unreadable: req_seconds: two"),
    ],
)
async def test_an_answer_that_is_none_has_a_word(answer, word):
    async def once(reader, writer):
        writer.write(answer)
        await writer.drain()

    pages, errors = await scraped(Endpoint(handle=once))
    assert pages == {}
    assert errors["a"].startswith(word)
    assert "\n" not in errors["a"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/\n", "http://[::1", "http://", "http://\ud800/", "nonsense"])
async def test_an_url_that_is_none_costs_itself(url):
    endpoint = Endpoint()
    async with running(endpoint), scraper() as made:
        pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", url)])
    assert pages == {"a": GOOD}
    assert set(errors) == {"b"}


async def test_whatever_a_page_breaks_costs_itself(monkeypatch):
    def broken(page, content_type, names):
        if "evil" in page:
            raise TypeError("an error that nobody thought of")
        return "req_seconds", {(): {INF: 1.0}}

    monkeypatch.setattr("services.collector.sources.scrape.parse_histogram", broken)
    async with running(Endpoint(), Endpoint(response(b"evil"))) as (good, evil), scraper() as made:
        pages, errors = await made.scrape([pod("a", good.url), pod("b", evil.url)])
    assert (set(pages), errors) == ({"a"}, {"b": "failed: TypeError"})


async def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_not():
    body = PAGE + b"#" * (10_000 - len(PAGE))
    pages, errors = await scraped(Endpoint(response(body)), max_bytes=10_000)
    assert (set(pages), errors) == ({"a"}, {})
    pages, errors = await scraped(Endpoint(response(body + b"#")), max_bytes=10_000)
    assert (pages, errors) == ({}, {"a": "unreadable: body too large: more than 10000 bytes"})


async def test_pm_11_a_a_bomb_is_not_inflated():
    bomb = gzip.compress(b"\0" * (64 << 20))
    endpoint, good = Endpoint(response(bomb, headers="Content-Encoding: gzip\r\n")), Endpoint()
    async with running(endpoint, good), scraper(timeout_seconds=30.0) as made:
        await made.scrape([pod("b", good.url)])  # what is made once is made
        tracemalloc.start()
        try:
            pages, errors = await made.scrape([pod("a", endpoint.url), pod("b", good.url)])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (pages, errors) == ({"b": GOOD}, {"a": f"unreadable: body too large: more than {LIMIT} bytes"})
    assert peak < 3 * LIMIT


async def test_pm_11_b_a_plain_body_under_a_gzip_header_is_an_error_of_that_pod():
    pages, errors = await scraped(Endpoint(response(PAGE, headers="Content-Encoding: gzip\r\n")))
    assert pages == {}
    assert errors["a"].startswith("unreadable: ")
    assert "\n" not in errors["a"]


async def test_a_compressed_page_is_read():
    answer = response(gzip.compress(PAGE), headers="Content-Encoding: gzip\r\n")
    assert await scraped(Endpoint(answer)) == ({"a": GOOD}, {})


@pytest.mark.parametrize("handle", [dripping, silent])
async def test_pm_07_a_slow_endpoint_is_cut_off_and_costs_only_itself(handle):
    slow, others = Endpoint(handle=handle), [Endpoint() for _ in range(10)]
    async with running(slow, *others), scraper(timeout_seconds=0.4) as made:
        fast = [pod(f"f{number}", endpoint.url) for number, endpoint in enumerate(others)]
        pages, errors = await made.scrape([pod("s", slow.url), *fast])
        assert errors == {"s": "timeout"}
        assert pages == {one.uid: GOOD for one in fast}
        await asyncio.wait_for(slow.closed_by_client.wait(), 10)


@pytest.mark.timeout(60)
async def test_pm_07_twenty_rounds_leave_no_sockets_and_no_threads():
    slow, others = Endpoint(handle=dripping), [Endpoint() for _ in range(10)]
    before = sockets()
    async with running(slow, *others) as _:
        async with scraper(timeout_seconds=0.4) as made:
            targets = [pod("s", slow.url), *(pod(f"f{n}", endpoint.url) for n, endpoint in enumerate(others))]
            counts = []
            for _ in range(20):
                _pages, errors = await made.scrape(targets)
                assert errors["s"] == "timeout"
                await asyncio.wait_for(slow.closed_by_client.wait(), 10)
                slow.closed_by_client.clear()
                counts.append((sockets(), threading.active_count()))
        assert slow.connections == 20
        assert all(endpoint.connections == 1 for endpoint in others)
        assert counts[-1] <= counts[1]
        for endpoint in others:
            await asyncio.wait_for(endpoint.closed_by_client.wait(), 10)
    async with asyncio.timeout(10):
        while sockets() > before:
            await asyncio.sleep(0)


async def test_many_slow_endpoints_do_not_hold_up_the_others_twice():
    slow, good = Endpoint(handle=silent), Endpoint()
    async with running(slow, good), scraper(timeout_seconds=0.3, concurrency=2) as made:
        targets = [*(pod(f"s{n}", slow.url) for n in range(4)), *(pod(f"f{n}", good.url) for n in range(4))]
        _, errors = await made.scrape(targets)
        assert sorted(errors.values()) == ["queued"] * 6 + ["timeout"] * 2
        for _ in range(3):
            pages, errors = await made.scrape(targets)
    assert set(pages) == {"f0", "f1", "f2", "f3"}
    assert set(errors) == {"s0", "s1", "s2", "s3"}


async def test_closing_twice_or_before_any_scrape_is_fine():
    async with scraper() as made:
        await made.close()
