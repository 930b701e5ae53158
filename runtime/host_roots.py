"""Where on this node the pods' groups are: settings first, else found, and refused when it cannot be."""

import os
from dataclasses import dataclass

from hostfs.cgroup import CgroupTree
from hostfs.mounts import CgroupHost, detect
from hostfs.pods import find_pods_root
from runtime.errors import HostError
from runtime.settings import HostSettings


@dataclass(frozen=True)
class HostRoots:
    """`cgroup_root` is a folder, `pods_root` a group below it. `read_only` says why nothing can be written, if so."""

    cgroup_root: str
    pods_root: str
    proc_root: str
    read_only: str | None = None


def find_roots(settings: HostSettings, own_proc: str = "/proc") -> HostRoots:
    """The roots. Raises HostError, with the way out, where the cpu controller or the pods root is missing.

    Mounts are this process's own, so its own proc tells of them. What counts is where the pods are: their group may be
    a mount of its own, writable below a tree that is not, or below a folder that is no cgroup at all.
    """
    if settings.simulated:
        if settings.cgroup_root is None:
            raise HostError("host.cgroup_root: a simulated node needs it; set it to the directory that the node wrote")
        return HostRoots(settings.cgroup_root, _pods_root(settings, settings.cgroup_root), settings.proc_root)
    host = detect(own_proc, settings.cgroup_root)
    if host.root is None and settings.cgroup_root is None:
        raise _refused(host)
    root = settings.cgroup_root or str(host.root)
    try:
        pods_root = _pods_root(settings, root)
    except HostError:
        if host.root is None:
            raise _refused(host) from None
        raise
    pods = detect(own_proc, os.path.join(root, pods_root))
    if host.root is None and pods.root is None:
        raise _refused(pods)
    return HostRoots(root, pods_root, settings.proc_root, pods.reason if pods.read_only else None)


def _pods_root(settings: HostSettings, root: str) -> str:
    tree = CgroupTree(root)
    pods_root = settings.pods_root or find_pods_root("", tree.children, tree.is_populated)
    if pods_root is None:
        raise HostError(
            f"host.pods_root: no kubepods group below {root}; start the kubelet, or set host.pods_root to the group "
            f"that holds the pods"
        )
    if not os.path.isdir(os.path.join(root, pods_root)):
        raise HostError(f"host.pods_root: {pods_root!r} does not exist below {root}; check the name with `ls {root}`")
    return pods_root


def _refused(host: CgroupHost) -> HostError:
    return HostError(f"host.cgroup_root: {host.reason}. {host.remedy}")
