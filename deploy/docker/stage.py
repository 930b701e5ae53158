# ruff: noqa: INP001 - a script of an image, no part of a package
"""What the services of docker-compose.yml look at: the workload containers' own groups where this host shows them, else
a simulated node, which it says loudly.

    python stage.py FOLDER HOST_CGROUP

writes FOLDER/trimtab.yaml and FOLDER/workloads.yaml, and plays the simulated node until SIGTERM if there is one. A
workload container's group is found by the uid in its `cgroup_parent`, wherever the engine's cgroup driver put it.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client import disable_created_metrics

from hostfs.cgroup import CgroupTree
from hostfs.mounts import detect
from hostfs.pods import parse_pod_group
from lab.simnode import keep_pace, make_node
from lab.simnode_scenario import PODS_ROOT, default_scenario
from lab.simulated_node import SimulatedNode
from lab.workloads.http_server import HttpServer, listen
from lab.workloads.metrics import metrics_routes
from lab.workloads.process import announce, run
from runtime.clock import SystemClock

PORT: Final = 9100
"""First port of the simulated pods' metrics pages, and the port of every workload container's."""

FIND_SECONDS: Final = 20.0
"""How long a container's group is waited for. 20: the containers were started before this one."""

MAX_DEPTH: Final = 6
"""How deep groups are searched for: slices of systemd, five of them, and one more for an engine's own."""


@dataclass(frozen=True)
class StagedPod:
    """One workload container. `uid` is in its `cgroup_parent`; `host` is its name on compose's network."""

    uid: str
    host: str
    cls: str
    metric: str | None = None


PODS: Final = (
    StagedPod("0a1e7f526c0d4b8e9d353f1c2b7a9e01", "api", "latency-critical", "http_request_duration_seconds"),
    StagedPod("0a1e7f526c0d4b8e9d353f1c2b7a9e02", "batch", "batch"),
    StagedPod("0a1e7f526c0d4b8e9d353f1c2b7a9e03", "monitor", "default", "monitor_run_duration_seconds"),
)


class NoRealGroups(Exception):
    """Why the workload containers' groups cannot be looked at here."""


def pod_groups(children: Callable[[str], Iterable[str]], uids: Iterable[str]) -> dict[str, str]:
    """The pod-level group of each uid that is there, by uid. `children(group)` are the groups directly below."""
    wanted, found = set(uids), dict[str, str]()
    level = [""]
    for _ in range(MAX_DEPTH):
        level = [child for group in level for child in children(group)]
        for group in level:
            pod = parse_pod_group(group)
            if pod is not None and pod.container is None and pod.uid in wanted:
                found.setdefault(pod.uid, group)
    return found


def common_root(groups: Iterable[str]) -> str:
    """The group that holds all these pods' groups, above their QoS groups. Raises NoRealGroups where there is none."""
    parents = {_above_qos(group.rpartition("/")[0]) for group in groups}
    root = parents.pop() if len(parents) == 1 else ""
    if not root:
        raise NoRealGroups("the containers' groups share no group below the root")
    return root


def _above_qos(parent: str) -> str:
    above, _, name = parent.rpartition("/")
    return above if name.removesuffix(".slice").rpartition("-")[2] in ("burstable", "besteffort") else parent


def find_real(host_cgroup: str, clock: Callable[[], float], pause: Callable[[float], None]) -> tuple[str, list[Any]]:
    """The pods root below `host_cgroup` and the workloads as the workload file lists them. Raises NoRealGroups."""
    host = detect("/proc", host_cgroup)
    if host.root is None:
        raise NoRealGroups(f"{host.reason}. {host.remedy}")
    tree = CgroupTree(host_cgroup)
    deadline = clock() + FIND_SECONDS
    groups = pod_groups(tree.children, (pod.uid for pod in PODS))
    while len(groups) < len(PODS):
        if clock() > deadline:
            missing = ", ".join(pod.host for pod in PODS if pod.uid not in groups)
            raise NoRealGroups(f"no group of the containers {missing} below {host_cgroup}")
        pause(0.5)
        groups = pod_groups(tree.children, (pod.uid for pod in PODS))
    root = common_root(groups.values())
    for group in groups.values():
        parent = group.rpartition("/")[0]
        if not tree.has_cpu_controller(parent):
            raise NoRealGroups(f"{parent} has no cpu controller for its children")
    below = {uid: group.removeprefix(f"{root}/") for uid, group in groups.items()}
    return root, [_entry(pod, below[pod.uid], f"http://{pod.host}:{PORT}/metrics") for pod in PODS]


