"""What a workload shows to Prometheus: its routes and the buckets of its latency histogram."""

from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder

from lab.workloads.http_messages import Request, Response
from lab.workloads.http_server import Handler, Reply

# fmt: off
LATENCY_BUCKETS_SECONDS: Final = (
    0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0,
)
# fmt: on
"""Neighbours differ by a factor of 1.3 to 2, so that a P99 from 5 ms to 10 s is interpolated within a narrow bucket."""


def latency_histogram(name: str, promise: str, registry: CollectorRegistry, labels: tuple[str, ...] = ()) -> Histogram:
    """A histogram in seconds over LATENCY_BUCKETS_SECONDS."""
    return Histogram(name, promise, labels, buckets=LATENCY_BUCKETS_SECONDS, registry=registry)


def metrics_routes(registry: CollectorRegistry) -> dict[str, Handler]:
    """`/metrics`, in the format that the scraper accepts, and `/healthz`."""

    def metrics(request: Request, reply: Reply) -> None:
        encode, content_type = choose_encoder(request.accept)
        reply(Response(HTTPStatus.OK, encode(registry), content_type))

    def health(_: Request, reply: Reply) -> None:
        reply(Response(HTTPStatus.OK, b"ok\n"))

    return {"/metrics": metrics, "/healthz": health}
