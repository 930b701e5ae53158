"""From one pod object of the Kubernetes API, as plain JSON values, to what the loop needs of it.

Nothing outside is trusted: lengths, counts and types are checked, and what does not fit is an OddPod, which costs that
pod alone. Null stands for "none" everywhere.
"""

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, cast

from hostfs.pods import Qos
from services.collector.core.targets import METRIC, PATH, PORT, SCHEME, SCRAPE, UNIT
from services.collector.core.workload import EXCLUDE, FINISHED, OBJECTIVE, PENDING, TERMINATING, Workload

MIRROR: Final = "kubernetes.io/config.mirror"
CONFIG_HASH: Final = "kubernetes.io/config.hash"

_NEEDED: Final = frozenset({SCRAPE, SCHEME, PORT, PATH, METRIC, UNIT, EXCLUDE, OBJECTIVE, MIRROR, CONFIG_HASH})
"""The annotations that are kept; others may be a quarter of a MiB a pod."""

_QOS: Final = frozenset({"Guaranteed", "Burstable", "BestEffort"})
_OVER: Final = frozenset({"Succeeded", "Failed"})
_MAX_UID: Final = 128
_MAX_NAME: Final = 253
_MAX_KEY: Final = 317
_MAX_VALUE: Final = 4096
_MAX_TEXTS_SIZE: Final = 1 << 16
_MAX_CONTAINERS: Final = 256
_MAX_PORTS: Final = 256
_MAX_PORT: Final = 65535


class OddPod(ValueError):
    """A pod object that is not shaped like one."""


class Place(Protocol):
    """Where a pod is on this node."""

    @property
    def group(self) -> str:
        """The pod-level group below the pods root."""
        ...

    @property
    def skip(self) -> str | None:
        """Why its weight means nothing, if so."""
        ...


@dataclass(frozen=True, slots=True)
class KubePod:
    """One pod. `static_uid` is what the kubelet calls a static pod, whose mirror in the API has a uid of its own; its
    groups bear the former. `containers` are ids without the runtime's name. `workload` is made without a group.
    """

    uid: str
    static_uid: str | None
    name: str
    namespace: str
    phase: str
    is_terminating: bool
    host_network: bool
    qos: Qos | None
    containers: tuple[str, ...]
    workload: Workload


@dataclass(frozen=True, slots=True)
class Placed:
    """The pods that have a group, and the names of those that should have one."""

    workloads: tuple[Workload, ...]
    missing: tuple[str, ...]


def identity(obj: object) -> tuple[str | None, str | None]:
    """The uid and the resourceVersion of any object, None where it has none."""
    meta = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(meta, Mapping):
        return None, None
    return _short(meta.get("uid")), _short(meta.get("resourceVersion"))


def node_of(obj: object) -> str | None:
    """The node that a pod object says it is bound to, None where it says none."""
    spec = obj.get("spec") if isinstance(obj, Mapping) else None
    node = spec.get("nodeName") if isinstance(spec, Mapping) else None
    return node if isinstance(node, str) and node else None


def kube_pod(obj: object, label_keys: Collection[str] | None = None) -> KubePod:
    """What we need of a pod object, with the labels of these keys (None: all). Raises OddPod."""
    top = _mapping(obj, "the pod")
    meta = _mapping(top.get("metadata"), "metadata")
    spec = _mapping(top.get("spec"), "spec")
    status = _mapping(top.get("status"), "status")
    uid, _ = identity(obj)
    if uid is None:
        raise OddPod("metadata.uid is missing")
    name = _text(meta.get("name"), "metadata.name", _MAX_NAME) or uid
    namespace = _text(meta.get("namespace"), "metadata.namespace", _MAX_NAME)
    annotations = _texts(meta.get("annotations"), "metadata.annotations", _NEEDED)
    phase = _text(status.get("phase"), "status.phase", _MAX_NAME)
    host_network = spec.get("hostNetwork") is True
    containers = _container_ids(status)
    is_terminating = meta.get("deletionTimestamp") is not None
    mirror = annotations.get(MIRROR)
    skip: str | None
    if phase in _OVER:
        skip = FINISHED
    elif is_terminating:
        skip = TERMINATING
    else:
        skip = PENDING if phase == "Pending" and not containers else None
    qos = status.get("qosClass")
    workload = Workload(
        uid=uid,
        name=f"{namespace}/{name}" if namespace else name,
        group="",
        labels=_texts(meta.get("labels"), "metadata.labels", label_keys),
        # A pod that is over keeps an address in the API that may be another's by now: nothing leads to it from here.
        annotations=annotations if skip is None else {},
        address=_address(status, host_network=host_network) if skip is None else None,
        ports=_ports(spec) if skip is None else (),
        namespace=namespace,
        skip=skip,
    )
    return KubePod(
        uid=uid,
        static_uid=(annotations.get(CONFIG_HASH) or mirror).lower() if mirror else None,
        name=name,
        namespace=namespace,
        phase=phase,
        is_terminating=is_terminating,
        host_network=host_network,
        qos=cast("Qos", qos) if isinstance(qos, str) and qos in _QOS else None,
        containers=containers,
        workload=workload,
    )


