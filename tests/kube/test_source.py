"""The collector's Kubernetes source against a real API server, with the account of the manifests.

The pods are bound to a node that no kubelet knows; what a kubelet would say of them is said here, through the API.
"""

import time

import pytest

from services.collector.core.workload import FINISHED, PENDING, TERMINATING
from services.collector.sources.pod_watch import Pace
from tests.kube.conftest import FIGURE
from tests.kube.follower import following

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

CLASS = "trimtab.dev/workload-class"
EVENTS, PODS = 1000, 20


@pytest.fixture
def follower(cluster, kubeconfig):
    with following(cluster.namespace, cluster.node, kubeconfig) as follower:
        follower.until(lambda _: follower.count("list") > 0)
        yield follower


def test_a_pods_whole_life_is_seen(cluster, follower):
    made = cluster.add_pod("life", {CLASS: "batch"}, annotations={"trimtab.dev/slo-p99": "80ms", "other": "x"})
    born = follower.until(lambda pods: "life" in pods)["life"]
    assert (born.uid, born.skip, born.labels, born.address) == (made.metadata.uid, PENDING, {CLASS: "batch"}, None)
    assert born.group == f"burstable/pod{made.metadata.uid}"

    cluster.set_status(
        "life",
        phase="Running",
        podIP="10.244.1.9",
        containerStatuses=[
            {
                "name": "main",
                "image": "none",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "containerID": "containerd://aa",
            }
        ],
    )
    running = follower.until(lambda pods: pods["life"].skip is None)["life"]
    assert (running.address, running.ports) == ("10.244.1.9", (9102,))
    assert running.annotations == {"trimtab.dev/slo-p99": "80ms"}

    cluster.set_labels("life", {CLASS: "latency-critical"})
    follower.until(lambda pods: pods["life"].labels == {CLASS: "latency-critical"})
    cluster.set_labels("life", {CLASS: None})
    follower.until(lambda pods: pods["life"].labels == {})

    cluster.set_status("life", phase="Succeeded")
    over = follower.until(lambda pods: pods["life"].skip == FINISHED)["life"]
    assert (over.address, over.ports, dict(over.annotations)) == (None, (), {})

    cluster.delete_pod("life")
    follower.until(lambda pods: "life" not in pods)
    assert follower.count("list") == 1, "all of it came by the watch"


def test_a_pod_that_is_asked_to_end_is_terminating_until_it_is_gone(cluster, follower):
    cluster.add_pod("ending", {CLASS: "batch"})
    cluster.set_status("ending", phase="Running", podIP="10.244.1.10")
    follower.until(lambda pods: "ending" in pods and pods["ending"].skip is None)
    cluster.delete_pod("ending", grace_seconds=30)
    assert follower.until(lambda pods: pods["ending"].skip == TERMINATING)["ending"].address is None
    cluster.delete_pod("ending")
    follower.until(lambda pods: "ending" not in pods)


def test_a_pod_of_the_same_name_is_another_pod(cluster, follower):
    first = cluster.add_pod("again", {CLASS: "batch"}).metadata.uid
    follower.until(lambda pods: "again" in pods)
    cluster.delete_pod("again")
    second = cluster.add_pod("again", {CLASS: "default"}).metadata.uid
    seen = follower.until(lambda pods: "again" in pods and pods["again"].uid == second)["again"]
    assert (second != first, seen.labels) == (True, {CLASS: "default"})
    cluster.delete_pod("again")


def test_pods_of_other_nodes_are_never_seen(cluster, follower, kubeconfig):
    cluster.add_pod("ours")
    with following(cluster.namespace, f"{cluster.node}-other", kubeconfig) as other:
        other.until(lambda _: other.count("list") > 0)
        assert other.pods() == {}
        assert "lists none on this node" in other.source.trouble()
    follower.until(lambda pods: "ours" in pods)
    cluster.delete_pod("ours")


QUIET = Pace(relist=300.0, silence=10.0, max_age=15.0)


def test_a_quiet_watch_is_renewed_and_nothing_is_listed(cluster, kubeconfig):
    node = f"{cluster.node}-quiet"
    with following(cluster.namespace, node, kubeconfig, pace=QUIET) as follower:
        follower.until(lambda _: follower.count("watch") == 4)  # three clean ends, at 7 s each
        assert follower.source.age_seconds() < QUIET.max_age
        assert follower.source.stale() is None
        assert [what for what, _ in follower.told if what not in ("event", "watch")] == ["list"]


class FromAnOldVersion:
    """The API as it is, but for the first watch: that resumes from the oldest version there ever was."""

    def __init__(self, api):
        self._api = api
        self._is_first = True
        self.node = api.node
        self.list_pods, self.interrupt, self.close = api.list_pods, api.interrupt, api.close

    def watch_pods(self, version, timeout_seconds):
        if self._is_first:
            self._is_first, version = False, "1"
        yield from self._api.watch_pods(version, timeout_seconds)


def test_a_version_that_the_server_has_forgotten_leads_to_a_new_list(cluster, kubeconfig):
    cluster.add_pod("kept", {CLASS: "batch"})
    with following(cluster.namespace, cluster.node, kubeconfig, through=FromAnOldVersion) as follower:
        follower.until(lambda _: follower.count("list") >= 1 and len(follower.told) >= 2)
        if not follower.count("expired"):
            pytest.skip("this API server still has its whole history: version 1 is not too old for it")
        follower.until(lambda pods: follower.count("list") == 2 and "kept" in pods)
        assert follower.source.stale() is None
        cluster.delete_pod("kept")
        follower.until(lambda pods: "kept" not in pods)
        assert [what for what, _ in follower.told if what not in ("event", "list", "watch")] == ["expired", "back"]


def test_a_thousand_pod_events_leave_the_right_pods_for_little_cpu(cluster, follower, record_property):
    names = [f"busy-{number}" for number in range(PODS)]
    for name in names:
        cluster.add_pod(name, {CLASS: "batch", "round": "0"})
    follower.until(lambda pods: set(names) <= set(pods))
    before, heard, began = follower.cpu_seconds(), follower.count("event"), time.monotonic()
    rounds = EVENTS // PODS
    for number in range(1, rounds + 1):
        for name in names:
            cluster.set_labels(name, {"round": str(number)})
    pods = follower.until(lambda pods: all(pods[name].labels["round"] == str(rounds) for name in names))
    cpu, lasted = follower.cpu_seconds() - before, time.monotonic() - began
    events = follower.count("event") - heard
    assert {pods[name].labels["round"] for name in names} == {str(rounds)}
    assert events >= EVENTS
    assert follower.count("list") == 1, "no event was lost on the way"
    assert follower.source.stale() is None
    # 1,000 a minute must leave the minute to the loop.
    assert cpu < 6.0
    record_property(
        FIGURE, f"kube: {events} pod events in {lasted:.0f} s took the source {cpu * 1000:.0f} ms of CPU, lists: 1"
    )
    for name in names:
        cluster.delete_pod(name)
    follower.until(lambda pods: not set(names) & set(pods))
