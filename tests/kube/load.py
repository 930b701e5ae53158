"""An API pod, batch pods that outweigh it, and requests to the API from this machine, timed by their sender."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.latency_records import Summary, read_requests, summarise

API, BATCH = "api", ("batch-0", "batch-1")
OBJECTIVE_SECONDS = 0.1
BATCH_OVER_API = 16
API_MILLICPU = 100
"""What the API requests where there is room; the batch pods request sixteen times that in sum."""
OTHERS_MILLICPU = 200
"""Left over for the agent and its NATS server."""
WORK_MS = 7.0
REQUESTS_PER_CPU = 15.0
"""Per second: a tenth of each CPU, more than the API's request earns it beside the batch."""
MAX_REQUESTS_PER_SECOND = 200.0


@dataclass(frozen=True)
class Shape:
    """How large the workloads are on a node with `cpus` CPUs, of which `free_millicpu` are not requested yet."""

    cpus: int
    free_millicpu: int

    @property
    def api_millicpu(self) -> int:
        """100m where it fits, else less: what matters is one to sixteen."""
        return min(API_MILLICPU, (self.free_millicpu - OTHERS_MILLICPU) // (1 + BATCH_OVER_API))

    @property
    def requests_per_second(self) -> float:
        return min(MAX_REQUESTS_PER_SECOND, REQUESTS_PER_CPU * self.cpus)


def pods(namespace: str, node: str, image: str, port: int, shape: Shape) -> list[dict[str, Any]]:
    """The API, on the node's own network so that this machine reaches it, and two batch pods."""
    api = ["-m", "lab.workloads.api", "--host", "0.0.0.0", "--port", str(port), "--work-ms", str(WORK_MS)]
    api += ["--workers", str(max(2, min(shape.cpus, 8))), "--max-queue", "128"]
    batch = ["-m", "lab.workloads.batch", "--processes", str(shape.cpus)]
    share = shape.api_millicpu * BATCH_OVER_API // len(BATCH)
    made = [_pod(API, "latency-critical", image, api, shape.api_millicpu, node)]
    made[0]["spec"]["hostNetwork"] = True
    made[0]["metadata"]["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}
    made += [_pod(name, "batch", image, batch, share, node) for name in BATCH]
    return [{**one, "metadata": {**one["metadata"], "namespace": namespace}} for one in made]


def _pod(name: str, cls: str, image: str, args: list[str], millicpu: int, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"trimtab.dev/workload-class": cls}},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python"],
                    "args": args,
                    "resources": {"requests": {"cpu": f"{millicpu}m"}},
                }
            ],
        },
    }


@dataclass
class Requests:
    """Requests under way, and what became of them."""

    record: Path

    def summary(self, window: tuple[float, float]) -> Summary:
        """Of the requests that were due within the window (Unix seconds)."""
        return summarise(read_requests(self.record).records, *window, OBJECTIVE_SECONDS)


@contextmanager
def requests(url: str, shape: Shape, folder: Path) -> Iterator[Requests]:
    """Requests at a steady mean rate, open loop, until the end."""
    record = folder / "requests.jsonl"
    argv = [sys.executable, "-m", "lab.workloads.loadgen", "--target", url, "--allow-remote"]
    argv += ["--rate", str(shape.requests_per_second), "--duration", "86400", "--wait-seconds", "120"]
    argv += ["--timeout-seconds", "5", "--max-in-flight", "128", "--connections", "128", "--record", str(record)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"] is True
            yield Requests(record)
        finally:
            process.terminate()


def any_port() -> int:
    """A port of the node that is probably free."""
    return random.SystemRandom().randrange(20_000, 29_000)


def tick_seconds() -> float:
    """2 s, a short tick, so that sixty cycles are two minutes; TRIMTAB_TEST_TICK_SECONDS for slow machines."""
    return float(os.environ.get("TRIMTAB_TEST_TICK_SECONDS", "2"))
