"""Every overlay over every other at a real API server, as somebody who moves from one to another applies them.

`kubectl` renders them, the server judges: nothing that is there keeps the next one out. The objects get names and a
namespace of our own, so that an installation beside us is not touched.
"""

import os
import re
import shutil
import subprocess
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.kube.cluster import opened
from tests.kube.install import CLUSTER_WIDE

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SAME_AS_BASE = "overlays/systemd"
OVERLAYS = ("kubernetes", *sorted(f"overlays/{path.name}" for path in (DEPLOY / "overlays").iterdir()))
DIFFERENT = [overlay for overlay in OVERLAYS if overlay != SAME_AS_BASE]
DEMO = "trimtab-demo"


@pytest.fixture(scope="module")
def kubectl():
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl on PATH, which renders the overlays")
    return found


@pytest.fixture(scope="module")
def rendered(kubectl) -> dict[str, list[dict[str, Any]]]:
    """Each overlay's objects, but those of the test workloads."""
    found = {}
    for overlay in OVERLAYS:
        argv = [kubectl, "kustomize", str(DEPLOY / overlay)]
        said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        found[overlay] = [
            one
            for one in yaml.safe_load_all(said.stdout)
            if one["kind"] != "Namespace" and one["metadata"].get("namespace") != DEMO
        ]
    return found


def ours(given: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """The objects under names of our own, and on no node."""
    found = deepcopy(given)
    for one in found:
        if one["kind"] in CLUSTER_WIDE:
            one["metadata"]["name"] += f"-{namespace}"
        else:
            one["metadata"]["namespace"] = namespace
        if one["kind"] == "ClusterRoleBinding":
            one["roleRef"]["name"] += f"-{namespace}"
        if (template := one.get("spec", {}).get("template")) is not None:
            template["spec"]["priorityClassName"] += f"-{namespace}"
            template["spec"]["nodeSelector"] = {"trimtab.dev/no-such-node": namespace}
    return found


def test_the_systemd_overlay_is_the_base_itself(rendered):
    assert rendered[SAME_AS_BASE] == rendered["kubernetes"]


def test_the_folder_of_one_s_own_in_the_docs_is_secured_cgroupfs_and_persistent(kubectl, tmp_path):
    text = (DEPLOY.parent / "docs/kubernetes.md").read_text()
    (example,) = re.findall(r"## A folder of your own.*?```yaml\n(.*?)```", text, re.DOTALL)
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    mine = tmp_path / "deploy/overlays/mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(example)
    shutil.copy(DEPLOY / "overlays/persistent/volume.yaml", mine)
    argv = [kubectl, "kustomize", str(mine)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(said.stdout)}
    agent = found["DaemonSet", "trimtab"]["spec"]["template"]["spec"]
    server = found["StatefulSet", "trimtab-nats"]["spec"]["template"]["spec"]
    volumes = {volume.pop("name"): volume for volume in (*agent["volumes"], *server["volumes"])}
    assert volumes["pods-root"] == {"hostPath": {"path": "/sys/fs/cgroup/kubepods", "type": "Directory"}}
    assert volumes["data"] == {"persistentVolumeClaim": {"claimName": "trimtab-nats"}}
    assert "nats-guard" in volumes
    assert ("PersistentVolumeClaim", "trimtab-nats") in found
    containers = {one["name"]: one for one in agent["containers"]}
    assert containers["guard"]["image"] == "registry.example/trimtab/guard:1"
    assert containers["collector"]["resources"]["requests"] == {"cpu": "100m", "memory": "96Mi"}


@pytest.mark.parametrize(("first", "second"), list(permutations(DIFFERENT, 2)))
def test_one_overlay_is_applied_over_another(first, second, cluster, kubectl, rendered):
    def apply(objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        text = yaml.safe_dump_all(objects)
        argv = [kubectl, *access, "apply", "-f", "-"]
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=120)

    access = ["--kubeconfig", os.environ["KUBECONFIG"]]
    with opened(cluster.api) as own:
        objects = {overlay: ours(rendered[overlay], own.namespace) for overlay in (first, second)}
        try:
            before, after = apply(objects[first]), apply(objects[second])
            assert before.returncode == 0, before.stderr
            assert after.returncode == 0, after.stderr
            daemon_set = client.AppsV1Api(cluster.api).read_namespaced_daemon_set("trimtab", own.namespace)
            wanted = next(one for one in objects[second] if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
            spec = daemon_set.spec.template.spec
            assert spec.priority_class_name == wanted["priorityClassName"]
            assert {volume.name for volume in spec.volumes} == {volume["name"] for volume in wanted["volumes"]}
        finally:
            wide = [one for objs in objects.values() for one in objs if one["kind"] in CLUSTER_WIDE]
            for kind, name in sorted({(one["kind"].lower(), one["metadata"]["name"]) for one in wide}):
                argv = [kubectl, *access, "delete", kind, name, "--ignore-not-found", "--wait=false"]
                subprocess.run(argv, capture_output=True, check=True, timeout=60)
