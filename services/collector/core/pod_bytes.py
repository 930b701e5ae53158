"""From the API's bytes to plain values: of a pod only the fields that are used, straight from the text.

A pod may be 1.5 MiB of fields that nobody here needs, dense ones twenty times that as Python objects. What is skipped
costs neither memory nor the interpreter's lock for long. Where a field is not shaped as the API writes it, that object
is read whole, so that what is odd about it can be said.
"""

from collections.abc import Mapping
from typing import Final, TypedDict

import msgspec

OF_PODS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
"""Kinds of events whose object is a pod, or hardly anything."""


class _Port(TypedDict, total=False):
    containerPort: object
    protocol: object


class _Container(TypedDict, total=False):
    ports: list[_Port | None] | None
    restartPolicy: object


class _ContainerStatus(TypedDict, total=False):
    containerID: object


class _Metadata(TypedDict, total=False):
    name: object
    namespace: object
    uid: object
    resourceVersion: object
    deletionTimestamp: object
    labels: object
    annotations: object


class _Spec(TypedDict, total=False):
    nodeName: object
    hostNetwork: object
    containers: list[_Container | None] | None
    initContainers: list[_Container | None] | None


class _Status(TypedDict, total=False):
    phase: object
    podIP: object
    hostIP: object
    qosClass: object
    containerStatuses: list[_ContainerStatus | None] | None


class _Pod(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _Spec | None
    status: _Status | None


_ListMetadata = TypedDict("_ListMetadata", {"resourceVersion": object, "continue": object}, total=False)


class _Page(TypedDict, total=False):
    metadata: _ListMetadata | None
    items: list[msgspec.Raw] | None


class _Event(TypedDict, total=False):
    type: object
    object: msgspec.Raw


class ListPage(msgspec.Struct, frozen=True):
    """One answer to a list: the list's `metadata`, its pods as they came, and where the rest of them is asked for."""

    metadata: Mapping[str, object]
    items: list[msgspec.Raw]
    rest: str | None


_PAGE: Final = msgspec.json.Decoder(_Page)
_EVENT: Final = msgspec.json.Decoder(_Event)
_POD: Final = msgspec.json.Decoder(_Pod)


def list_page(body: bytes | bytearray) -> ListPage:
    """What a list's answer holds; its pods are views on `body`. Raises ValueError for what is no list of pods, and
    RecursionError.
    """
    try:
        page = _PAGE.decode(body)
    except msgspec.ValidationError as error:
        raise ValueError("the answer is no list of pods") from error
    if "items" not in page:
        raise ValueError("the answer is no list of pods")
    metadata = page.get("metadata") or {}
    rest = metadata.get("continue")
    return ListPage(metadata, page["items"] or [], rest if isinstance(rest, str) and rest else None)


def listed_pod(raw: msgspec.Raw) -> object:
    """One pod of a list, None for text that cannot be read: it costs that pod alone."""
    try:
        return _pod(raw)
    except (ValueError, RecursionError):
        return None


def watch_event(line: bytes) -> object:
    """One line of a watch. Raises ValueError for what is no JSON, and RecursionError."""
    try:
        event = _EVENT.decode(line)
    except msgspec.ValidationError:
        return msgspec.json.decode(line)
    kind, raw = event.get("type"), event.get("object")
    if raw is None:
        return {"type": kind}
    is_of_pod = isinstance(kind, str) and kind in OF_PODS
    return {"type": kind, "object": _pod(raw) if is_of_pod else msgspec.json.decode(raw)}


def _pod(raw: msgspec.Raw) -> object:
    try:
        return _POD.decode(raw)
    except msgspec.ValidationError:
        return msgspec.json.decode(raw)
