"""Pod objects, lists and events as the Kubernetes API writes them."""

import json
from typing import Any

CLASS_LABEL = "trimtab.dev/workload-class"


def pod_object(
    name: str,
    uid: str | None = None,
    version: str | int = "1",
    cls: str | None = None,
    *,
    namespace: str = "shop",
    phase: str | None = "Running",
    **parts: Any,
) -> dict[str, Any]:
    """A pod; `parts` are merged into `metadata`, `spec` and `status`."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    if cls is not None:
        metadata["labels"] = {CLASS_LABEL: cls}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata | parts.get("metadata", {}),
        "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]} | parts.get("spec", {}),
        "status": {"phase": phase} | parts.get("status", {}),
    }


def pod_list(version: str | int, *pods: object) -> dict[str, Any]:
    """A list; in one the pods have no kind of their own."""
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version)},
        "items": [_without_kind(pod) for pod in pods],
    }


def _without_kind(pod: object) -> object:
    if not isinstance(pod, dict):
        return pod
    return {key: value for key, value in pod.items() if key not in ("kind", "apiVersion")}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    """One event of a watch."""
    return {"type": kind, "object": obj}


def bookmark(version: str | int) -> dict[str, Any]:
    """KW-04: an object that is hardly one."""
    metadata = {"resourceVersion": str(version)}
    spec = {"containers": None}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}})


def expired(code: int = 410, reason: str = "Expired") -> dict[str, Any]:
    """KW-01: the end of a watch, inside the stream."""
    message = "too old resource version: 500 (900)"
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return event("ERROR", {**status, "reason": reason, "code": code})


def line(obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps(obj).encode() + b"\n"
