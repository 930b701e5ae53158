"""The whole loop on a real node: the manifests' DaemonSet, real pods, and the weights in the kernel's own files.

Needs a kubelet whose pods' groups are this machine's (any one-node cluster on it) and images (TRIMTAB_TEST_IMAGE).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import utils

from lab.latency_records import Summary
from schemas.messages import Reward, State
from tests.kube import load
from tests.kube.cluster import WAIT_SECONDS, Cluster, manifests, opened
from tests.kube.conftest import FIGURE
from tests.kube.install import BUS_SERVICE, CLUSTER_WIDE, SERVICES, Images, Place, bus_service, installed
from tests.kube.listener import Listener, listening
from tests.kube.node_files import PodGroups, find

pytestmark = [pytest.mark.kube, pytest.mark.timeout(3600)]

CYCLES, WARM_UP, LOOK = 60, 10, 30
FOREIGN = "77\n"
"""A weight that the kubelet never gave a batch pod here: twice as much or more, which hurts the API and no agent."""


@dataclass
class Loop:
    """An installation at work, and what the API's callers saw before and after the loop was switched on."""

    cluster: Cluster
    listener: Listener
    groups: PodGroups
    uids: dict[str, str]
    originals: dict[str, str]
    tick_seconds: float
    uncontrolled: Summary
    controlled: Summary
    facts: str
    theirs: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def loop(cluster, tmp_path_factory) -> Iterator[Loop]:
    """Pods and agent are there, 60 cycles have run since the loop was switched on; all is removed afterwards."""
    images = Images.named()
    if images is None:
        pytest.skip("TRIMTAB_TEST_IMAGE is not set: no images to run as pods, e.g. trimtab/{service}:0.1.0")
    node = _node_of(cluster)
    if node is None:
        pytest.skip("no node of this cluster is ready: pods do not run here (a bare API server?)")
    with ExitStack() as stack:
        own = stack.enter_context(opened(cluster.api))
        yield _start(own, node, images, stack, tmp_path_factory.mktemp("loop"))


def test_the_api_is_four_times_as_fast_after_sixty_cycles(loop, record_property):
    uncontrolled, controlled = loop.uncontrolled, loop.controlled
    record_property(FIGURE, loop.facts)
    assert uncontrolled.requests > 100, uncontrolled
    assert controlled.requests > 100, controlled
    assert controlled.p99_ms is not None
    assert uncontrolled.p99_ms is not None
    assert controlled.p99_ms <= uncontrolled.p99_ms / 4, loop.facts
    applied = [one for one in loop.listener.actuations() if one.outcome == "applied"]
    assert applied, "nothing was ever written"
    written = {write.uid for one in applied for write in one.writes}
    assert written <= set(loop.uids.values()), "somebody else's pod was written"


def test_another_writer_is_seen_and_after_three_times_left_alone(loop):
    pod, listener = loop.uids["batch-0"], loop.listener
    group = loop.groups.below_pods_root(pod)

    def write_as_another(_: State) -> None:
        if loop.groups.weight(pod) != FOREIGN:
            loop.groups.path(pod).write_text(FOREIGN)

    since = len(listener.messages)
    listener.on_state = write_as_another
    try:
        listener.until(
            lambda _: any(
                write.uid == pod and (write.result, write.reason) == ("skipped", "foreign")
                for one in listener.actuations(since)
                for write in one.writes
            ),
            seconds=2 * WAIT_SECONDS,
        )
    finally:
        listener.on_state = lambda _: None
    loop.theirs[pod] = FOREIGN
    seen = [one for one in listener.actuations(since) if group in one.overridden]
    assert 1 <= len(seen) <= 3, seen
    learned = {
        (one.boot, one.cycle) for one in listener.messages if isinstance(one, Reward) and one.outcome == "joined"
    }
    assert not learned & {(one.boot, one.cycle) for one in seen}, "what somebody else overrode was learned from"
    listener.cycles(5, WAIT_SECONDS)
    assert loop.groups.weight(pod) == FOREIGN


def test_when_the_daemonset_is_deleted_every_weight_is_what_the_kubelet_set(loop):
    cluster, expected = loop.cluster, loop.originals | loop.theirs
    assert loop.groups.weights() != expected, "the loop has changed nothing that could return"
    cluster.apps.delete_namespaced_daemon_set("trimtab", cluster.namespace, propagation_policy="Foreground")
    selector = "app.kubernetes.io/name=trimtab"
    cluster.until(
        cluster.core.list_namespaced_pod, lambda seen: not seen, namespace=cluster.namespace, label_selector=selector
    )
    assert loop.groups.weights() == expected


# ---- the stages of the fixture ----


