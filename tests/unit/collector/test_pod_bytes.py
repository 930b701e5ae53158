"""The API's bytes as plain values: nothing that is used is lost, nothing else is kept."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.collector.core.kube_pod import OddPod, kube_pod
from services.collector.core.pod_bytes import list_page, listed_pod, watch_event
from tests.support.kube_objects import bookmark, event, expired, pod_list, pod_object
from tests.unit.collector.test_kube_pod import ANY, FIELDS

DENSE = [{"fieldsV1": {f"f:k{number}": {"v": {}} for number in range(20_000)}}]


def encoded(obj):
    return json.dumps(obj).encode()


def pods_in(body):
    return [listed_pod(raw) for raw in list_page(body).items]


def outcome(obj):
    try:
        return kube_pod(obj)
    except OddPod as error:
        return str(error)


def test_a_list_is_its_version_and_its_pods():
    body = encoded(pod_list(7, pod_object("a", "ua", 5, "batch"), pod_object("b", "ub", 6)))
    page = list_page(bytearray(body))
    assert (page.metadata, page.rest) == ({"resourceVersion": "7"}, None)
    assert [pod["metadata"]["uid"] for pod in pods_in(body)] == ["ua", "ub"]


@pytest.mark.parametrize(("told", "rest"), [("t0ken", "t0ken"), ("", None), (None, None), (7, None)])
def test_a_list_says_where_its_rest_is(told, rest):
    assert list_page(encoded({"metadata": {"continue": told}, "items": None})).rest == rest


@pytest.mark.parametrize("body", ["null", "[]", "7", "{}", '{"items": {}}', '{"metadata": [], "items": []}'])
def test_what_is_no_list_is_refused(body):
    with pytest.raises(ValueError, match="the answer is no list of pods"):
        list_page(body.encode())


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items": [{"metadata"', b'{"items": []}}'])
def test_what_is_no_json_is_refused(body):
    with pytest.raises(ValueError):
        list_page(body)


def test_of_a_pod_only_what_is_used_is_kept():
    full = pod_object(
        "a",
        metadata={"managedFields": DENSE},
        spec={"containers": [{"env": DENSE, "ports": [{"containerPort": 80, "hostPort": 81}]}], "volumes": DENSE},
        status={"conditions": DENSE, "containerStatuses": [{"containerID": "x://c", "image": "i"}]},
    )
    (pod,) = pods_in(encoded(pod_list(1, full)))
    assert pod["spec"] == {"nodeName": "node-1", "containers": [{"ports": [{"containerPort": 80}]}]}
    assert pod["status"] == {"phase": "Running", "containerStatuses": [{"containerID": "x://c"}]}
    assert set(pod["metadata"]) == {"name", "namespace", "uid", "resourceVersion"}


def test_all_that_is_used_of_a_pod_comes_from_its_bytes():
    full = pod_object(
        "a",
        cls="batch",
        metadata={"deletionTimestamp": "2026-01-05T10:00:00Z", "annotations": {"kubernetes.io/config.mirror": "h"}},
        spec={
            "nodeName": "node-1",
            "hostNetwork": True,
            "containers": [{"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80}]}],
            "initContainers": [{"restartPolicy": "Always", "ports": [{"containerPort": 81}]}],
        },
        status={"qosClass": "Burstable", "hostIP": "192.0.2.1", "containerStatuses": [{"containerID": "x://c"}]},
    )
    running = json.loads(json.dumps(full))
    del running["metadata"]["deletionTimestamp"]
    here = json.loads(json.dumps(running))
    here["status"]["podIP"] = "10.0.0.1"
    over = json.loads(json.dumps(here))
    over["status"]["phase"] = "Failed"
    told = [outcome(pod) for pod in pods_in(encoded(pod_list(1, full, running, here, over)))]
    assert told == [outcome(pod) for pod in (full, running, here, over)]
    assert [pod.workload.skip for pod in told] == ["terminating", None, None, "finished"]
    assert [pod.workload.address for pod in told] == [None, "192.0.2.1", "10.0.0.1", None]
    assert (told[1].workload.ports, told[1].qos, told[1].static_uid) == ((80, 81), "Burstable", "h")


def test_a_dense_list_costs_little_more_than_its_bytes():
    body = encoded(pod_list(1, *(pod_object(f"p{number}", metadata={"managedFields": DENSE}) for number in range(20))))
    tracemalloc.start()
    try:
        assert len(pods_in(body)) == 20
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body) / 20


def test_a_pod_whose_text_cannot_be_read_costs_itself():
    body = b'{"items": [{"metadata": {"uid": "\xff"}}, {"metadata": {"uid": "ub"}}]}'
    assert [pod and pod["metadata"]["uid"] for pod in pods_in(body)] == [None, "ub"]


def test_events_are_read_by_their_kind():
    assert watch_event(encoded(event("ADDED", pod_object("a", metadata={"managedFields": DENSE}))))["object"][
        "metadata"
    ] == {"name": "a", "namespace": "shop", "uid": "uid-a", "resourceVersion": "1"}
    assert watch_event(encoded(bookmark(7)))["object"]["metadata"] == {"resourceVersion": "7"}
    assert watch_event(encoded(expired())) == expired()


@pytest.mark.parametrize("line", ["null", "7", "[]", '"x"', "{}", '{"type": ["ADDED"]}', '{"object": null}'])
def test_a_line_that_is_no_event_is_what_it_is(line):
    told = watch_event(line.encode())
    assert told == json.loads(line) or told == {"type": None} | json.loads(line)


@given(st.data())
def test_bytes_give_the_same_pod_as_the_whole_object(draw):
    obj = pod_object("a", cls="batch")
    for part, names in FIELDS.items():
        for name in draw.draw(st.lists(st.sampled_from(names), max_size=3)):
            obj[part][name] = draw.draw(ANY)
    body = json.dumps(obj)
    try:
        whole = json.loads(body)
        (told,) = pods_in(b'{"items": [%s]}' % body.encode())
    except ValueError:
        return  # NaN, which is no JSON
    assert told is None or outcome(told) == outcome(whole)
