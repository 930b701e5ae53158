"""One pod object: what is taken from it, and that nothing in it costs more than itself."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.settings import DEFAULT_CLASSES
from services.collector.core.kube_pod import OddPod, Placed, kube_pod, place
from services.collector.core.targets import targets
from services.collector.core.workload import Namespaces, settle
from tests.support.kube_objects import CLASS_LABEL, pod_object

C1 = "a" * 64
PORT = {"prometheus.io/port": "9102"}


class Found:
    """Where a pod is, as hostfs says it."""

    def __init__(self, group, skip=None):
        self.group, self.skip = group, skip


def placed(*pods, **places) -> Placed:
    return place([kube_pod(pod) for pod in pods], {uid.replace("_", "-"): found for uid, found in places.items()})


def test_what_is_taken_from_a_pod():
    pod = kube_pod(
        {
            "metadata": {
                "name": "api-1",
                "namespace": "shop",
                "uid": "6F1C2A34-0b7e-4c55-9a0d-2f8f1f0f7a01",
                "resourceVersion": "17",
                "labels": {CLASS_LABEL: "batch", "app": "api"},
                "annotations": {
                    "prometheus.io/scrape": "true",
                    "trimtab.dev/slo-p99": "100ms",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
            },
            "spec": {
                "containers": [
                    {"name": "app", "ports": [{"containerPort": 8080}, {"containerPort": 9102, "protocol": "TCP"}]},
                    {"name": "dns", "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 8080}]},
                ],
                "initContainers": [
                    {"name": "setup", "ports": [{"containerPort": 1}]},
                    {"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 15090}]},
                ],
            },
            "status": {
                "phase": "Running",
                "podIP": "10.42.0.7",
                "qosClass": "Burstable",
                "containerStatuses": [{"containerID": f"containerd://{C1}"}, {"containerID": "cri-o://b"}],
            },
        }
    )
    assert (pod.uid, pod.name, pod.namespace, pod.phase) == (
        "6F1C2A34-0b7e-4c55-9a0d-2f8f1f0f7a01",
        "api-1",
        "shop",
        "Running",
    )
    assert (pod.qos, pod.containers, pod.static_uid) == ("Burstable", (C1, "b"), None)
    assert (pod.is_terminating, pod.host_network) == (False, False)
    workload = pod.workload
    assert (workload.name, workload.namespace, workload.skip) == ("shop/api-1", "shop", None)
    assert (workload.address, workload.ports) == ("10.42.0.7", (8080, 9102, 15090))
    assert workload.labels == {CLASS_LABEL: "batch", "app": "api"}
    assert workload.annotations == {"prometheus.io/scrape": "true", "trimtab.dev/slo-p99": "100ms"}


@pytest.mark.parametrize(
    ("status", "containers", "skip"),
    [
        ('{"phase": "Pending", "containerStatuses": null}', (), "pending"),
        ('{"phase": "Pending", "containerStatuses": [{"name": "app", "containerID": "", "state": {"waiting": {}}}]}', (), "pending"),
        (
            '{"phase": "Running", "containerStatuses": [{"name": "app", "containerID": "containerd://{C1}", "state": {"running": {}}}]}',
            (C1,),
            None,
        ),
        # one container runs and another one's image is still pulled
        ('{"phase": "Pending", "containerStatuses": [{"containerID": "containerd://{C1}"}, {"containerID": null}]}', (C1,), None),
        ('{"phase": "Pending", "containerStatuses": [null, {}]}', (), "pending"),
        ('{"phase": "Running"}', (), None),
    ],
)  # fmt: skip
def test_kw_10_a_pod_without_containers_is_known_and_has_no_target(status, containers, skip):
    told = json.loads(status.replace("{C1}", C1))
    obj = pod_object("app", "u-1", status={"podIP": "10.0.0.9", **told}, metadata={"annotations": PORT})
    pod = kube_pod(obj)
    assert (pod.containers, pod.workload.skip) == (containers, skip)
    found = place([pod], {})
    assert found.workloads == ()
    assert found.missing == (() if skip else ("shop/app",)), "no line for a pod that is not there yet"
    assert (pod.uid in targets([pod.workload]).found) == (skip is None)


def test_kw_07_pods_that_are_over_are_neither_scraped_nor_steered():
    port = {"annotations": PORT}
    pods = [
        pod_object("job-1", cls="batch", phase="Succeeded", status={"podIP": "10.244.1.9"}),
        pod_object(
            "api-1",
            metadata=port | {"labels": {CLASS_LABEL: "latency-critical"}},
            status={"podIP": "10.244.1.9"},
        ),
        pod_object(
            "old-1",
            cls="latency-critical",
            status={"podIP": "10.244.1.12"},
            metadata={"labels": {CLASS_LABEL: "latency-critical"}, "deletionTimestamp": "2026-01-05T10:00:00Z"},
        ),
    ]
    for pod in pods:  # held out: the finished ones ask to be scraped, at the very same place
        pod["metadata"].setdefault("annotations", PORT)
    found = placed(*pods, uid_job_1=Found("job"), uid_api_1=Found("api"), uid_old_1=Found("old"))
    assert {one.name: one.skip for one in found.workloads} == {
        "shop/job-1": "finished",
        "shop/api-1": None,
        "shop/old-1": "terminating",
    }
    assert {one.name: (one.address, dict(one.annotations)) for one in found.workloads if one.skip} == {
        "shop/job-1": (None, {}),
        "shop/old-1": (None, {}),
    }
    scraped = targets(found.workloads)
    assert {uid: target.url for uid, target in scraped.found.items()} == {"uid-api-1": "http://10.244.1.9:9102/metrics"}
    assert scraped.refused == {}
    classes = {one.name: settle(one, (CLASS_LABEL,), DEFAULT_CLASSES, Namespaces()).cls for one in found.workloads}
    assert classes == {"shop/job-1": None, "shop/api-1": "latency-critical", "shop/old-1": None}
    gone = placed(*pods, uid_api_1=Found("api"))  # the groups of the others have vanished
    assert [one.name for one in gone.workloads] == ["shop/api-1"]
    assert gone.missing == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_kw_07_a_finished_pod_that_is_deleted_is_finished(phase):
    pod = kube_pod(pod_object("a", phase=phase, metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}))
    assert (pod.workload.skip, pod.is_terminating) == ("finished", True)


@pytest.mark.parametrize("phase", ["Running", "Unknown", None, ""])
def test_other_phases_are_running(phase):
    assert kube_pod(pod_object("a", phase=phase)).workload.skip is None


def test_the_mirror_of_a_static_pod_is_found_by_its_hash():
    notes = {"kubernetes.io/config.mirror": "0123456789ABCDEF" * 2, "kubernetes.io/config.hash": "0123456789abcdef" * 2}
    mirror = pod_object("etcd-node-1", "u-mirror", namespace="kube-system", metadata={"annotations": notes})
    assert kube_pod(mirror).static_uid == "0123456789abcdef" * 2
    found = place([kube_pod(mirror)], {"0123456789abcdef" * 2: Found("static")})
    assert [(one.uid, one.group) for one in found.workloads] == [("u-mirror", "static")]


def test_a_pod_cannot_claim_the_group_of_another_by_annotation():
    claim = {"kubernetes.io/config.mirror": "u-victim", "kubernetes.io/config.hash": "u-victim"}
    thief = pod_object("thief", "u-thief", metadata={"annotations": claim})
    victim = pod_object("victim", "u-victim")
    for pods in ((thief, victim), (victim, thief)):
        found = placed(*pods, u_victim=Found("g"))
        assert [(one.uid, one.group) for one in found.workloads] == [("u-victim", "g")]
        assert found.missing == ("shop/thief",)
    without = {"kubernetes.io/config.hash": "u-victim"}
    assert placed(pod_object("t", metadata={"annotations": without}), u_victim=Found("g")).workloads == ()


def test_of_several_mirrors_that_claim_one_group_none_has_it():
    notes = {"kubernetes.io/config.mirror": "h" * 32}
    pods = [pod_object(name, metadata={"annotations": notes}) for name in ("a", "b")]
    assert place([kube_pod(pod) for pod in pods], {"h" * 32: Found("g")}) == Placed((), ("shop/a", "shop/b"))


def test_uids_are_compared_without_case():
    found = place([kube_pod(pod_object("a", "ABC-1"))], {"abc-1": Found("g")})
    assert [(one.uid, one.group) for one in found.workloads] == [("ABC-1", "g")]


def test_the_groups_reason_to_be_skipped_counts_where_the_pod_has_none():
    running, ending = pod_object("a", "u-a"), pod_object("b", "u-b", metadata={"deletionTimestamp": "2026"})
    found = placed(running, ending, u_a=Found("a", "exclusive_cpus"), u_b=Found("b", "exclusive_cpus"))
    assert [one.skip for one in found.workloads] == ["exclusive_cpus", "terminating"]


@pytest.mark.parametrize(
    ("spec", "status", "address"),
    [
        ({}, {"podIP": "10.1.2.3"}, "10.1.2.3"),
        ({}, {"podIP": "fd00::7"}, "fd00::7"),
        ({}, {"podIP": "FD00:0::7"}, "fd00::7"),
        ({}, {"podIP": "fe80::1%eth0"}, None),
        ({}, {"podIP": "", "hostIP": "192.0.2.1"}, None),
        ({}, {"podIP": None}, None),
        ({}, {"podIP": "evil.example/x"}, None),
        ({}, {"podIP": 12}, None),
        ({}, {"podIP": "1" * 5000}, None),
        ({"hostNetwork": True}, {"podIP": "192.0.2.1", "hostIP": "192.0.2.1"}, "192.0.2.1"),
        ({"hostNetwork": True}, {"hostIP": "192.0.2.1"}, "192.0.2.1"),
        ({"hostNetwork": True}, {}, None),
    ],
)
def test_the_address_is_the_pods_or_on_the_hosts_network_the_nodes(spec, status, address):
    pod = kube_pod(pod_object("a", spec=spec, status=status))
    assert (pod.workload.address, pod.host_network) == (address, bool(spec))


@pytest.mark.parametrize("nothing", [None, "absent"])
def test_null_stands_for_nothing_everywhere(nothing):
    obj = {
        "metadata": {"uid": "u", "name": None, "namespace": None, "labels": None, "annotations": None},
        "spec": {"containers": None, "initContainers": None, "hostNetwork": None},
        "status": {"phase": None, "podIP": None, "containerStatuses": None, "qosClass": None},
    }
    if nothing:
        obj = {"metadata": {"uid": "u"}}
    pod = kube_pod(obj)
    assert (pod.name, pod.workload.name, pod.workload.labels, pod.workload.ports) == ("u", "u", {}, ())
    assert (pod.containers, pod.qos, pod.phase) == ((), None, "")
    inner = kube_pod({"metadata": {"uid": "u"}, "spec": {"containers": [None, {"ports": None}, {"ports": [None]}]}})
    assert inner.workload.ports == ()
    assert kube_pod({"metadata": {"uid": "u"}, "spec": None, "status": None}).workload.skip is None


@pytest.mark.parametrize("port", [0, -1, 65536, 10**30, "80", 8080.0, True, None])
def test_what_is_no_port_is_none(port):
    obj = pod_object("a", spec={"containers": [{"ports": [{"containerPort": port}, {"containerPort": 9102}]}]})
    assert kube_pod(obj).workload.ports == (9102,)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"metadata": {"labels": {"a": 7}}}, "metadata.labels is no text"),
        ({"metadata": {"labels": {"a" * 318: "x"}}}, "metadata.labels is no text of at most 317"),
        ({"metadata": {"labels": {f"k{n}": "x" * 100 for n in range(1000)}}}, "labels has more than 64 KiB of text"),
        ({"metadata": {"labels": {"a": "\ud800"}}}, "half a surrogate pair"),
        ({"metadata": {"annotations": {"trimtab.dev/slo-p99": "9" * 5000}}}, "metadata.annotations is no text"),
        ({"metadata": {"annotations": {"trimtab.dev/slo-p99": {}}}}, "metadata.annotations is no text"),
        ({"metadata": {"annotations": "x"}}, "metadata.annotations is no object"),
        ({"metadata": {"name": "n" * 254}}, "metadata.name is no text"),
        ({"metadata": {"uid": "u" * 129}}, "metadata.uid is missing"),
        ({"metadata": {"uid": "a\nb"}}, "metadata.uid is missing"),
        ({"spec": {"containers": {}}}, "spec.containers is no list"),
        ({"spec": {"containers": ["x"]}}, "an entry of spec.containers is no object"),
        ({"status": {"containerStatuses": "x"}}, "status.containerStatuses is no list"),
        ({"status": {"containerStatuses": [{"containerID": 7}]}}, "containerID is no text"),
        ({"status": {"phase": ["Running"]}}, "status.phase is no text"),
    ],
)
def test_what_is_odd_is_said(parts, words):
    with pytest.raises(OddPod, match=words):
        kube_pod(pod_object("a", **parts))


def test_of_many_labels_and_annotations_those_that_count_are_taken():
    many = {f"k{number}": "x" * 63 for number in range(10_000)} | {"odd": 7}
    notes = {f"prometheus.io/{key}": "x" for key in many} | {"prometheus.io/port": "9102"}
    obj = pod_object("a", metadata={"labels": {**many, CLASS_LABEL: "batch", "team": None}, "annotations": notes})
    workload = kube_pod(obj, (CLASS_LABEL, "workload-type", "team")).workload
    assert (workload.labels, workload.annotations) == ({CLASS_LABEL: "batch", "team": ""}, PORT)
    with pytest.raises(OddPod, match=r"metadata\.labels is no text"):
        kube_pod(obj, ("odd",))


def test_without_a_choice_all_labels_are_taken():
    many = {f"k{number}": "x" for number in range(600)}
    assert kube_pod(pod_object("a", metadata={"labels": many})).workload.labels == many


def test_annotations_that_nobody_needs_may_be_anything():
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000, "other": 7}
    assert kube_pod(pod_object("a", metadata={"annotations": notes})).workload.annotations == {}


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = {
    "metadata": ["uid", "name", "namespace", "labels", "annotations", "deletionTimestamp", "resourceVersion"],
    "spec": ["containers", "initContainers", "hostNetwork"],
    "status": ["phase", "podIP", "hostIP", "qosClass", "containerStatuses"],
}


@given(st.data())
def test_anything_at_all_is_a_pod_or_an_odd_one(draw):
    obj = pod_object("a", cls="batch")
    for part, names in FIELDS.items():
        for name in draw.draw(st.lists(st.sampled_from(names), max_size=3)):
            obj[part][name] = draw.draw(ANY)
    try:
        pod = kube_pod(obj)
    except OddPod:
        return
    settle(pod.workload, (CLASS_LABEL,), {}, Namespaces())
    targets([pod.workload])


@given(ANY)
def test_anything_that_is_no_object_is_odd(anything):
    with pytest.raises(OddPod):
        kube_pod(anything)
