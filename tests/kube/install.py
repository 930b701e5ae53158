"""The manifests of deploy/kubernetes as a test installs them: in a namespace of our own, on one node, for our pods only.

Everything else is what people apply. Pure: objects in, objects out.
"""

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import yaml

from lab.rig import common_settings

CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "PriorityClass")
SERVICES = ("collector", "decider", "guard", "actuator", "rewarder")
BUS_SERVICE = "bus-for-the-test"


@dataclass(frozen=True)
class Images:
    """Where images come from: TRIMTAB_TEST_IMAGE with `{service}` for a service's name or `lab` (an image that has all
    of it needs none), and TRIMTAB_TEST_NATS_IMAGE if it is not the manifests' own.
    """

    pattern: str
    nats: str | None = None

    @classmethod
    def named(cls, environment: Mapping[str, str] = os.environ) -> "Images | None":
        pattern = environment.get("TRIMTAB_TEST_IMAGE")
        return cls(pattern, environment.get("TRIMTAB_TEST_NATS_IMAGE")) if pattern else None

    def of(self, service: str) -> str:
        return self.pattern.replace("{service}", service)

    def instead_of(self, image: str) -> str:
        name = image.partition(":")[0].rpartition("/")[2]
        if name in (*SERVICES, "lab"):
            return self.of(name)
        return self.nats if self.nats and name == "nats" else image


@dataclass(frozen=True)
class Place:
    """Where it is installed. `pods_root` is the node's path of the group that holds the pods."""

    namespace: str
    node: str
    pods_root: str
    tick_seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)


def settings_of(place: Place, shipped: Mapping[str, Any]) -> dict[str, Any]:
    """The shipped settings with a short tick, and with eyes for our pods only."""
    short = common_settings(place.tick_seconds, 1)
    for name in ("node", "mode", "classes"):
        del short[name]
    ours = {"collector": {"include_namespaces": [place.namespace]}}
    merged = deepcopy(dict(shipped))
    for layer in (short, ours, dict(place.settings)):
        _merge(merged, layer)
    return merged


def installed(objects: Iterable[Mapping[str, Any]], images: Images, place: Place) -> list[dict[str, Any]]:
    """The objects to create, the namespace left out."""
    found = []
    for given in objects:
        one = deepcopy(dict(given))
        if one["kind"] == "Namespace":
            continue
        _rename(one, place.namespace)
        if one["kind"] == "ConfigMap" and "trimtab.yaml" in one["data"]:
            shipped = yaml.safe_load(one["data"]["trimtab.yaml"])
            one["data"]["trimtab.yaml"] = yaml.safe_dump(settings_of(place, shipped))
        if (template := one.get("spec", {}).get("template")) is not None:
            _settle_pod(template["spec"], images, place)
        found.append(one)
    return found


def bus_service(namespace: str) -> dict[str, Any]:
    """A way to the bus from outside the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": BUS_SERVICE, "namespace": namespace},
        "spec": {
            "type": "NodePort",
            "selector": {"app.kubernetes.io/name": "nats", "app.kubernetes.io/part-of": "trimtab"},
            "ports": [{"port": 4222, "targetPort": 4222, "protocol": "TCP"}],
        },
    }


def _rename(one: dict[str, Any], namespace: str) -> None:
    """Names that the whole cluster shares get our namespace's name: an installation beside us is not touched."""
    meta = one["metadata"]
    if one["kind"] in CLUSTER_WIDE:
        meta["name"] = f"{namespace}-{meta['name']}"
    else:
        meta["namespace"] = namespace
    if one.get("roleRef", {}).get("kind") == "ClusterRole":
        one["roleRef"]["name"] = f"{namespace}-{one['roleRef']['name']}"
    for subject in one.get("subjects", ()):
        subject["namespace"] = namespace


def _settle_pod(spec: dict[str, Any], images: Images, place: Place) -> None:
    if spec.get("priorityClassName") == "trimtab":
        spec["priorityClassName"] = f"{place.namespace}-trimtab"
    for container in spec["containers"]:
        container["image"] = images.instead_of(container["image"])
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "kubernetes.io/hostname": place.node}
    spec["tolerations"] = [{"operator": "Exists"}]
    for volume in spec.get("volumes", ()):
        if volume["name"] == "pods-root":
            volume["hostPath"]["path"] = place.pods_root
        elif volume["name"] == "journal":
            volume["hostPath"]["path"] = f"/run/{place.namespace}"  # in memory on every node: nothing is left behind


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
