"""A cluster under test, through the official client: a namespace and a node of our own, pods in them, accounts, and
waits that follow the API instead of asking again and again.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
ACCESS_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WAIT_SECONDS = float(os.environ.get("TRIMTAB_TEST_WAIT_SECONDS", "180"))
"""How long anything that a cluster must do is waited for. Generous: it may be a slow guest on a busy machine."""


class NoCluster(Exception):
    """Why there is no cluster to test with."""


def connect(environment: Mapping[str, str] = os.environ) -> client.ApiClient:
    """The cluster that KUBECONFIG names. Raises NoCluster."""
    path = environment.get("KUBECONFIG", "")
    if not path:
        raise NoCluster("KUBECONFIG is not set; name the kubeconfig file of a cluster that may be tested with")
    configuration = client.Configuration()
    configuration.retries = False
    try:
        config.load_kube_config(path, client_configuration=configuration, persist_config=False)
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise NoCluster(f"KUBECONFIG {path} cannot be used: {error}") from error
    api = client.ApiClient(configuration)
    try:
        client.VersionApi(api).get_code(_request_timeout=10)
    except (HTTPError, ApiException, OSError) as error:
        raise NoCluster(f"KUBECONFIG {path}: {configuration.host} does not answer: {error}") from error
    return api


@dataclass
class Cluster:
    """One cluster. `namespace` is ours and goes with us; `node` is a Node object of ours that no kubelet knows."""

    api: client.ApiClient
    namespace: str = field(default_factory=lambda: f"trimtab-test-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.api)
        self.apps = client.AppsV1Api(self.api)
        self.rbac = client.RbacAuthorizationV1Api(self.api)
        self.scheduling = client.SchedulingV1Api(self.api)
        self._undo: list[Callable[[], object]] = []

    @property
    def node(self) -> str:
        return self.namespace

    def open(self) -> None:
        """Makes the namespace and the node."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        self.core.create_namespace({"metadata": {"name": self.namespace, "labels": labels}})
        self._undo.append(self._remove_namespace)
        self.core.create_node({"metadata": {"name": self.node}, "spec": {"unschedulable": True}})
        self._undo.append(lambda: self.core.delete_node(self.node))

    def close(self) -> None:
        """Removes everything that `open` and `apply_access` made."""
        failures = []
        for undo in reversed(self._undo):
            try:
                undo()
            except ApiException as error:
                if error.status != 404:
                    failures.append(str(error))
        assert not failures, failures

    def gone(self, delete: Callable[[str], object], name: str) -> None:
        """Deletes an object that may be gone already."""
        try:
            delete(name)
        except ApiException as error:
            if error.status != 404:
                raise

    # ---- pods on the node that has no kubelet: these tests play it ----

    def add_pod(self, name: str, labels: Mapping[str, str] | None = None, **meta: Any) -> Any:
        """A pod that is bound to our node and that nobody runs."""
        body = {
            "metadata": {"name": name, "labels": dict(labels or {}), **meta},
            "spec": {
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 30,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "main",
                        "image": "localhost/none:none",
                        "resources": {"requests": {"cpu": "100m"}},
                        "ports": [{"containerPort": 9102}],
                    }
                ],
            },
        }
        return self.core.create_namespaced_pod(self.namespace, body)

    def set_status(self, name: str, **status: Any) -> None:
        self.core.patch_namespaced_pod_status(name, self.namespace, {"status": status})

    def set_labels(self, name: str, labels: Mapping[str, str | None]) -> None:
        self.core.patch_namespaced_pod(name, self.namespace, {"metadata": {"labels": dict(labels)}})

    def delete_pod(self, name: str, grace_seconds: int = 0) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=grace_seconds)

    # ---- the account of the manifests ----

    def apply_access(self) -> str:
        """Makes the account and the rights of deploy/kubernetes under names of our own; the account's name.

        Names that the whole cluster shares get our namespace's name, so that an installation beside us is not touched.
        """
        objects = [one for one in manifests() if one["kind"] in ACCESS_KINDS]
        accounts = [one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"]
        bound = {subject["name"] for one in objects for subject in one.get("subjects", ())}
        (account,) = [name for name in accounts if name in bound]
        for one in objects:
            self._apply_access_object(one)
        return account

    def _apply_access_object(self, one: dict[str, Any]) -> None:
        kind, meta = one["kind"], one["metadata"]
        for subject in one.get("subjects", ()):
            subject["namespace"] = self.namespace
        if kind in ("ClusterRole", "ClusterRoleBinding"):
            meta["name"] = f"{self.namespace}-{meta['name']}"
        if one.get("roleRef", {}).get("kind") == "ClusterRole":
            one["roleRef"]["name"] = f"{self.namespace}-{one['roleRef']['name']}"
        meta.pop("namespace", None)
        if kind == "ServiceAccount":
            self.core.create_namespaced_service_account(self.namespace, one)
            self._undo.append(lambda: self.core.delete_namespaced_service_account(meta["name"], self.namespace))
        elif kind == "ClusterRole":
            self.rbac.create_cluster_role(one)
            self._undo.append(lambda: self.rbac.delete_cluster_role(meta["name"]))
        elif kind == "ClusterRoleBinding":
            self.rbac.create_cluster_role_binding(one)
            self._undo.append(lambda: self.rbac.delete_cluster_role_binding(meta["name"]))
        elif kind == "Role":
            self.rbac.create_namespaced_role(self.namespace, one)
        else:
            self.rbac.create_namespaced_role_binding(self.namespace, one)

    def kubeconfig_of(self, account: str, folder: Path) -> Path:
        """A kubeconfig file with a fresh token of a service account in our namespace."""
        asked = {"spec": {"expirationSeconds": 3600}}
        token = self.core.create_namespaced_service_account_token(account, self.namespace, asked).status.token
        current = self.api.configuration
        cluster = {"server": current.host}
        if current.ssl_ca_cert:
            cluster["certificate-authority"] = current.ssl_ca_cert
        path = folder / "kubeconfig"
        tree = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "account", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "account"}}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(tree))
        path.chmod(0o600)
        return path

    # ---- waits ----

    def until(self, listing: Callable[..., Any], claim: Callable[[dict[str, Any]], bool], **selection: Any) -> None:
        """Follows a list until the claim holds of its objects, by name. `listing` is a list function of the client."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            listed = listing(**selection)
            seen = {one.metadata.name: one for one in listed.items}
            if claim(seen):
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"never came true within {WAIT_SECONDS:g} s; last seen: {_brief(seen)}")
            version = listed.metadata.resource_version
            events = watch.Watch().stream(
                listing, resource_version=version, timeout_seconds=max(1, round(min(left, 60))), **selection
            )
            try:
                for event in events:
                    name = event["object"].metadata.name
                    if event["type"] == "DELETED":
                        seen.pop(name, None)
                    else:
                        seen[name] = event["object"]
                    if claim(seen):
                        return
            except ApiException as error:
                if error.status != 410:
                    raise

    def _remove_namespace(self) -> None:
        pods = self.core.list_namespaced_pod(self.namespace).items
        for pod in pods:
            if pod.spec.node_name == self.node:
                self.delete_pod(pod.metadata.name)
        name = self.namespace
        self.core.delete_namespace(name)
        if not self.has_controllers():  # else nobody takes the finalizer away
            self.core.replace_namespace_finalize(name, {"metadata": {"name": name}, "spec": {"finalizers": []}})
        self.until(self.core.list_namespace, lambda seen: not seen, field_selector=f"metadata.name={name}")

    def has_controllers(self) -> bool:
        """Whether a controller manager runs: it makes the default namespace's default account."""
        accounts = self.core.list_namespaced_service_account("default").items
        return any(account.metadata.name == "default" for account in accounts)


@contextmanager
def opened(api: client.ApiClient) -> Iterator[Cluster]:
    """A cluster with our namespace and node in it; both are gone afterwards."""
    cluster = Cluster(api)
    try:
        cluster.open()
        yield cluster
    finally:
        cluster.close()


def manifests() -> list[dict[str, Any]]:
    """All objects of deploy/kubernetes, in its order: pods must find what they name, and the bus's Service, when they
    start.
    """
    files = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    return [one for name in files for one in yaml.safe_load_all((MANIFESTS / name).read_text())]


def _brief(seen: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {getattr(one.status, 'phase', None)}" for name, one in seen.items()]
