import argparse
import asyncio
import threading

from prometheus_client import CollectorRegistry

from lab.workloads.api import BUSY, DONE, GIVEN_UP, WorkService
from lab.workloads.http_messages import Request


class HeldWork:
    """Work that ends when the test says so, or when it is stopped."""

    def __init__(self):
        self.started = threading.Semaphore(0)
        self.released = threading.Event()

    def spend(self, cpu_seconds):
        self.started.release()
        assert self.released.wait(30)

    def stop(self):
        self.released.set()


def service_of(work, registry, *, workers, max_queue, queue_timeout_seconds=0.0):
    flags = argparse.Namespace(
        workers=workers,
        max_queue=max_queue,
        seed=1,
        work_ms=5.0,
        work_jitter=0.0,
        work_distribution="lognormal",
        queue_timeout_seconds=queue_timeout_seconds,
    )
    return WorkService(flags, registry, work)


def get_work():
    return Request("/work", "", keep_alive=True, received_at=asyncio.get_running_loop().time())


async def test_beyond_workers_and_queue_a_request_is_refused_at_once_and_counted():
    work, registry, replies = HeldWork(), CollectorRegistry(), asyncio.Queue()
    service = service_of(work, registry, workers=1, max_queue=2)
    for _ in range(5):
        service.handle(get_work(), replies.put_nowait)
    assert [replies.get_nowait() for _ in range(2)] == [BUSY, BUSY]
    work.released.set()
    async with asyncio.timeout(10):
        assert [await replies.get() for _ in range(3)] == [DONE] * 3
    assert registry.get_sample_value("http_requests_rejected_total") == 2
    assert registry.get_sample_value("http_request_duration_seconds_count", {"route": "/work"}) == 3
    assert await service.close()


async def test_the_duration_includes_the_wait_for_a_worker():
    work, registry, replies = HeldWork(), CollectorRegistry(), asyncio.Queue()
    service = service_of(work, registry, workers=1, max_queue=5)
    early = get_work()
    service.handle(early._replace(received_at=early.received_at - 3.0), replies.put_nowait)
    work.released.set()
    async with asyncio.timeout(10):
        await replies.get()
    labels = {"route": "/work"}
    assert registry.get_sample_value("http_request_duration_seconds_sum", labels) >= 3.0
    assert registry.get_sample_value("http_request_duration_seconds_bucket", {"le": "2.5", **labels}) == 0
    assert await service.close()


async def test_a_request_that_waited_too_long_is_given_up_without_work():
    work, replies = HeldWork(), asyncio.Queue()
    service = service_of(work, CollectorRegistry(), workers=1, max_queue=5, queue_timeout_seconds=2.0)
    late = get_work()
    service.handle(late._replace(received_at=late.received_at - 3.0), replies.put_nowait)
    async with asyncio.timeout(10):
        assert await replies.get() == GIVEN_UP
    assert not work.started.acquire(blocking=False)
    service.handle(get_work(), replies.put_nowait)
    work.released.set()
    async with asyncio.timeout(10):
        assert await replies.get() == DONE
    assert await service.close()


async def test_closing_stops_what_is_worked_on_and_drops_what_is_queued():
    work, registry, replies = HeldWork(), CollectorRegistry(), asyncio.Queue()
    service = service_of(work, registry, workers=1, max_queue=5)
    for _ in range(3):
        service.handle(get_work(), replies.put_nowait)
    assert work.started.acquire(timeout=10)
    assert await service.close()
    assert replies.qsize() == 1


async def test_closing_says_when_a_worker_cannot_be_stopped(monkeypatch):
    monkeypatch.setattr("lab.workloads.api.GRACE_SECONDS", 0.01)
    work, replies = HeldWork(), asyncio.Queue()
    service = service_of(work, CollectorRegistry(), workers=1, max_queue=5)
    work.stop = lambda: None
    service.handle(get_work(), replies.put_nowait)
    assert not await service.close()
    work.released.set()
    async with asyncio.timeout(10):
        assert await replies.get() == DONE
