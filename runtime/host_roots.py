"""Where on this node the pods' groups are: settings first, else found, and refused when it cannot be."""

import os
from dataclasses import dataclass

from hostfs.cgroup import CgroupTree
from hostfs.mounts import detect
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


def find_roots(settings: HostSettings) -> HostRoots:
    """The roots. Raises HostError, with the way out, where the cpu controller or the pods root is missing."""
    root, read_only = settings.cgroup_root, None
    if not settings.simulated:
        host = detect("/proc", settings.cgroup_root)
        if host.root is None:
            raise HostError(f"host.cgroup_root: {host.reason}. {host.remedy}")
        root = settings.cgroup_root or host.root
        read_only = host.reason if host.read_only else None
    if root is None:
        raise HostError("host.cgroup_root: a simulated node needs it; set it to the directory that the node wrote")
    tree = CgroupTree(root)
    pods_root = settings.pods_root or find_pods_root("", tree.children)
    if pods_root is None:
        raise HostError(
            f"host.pods_root: no kubepods group below {root}; start the kubelet, or set host.pods_root to the group "
            f"that holds the pods"
        )
    if not os.path.isdir(os.path.join(root, pods_root)):
        raise HostError(f"host.pods_root: {pods_root!r} does not exist below {root}; check the name with `ls {root}`")
    return HostRoots(root, pods_root, settings.proc_root, read_only)