def place(pods: Iterable[KubePod], places: Mapping[str, Place]) -> Placed:
    """Each pod with its group. A pod whose group is not there is not there either; it is missing if it should run.

    A group belongs to the pod that has its uid. Only where there is none it belongs to the mirror of a static pod that
    claims it, since annotations are anybody's to write; of several that do, to none.
    """
    pods = tuple(pods)
    own = {pod.uid: found for pod in pods if (found := places.get(pod.uid.lower())) is not None}
    taken = {found.group for found in own.values()}
    claims: dict[str, list[str]] = {}
    for pod in pods:
        claimed = places.get(pod.static_uid) if pod.static_uid and pod.uid not in own else None
        if claimed is not None and claimed.group not in taken:
            claims.setdefault(claimed.group, []).append(pod.uid)
            own[pod.uid] = claimed
    for rivals in claims.values():
        for uid in rivals if len(rivals) > 1 else ():
            del own[uid]
    workloads: list[Workload] = []
    missing: list[str] = []
    for pod in pods:
        found = own.get(pod.uid)
        if found is not None:
            workloads.append(replace(pod.workload, group=found.group, skip=pod.workload.skip or found.skip))
        elif pod.workload.skip is None:
            missing.append(pod.workload.name)
    return Placed(tuple(workloads), tuple(missing))


def _container_ids(status: Mapping[str, object]) -> tuple[str, ...]:
    found = []
    for seen in _list(status.get("containerStatuses"), "status.containerStatuses", _MAX_CONTAINERS):
        text = _text(_mapping(seen, "a container's status").get("containerID"), "containerID", _MAX_NAME)
        if name := text.rpartition("://")[2]:
            found.append(name)
    return tuple(found)


def _address(status: Mapping[str, object], *, host_network: bool) -> str | None:
    """The pod's IP, IPv4 or IPv6; on the host's network the node's."""
    for text in (status.get("podIP"), status.get("hostIP") if host_network else None):
        if isinstance(text, str) and len(text) <= _MAX_NAME:
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                continue
            if not (isinstance(address, ipaddress.IPv6Address) and address.scope_id):
                return str(address)
    return None


def _ports(spec: Mapping[str, object]) -> tuple[int, ...]:
    """The TCP ports that its containers declare, sidecars among the init containers included."""
    found: list[int] = []
    for field in ("containers", "initContainers"):
        for entry in _list(spec.get(field), f"spec.{field}", _MAX_CONTAINERS):
            container = _mapping(entry, f"an entry of spec.{field}")
            if field == "initContainers" and container.get("restartPolicy") != "Always":
                continue
            for port in _list(container.get("ports"), "a container's ports", _MAX_PORTS):
                declared = _mapping(port, "a container's port")
                number = declared.get("containerPort")
                if declared.get("protocol") in (None, "TCP") and type(number) is int and 0 < number <= _MAX_PORT:
                    found.append(number)
    return tuple(dict.fromkeys(found))


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OddPod(f"{where} is no object")
    return value


def _list(value: object, where: str, most: int) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise OddPod(f"{where} is no list")
    return value[:most]


def _texts(value: object, where: str, keys: Collection[str] | None) -> dict[str, str]:
    """The texts of these keys, None: of all; together no more than a bounded number of characters."""
    told = _mapping(value, where)
    found: dict[str, str] = {}
    size = 0
    for key in told if keys is None else keys:
        if isinstance(key, str) and key in told:
            found[_text(key, where, _MAX_KEY)] = text = _text(told[key], where, _MAX_VALUE)
            size += len(key) + len(text)
        if size > _MAX_TEXTS_SIZE:
            raise OddPod(f"{where} has more than {_MAX_TEXTS_SIZE >> 10} KiB of text")
    return found


def _text(value: object, where: str, most: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most:
        raise OddPod(f"{where} is no text of at most {most} characters")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise OddPod(f"{where} holds half a surrogate pair") from error
    return value


def _short(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_UID or not value.isprintable():
        return None
    return value