def _start(cluster: Cluster, node: Any, images: Images, stack: ExitStack, folder: Any) -> Loop:
    tick, shape, port = load.tick_seconds(), _shape_of(cluster, node), load.any_port()
    api, *batch = load.pods(cluster.namespace, node.metadata.name, images.of("lab"), port, shape)
    uids = _run(cluster, [api])
    groups = find(list(uids.values()))
    if groups is None:
        pytest.skip("the pods' groups are not below this machine's cgroup2: the node is another machine")
    if not os.access(groups.path(uids["api"]), os.W_OK):
        pytest.skip(f"{groups.path(uids['api'])} cannot be written: run as root to play another writer")
    place = Place(cluster.namespace, _hostname(node), groups.pods_root(uids["api"]), tick)
    _install(cluster, images, place)
    stack.callback(_uninstall, cluster)
    uids |= _run(cluster, batch)
    groups = find(list(uids.values()))
    assert groups is not None
    originals = groups.weights()
    listener = stack.enter_context(listening(_bus_url(cluster, node)))
    listener.until(lambda _: len(listener.befores()) > 0, seconds=2 * WAIT_SECONDS)
    requests = stack.enter_context(load.requests(f"http://{_address(node)}:{port}/work", shape, folder))
    slow = 10 * tick
    listener.cycles(WARM_UP, WARM_UP * slow)
    uncontrolled = listener.cycles(LOOK, LOOK * slow)
    assert groups.weights() == originals, "something was written in shadow"
    listener.order_mode(node.metadata.name, "active")
    since = len(listener.messages)
    listener.cycles(CYCLES, CYCLES * slow)
    controlled = listener.cycles(LOOK, LOOK * slow)
    summaries = requests.summary(uncontrolled), requests.summary(controlled)
    facts = _facts(shape, tick, listener, since, summaries, originals, groups.weights(), uids)
    return Loop(cluster, listener, groups, uids, originals, tick, *summaries, facts)


def _node_of(cluster: Cluster) -> Any:
    """The first node that is ready and takes pods."""
    for node in cluster.core.list_node().items:
        conditions = {one.type: one.status for one in node.status.conditions or ()}
        if conditions.get("Ready") == "True" and not node.spec.unschedulable:
            return node
    return None


def _shape_of(cluster: Cluster, node: Any) -> load.Shape:
    name = node.metadata.name
    pods = cluster.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={name}").items
    containers = [one for pod in pods if pod.status.phase == "Running" for one in pod.spec.containers]
    taken = sum(_millicpu(((one.resources and one.resources.requests) or {}).get("cpu", "0")) for one in containers)
    cpus = int(utils.parse_quantity(node.status.capacity["cpu"]))
    shape = load.Shape(cpus, _millicpu(node.status.allocatable["cpu"]) - taken)
    if shape.api_millicpu < 20:
        pytest.skip(f"node {name} has only {shape.free_millicpu}m of its CPU left to request: too little for the test")
    return shape


def _millicpu(text: str) -> int:
    return int(utils.parse_quantity(text) * 1000)


def _run(cluster: Cluster, bodies: list[dict[str, Any]]) -> dict[str, str]:
    """Makes these pods and waits until they run; their uids."""
    for body in bodies:
        cluster.core.create_namespaced_pod(cluster.namespace, body)
    names = [body["metadata"]["name"] for body in bodies]
    found: dict[str, str] = {}

    def all_run(seen: dict[str, Any]) -> bool:
        failed = [name for name in names if name in seen and seen[name].status.phase == "Failed"]
        assert not failed, [(name, seen[name].status.message) for name in failed]
        found.update({name: seen[name].metadata.uid for name in names if name in seen})
        return all(name in seen and seen[name].status.phase == "Running" for name in names)

    cluster.until(cluster.core.list_namespaced_pod, all_run, namespace=cluster.namespace)
    return found


def _install(cluster: Cluster, images: Images, place: Place) -> None:
    for one in [*installed(manifests(), images, place), bus_service(place.namespace)]:
        utils.create_from_dict(cluster.api, one)
    cluster.until(
        cluster.apps.list_namespaced_daemon_set,
        lambda seen: (seen["trimtab"].status.number_ready or 0) >= 1,
        namespace=place.namespace,
    )


def _uninstall(cluster: Cluster) -> None:
    """What the namespace does not take with it."""
    deletions = {
        "ClusterRole": cluster.rbac.delete_cluster_role,
        "ClusterRoleBinding": cluster.rbac.delete_cluster_role_binding,
        "PriorityClass": cluster.scheduling.delete_priority_class,
    }
    for one in manifests():
        if one["kind"] in CLUSTER_WIDE:
            cluster.gone(deletions[one["kind"]], f"{cluster.namespace}-{one['metadata']['name']}")


def _bus_url(cluster: Cluster, node: Any) -> str:
    (port,) = cluster.core.read_namespaced_service(BUS_SERVICE, cluster.namespace).spec.ports
    return f"nats://{_address(node)}:{port.node_port}"


def _address(node: Any) -> str:
    return str(next(one.address for one in node.status.addresses if one.type == "InternalIP"))


def _hostname(node: Any) -> str:
    return str(node.metadata.labels["kubernetes.io/hostname"])


def _facts(
    shape: load.Shape,
    tick: float,
    listener: Listener,
    since: int,
    summaries: tuple[Summary, Summary],
    originals: dict[str, str],
    now: dict[str, str],
    uids: dict[str, str],
) -> str:
    was, is_now = summaries
    outcomes = [one.outcome for one in listener.actuations(since)]
    counts = {name: outcomes.count(name) for name in dict.fromkeys(outcomes)}
    moved = ", ".join(f"{name} {originals[uid].strip()}→{now[uid].strip()}" for name, uid in uids.items())
    return (
        f"kube: {shape.cpus} CPU, API {shape.api_millicpu}m, batch {shape.api_millicpu * 16}m, "
        f"{shape.requests_per_second:g} requests/s, tick {tick:g} s: API P99 {was.p99_ms:.0f} ms of {was.requests} "
        f"requests uncontrolled, {is_now.p99_ms:.0f} ms of {is_now.requests} after {CYCLES} cycles (P50 {was.p50_ms:.0f} → "
        f"{is_now.p50_ms:.0f} ms); actuations {counts}; {moved}; services {len(SERVICES)}"
    )
