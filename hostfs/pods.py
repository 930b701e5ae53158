"""Which cgroup is which pod: the path forms of the two cgroup drivers, and where the pods' tree begins."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Qos: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]

MAX_ROOT_DEPTH: Final = 10
"""How deep a pods root is searched for. A node of rootless Podman has it at 8: `user.slice/user-1000.slice/
user@1000.service/user.slice/libpod-<id>.scope/container/kubelet.slice/kubelet-kubepods.slice`."""

MAX_ROOT_FOLDERS: Final = 4096
"""Most folders listed in that search, nearest to the root first."""

_QOS: Final[dict[str | None, Qos]] = {None: "Guaranteed", "burstable": "Burstable", "besteffort": "BestEffort"}

_ROOT: Final = re.compile(r"kubepods|(?:[^/]+-)?kubepods\.slice")
# A UID is a UUID or, for a static pod, the hash of its manifest. systemd reads "-" in a slice's name as nesting, so
# that driver writes "_" instead.
_DASHED: Final = re.compile(r"pod([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32})")
_SLICE: Final = re.compile(
    r"(?:[^/:]+-)?kubepods(?:-(?P<qos>burstable|besteffort))?"
    r"-pod(?P<uid>[0-9A-Fa-f]{8}(?:_[0-9A-Fa-f]{4}){3}_[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32})\.slice"
    r"(?::[^:]+:(?P<container>[0-9A-Fa-f]{64}))?"
)
_QOS_GROUP: Final = re.compile(r"(?:[^/]+-kubepods-|kubepods-)?(?:burstable|besteffort)(?:\.slice)?")
_ABOVE_DASHED: Final = frozenset({"kubepods", "burstable", "besteffort"})
_CONTAINER: Final = re.compile(r"(?:(?P<runtime>.+)-)?(?P<id>[0-9A-Fa-f]{64})(?:\.scope)?")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The pod that a cgroup path belongs to, and the container in it, if the path names one."""

    uid: str
    qos: Qos
    container: str | None = None


def parse_pod_group(path: str) -> PodGroup | None:
    """The pod of a cgroup path, absolute or relative to the pods root or above, or None if it is not a pod's.

    Guaranteed pods have no QoS folder. A node in a container puts its own id in front, so only what follows the pod can
    be a container; the outermost pod counts. A monitor process's group (conmon) is no container. The colon form
    `<slice>:<runtime>:<id>` is what a runtime with the cgroupfs driver makes of a systemd name.
    """
    parts = path.split("/")
    for index, part in enumerate(parts):
        if (sliced := _SLICE.fullmatch(part)) is not None:
            container = sliced["container"] or _container_below(parts, index)
            return PodGroup(sliced["uid"].replace("_", "-"), _QOS[sliced["qos"]], container)
        above = parts[index - 1] if index else "kubepods"
        if above in _ABOVE_DASHED and (dashed := _DASHED.fullmatch(part)) is not None:
            return PodGroup(dashed[1], _QOS.get(above, "Guaranteed"), _container_below(parts, index))
    return None


def container_id(name: str) -> str | None:
    """The container whose group directly below its pod's has this name; None for a monitor process's, and any other."""
    match = _CONTAINER.fullmatch(name)
    return None if match is None or (match["runtime"] or "").endswith("conmon") else match["id"]


def find_pods_root(
    root: str,
    children: Callable[[str], Iterable[str]],
    is_populated: Callable[[str], bool | None] | None = None,
) -> str | None:
    """The group below `root` that holds the pods, or None: the first of `pods_roots`."""
    return next(iter(pods_roots(root, children, is_populated)), None)


def pods_roots(
    root: str,
    children: Callable[[str], Iterable[str]],
    is_populated: Callable[[str], bool | None] | None = None,
) -> tuple[str, ...]:
    """The groups below `root` of which each may be the one that holds the pods, the nearest first. `children(group)`
    are the groups directly below a group, `is_populated(group)` whether any process is in it or below it, None if that
    is not known.

    They are searched for by name, breadth first: `kubepods.slice`, `kubepods`, and both below the kubelet's own cgroup
    root. A change of the cgroup driver leaves an old one behind, empty or with empty pods' groups: so where any holds a
    pod and is populated it is one of those, else one that holds a pod, else the first. More than one: several kubelets
    run here, and only who knows their pods can tell which is meant.
    """
    found: list[str] = []
    level, left = [root], MAX_ROOT_FOLDERS
    for _ in range(MAX_ROOT_DEPTH):
        below = [child for group in level[: max(0, left)] for child in children(group)]
        left -= len(level)
        found += [group for group in below if _ROOT.fullmatch(_name(group))]
        level = [group for group in below if not _ROOT.fullmatch(_name(group))]
    if len(found) > 1:
        holding = [group for group in found if _holds_pod(group, children)]
        running = [group for group in holding if is_populated(group)] if is_populated is not None else []
        found = running or holding or found[:1]
    return tuple(found)


def _holds_pod(group: str, children: Callable[[str], Iterable[str]]) -> bool:
    below = list(children(group))
    in_qos = [pod for child in below if _QOS_GROUP.fullmatch(_name(child)) for pod in children(child)]
    return any(parse_pod_group(_name(child)) is not None for child in below + in_qos)


def _container_below(parts: list[str], index: int) -> str | None:
    return container_id(parts[index + 1]) if index + 1 < len(parts) else None


def _name(group: str) -> str:
    return group.rpartition("/")[2]