def _entry(pod: StagedPod, group: str, url: str) -> dict[str, Any]:
    return {
        "uid": pod.uid,
        "name": f"compose/{pod.host}",
        "group": group,
        "labels": {"trimtab.dev/workload-class": pod.cls},
        "metrics_url": url if pod.metric is not None else None,
        "latency_metric": pod.metric,
    }


def simulated_entries(node: SimulatedNode, ports: Mapping[str, int]) -> list[Any]:
    """The simulated pods as the workload file lists them; their pages are served by this container."""
    return [
        {
            "uid": pod.uid,
            "name": f"simulated/{pod.name}",
            "group": pod.group,
            "labels": pod.labels,
            "metrics_url": f"http://node:{ports[pod.name]}/metrics" if pod.name in node.services else None,
            "latency_metric": node.scenario.metric if pod.name in node.services else None,
        }
        for pod in node.scenario.pods
    ]


def simulated_host(node: SimulatedNode) -> dict[str, object]:
    """The `host` settings that make the services see a simulated node."""
    return {
        "cgroup_root": str(node.tree.cgroup_root),
        "proc_root": str(node.tree.proc_root),
        "pods_root": PODS_ROOT,
        "simulated": True,
    }


def settings(folder: Path, host: Mapping[str, object]) -> dict[str, Any]:
    """The services' configuration: everything is the default but who is listened to, what is looked at, and
    where the files are.
    """
    return {
        "version": 1,
        "node": "compose",
        "mode": "shadow",
        "http": {"host": ""},
        "host": dict(host),
        "collector": {"workloads": str(folder / "workloads.yaml")},
        "actuator": {"journal": "/var/lib/trimtab/journal"},
    }


def write(folder: Path, workloads: Sequence[object], host: Mapping[str, object]) -> None:
    """Both files; trimtab.yaml comes last and whole, since the others wait for it."""
    (folder / "workloads.yaml").write_bytes(msgspec.yaml.encode({"workloads": workloads}))
    staged = folder / "trimtab.yaml.new"
    staged.write_bytes(msgspec.yaml.encode(settings(folder, host)))
    staged.replace(folder / "trimtab.yaml")


async def simulate(node: SimulatedNode, folder: Path, stop: asyncio.Event) -> None:
    """Serves the simulated pods' pages and keeps pace with the clock until `stop` is set."""
    loop = asyncio.get_running_loop()
    ports = {name: PORT + number for number, name in enumerate(node.observed)}
    servers = []
    for name, pod in node.observed.items():
        server = HttpServer(metrics_routes(pod.registry))
        await server.start(listen("0.0.0.0", ports[name]))  # noqa: S104 - compose's own network
        servers.append(server)
        pod.writer.start(loop)
    write(folder, simulated_entries(node, ports), simulated_host(node))
    announce(PORT, simulated=True)
    pacing = asyncio.create_task(keep_pace(node, SystemClock()))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({pacing, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (pacing, stopped):
        task.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    node.close()
    for server in servers:
        await server.close(0.2)
    if pacing.done() and not pacing.cancelled():
        pacing.result()


async def _wait(stop: asyncio.Event) -> None:
    announce(0, simulated=False)
    await stop.wait()


def main(argv: Sequence[str]) -> int:
    """Looks, says what was found, and stays. The exit code."""
    folder, host_cgroup = Path(argv[0]), argv[1]
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    try:
        root, workloads = find_real(host_cgroup, time.monotonic, time.sleep)
    except NoRealGroups as error:
        sys.stderr.write(
            f"SIMULATED NODE, no real cgroups: {error}\n"
            "What the services see and would steer is simulated. The containers api, batch, monitor and loadgen run\n"
            "and are not looked at; `docker-compose stop api batch monitor loadgen` saves their CPU.\n"
        )
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        node = make_node(default_scenario(), folder / "node", None)
        return run("stage", lambda stop: simulate(node, folder, stop))
    sys.stderr.write(f"real cgroups: the workload containers below {root}\n")
    write(folder, workloads, {"cgroup_root": host_cgroup, "pods_root": root})
    return run("stage", _wait)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
