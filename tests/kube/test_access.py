"""The account of the manifests, at a real API server: it may look at pods, and nothing else."""

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def as_collector(kubeconfig):
    """A client that has the account's token and no more."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
    with client.ApiClient(configuration) as api:
        yield client.CoreV1Api(api)


@pytest.fixture(scope="module")
def pod(cluster):
    name = "untouched"
    cluster.add_pod(name)
    yield name
    assert cluster.core.read_namespaced_pod(name, cluster.namespace).metadata.deletion_timestamp is None
    cluster.delete_pod(name)


def test_its_rights_are_get_list_and_watch_of_pods_and_nothing_else(as_collector, cluster):
    asked = {"spec": {"namespace": cluster.namespace}}
    said = client.AuthorizationV1Api(as_collector.api_client).create_self_subject_rules_review(asked)
    everybody = {"authorization.k8s.io", "authentication.k8s.io"}  # asking the server who one is and what one may do
    own = [rule for rule in said.status.resource_rules if not everybody.intersection(rule.api_groups or ())]
    assert [(rule.api_groups, rule.resources, sorted(rule.verbs), rule.resource_names) for rule in own] == [
        ([""], ["pods"], ["get", "list", "watch"], None)
    ]


def test_it_lists_and_watches_the_pods_of_a_node(as_collector, cluster, pod):
    selector = f"spec.nodeName={cluster.node}"
    listed = as_collector.list_pod_for_all_namespaces(field_selector=selector)
    assert pod in [one.metadata.name for one in listed.items]
    stream = watch.Watch().stream(
        as_collector.list_pod_for_all_namespaces,
        field_selector=selector,
        resource_version=listed.metadata.resource_version,
        timeout_seconds=60,
    )
    cluster.set_labels(pod, {"seen": "yes"})
    assert next(event["object"].metadata.labels for event in stream) == {"seen": "yes"}


FORBIDDEN = {
    "delete a pod": lambda core, space, pod: core.delete_namespaced_pod(pod, space),
    "delete all pods": lambda core, space, pod: core.delete_collection_namespaced_pod(space),
    "evict a pod": lambda core, space, pod: core.create_namespaced_pod_eviction(
        pod, space, {"metadata": {"name": pod, "namespace": space}}
    ),
    "create a pod": lambda core, space, pod: core.create_namespaced_pod(
        space, {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    ),
    "change a pod": lambda core, space, pod: core.patch_namespaced_pod(
        pod, space, {"metadata": {"labels": {"a": "b"}}}
    ),
    "change a pod's status": lambda core, space, pod: core.patch_namespaced_pod_status(
        pod, space, {"status": {"phase": "Failed"}}
    ),
    "read a pod's log": lambda core, space, pod: core.read_namespaced_pod_log(pod, space),
    "read secrets": lambda core, space, pod: core.list_namespaced_secret(space),
    "read one secret": lambda core, space, pod: core.read_namespaced_secret("any", space),
    "read config maps": lambda core, space, pod: core.list_namespaced_config_map(space),
    "read nodes": lambda core, space, pod: core.list_node(),
    "ask for a token": lambda core, space, pod: core.create_namespaced_service_account_token(
        "default", space, {"spec": {}}
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_it_may_not(what, as_collector, cluster, pod):
    with pytest.raises(ApiException) as refused:
        FORBIDDEN[what](as_collector, cluster.namespace, pod)
    assert refused.value.status == 403
